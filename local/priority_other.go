//go:build !linux

package local

import "os/exec"

func StartLowPriority(cmd *exec.Cmd) error { return cmd.Start() }
