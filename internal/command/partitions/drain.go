package partitions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
)

// drainPoll is how often drain asks how far the workers are.
const drainPoll = 250 * time.Millisecond

func newDrain() *cobra.Command {
	var p *groupCommand
	var d drain
	cmd := &cobra.Command{
		Use:   "drain [WORKER...]",
		Short: "Have workers hand off all their slots and take none for a while, or end that",
		Long: "Drain asks workers to hand off all their slots, one planned handoff each, and waits\n" +
			"until they have none. They stay, and take slots again when --for is over, when drain\n" +
			"--undo says so, or when they restart. What the last worker has it keeps:\n" +
			"no other worker can take it.",
		Example: "  muster partitions drain defender-7\n" +
			"  muster partitions drain --node ip-10-0-1-17 --for 2h\n" +
			"  muster partitions drain defender-7 --wait 0s\n" +
			"  muster partitions drain defender-7 --undo",
		RunE: func(cmd *cobra.Command, args []string) error {
			d.workers = args
			nc, err := p.connect(d.faults())
			if err != nil {
				return err
			}
			defer nc.Close()
			return d.run(cmd.Context(), p, nc)
		},
	}
	p = newGroupCommand(cmd)
	f := cmd.Flags()
	f.StringVar(&d.node, "node", "", "all workers that run on this node")
	f.DurationVar(&d.span, "for", time.Hour, "take no slots for so long")
	f.DurationVar(&d.wait, "wait", 2*time.Minute, "wait at most so long until they have no slots, 0s not at all")
	f.BoolVar(&d.undo, "undo", false, "have them take slots again")
	return cmd
}

type drain struct {
	workers    []string
	node       string
	span, wait time.Duration
	undo       bool
}

func (d *drain) faults() error {
	return errors.Join(
		command.Unless((d.node != "") != (len(d.workers) > 0), errors.New("name workers, or give --node")),
		command.Unless(d.span > 0, fmt.Errorf("--for is %v: give a positive duration", d.span)),
		command.Unless(d.wait >= 0, fmt.Errorf("--wait is %v: give 0s or more", d.wait)))
}

func (d *drain) asks(m report.Lease) bool {
	return d.node != "" && m.Node == d.node || slices.Contains(d.workers, m.ID)
}

// drainResult is what drain tells machines.
type drainResult struct {
	Undone bool           `json:"undone,omitempty"`
	Until  time.Time      `json:"until,omitzero"`
	Slots  map[string]int `json:"slots_left"` // by worker
}

func (d *drain) run(ctx context.Context, p *groupCommand, nc *nats.Conn) error {
	if err := d.present(ctx, p, nc); err != nil {
		return err
	}
	r := drainResult{Undone: d.undo}
	if !d.undo {
		r.Until = time.Now().Add(d.span).Truncate(time.Millisecond)
	}
	var err error
	if r.Slots, err = partition.Open(nc, p.group).Drain(ctx, d.asks, r.Until); err != nil {
		return err
	}
	if !d.undo {
		if err := d.await(ctx, p, nc, &r); err != nil {
			return err
		}
	}
	left := 0
	err = p.write(r, func(w io.Writer) {
		for _, id := range slices.Sorted(maps.Keys(r.Slots)) {
			switch n := r.Slots[id]; {
			case d.undo:
				_, _ = fmt.Fprintf(w, "%s takes slots again; it gets some with the next plan.\n", id)
			case n == 0:
				_, _ = fmt.Fprintf(w, "%s has no slots, and takes none until %s.\n", id, r.Until.UTC().Format(time.RFC3339))
			default:
				_, _ = fmt.Fprintf(w, "%s has %d slots yet.\n", id, n)
			}
		}
	})
	for _, n := range r.Slots {
		left += n
	}
	if err == nil && left > 0 && d.wait > 0 && !d.undo {
		err = fmt.Errorf("%d slots are not handed off after %v: no worker may be able to take them; see %q", left, d.wait, "muster partitions status")
	}
	return err
}

// present checks that everybody who is named is there.
func (d *drain) present(ctx context.Context, p *groupCommand, nc *nats.Conn) error {
	members, err := partition.Open(nc, p.group).Leases(ctx)
	if err != nil {
		return err
	}
	var have []string
	found := false
	for _, m := range members {
		have = append(have, m.ID)
		found = found || d.asks(m)
	}
	if d.node != "" && !found {
		return fmt.Errorf("no worker of group %s runs on node %q: see the NODE column of %q", p.group, d.node, "muster partitions status")
	}
	var errs []error
	for _, id := range d.workers {
		if !slices.Contains(have, id) {
			errs = append(errs, fmt.Errorf("%q is no worker of group %s: see %q", id, p.group, "muster partitions status"))
		}
	}
	return errors.Join(errs...)
}

// await asks until nobody has slots, or time is up.
func (d *drain) await(ctx context.Context, p *groupCommand, nc *nats.Conn, r *drainResult) error {
	told := ""
	for end := time.Now().Add(d.wait); time.Now().Before(end); {
		left := 0
		var text []string
		for _, id := range slices.Sorted(maps.Keys(r.Slots)) {
			left += r.Slots[id]
			text = append(text, fmt.Sprintf("%s %d", id, r.Slots[id]))
		}
		if now := strings.Join(text, ", "); now != told && p.output == "table" && left > 0 {
			told = now
			_, _ = fmt.Fprintf(p.cmd.ErrOrStderr(), "slots left: %s\n", now)
		}
		if left == 0 {
			return nil
		}
		if !command.Sleep(ctx, drainPoll) {
			return ctx.Err()
		}
		var err error
		if r.Slots, err = partition.Open(nc, p.group).Drain(ctx, d.asks, r.Until); err != nil {
			return err
		}
	}
	return nil
}
