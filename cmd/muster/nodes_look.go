package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
)

// ---- status

func newNodesStatus() *cobra.Command {
	var n *nodesCommand
	var live bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the cluster stands: action in progress, workers, interruptions, waits",
		Long: "Status shows the record: the action in progress with its phase and age, the lease,\n" +
			"cooldowns and back-offs that are left, interruptions with the time they leave, and\n" +
			"the workers by zone as the last decision saw them. With --live it asks the cloud,\n" +
			"the cluster and the metrics now, without changing anything.",
		Example: "  muster nodes status\n" +
			"  muster nodes status --live --config muster.yaml\n" +
			"  muster nodes status --output json | jq .action",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return n.status(cmd.Context(), live) },
	}
	n = newNodesCommand(cmd, connect.StoreNames())
	cmd.Flags().BoolVar(&live, "live", false, "ask the cloud, the cluster and the metrics now; needs their settings")
	return cmd
}

func (n *nodesCommand) status(ctx context.Context, live bool) error {
	stores, err := n.stores(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	in := explain.Input{Now: stores.clock.Now(), Policy: stores.policy}
	if in.Record, err = stores.Store.Load(ctx); err != nil {
		return fmt.Errorf("reading the record, %w", err)
	}
	if in.Open, err = stores.Store.OpenInterruptions(ctx); err != nil {
		return fmt.Errorf("reading interruptions, %w", err)
	}
	if in.Last, in.Tick, err = lastDecision(ctx, stores.Journal, stores.clock); err != nil {
		return err
	}
	if live {
		snap, err := n.plan(ctx)
		if err != nil {
			return err
		}
		in.Last, in.Live = &snap, true
	}
	st := explain.Stand(in)
	return n.write(st, func(w io.Writer, style explain.Style) error { return explain.WriteStatus(w, style, st) })
}

// lastDecision returns what the newest decision of a journal was made on; nil if there is none.
func lastDecision(ctx context.Context, j nodes.Journal, clock nodes.Clock) (*nodes.Snapshot, string, error) {
	// The newest is almost always a minute old; only a journal that rests has to be read as a whole.
	for _, since := range []time.Time{clock.Now().Add(-time.Hour), {}} {
		for e, err := range j.Read(ctx, nodes.Query{Kind: "decision", Since: since, Limit: 1}) {
			if err != nil {
				return nil, "", fmt.Errorf("reading the journal, %w", err)
			}
			s, err := explain.Snapshot(e)
			return &s, e.Tick, err
		}
	}
	return nil, "", nil
}

// ---- explain

func newNodesExplain() *cobra.Command {
	var n *nodesCommand
	cmd := &cobra.Command{
		Use:   "explain [TICK|last]",
		Short: "Say what a tick decided, why, why nothing else, and what would have to change",
		Long: "Explain shows one decision with every gate, its value and its threshold, and works\n" +
			"out what comes next: what happens if everything stays as it was seen, and for each\n" +
			"other action which gates have to change and when that can be at the earliest.\n" +
			"Ticks are named in 'muster nodes events'; last is the newest decision.",
		Example: "  muster nodes explain\n" +
			"  muster nodes explain last --output json | jq '.outlook.paths'\n" +
			"  muster nodes explain 4KJ2QXWZ7M3P",
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			tick := "last"
			if len(args) == 1 {
				tick = args[0]
			}
			return n.explain(cmd.Context(), tick)
		},
	}
	n = newNodesCommand(cmd, connect.StoreNames())
	return cmd
}

func (n *nodesCommand) explain(ctx context.Context, tick string) error {
	stores, err := n.stores(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	if tick == "last" {
		if _, tick, err = lastDecision(ctx, stores.Journal, stores.clock); err != nil {
			return err
		}
		if tick == "" {
			return fmt.Errorf("the journal in %s holds no decision yet: see muster nodes events for what happened", stores.Where)
		}
	}
	events, err := collect(ctx, stores.Journal, nodes.Query{Tick: tick})
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return fmt.Errorf("the journal in %s knows no tick %q: muster nodes events lists them", stores.Where, tick)
	}
	if events, err = withInterruptions(ctx, stores.Journal, tick, events); err != nil {
		return err
	}
	t, err := explain.About(new(connect.Deciders).For, events)
	if err != nil {
		return err
	}
	return n.write(t, func(w io.Writer, style explain.Style) error {
		return explain.WriteTick(w, style, t, stores.clock.Now())
	})
}

