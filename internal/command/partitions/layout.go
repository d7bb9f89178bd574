package partitions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
)

func newLayout() *cobra.Command {
	var slots int
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "layout",
		Short: "Show or change in how many slots the keys are divided",
		Long: "Layout shows in how many slots the keys of a group are divided. With --slots it\n" +
			"asks the leader for another number: the one that the group was provisioned with,\n" +
			"or that doubled up to three times. The workers go on meanwhile; slot after slot is\n" +
			"given up and taken again, and nothing that is stored is touched. It waits until\n" +
			"all is done, and exits with 1 if that takes longer than --wait; the change goes on.",
		Example: "  muster partitions layout\n  muster partitions layout --slots 512",
		Args:    command.Args(cobra.NoArgs),
	}
	p := newGroupCommand(cmd)
	f := cmd.Flags()
	f.IntVar(&slots, "slots", 0, "slots to divide the keys in; without it nothing is changed")
	f.DurationVar(&wait, "wait", 5*time.Minute, "how long to wait for the change, 0 for not at all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		change := cmd.Flags().Changed("slots")
		nc, err := p.connect(
			command.Unless(!change || slots >= 1, fmt.Errorf("--slots is %d: give at least 1", slots)),
			command.Unless(wait >= 0, fmt.Errorf("--wait is %v: give 0s or more", wait)))
		if err != nil {
			return err
		}
		defer nc.Close()
		if change {
			err := partition.Open(nc, p.group).Reshard(cmd.Context(), slots)
			if refused := new(partition.LayoutError); errors.As(err, &refused) {
				return command.UsageError(cmd, err)
			}
			if err != nil {
				return err
			}
		}
		l, err := partition.Open(nc, p.group).Resharding(cmd.Context())
		if err == nil && change && wait > 0 {
			l, err = p.waitForLayout(cmd.Context(), nc, l, wait)
		}
		if err != nil {
			return err
		}
		return p.showLayout(l)
	}
	return cmd
}

// layoutPoll is how often a change is looked at, layoutTold how often it is told
// of.
const (
	layoutPoll = 100 * time.Millisecond
	layoutTold = 2 * time.Second
)

// waitForLayout waits until a change is done, and tells how far it is.
func (p *groupCommand) waitForLayout(ctx context.Context, nc *nats.Conn, l partition.Layout, wait time.Duration) (partition.Layout, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(layoutPoll)
	defer tick.Stop()
	told := time.Now()
	for !l.Done() {
		select {
		case <-ctx.Done():
			return l, fmt.Errorf("not within %v: %s; the change goes on, look with %q", wait, layoutText(l), p.cmd.CommandPath())
		case <-tick.C:
		}
		next, err := partition.Open(nc, p.group).Resharding(ctx)
		if err != nil {
			continue // the servers may be away for a moment
		}
		if l = next; time.Since(told) >= layoutTold {
			told = time.Now()
			_, _ = fmt.Fprintln(p.cmd.ErrOrStderr(), layoutText(l))
		}
	}
	return l, nil
}

func layoutText(l partition.Layout) string {
	switch {
	case l.Former > 0:
		return fmt.Sprintf("changing from %d to %d slots, %d are still to be taken", l.Former, l.Slots, l.Waiting)
	case !l.Done():
		return fmt.Sprintf("%d slots, %d are wanted: the leader begins when all workers are there and no slot moves", l.Slots, l.Wanted)
	default:
		return fmt.Sprintf("%d slots", l.Slots)
	}
}

// layoutView is what --output json shows.
type layoutView struct {
	Slots   int    `json:"slots"`
	Former  int    `json:"former,omitempty"`
	Waiting int    `json:"waiting,omitempty"`
	Wanted  int    `json:"wanted,omitempty"`
	Choices []int  `json:"choices"`
	Version uint64 `json:"version"`
}

func (p *groupCommand) showLayout(l partition.Layout) error {
	return p.write(layoutView(l), func(out io.Writer) {
		_, _ = fmt.Fprintf(out, "Group %s: %s (map version %d; it can be one of %v).\n", p.group, layoutText(l), l.Version, l.Choices)
	})
}
