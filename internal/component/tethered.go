package component

import "os/exec"

// StartTethered starts cmd as a child that, on Linux, dies with this process however that dies, and waits for it. ended is
// closed when the child has ended; how is then in cmd.ProcessState.
func StartTethered(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	started, done := make(chan error, 1), make(chan struct{})
	tether(cmd, func(err error) {
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its state
		}
		close(done)
	})
	return done, <-started
}
