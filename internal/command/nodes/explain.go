package nodes

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
)

func newExplain(o Options) *cobra.Command {
	var n *Command
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
		Args: command.Args(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			tick := "last"
			if len(args) == 1 {
				tick = args[0]
			}
			return n.explain(cmd.Context(), tick)
		},
	}
	n = NewCommand(o, cmd, connect.StoreNames())
	return cmd
}

func (n *Command) explain(ctx context.Context, tick string) error {
	stores, err := n.stores(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	if tick == "last" {
		if _, tick, err = lastDecision(ctx, stores.EventLog, stores.clock); err != nil {
			return err
		}
		if tick == "" {
			return fmt.Errorf("the event log in %s holds no decision yet: see %s for what happened", stores.Where, n.sibling("events"))
		}
	}
	events, err := collect(ctx, stores.EventLog, nodes.Query{Tick: tick})
	if err != nil {
		return err
	}
	if len(events) == 0 {
		return fmt.Errorf("the event log in %s knows no tick %q: %s lists them", stores.Where, tick, n.sibling("events"))
	}
	if events, err = withInterruptions(ctx, stores.EventLog, tick, events); err != nil {
		return err
	}
	t, err := explain.About(new(connect.Deciders).For, events)
	if err != nil {
		return err
	}
	return n.Write(t, func(w io.Writer, style explain.Style) error {
		return explain.WriteTick(w, style, t, stores.clock.Now())
	})
}

// withInterruptions adds what the tick did about open interruptions, which is logged under the tick's ID and the instance's.
func withInterruptions(ctx context.Context, j nodes.EventLog, tick string, events []nodes.Event) ([]nodes.Event, error) {
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

func collect(ctx context.Context, j nodes.EventLog, q nodes.Query) ([]nodes.Event, error) {
	var out []nodes.Event
	for e, err := range j.Read(ctx, q) {
		if err != nil {
			return nil, fmt.Errorf("reading the event log, %w", err)
		}
		out = append(out, e)
	}
	return out, nil
}
