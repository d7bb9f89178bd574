package nodes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
)

func newReplay(o Options) *cobra.Command {
	var n *Command
	var q nodes.Query
	since, until := command.Moment{Now: o.now}, command.Moment{Now: o.now}
	var current bool
	cmd := &cobra.Command{
		Use:   "replay",
		Short: "Repeat recorded decisions with the same or other settings, and show what differs",
		Long: "Replay takes every decision of the event log and makes it again from what was seen and\n" +
			"recorded then. With the recorded settings each must come out the same: if one does\n" +
			"not, replay exits with 1. Settings given as flags change the recorded ones, and\n" +
			"--current takes all of them as the file and the environment have them now.\n" +
			"Each decision stands alone: what a different one would have led to is not followed.",
		Example: "  muster nodes replay --since 7d\n" +
			"  muster nodes replay --cpu-up 0.6 --max-workers 20 --since 24h\n" +
			"  muster nodes replay --current --config muster.yaml --output json",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.Since, q.Until = since.At, until.At
			return n.replay(cmd.Context(), q, current)
		},
	}
	policy := connect.Groups()[0]
	n = NewCommand(o, cmd, append(connect.StoreNames(), connect.Known([]connect.Group{policy})...))
	f := cmd.Flags()
	f.Var(&since, "since", "decisions at or after: so long ago (2h, 3d), or a time in UTC")
	f.Var(&until, "until", "decisions before: so long ago, or a time in UTC")
	f.StringVar(&q.Tick, "tick", "", "the decision of this tick")
	f.IntVar(&q.Limit, "limit", 0, "at most N, the newest; 0 is all")
	f.BoolVar(&current, "current", false, "with the settings as the file, the environment and the flags have them now")
	return cmd
}

// Place returns the names of the policy's settings that say where the event log is, not how to decide.
func Place() []string { return []string{"CLUSTER", "STATE_TABLE", "LOGS_TABLE"} }

var errReplayDiffers = errors.New("decisions come out differently with the settings they were made with: either this version decides otherwise " +
	"than the one that made them, or the event log was changed; see the differences above")

func (n *Command) replay(ctx context.Context, q nodes.Query, current bool) error {
	src, err := n.Sources()
	if err != nil {
		return err
	}
	stores, err := n.stores(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	policyNames := connect.Known(connect.Groups()[:1])
	changed := func(name string) (string, bool) {
		v, ok := src.Flags[name]
		return v, ok && slices.Contains(policyNames, name) && !slices.Contains(Place(), name)
	}
	same := !current && !slices.ContainsFunc(policyNames, func(name string) bool { _, ok := changed(name); return ok })
	var change func(nodes.Policy) nodes.Policy
	switch {
	case current:
		change = func(was nodes.Policy) nodes.Policy {
			p := stores.policy
			p.Cluster, p.StateTable, p.LogsTable = was.Cluster, was.StateTable, was.LogsTable
			return p
		}
	case !same:
		change = func(p nodes.Policy) nodes.Policy {
			next, e := p.With(changed)
			if e != nil && err == nil {
				err = command.UsageError(n.Command, e)
			}
			return next
		}
	}
	r := explain.Replayed{Differences: []explain.Difference{}}
	var deciders connect.Deciders
	q.Kind = "decision"
	for e, readErr := range stores.EventLog.Read(ctx, q) {
		if readErr != nil {
			return fmt.Errorf("reading the event log, %w", readErr)
		}
		snap, snapErr := explain.Snapshot(e)
		if snapErr != nil {
			return snapErr
		}
		policy := snap.Policy
		if change != nil {
			if policy = change(policy); err != nil {
				return err
			}
		}
		d, deciderErr := deciders.For(policy)
		if deciderErr != nil {
			return deciderErr
		}
		r.Replay(d, e.Tick, snap)
	}
	if r.Decisions == 0 {
		return fmt.Errorf("the event log in %s holds no such decision: see %s --kind decision", stores.Where, n.sibling("events"))
	}
	if err := n.Write(r, func(w io.Writer, style explain.Style) error { return explain.WriteReplayed(w, style, r) }); err != nil {
		return err
	}
	if same && len(r.Differences) > 0 {
		return errReplayDiffers
	}
	return nil
}
