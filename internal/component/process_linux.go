package component

import (
	"os/exec"
	"runtime"
	"syscall"
)

// tether starts cmd as a child that the kernel kills when this process dies, however it dies, and calls then with the outcome of
// the start; then waits for the child. The kernel means the thread that started the child, so that one is kept until then is back.
func tether(cmd *exec.Cmd, then func(error)) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		then(cmd.Start())
	}()
}
