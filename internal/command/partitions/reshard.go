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

func newReshard() *cobra.Command {
	var slots int
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "reshard",
		Short: "Show or change the slot count of a group",
		Long: "Reshard shows the slot count of a group. With --slots it asks the leader for another\n" +
			"count: the one that the group was provisioned with, or that doubled up to three\n" +
			"times. The workers continue meanwhile; slot after slot is handed off, and no stored\n" +
			"message is touched. It waits until all is done, and exits with 1 if that takes longer\n" +
			"than --wait; the resharding continues.",
		Example: "  muster partitions reshard\n  muster partitions reshard --slots 512",
		Args:    command.Args(cobra.NoArgs),
	}
	p := newGroupCommand(cmd)
	f := cmd.Flags()
	f.IntVar(&slots, "slots", 0, "new slot count; without it nothing is changed")
	f.DurationVar(&wait, "wait", 5*time.Minute, "how long to wait for the resharding, 0 for not at all")
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
			if refused := new(partition.ReshardError); errors.As(err, &refused) {
				return command.UsageError(cmd, err)
			}
			if err != nil {
				return err
			}
		}
		l, err := partition.Open(nc, p.group).Resharding(cmd.Context())
		if err == nil && change && wait > 0 {
			l, err = p.waitForReshard(cmd.Context(), nc, l, wait)
		}
		if err != nil {
			return err
		}
		return p.showSlotCount(l)
	}
	return cmd
}

// reshardPoll is how often a change is looked at, reshardTold how often it is told
// of.
const (
	reshardPoll = 100 * time.Millisecond
	reshardTold = 2 * time.Second
)

// waitForReshard waits until a change is done, and tells how far it is.
func (p *groupCommand) waitForReshard(ctx context.Context, nc *nats.Conn, l partition.Resharding, wait time.Duration) (partition.Resharding, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(reshardPoll)
	defer tick.Stop()
	told := time.Now()
	for !l.Done() {
		select {
		case <-ctx.Done():
			return l, fmt.Errorf("not within %v: %s; resharding continues, look with %q", wait, slotCountText(l), p.cmd.CommandPath())
		case <-tick.C:
		}
		next, err := partition.Open(nc, p.group).Resharding(ctx)
		if err != nil {
			continue // the servers may be away for a moment
		}
		if l = next; time.Since(told) >= reshardTold {
			told = time.Now()
			_, _ = fmt.Fprintln(p.cmd.ErrOrStderr(), slotCountText(l))
		}
	}
	return l, nil
}

func slotCountText(l partition.Resharding) string {
	switch {
	case l.Former > 0:
		return fmt.Sprintf("resharding from %d to %d slots, %d are still to be taken", l.Former, l.Slots, l.Waiting)
	case !l.Done():
		return fmt.Sprintf("%d slots, %d are wanted: the leader begins when all workers are there and no slot moves", l.Slots, l.Wanted)
	default:
		return fmt.Sprintf("%d slots", l.Slots)
	}
}

// slotCountView is what --output json shows.
type slotCountView struct {
	Slots   int    `json:"slots"`
	Former  int    `json:"former,omitempty"`
	Waiting int    `json:"waiting,omitempty"`
	Wanted  int    `json:"wanted,omitempty"`
	Choices []int  `json:"choices"`
	Version uint64 `json:"version"`
}

func (p *groupCommand) showSlotCount(l partition.Resharding) error {
	return p.write(slotCountView(l), func(out io.Writer) {
		_, _ = fmt.Fprintf(out, "Group %s: %s (map version %d; it can be one of %v).\n", p.group, slotCountText(l), l.Version, l.Choices)
	})
}
