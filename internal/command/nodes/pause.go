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

func newPause(o Options) *cobra.Command {
	var n *Command
	var by, reason string
	cmd := &cobra.Command{
		Use:   "pause --reason TEXT",
		Short: "Have the node plane begin no scaling until it is resumed",
		Long: "Pause writes into the record that scaling is paused. From then on no scale-up by\n" +
			"its trigger and no scale-down begins, in any process, also after a restart, until\n" +
			"'muster nodes resume'. An action in progress goes on to its end; interruptions are\n" +
			"worked on; instances that belong to nobody are swept; and a cluster below\n" +
			"MIN_WORKERS is brought back to it. Ticks go on and say PAUSED. A pause that is there\n" +
			"already is kept.",
		Example: "  muster nodes pause --reason 'exchanging the switch of zone a'\n" +
			"  muster nodes status",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := nodes.CheckPause(by, reason, false); err != nil {
				return command.UsageError(cmd, err)
			}
			return n.pause(cmd.Context(), by, reason)
		},
	}
	n = NewCommand(o, cmd, connect.StoreNames())
	pauseFlags(cmd, &by, &reason)
	return cmd
}

func newResume(o Options) *cobra.Command {
	var n *Command
	var by, reason string
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "Let the node plane scale again",
		Long: "Resume ends what 'muster nodes pause' began. Waiting times went on meanwhile: if pods\n" +
			"have been pending or the cluster idle for long enough, the next tick acts.",
		Example: "  muster nodes resume\n" +
			"  muster nodes resume --reason 'the switch is in'",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := nodes.CheckPause(by, reason, true); err != nil {
				return command.UsageError(cmd, err)
			}
			return n.resume(cmd.Context(), by, reason)
		},
	}
	n = NewCommand(o, cmd, connect.StoreNames())
	pauseFlags(cmd, &by, &reason)
	return cmd
}

func pauseFlags(cmd *cobra.Command, by, reason *string) {
	cmd.Flags().StringVar(by, "by", command.UserName(), "who does it, for the record and the event log")
	cmd.Flags().StringVar(reason, "reason", "", "why, shown to everybody who finds scaling paused")
}

// pauseResult is what pause and resume tell machines.
type pauseResult struct {
	Changed bool           `json:"changed"`          // false: it was so already
	Paused  *explain.Pause `json:"paused,omitempty"` // the pause that holds
	Ended   *explain.Pause `json:"ended,omitempty"`  // the pause that was ended
	Where   string         `json:"where"`
}

func (n *Command) pause(ctx context.Context, by, reason string) error {
	return n.throw(ctx, func(s nodes.Switch) (pauseResult, error) {
		r, changed, err := s.Pause(ctx, by, reason)
		return pauseResult{Changed: changed, Paused: explain.PauseOf(r, s.Clock.Now())}, err
	}, func(r pauseResult) string {
		if !r.Changed {
			return fmt.Sprintf("Scaling was paused already, %s; that is kept. %s ends it.", pauseOf(*r.Paused), n.sibling("resume"))
		}
		return fmt.Sprintf("Scaling is paused. %s ends that.", n.sibling("resume"))
	})
}

func (n *Command) resume(ctx context.Context, by, reason string) error {
	return n.throw(ctx, func(s nodes.Switch) (pauseResult, error) {
		was, changed, err := s.Resume(ctx, by, reason)
		return pauseResult{Changed: changed, Ended: explain.PauseOf(was, s.Clock.Now())}, err
	}, func(r pauseResult) string {
		if !r.Changed {
			return "Scaling was not paused."
		}
		return fmt.Sprintf("Scaling goes on. It was paused %s.", pauseOf(*r.Ended))
	})
}

func pauseOf(p explain.Pause) string {
	text := "for " + explain.Duration(time.Duration(p.Age)*time.Second)
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	return text
}

// throw opens the store, does something with its switch and tells of it.
func (n *Command) throw(ctx context.Context, do func(nodes.Switch) (pauseResult, error), say func(pauseResult) string) error {
	stores, err := n.stores(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stores.Close() }()
	r, err := do(nodes.Switch{Store: stores.Store, EventLog: stores.EventLog, Clock: stores.clock})
	if err != nil {
		return err
	}
	r.Where = stores.Where
	return n.Write(r, func(w io.Writer, _ explain.Style) error {
		_, err := fmt.Fprintln(w, say(r))
		return err
	})
}
