package nodes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
)

func newEvents(o Options) *cobra.Command {
	var n *Command
	var q nodes.Query
	since, until := command.Moment{Now: o.now}, command.Moment{Now: o.now}
	var follow, data bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what happened, or follow it",
		Long: "Events lists the event log, oldest first: the newest 50 events, or all that match if\n" +
			"--since is given. With --follow it goes on with what is added, until interrupted.\n" +
			"As JSON it writes one event a line.",
		Example: "  muster nodes events --since 2h\n" +
			"  muster nodes events --kind scaleUp.failed --since 7d\n" +
			"  muster nodes events --action 1795257600-4KJ2QXWZ7M3P\n" +
			"  muster nodes events --follow --output json",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Since, q.Until = since.At, until.At
			if q.Since.IsZero() && q.Limit == 0 && !cmd.Flags().Changed("limit") {
				q.Limit = 50
			}
			if q.Limit < 0 {
				return command.UsageError(cmd, fmt.Errorf("--limit is %d: write 0 for all, or more", q.Limit))
			}
			if follow && !q.Until.IsZero() {
				return command.UsageError(cmd, errors.New("--follow does not end, so it goes without --until"))
			}
			return n.events(cmd.Context(), q, follow, data)
		},
	}
	n = NewCommand(o, cmd, connect.StoreNames())
	f := cmd.Flags()
	f.Var(&since, "since", "at or after: so long ago (2h, 3d), or a time in UTC")
	f.Var(&until, "until", "before: so long ago, or a time in UTC")
	f.StringVar(&q.Kind, "kind", "", "of this kind, for example decision, error, scaleUp.launched")
	f.StringVar(&q.ActionID, "action", "", "of the action with this ID")
	f.StringVar(&q.Tick, "tick", "", "of this tick")
	f.IntVar(&q.Limit, "limit", 0, "at most N, the newest; 0 is all, 50 if --since is not given")
	f.BoolVar(&follow, "follow", false, "go on with what is added")
	f.BoolVar(&data, "data", false, "with JSON: also what decisions were made on")
	return cmd
}

func (n *Command) events(ctx context.Context, q nodes.Query, follow, data bool) error {
	stores, err := n.stores(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	// What a follower shows first and what it shows later come from reads of the same kind, so that nothing falls between.
	limit := q.Limit
	if follow {
		q.Limit = 0
	}
	events, err := collect(ctx, stores.EventLog, q)
	if err != nil {
		return err
	}
	f := follower{j: stores.EventLog, q: q, seen: map[string]bool{}}
	f.note(events)
	if limit > 0 && len(events) > limit {
		events = events[len(events)-limit:]
	}
	show := func(events []nodes.Event, first bool) error {
		if n.output == "json" {
			for _, e := range events {
				if !data {
					e.Data = nil
				}
				if err := command.WriteRedacted(n.OutOrStdout(), e, ""); err != nil {
					return err
				}
			}
			return nil
		}
		if first {
			return explain.WriteEvents(n.OutOrStdout(), n.style(), events)
		}
		return explain.WriteMoreEvents(n.OutOrStdout(), n.style(), events)
	}
	if err := show(events, true); err != nil || !follow {
		return err
	}
	for command.Sleep(ctx, time.Second) {
		events, err := f.more(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // interrupted while it read, as it was meant to be
			}
			return err
		}
		if len(events) == 0 {
			continue
		}
		if err := show(events, false); err != nil {
			return err
		}
	}
	return nil
}

// followBack is how far back a follower looks for what it has not seen: events of several writers, or of clocks that differ, do not
// arrive in the order of their times.
const followBack = 2 * time.Minute

// follower finds the events that were added to an event log.
type follower struct {
	j    nodes.EventLog
	q    nodes.Query
	seen map[string]bool // keys of the events since followBack before newest
	from time.Time
}

func (f *follower) note(events []nodes.Event) {
	if f.from.IsZero() {
		f.from = time.Now().Add(-followBack)
	}
	for _, e := range events {
		f.seen[e.Key()] = true
		if at := e.At.Add(-followBack); at.After(f.from) {
			f.from = at
		}
	}
	if len(events) > 0 && len(f.seen) > 10_000 { // what lies before is not asked for any more
		for key := range f.seen {
			if key < (nodes.Event{At: f.from}).Key() {
				delete(f.seen, key)
			}
		}
	}
}

func (f *follower) more(ctx context.Context) ([]nodes.Event, error) {
	q := f.q
	q.Since, q.Limit = f.from, 0
	if f.q.Since.After(q.Since) {
		q.Since = f.q.Since
	}
	all, err := collect(ctx, f.j, q)
	if err != nil {
		return nil, err
	}
	var out []nodes.Event
	for _, e := range all {
		if !f.seen[e.Key()] {
			out = append(out, e)
		}
	}
	f.note(out)
	return out, nil
}
