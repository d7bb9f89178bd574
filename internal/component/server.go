package component

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"
)

// invocation is how a component is run.
type invocation struct {
	program string
	args    []string
	env     []string       // beside this process's own
	dir     string         // working directory
	ready   *regexp.Regexp // a line that matches says that it serves; its first group is the address, unless addr is set
	addr    string
	within  time.Duration // until it is ready
}

// Server is a component that runs on 127.0.0.1.
type Server struct {
	Component
	Addr string // host:port
	// Work is the folder of its data, which goes with it.
	Work string

	how  invocation
	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	log  string        // file
}

// run starts the component and waits until it is ready.
func (c Component) run(ctx context.Context, dir string) (*Server, error) {
	work, err := os.MkdirTemp("", "muster-"+c.key+"-")
	if err != nil {
		return nil, fmt.Errorf("starting %s, %w", c, err)
	}
	how, err := c.start(dir, filepath.Join(work, "data"))
	if err != nil {
		_ = os.RemoveAll(work)
		return nil, fmt.Errorf("starting %s, %w", c, err)
	}
	s := &Server{Component: c, Work: work, how: how, log: filepath.Join(work, "log")}
	if err := s.launch(ctx); err != nil {
		err = fmt.Errorf("starting %s, %w; the end of its log:\n%s", c, err, s.Log())
		s.Stop()
		return nil, err
	}
	return s, nil
}

// launch starts the process and waits for the line that says it is ready.
func (s *Server) launch(ctx context.Context) error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.how.program, s.how.args...)
	cmd.Dir, cmd.Env = s.how.dir, append(os.Environ(), s.how.env...)
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = w, w
	started, done, ready := make(chan error, 1), make(chan struct{}), make(chan string, 1)
	tether(cmd, func(err error) {
		_ = w.Close()
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
		close(done)
	})
	if err := <-started; err != nil {
		return err
	}
	go copyLog(r, log, s.how.ready, ready)
	s.mu.Lock()
	s.cmd, s.done = cmd, done
	s.mu.Unlock()
	timeout := time.NewTimer(s.how.within)
	defer timeout.Stop()
	select {
	case addr := <-ready:
		if s.Addr = addr; s.how.addr != "" {
			s.Addr = s.how.addr
		}
		return nil
	case <-done:
		return fmt.Errorf("it ended at once: %s", cmd.ProcessState)
	case <-timeout.C:
		return fmt.Errorf("%w (%s)", errNotReady, s.how.within)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyLog copies what the process prints to its log until the process ends, and reports the first line that says it is ready.
func copyLog(r io.ReadCloser, log io.WriteCloser, ready *regexp.Regexp, found chan<- string) {
	defer func() { _, _ = r.Close(), log.Close() }()
	said := false
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		_, _ = io.WriteString(log, line)
		if m := ready.FindStringSubmatch(line); m != nil && !said {
			said = true
			found <- m[len(m)-1]
		}
		if err != nil {
			return
		}
	}
}

// Log returns the end of what the process has printed.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return tail(string(b), 4000)
}

// showLogOf writes the end of the server's log into the test's if the test fails.
func (s *Server) showLogOf(t testing.TB) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of %s's log:\n%s", s.Name, s.Log())
		}
	})
}

// Signal sends a signal to the process: SIGSTOP pauses it, SIGCONT lets it go on.
func (s *Server) Signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Signal(sig)
}

// Pid is the process's ID.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid
}

// Close asks the process to end, waits until it has, and removes its data. After within it is killed.
func (s *Server) Close(within time.Duration) {
	if s.Signal(syscall.SIGTERM) == nil {
		select {
		case <-s.done:
		case <-time.After(within):
		}
	}
	s.Stop()
}

// Kill ends the process by SIGKILL and waits until it is gone. What it has written stays in Work,
// also what a power cut would lose because it was never synced.
func (s *Server) Kill() {
	s.mu.Lock()
	cmd, done := s.cmd, s.done
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-done
}

// Restart starts a killed process again, on the data it left behind and at the same address where it has a fixed one.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	if err := s.launch(t.Context()); err != nil {
		t.Fatalf("starting %s again, %v; the end of its log:\n%s", s.Component, err, s.Log())
	}
}

// Stop ends the process and removes its data. Stopping twice is no error.
func (s *Server) Stop() {
	s.Kill()
	_ = os.RemoveAll(s.Work)
}

func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
