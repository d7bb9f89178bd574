//go:build !linux

package network

import (
	"context"
	"errors"
	"net"
)

// Network can't be had on this operating system.
type Network struct{}

var errLinux = errors.New("a network of machines needs Linux")

// New says that there is no network here.
func New() (*Network, error) { return nil, errLinux }

// Close does nothing.
func (*Network) Close() error { return nil }

// Listen fails.
func (*Network) Listen(context.Context, string) (net.Listener, error) { return nil, errLinux }

// Dial fails.
func (*Network) Dial(context.Context, string, string) (net.Conn, error) { return nil, errLinux }
