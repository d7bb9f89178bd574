package nodes

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
)

func newStatus(o Options) *cobra.Command {
	var n *Command
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
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return n.status(cmd.Context(), live) },
	}
	n = NewCommand(o, cmd, connect.StoreNames())
	cmd.Flags().BoolVar(&live, "live", false, "ask the cloud, the cluster and the metrics now; needs their settings")
	return cmd
}

func (n *Command) status(ctx context.Context, live bool) error {
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
	if in.Last, in.Tick, err = lastDecision(ctx, stores.EventLog, stores.clock); err != nil {
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
	return n.Write(st, func(w io.Writer, style explain.Style) error { return explain.WriteStatus(w, style, st) })
}

// lastDecision returns what the newest decision of an event log was made on; nil if there is none.
func lastDecision(ctx context.Context, j nodes.EventLog, clock nodes.Clock) (*nodes.Snapshot, string, error) {
	// The newest is almost always a minute old; only an event log that rests has to be read as a whole.
	for _, since := range []time.Time{clock.Now().Add(-time.Hour), {}} {
		for e, err := range j.Read(ctx, nodes.Query{Kind: "decision", Since: since, Limit: 1}) {
			if err != nil {
				return nil, "", fmt.Errorf("reading the event log, %w", err)
			}
			s, err := explain.Snapshot(e)
			return &s, e.Tick, err
		}
	}
	return nil, "", nil
}
