package local

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/role"
)

// commands carry out what a person asks for on the console.
type commands struct {
	plane    *WorkerPlane
	cluster  func() *Cluster // nil while there is none
	failures *failures
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
		if !c.failures.acknowledge(cmd.Target) {
			return fmt.Errorf("%w: no failed worker %q is shown", console.ErrUnknownTarget, cmd.Target)
		}
		return nil
	case console.PauseScaling, console.ResumeScaling:
		t := c.cluster()
		if t == nil {
			return fmt.Errorf("%w: there is no node plane here", console.ErrUnknownCommand)
		}
		if cmd.Name == console.PauseScaling {
			return pause(ctx, t.scaling(), by, cmd.Reason)
		}
		return resume(ctx, t.scaling(), by, cmd.Reason)
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

// askTimes is how often a worker is asked that does not answer, as a busy one may not.
const askTimes = 5

// drain has a worker hand off its slots and take none until a time; the zero time ends that.
func (c commands) drain(ctx context.Context, worker string, until time.Time) error {
	nc, err := c.connection()
	if err != nil {
		return err
	}
	asked := false
	for try := range askTimes {
		_, err = partition.Open(nc, defender.Group).Drain(ctx, func(m report.Lease) bool {
			asked = asked || m.ID == worker
			return m.ID == worker
		}, until)
		if !errors.Is(err, partition.ErrSilent) || try == askTimes-1 {
			break
		}
	}
	if err == nil && !asked {
		return fmt.Errorf("%w: %q is no worker of group %s", console.ErrUnknownTarget, worker, defender.Group)
	}
	return err
}

// alarmID is a chamber's alarm as a command's target; parseAlarmID reads it.
func alarmID(c defender.Chamber, opened string) string { return c.String() + " " + opened }

func parseAlarmID(id string) (defender.Chamber, string, error) {
	chamber, opened, ok := strings.Cut(id, " ")
	if !ok {
		return defender.Chamber{}, "", fmt.Errorf("%w: %q names no alarm: write chamber and run, as tool001:chamber1 lot7", console.ErrUnknownTarget, id)
	}
	c, err := defender.ParseChamber(chamber)
	if err != nil {
		return c, "", fmt.Errorf("%w: %w", console.ErrUnknownTarget, err)
	}
	return c, opened, nil
}

func (c commands) acknowledge(ctx context.Context, id, by, note string) error {
	chamber, opened, err := parseAlarmID(id)
	if err != nil {
		return err
	}
	nc, err := c.connection()
	if err != nil {
		return err
	}
	a := defender.Acknowledgement{Chamber: chamber, Opened: opened, By: by, Note: note, At: time.Now().UTC()}
	kept, err := defender.Acknowledge(ctx, nc, a)
	switch {
	case errors.Is(err, defender.ErrNoAlarm):
		return fmt.Errorf("%w: %w", console.ErrUnknownTarget, err)
	case err != nil:
		return err
	case kept != a:
		return fmt.Errorf("%w: %s acknowledged it at %s", console.ErrDoneAlready, kept.By, kept.At.UTC().Format(time.RFC3339))
	}
	return nil
}

// pause pauses the node plane as muster nodes pause does.
func pause(ctx context.Context, scaling nodes.Switch, by, reason string) error {
	r, changed, err := scaling.Pause(ctx, by, reason)
	if err == nil && !changed {
		return fmt.Errorf("%w: scaling was paused by %s (%s)", console.ErrDoneAlready, r.PausedBy, r.PauseReason)
	}
	return err
}

// resume ends a pause, of any person.
func resume(ctx context.Context, scaling nodes.Switch, by, reason string) error {
	_, changed, err := scaling.Resume(ctx, by, reason)
	if err == nil && !changed {
		return fmt.Errorf("%w: scaling is not paused", console.ErrDoneAlready)
	}
	return err
}
