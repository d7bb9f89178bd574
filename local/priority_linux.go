package local

import (
	"os/exec"
	"runtime"
	"syscall"
)

// StartLowPriority starts a process with a lower priority than this one's, so that
// many defenders on one machine don't starve the one broker that all depend on,
// which lives in this process. On Linux priorities are the threads', and a child
// has that of the thread that starts it; the thread is used for nothing else and
// ends.
func StartLowPriority(cmd *exec.Cmd) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		_ = syscall.Setpriority(syscall.PRIO_PROCESS, syscall.Gettid(), 10)
		done <- cmd.Start()
	}()
	return <-done
}
