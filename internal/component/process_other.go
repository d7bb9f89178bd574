//go:build !linux

package component

import "os/exec"

// tether starts cmd and calls then with the outcome of the start; then waits for the child. A child outlives a killed test here:
// only Linux can tie it to its parent.
func tether(cmd *exec.Cmd, then func(error)) {
	go func() { then(cmd.Start()) }()
}
