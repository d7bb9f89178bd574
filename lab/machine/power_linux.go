package machine

import (
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// power turns a machine on and off. The zero value is that of one that was never on.
type power struct {
	mu    sync.Mutex
	cmd   *exec.Cmd // its first process; nil: it was never on
	cut   bool      // it was turned off, and stays so
	reset bool      // it did not reboot when it was asked to, and was killed for that
}

var errOff = errors.New("its power was cut")

// on starts the first process, unless the power was cut, and returns its number.
func (p *power) on(start func() (*exec.Cmd, error)) (pid int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut {
		return 0, errOff
	}
	cmd, err := start()
	if err != nil {
		return 0, err
	}
	p.cmd, p.reset = cmd, false
	return cmd.Process.Pid, nil
}

// wait waits for the end of the first process, and reports whether it is to be started
// again. The kernel ends the first process of a PID namespace with SIGHUP when a process in
// it has called reboot(2) to restart.
func (p *power) wait() (again bool) {
	p.mu.Lock()
	cmd := p.cmd
	p.mu.Unlock()
	_ = cmd.Wait() // its console says why
	p.mu.Lock()
	defer p.mu.Unlock()
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	restarts := ok && status.Signaled() && status.Signal() == syscall.SIGHUP
	return !p.cut && (restarts || p.reset)
}

// off kills the first process, which is not started again, and reports whether it ever was.
func (p *power) off() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	if p.cmd == nil {
		return false
	}
	_ = p.cmd.Process.Kill() // it may have ended
	return true
}

// press asks the first process to reboot, as the keys Ctrl, Alt and Delete do.
func (p *power) press() (*exec.Cmd, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.cmd == nil {
		return nil, errOff
	}
	return p.cmd, p.cmd.Process.Signal(syscall.SIGINT)
}

// restart kills a first process that has not rebooted, for another to be started.
func (p *power) restart(cmd *exec.Cmd) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.cmd != cmd {
		return // it has rebooted
	}
	p.reset = true
	_ = cmd.Process.Kill() // it may have ended
}

func (p *power) was() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil
}

func (p *power) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// rebootFor is how long a machine has to end its services before it is reset. EC2 gives it
// four minutes.
const rebootFor = 2 * time.Minute

// Reboot asks a machine to reboot and returns at once. Only one that boots by systemd can:
// the other form has nothing that keeps its user data from running a second time.
func (f *Fleet) Reboot(id string) error {
	m := f.Find(id)
	switch {
	case m == nil:
		return fmt.Errorf("there is no machine %s", id)
	case !m.Spec.Systemd:
		return fmt.Errorf("rebooting machine %s: only machines that boot by systemd can", id)
	}
	cmd, err := m.power.press()
	if err != nil {
		return fmt.Errorf("rebooting machine %s: %w", id, err)
	}
	go func() {
		select {
		case <-m.ended:
		case <-time.After(rebootFor):
			m.power.restart(cmd)
		}
	}()
	return nil
}
