//go:build !linux

package scenario

import "os/exec"

func startYielding(cmd *exec.Cmd) error { return cmd.Start() }
