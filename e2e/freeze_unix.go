//go:build unix

package e2e

import (
	"os"
	"syscall"
)

// freeze stops a process where it is; thaw lets it continue.
func freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }
func thaw(p *os.Process) error   { return p.Signal(syscall.SIGCONT) }
