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

func newDoctor(o Options) *cobra.Command {
	var n *Command
	var create bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that everything the node plane needs is there, and say what to fix",
		Long: "Doctor checks credentials, permissions (by dry-run calls and access reviews), subnets,\n" +
			"image and join settings, every query, the tables, critical pods on workers, and the\n" +
			"clocks. It changes nothing, unless --create-tables asks for the tables of the record\n" +
			"and the event log where there are none. It exits with 1 if a check fails.",
		Example: "  muster nodes doctor --config muster.yaml\n" +
			"  muster nodes doctor --create-tables --config muster.yaml\n" +
			"  muster nodes doctor --output json | jq '.[] | select(.ok | not)'",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return n.doctor(cmd.Context(), create) },
	}
	n = NewCommand(o, cmd, nil)
	cmd.Flags().BoolVar(&create, "create-tables", false, "first create the DynamoDB tables STATE_TABLE and LOGS_TABLE if they are not there; needs permission to")
	return cmd
}

func (n *Command) doctor(ctx context.Context, create bool) error {
	src, err := n.Sources()
	var unread *connect.UnreadError
	switch {
	case errors.As(err, &unread):
		return n.showChecks([]nodes.Check{unread.Check()})
	case err != nil:
		return err
	}
	s, err := connect.Parse(src.Lookup)
	if err != nil {
		return command.UsageError(n.Command, err)
	}
	if create {
		if s.Policy.StateTable == "" {
			return command.UsageError(n.Command, errors.New("--create-tables: name the tables by STATE_TABLE and LOGS_TABLE"))
		}
		if err := connect.CreateTables(ctx, s); err != nil {
			return fmt.Errorf("creating the tables, %w", err)
		}
	}
	clock, err := n.lookingClock()
	if err != nil {
		return err
	}
	checks := append(connect.Check(ctx, s, connect.Options{Clock: clock, Local: localStore{}}), s.Policy.Advice()...)
	if n.read.Kept() {
		checks = slices.Insert(checks, 0, n.read.Check())
	}
	return n.showChecks(checks)
}

// showChecks writes checks; that some failed is an error.
func (n *Command) showChecks(checks []nodes.Check) error {
	if err := n.Write(checks, func(w io.Writer, style explain.Style) error { return explain.WriteChecks(w, style, checks) }); err != nil {
		return err
	}
	failed := 0
	for _, c := range checks {
		if !c.OK {
			failed++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d checks failed", failed, len(checks))
	}
	return nil
}
