package nodes

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/secret"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
)

func newTick(o Options) *cobra.Command {
	var n *Command
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "tick",
		Short: "Do one tick, or show what it would decide",
		Long: "Tick does one round of what the daemon does every minute: it goes on with what is\n" +
			"open, sweeps, decides, and begins at most one action. With --dry-run it reads\n" +
			"everything, decides, and writes, launches and removes nothing.",
		Example: "  muster nodes tick --dry-run --config muster.yaml\n" +
			"  muster nodes tick",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dryRun {
				return n.dryRun(cmd.Context())
			}
			return n.tick(cmd.Context())
		},
	}
	n = NewCommand(o, cmd, nil)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; show what a tick would decide and why")
	return cmd
}

// open opens everything that the settings name.
func (n *Command) open(ctx context.Context, clock nodes.Clock) (*plane, error) {
	src, err := n.Sources()
	if err != nil {
		return nil, err
	}
	p, err := openPlane(ctx, src.Lookup, connect.Options{Clock: clock})
	return p, n.wrongSettings(err)
}

// plan looks at everything now and decides, without changing anything.
func (n *Command) plan(ctx context.Context) (nodes.Snapshot, error) {
	clock, err := n.lookingClock()
	if err != nil {
		return nodes.Snapshot{}, err
	}
	plane, err := n.open(ctx, clock)
	if err != nil {
		return nodes.Snapshot{}, err
	}
	defer func() { _ = plane.close() }()
	r, err := nodes.New(plane.Config)
	if err != nil {
		return nodes.Snapshot{}, err
	}
	return r.Plan(ctx)
}

// planned is what a dry run found.
type planned struct {
	At          time.Time         `json:"at"`
	Decision    nodes.Decision    `json:"decision"`
	Outlook     explain.Outlook   `json:"outlook"`
	Observation nodes.Observation `json:"observation"`
}

func (n *Command) dryRun(ctx context.Context) error {
	s, err := n.plan(ctx)
	if err != nil {
		return err
	}
	d, err := new(connect.Deciders).For(s.Policy)
	if err != nil {
		return err
	}
	out := planned{At: s.Now, Decision: s.Decision, Outlook: explain.Ahead(d, s), Observation: s.Observation}
	return n.Write(out, func(w io.Writer, style explain.Style) error {
		if _, err := fmt.Fprintln(w, "Dry run: nothing was written, launched or removed."); err != nil {
			return err
		}
		return explain.WriteSnapshot(w, style, s, out.Outlook)
	})
}

func (n *Command) tick(ctx context.Context) error {
	clock, err := n.clock()
	if err != nil {
		return err
	}
	plane, err := n.open(ctx, clock)
	if err != nil {
		return err
	}
	defer func() { _ = plane.close() }()
	// A signal must not keep the lease from being given back: like the daemon's, a tick that is under way comes to a point at which
	// it can be left, and is cut off only if that takes too long.
	plane.Config.Stopping = func() bool { return ctx.Err() != nil }
	r, err := nodes.New(plane.Config)
	if err != nil {
		return err
	}
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(20*time.Second, cut) })()
	report, tickErr := r.Tick(work)
	t := explain.Tick{ID: report.Tick, At: clock.Now(), Decision: report.Decision, Events: report.Events}
	if len(t.Events) > 0 {
		t.At = t.Events[0].At
		if t, err = explain.About(new(connect.Deciders).For, report.Events); err != nil {
			return err
		}
	}
	if err := n.Write(t, func(w io.Writer, style explain.Style) error { return explain.WriteTick(w, style, t, clock.Now()) }); err != nil {
		return err
	}
	if tickErr != nil {
		return fmt.Errorf("the tick met %s", strings.ReplaceAll(secret.Redact(tickErr.Error()), "\n", "; "))
	}
	return nil
}
