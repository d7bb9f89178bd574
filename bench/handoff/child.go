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

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/muster-dev/muster/broker"
)

// childVariable makes this program a broker instead of what it is; its value
// says which.
const childVariable = "HANDOFF_BROKER"

// order is what a child is to be: a NATS server or the fake of Kafka.
type order struct {
	NATS       *broker.Options `json:"nats,omitempty"`
	Sync       string          `json:"sync,omitempty"` // of the NATS server, always, default or an interval, as broker.Sync reads it
	Partitions int             `json:"partitions,omitempty"`
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
	var address string
	if o.NATS != nil {
		if o.Sync != "" {
			if err := o.NATS.Sync.Set(o.Sync); err != nil {
				return err
			}
		}
		s, err := broker.Start(*o.NATS)
		if err != nil {
			return err
		}
		defer s.Stop()
		address = s.URL()
	} else {
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(int32(o.Partitions), topic))
		if err != nil {
			return fmt.Errorf("starting the fake of Kafka: %w", err)
		}
		defer c.Close()
		address = c.ListenAddrs()[0]
	}
	fmt.Println(address)
	// The parent's end is the child's: its pipe is closed, however it ends.
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// child is a broker in a process of its own.
type child struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	address string
}

// startChildren starts brokers at once, since those of a cluster wait for each
// other. They are killed when ctx ends.
func startChildren(ctx context.Context, orders []order) ([]*child, error) {
	type outcome struct {
		at  int
		c   *child
		err error
	}
	done := make(chan outcome)
	for i, o := range orders {
		go func() {
			c, err := startChild(ctx, o)
			done <- outcome{i, c, err}
		}()
	}
	all := make([]*child, len(orders))
	var errs []error
	for range orders {
		o := <-done
		all[o.at] = o.c
		errs = append(errs, o.err)
	}
	if err := errors.Join(errs...); err != nil {
		stopChildren(all)
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
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.stop()
		return nil, fmt.Errorf("starting a broker: it ended with %v: %s", cmd.ProcessState, complaint.String())
	}
	c.address = strings.TrimSpace(line)
	return c, nil
}

// stopTime is how long a broker may take to close its files.
const stopTime = 10 * time.Second

func (c *child) stop() {
	_ = c.stdin.Close()
	t := time.AfterFunc(stopTime, func() { _ = c.cmd.Process.Kill() })
	defer t.Stop()
	_ = c.cmd.Wait()
}

func stopChildren(all []*child) {
	for _, c := range all {
		if c != nil {
			c.stop()
		}
	}
}

// childrenCPU returns the CPU time that brokers have used so far.
func childrenCPU(all []*child) (time.Duration, error) {
	var sum time.Duration
	for _, c := range all {
		d, err := processCPU(c.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}
