package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is a program that says when it is ready and ends when its standard input does.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // closed when it has ended
}

// start starts a program and waits until it has printed the line of JSON that says it is ready, which is decoded into ready.
func start(ctx context.Context, binary string, args []string, ready any) (*process, error) {
	cmd := exec.Command(binary, args...) //nolint:noctx // it is stopped by stop, gently
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	var complaint strings.Builder
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, stdin: stdin, done: make(chan struct{})}
	line := make(chan []byte, 1)
	go func() {
		b, _ := bufio.NewReader(stdout).ReadBytes('\n')
		line <- b
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait() // how it ended its complaint says
		close(p.done)
	}()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case b := <-line:
		if err := json.Unmarshal(b, ready); err == nil {
			return p, nil
		}
		p.stop()
		return nil, errors.New("it did not come up: " + strings.TrimSpace(complaint.String()))
	case <-ctx.Done():
		p.stop()
		return nil, fmt.Errorf("waiting for it: %w", ctx.Err())
	}
}

// stop has the process end, by force if it takes too long, and waits for that.
func (p *process) stop() {
	_ = p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(courtesy):
		p.kill()
	}
}

// kill ends the process at once and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL) // it may have ended
	<-p.done
}

const (
	patience = 3 * time.Minute // for the start, on a busy machine
	courtesy = 20 * time.Second
)
