package local

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/chamberview"
	"github.com/muster-dev/muster/console/groupview"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition/role"
)

// commands carry out what a person asks for on the console.
type commands struct {
	plane    *WorkerPlane
	cluster  func() *Cluster // nil while there is none
	failures *groupview.Failures
}

// act carries out one command.
func (c commands) act(ctx context.Context, cmd console.Command) error {
	by := cmd.By
	if by == "" {
		by = "console"
	}
	switch cmd.Name {
	case console.DrainWorker:
		return c.drain(ctx, cmd.Target, time.Now().Add(console.DrainFor).Truncate(time.Millisecond))
	case console.UndrainWorker:
		return c.drain(ctx, cmd.Target, time.Time{})
	case console.Acknowledge:
		return c.acknowledge(ctx, cmd.Target, by, cmd.Reason)
	case console.AcknowledgeFailure:
		if !c.failures.Acknowledge(cmd.Target) {
			return fmt.Errorf("%w: no failed worker %q is shown", console.ErrUnknownTarget, cmd.Target)
		}
		return nil
	case console.PauseScaling, console.ResumeScaling:
		t := c.cluster()
		if t == nil {
			return fmt.Errorf("%w: there is no node plane here", console.ErrUnknownCommand)
		}
		return console.SetScaling(ctx, t.scaling(), cmd)
	}
	return fmt.Errorf("%w %q", console.ErrUnknownCommand, cmd.Name)
}

// connection returns the connection to the broker once everything is started.
func (c commands) connection() (*nats.Conn, error) {
	if c.plane.seen() == nil {
		return nil, errStarting
	}
	return c.plane.As(role.Console)
}

// drain has a worker hand off its slots and take none until a time; the zero time ends that.
func (c commands) drain(ctx context.Context, worker string, until time.Time) error {
	nc, err := c.connection()
	if err != nil {
		return err
	}
	return groupview.Drain(ctx, nc, defender.Group, worker, until)
}

func (c commands) acknowledge(ctx context.Context, id, by, note string) error {
	nc, err := c.connection()
	if err != nil {
		return err
	}
	return chamberview.Acknowledge(ctx, nc, id, by, note)
}
