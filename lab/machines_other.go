//go:build !linux

package main

import (
	"context"
	"errors"
)

var errLinux = errors.New("machines need Linux")

// machines can't be had on this operating system.
type machines struct{}

func startMachines(context.Context, *controlPlane, machineSettings) (*machines, error) {
	return nil, errLinux
}

func (*machines) close() error { return nil }

func bootMachine() error          { return errLinux }
func initialize() error           { return errLinux }
func relayKernelLog() error       { return errLinux }
func agent(context.Context) error { return errLinux }
func sweep() error                { return nil }
