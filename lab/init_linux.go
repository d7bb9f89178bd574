package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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
	go relayKills(os.Stdout)
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

// relayKernelLog is relayKills on a machine whose first process is systemd, to its console.
func relayKernelLog() error {
	console, err := os.OpenFile("/dev/console", os.O_WRONLY|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	relayKills(console)
	return console.Close()
}

// relayKills writes to the console what the kernel logs when a process of this machine is
// killed because its memory is used up. A machine with a kernel of its own has the whole log
// there. The kernel names the cgroup in one message and the process in the one after it.
func relayKills(console io.Writer) {
	cgroup := os.Getenv(machine.CgroupVariable)
	if cgroup == "" {
		return
	}
	log, err := os.Open("/dev/kmsg")
	if err != nil {
		return // then the console has no kernel messages, as with some images
	}
	defer func() { _ = log.Close() }()
	if _, err := log.Seek(0, io.SeekEnd); err != nil {
		return
	}
	ours := false
	message := make([]byte, 8<<10)
	for {
		n, err := log.Read(message) // one message each time
		if errors.Is(err, syscall.EPIPE) {
			continue // messages were overwritten before they were read
		}
		if err != nil {
			return
		}
		_, text, _ := strings.Cut(string(message[:n]), ";")
		text, _, _ = strings.Cut(text, "\n")
		switch {
		case strings.HasPrefix(text, "oom-kill:"):
			ours = strings.Contains(text, "/"+cgroup+",") || strings.Contains(text, "/"+cgroup+"/")
		case ours && strings.Contains(text, "Killed process"):
			ours = false
			_, _ = fmt.Fprintln(console, text)
		}
	}
}
