package handoff

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/muster-dev/muster/broker"
)

// childVariable makes this program a broker instead of what it is; its value
// says which.
const childVariable = "HANDOFF_BROKER"

// order is the NATS server that a child is to be.
type order struct {
	NATS broker.Options `json:"nats"`
	Sync string         `json:"sync,omitempty"` // always, default or an interval, as broker.Sync reads it
}

// ServeIfChild must be called at the beginning of a program that measures: in
// a child that was started as a broker it serves until its standard input ends,
// and doesn't return.
func ServeIfChild() {
	text, child := os.LookupEnv(childVariable)
	if !child {
		return
	}
	if err := serve(text); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return fmt.Errorf("reading %s: %w", childVariable, err)
	}
	if o.Sync != "" {
		if err := o.NATS.Sync.Set(o.Sync); err != nil {
			return err
		}
	}
	s, err := broker.Start(o.NATS)
	if err != nil {
		return err
	}
	defer s.Stop()
	fmt.Println(s.URL())
	// The parent's end is the child's: its pipe is closed, however it ends.
	return obey(os.Stdin)
}

// server is a broker, or clients, in a process of its own.
type server interface {
	pid() int
	stop()
}

// servers are those of one contender.
type servers []server

func (all servers) stop() {
	for _, s := range all {
		s.stop()
	}
}

// cpu returns the CPU time that they have used so far.
func (all servers) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, s := range all {
		d, err := processCPU(s.pid())
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// child is a NATS server in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// startChildren starts brokers at once, since those of a cluster wait for each
// other. They are killed when ctx ends.
func startChildren(ctx context.Context, orders []order) (servers, error) {
	type outcome struct {
		c   *child
		err error
	}
	done := make(chan outcome)
	for _, o := range orders {
		go func() {
			c, err := startChild(ctx, o)
			done <- outcome{c, err}
		}()
	}
	var all servers
	var errs []error
	for range orders {
		o := <-done
		if o.err != nil {
			errs = append(errs, o.err)
			continue
		}
		all = append(all, o.c)
	}
	if err := errors.Join(errs...); err != nil {
		all.stop()
		return nil, err
	}
	return all, nil
}

func startChild(ctx context.Context, o order) (*child, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting a broker: %w", err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	var complaint strings.Builder
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a broker: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting a broker: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a broker: %w", err)
	}
	c := &child{cmd: cmd, stdin: in}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		c.stop()
		return nil, fmt.Errorf("starting a broker: it ended with %v: %s", cmd.ProcessState, complaint.String())
	}
	return c, nil
}

// stopTime is how long a broker may take to close its files.
const stopTime = 10 * time.Second

func (c *child) pid() int { return c.cmd.Process.Pid }

// tell gives the broker a command, which obey reads.
func (c *child) tell(command string) error {
	_, err := io.WriteString(c.stdin, command+"\n")
	return err
}

func (c *child) stop() {
	_ = c.stdin.Close()
	t := time.AfterFunc(stopTime, func() { _ = c.cmd.Process.Kill() })
	defer t.Stop()
	_ = c.cmd.Wait()
}
