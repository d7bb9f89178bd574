package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// process is an autoscaler that runs.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
	log  *os.File
}

// begin starts a program with nothing in its environment but what is given, and where programs are.
func begin(binary string, args, env []string, log string) (*process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), binary, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GOMAXPROCS=2"}, env...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", binary, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{}), log: f}
	go func() {
		_ = cmd.Wait() // its state says how it ended
		close(p.done)
	}()
	return p, nil
}

// failed returns an error if the program has ended by itself.
func (p *process) failed() error {
	select {
	case <-p.done:
		text, _ := os.ReadFile(p.log.Name())
		return fmt.Errorf("the autoscaler has ended by itself: %s\n%s", p.cmd.ProcessState, text[max(0, len(text)-2000):])
	default:
		return nil
	}
}

// usage is what a process has used until it ended.
type usage struct {
	CPU  time.Duration
	Peak int64 // bytes resident
}

// stop ends the program and returns what it has used.
func (p *process) stop() usage {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
	_ = p.log.Close()
	s := p.cmd.ProcessState
	u := usage{CPU: s.UserTime() + s.SystemTime()}
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		u.Peak = r.Maxrss << 10
	}
	return u
}
