package defender

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/internal/command"
)

func newSchema() *cobra.Command {
	return command.WithUsageErrors(&cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON schema of defense strategies",
		Example: "  muster defender schema > defense-strategies.schema.json",
		Args:    command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(strategy.Schema())
			return err
		},
	})
}

func newCheck() *cobra.Command {
	return command.WithUsageErrors(&cobra.Command{
		Use:     "check FILE",
		Short:   "Check a file of defense strategies, all faults at once",
		Example: "  muster defender check strategies.yaml",
		Args:    command.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := strategy.Load(args[0])
			if faults := new(strategy.Faults); errors.As(err, &faults) {
				return command.UsageError(cmd, err)
			}
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s is valid: version %d, %d strategies\n", args[0], set.Version(), len(set.File().Strategies))
			return nil
		},
	})
}

func newReset() *cobra.Command {
	var url, recipe, id string
	cmd := &cobra.Command{
		Use:   "reset CHAMBER",
		Short: "Announce that a chamber was maintained: its limits start again",
		Long: "Reset sends a message in line with the chamber's runs. From there on limits and\n" +
			"models rest on the runs that follow, and standing alarms are cleared.",
		Example: "  muster defender reset etch01:chamber2 --id PM-2026-17",
		Args:    command.Args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			chamber, err := defender.ParseChamber(args[0])
			if err != nil {
				return command.UsageError(cmd, err)
			}
			if id == "" {
				id = nuid.Next()
			}
			m := defender.NewMaintenance(chamber, id, recipe, time.Now().UTC())
			data, err := defender.MarshalCompletion(m)
			if err != nil {
				return command.UsageError(cmd, err)
			}
			nc, err := access.Connect(url, "muster defender reset")
			if err != nil {
				return err
			}
			defer nc.Close()
			js, err := jetstream.New(nc)
			if err != nil {
				return err
			}
			msg := &nats.Msg{Subject: defender.CompletionSubject(chamber), Data: data}
			if _, err := js.PublishMsg(cmd.Context(), msg, jetstream.WithMsgID("maintenance-"+m.TChart)); err != nil {
				return fmt.Errorf("announcing the maintenance of %s: %w", chamber, err)
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "announced maintenance %s of %s\n", id, chamber)
			return nil
		},
	}
	f := cmd.Flags()
	command.NATSFlag(f, &url)
	f.StringVar(&recipe, "recipe", "", "only this recipe; without it all that the chamber ran lately")
	f.StringVar(&id, "id", "", "ID of the maintenance, for doing it once; without it a new one")
	return command.WithUsageErrors(cmd)
}
