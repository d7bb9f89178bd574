package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/muster-dev/muster/lab/machine"
)

// bootMachine is the first process of a machine before it has booted.
func bootMachine() error { return machine.Boot() }

// sweep removes what the machines of labs that were killed have left.
func sweep() error { return machine.Sweep() }

// initialize runs a machine as its first process: it starts the user data, as cloud-init
// does, and waits for whatever processes lose their parent. The machine ends with it.
func initialize() error {
	fmt.Println("lab: the machine has booted")
	console := []uintptr{0, 1, 2}
	script, err := syscall.ForkExec("/bin/bash", []string{"bash", machine.UserData}, &syscall.ProcAttr{Dir: "/", Env: os.Environ(), Files: console})
	if err != nil {
		return fmt.Errorf("running the user data: %w", err)
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case err == syscall.EINTR: //nolint:errorlint // a system call returns it as it is
		case err == syscall.ECHILD: //nolint:errorlint // as above
			select {} // a machine with nothing to do is up all the same
		case err != nil:
			return fmt.Errorf("waiting for processes: %w", err)
		case pid == script && status.ExitStatus() != 0:
			fmt.Printf("lab: the user data has failed: exit status %d\n", status.ExitStatus())
		}
	}
}
