package partitions

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

func newEvents() *cobra.Command {
	var p *groupCommand
	var e eventsCommand
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what happened: joins, plans, moves, handoffs, deaths; or follow it",
		Long: "Events lists what the workers told, oldest first: the last hour, or since --since; a\n" +
			"day is kept. Each slot that moves makes a few events, which are left out unless\n" +
			"--slots, --slot or --kind ask for them. With --follow it continues until interrupted.\n" +
			"As JSON it writes one event a line.",
		Example: "  muster partitions events --since 10m\n" +
			"  muster partitions events --kind planned --kind worker-gone --since 1d\n" +
			"  muster partitions events --worker defender-7 --slots\n" +
			"  muster partitions events --follow --output json",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd, p) },
	}
	p = newGroupCommand(cmd)
	f := cmd.Flags()
	f.Var(&e.since, "since", "at or after: that long ago (10m, 1d), or a time in UTC; 1h if not given")
	f.StringArrayVar(&e.kinds, "kind", nil, "of this kind, for example planned; may be repeated")
	f.StringVar(&e.query.Worker, "worker", "", "of or about this worker")
	f.IntVar(&e.query.Slot, "slot", 0, "of this slot")
	f.BoolVar(&e.slots, "slots", false, "also what happens to single slots")
	f.IntVar(&e.limit, "limit", 0, "of those that are kept, at most N, the newest; 0 is all")
	f.BoolVar(&e.query.Follow, "follow", false, "continue with new events")
	return cmd
}

type eventsCommand struct {
	query event.Query
	since command.Moment
	kinds []string
	slots bool
	limit int
}

func (e *eventsCommand) faults() error {
	errs := []error{
		command.Unless(e.limit >= 0, fmt.Errorf("--limit is %d: give 0 for all, or more", e.limit)),
		command.Unless(e.query.Slot >= 0, fmt.Errorf("--slot is %d: give 0 or more", e.query.Slot)),
		command.Unless(e.limit == 0 || !e.query.Follow, errors.New("--follow does not end, so it goes without --limit")),
	}
	for _, k := range e.kinds {
		if !slices.Contains(event.Kinds, event.Kind(k)) {
			var all []string
			for _, k := range event.Kinds {
				all = append(all, string(k))
			}
			errs = append(errs, fmt.Errorf("--kind is %q: give one of %s", k, strings.Join(all, ", ")))
		}
		e.query.Kinds = append(e.query.Kinds, event.Kind(k))
	}
	return errors.Join(errs...)
}

func (e *eventsCommand) run(cmd *cobra.Command, p *groupCommand) error {
	nc, err := p.connect(e.faults())
	if err != nil {
		return err
	}
	defer nc.Close()
	e.query.BySlot = cmd.Flags().Changed("slot")
	if e.query.BySlot {
		if err := e.checkSlot(cmd, p.group, nc); err != nil {
			return err
		}
	}
	if e.query.Since = e.since.At; e.query.Since.IsZero() {
		e.query.Since = time.Now().Add(-time.Hour)
	}
	var newest []event.Event
	err = partition.Open(nc, p.group).Events(cmd.Context(), e.query, func(ev event.Event) error {
		if ev.Kind.OfSlot() && !e.slots && !e.query.BySlot && e.kinds == nil {
			return nil
		}
		if e.limit == 0 {
			return p.event(ev)
		}
		if newest = append(newest, ev); len(newest) > e.limit {
			newest = newest[1:]
		}
		return nil
	})
	for _, ev := range newest {
		err = errors.Join(err, p.event(ev))
	}
	return err
}

// checkSlot refuses a slot that the group doesn't have. After a change of the number of
// slots there are events of slots of both numbers, and any that there may be is taken.
func (e *eventsCommand) checkSlot(cmd *cobra.Command, group string, nc *nats.Conn) error {
	v, err := partition.Open(nc, group).Inspect(cmd.Context())
	if err != nil {
		return err
	}
	if e.query.Slot >= v.Slots && v.Generation <= 1 {
		return command.UsageError(cmd, fmt.Errorf("--slot is %d: group %s has %d slots, give 0 to %d", e.query.Slot, group, v.Slots, v.Slots-1))
	}
	return nil
}

func (p *groupCommand) event(e event.Event) error {
	if p.output == "json" {
		return command.WriteRedacted(p.cmd.OutOrStdout(), e, "")
	}
	_, err := fmt.Fprintf(p.cmd.OutOrStdout(), "%s  %-12s  %-17s  %s\n", e.Time.UTC().Format("15:04:05.000"), command.OrDash(e.Worker), e.Kind, e.Text())
	return err
}
