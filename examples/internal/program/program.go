// Package program runs an example as the processes that a reader would start.
package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/muster-dev/muster/internal/output"
)

// Build builds the program of the directory in which the test runs, and returns its path.
func Build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	return program
}

// Process is a program that runs.
type Process struct {
	cmd    *exec.Cmd
	output output.Buffer // what it prints
	ended  chan struct{}
}

// Start starts a program. When the test ends the process is interrupted, and what it has printed
// is shown if the test has failed.
func Start(t *testing.T, program string, args ...string) *Process {
	t.Helper()
	// The context ends before the test's clean-up begins.
	p := &Process{cmd: exec.CommandContext(t.Context(), program, args...), ended: make(chan struct{})}
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(os.Interrupt) }
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		<-p.ended
		if t.Failed() {
			t.Logf("process %d printed:\n%s", p.cmd.Process.Pid, p.Output())
		}
	})
	return p
}

// Kill ends the process as kill -9 does, and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// Alive reports whether the process has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Output returns what the process has printed.
func (p *Process) Output() string { return p.output.String() }