// withInterruptions adds what the tick did about open interruptions, which is journaled under the tick's ID and the instance's.
func withInterruptions(ctx context.Context, j nodes.Journal, tick string, events []nodes.Event) ([]nodes.Event, error) {
	// It comes before the tick's own work and may take as long as a warning lasts.
	around := nodes.Query{Since: events[0].At.Add(-5 * time.Minute), Until: events[len(events)-1].At.Add(time.Second)}
	near, err := collect(ctx, j, around)
	if err != nil {
		return nil, err
	}
	for _, e := range near {
		if strings.HasPrefix(e.Tick, tick+"/") {
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b nodes.Event) int { return a.At.Compare(b.At) })
	return events, nil
}

func collect(ctx context.Context, j nodes.Journal, q nodes.Query) ([]nodes.Event, error) {
	var out []nodes.Event
	for e, err := range j.Read(ctx, q) {
		if err != nil {
			return nil, fmt.Errorf("reading the journal, %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}

// ---- events

func newNodesEvents() *cobra.Command {
	var n *nodesCommand
	var q nodes.Query
	var since, until momentFlag
	var follow, data bool
	cmd := &cobra.Command{
		Use:   "events",
		Short: "List what happened, or follow it",
		Long: "Events lists the journal, oldest first: the newest 50 events, or all that match if\n" +
			"--since is given. With --follow it goes on with what is added, until interrupted.\n" +
			"As JSON it writes one event a line.",
		Example: "  muster nodes events --since 2h\n" +
			"  muster nodes events --kind scaleUp.failed --since 7d\n" +
			"  muster nodes events --action 1795257600-4KJ2QXWZ7M3P\n" +
			"  muster nodes events --follow --output json",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Since, q.Until = since.at, until.at
			if q.Since.IsZero() && q.Limit == 0 && !cmd.Flags().Changed("limit") {
				q.Limit = 50
			}
			if q.Limit < 0 {
				return usageError(cmd, fmt.Errorf("--limit is %d: write 0 for all, or more", q.Limit))
			}
			if follow && !q.Until.IsZero() {
				return usageError(cmd, errors.New("--follow does not end, so it goes without --until"))
			}
			return n.events(cmd.Context(), q, follow, data)
		},
	}
	n = newNodesCommand(cmd, connect.StoreNames())
	f := cmd.Flags()
	f.Var(&since, "since", "at or after: so long ago (2h, 3d), or a time in UTC")
	f.Var(&until, "until", "before: so long ago, or a time in UTC")
	f.StringVar(&q.Kind, "kind", "", "of this kind, for example decision, error, scaleUp.launched")
	f.StringVar(&q.ActionID, "action", "", "of the action with this ID")
	f.StringVar(&q.Tick, "tick", "", "of this tick")
	f.IntVar(&q.Limit, "limit", 0, "at most so many, the newest; 0 is all, 50 if --since is not given")
	f.BoolVar(&follow, "follow", false, "go on with what is added")
	f.BoolVar(&data, "data", false, "with JSON: also what decisions were made on")
	return cmd
}

func (n *nodesCommand) events(ctx context.Context, q nodes.Query, follow, data bool) error {
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
	events, err := collect(ctx, stores.Journal, q)
	if err != nil {
		return err
	}
	f := follower{j: stores.Journal, q: q, seen: map[string]bool{}}
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
				if err := writeJSON(n.OutOrStdout(), e, ""); err != nil {
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
	for sleep(ctx, time.Second) {
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

// follower finds the events that were added to a journal.
type follower struct {
	j    nodes.Journal
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

// sleep waits; false means that ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	return nodes.SystemClock{}.Sleep(ctx, d) == nil
}
