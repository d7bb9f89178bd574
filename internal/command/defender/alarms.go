package defender

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/classify"
	"github.com/muster-dev/muster/internal/command"
)

func newAlarms() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alarms",
		Short: "Look at the alarms of chambers, and acknowledge them",
		Long: "An alarm stands from the run that opens it until enough runs in a row are not\n" +
			"flagged, or the chamber is maintained. Acknowledging tells others that somebody\n" +
			"handles it; it doesn't end it.",
	}
	cmd.AddCommand(newAlarmsList(), newAlarmsAck())
	return cmd
}

func newAlarmsList() *cobra.Command {
	var url, output, chamber string
	var all bool
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List standing alarms, newest first",
		Example: "  muster defender alarms list --nats nats://127.0.0.1:4222\n" +
			"  muster defender alarms list --all --chamber etch01:chamber2 --output json",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := defender.AlarmListQuery{All: all, Limit: limit}
			var err error
			if chamber != "" {
				q.Chamber, err = defender.ParseChamber(chamber)
			}
			if err := errors.Join(command.CheckOutput(output), command.Unless(limit > 0, fmt.Errorf("--limit is %d: give at least 1", limit)), err); err != nil {
				return command.UsageError(cmd, err)
			}
			nc, err := access.Connect(url, "muster defender alarms")
			if err != nil {
				return err
			}
			defer nc.Close()
			list, err := defender.ListAlarms(cmd.Context(), nc, q)
			if err != nil {
				return err
			}
			if output == "json" {
				return command.WriteJSON(cmd.OutOrStdout(), list)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
			_, _ = fmt.Fprintln(w, "CHAMBER\tALARM\tRECIPE\tSTATE\tRUNS\tSINCE\tACKNOWLEDGED\tFAULT\tREASON")
			for _, a := range list {
				by := "-"
				if a.Acknowledged != nil {
					by = a.Acknowledged.By
				}
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\n", a.Chamber, a.Opened, command.OrDash(a.Recipe), a.Status(), a.Count,
					a.Since.UTC().Format(time.RFC3339), by, faultText(a.Fault), a.Reason)
			}
			return w.Flush()
		},
	}
	f := cmd.Flags()
	command.NATSFlag(f, &url)
	f.StringVar(&chamber, "chamber", "", "only this chamber, as tool:chamber")
	f.BoolVar(&all, "all", false, "cleared ones, too")
	f.IntVar(&limit, "limit", 100, "most alarms to list")
	f.StringVar(&output, "output", "table", "table or json")
	return command.WithUsageErrors(cmd)
}

// faultText is what labels say of an alarm, in a few words.
func faultText(m *classify.Match) string {
	if m == nil {
		return "-"
	}
	return fmt.Sprintf("%s (%.0f %%)", m, 100*m.Confidence)
}

func newAlarmsAck() *cobra.Command {
	var url, by, note string
	cmd := &cobra.Command{
		Use:     "ack CHAMBER ALARM",
		Short:   "Acknowledge an alarm, by the run that opened it",
		Long:    "Ack records who handles an alarm. The first acknowledgement is kept.",
		Example: "  muster defender alarms ack etch01:chamber2 lot7.wafer-12 --note 'checking the RF match'",
		Args:    command.Args(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			chamber, err := defender.ParseChamber(args[0])
			a := defender.Acknowledgement{Chamber: chamber, Opened: args[1], By: by, Note: note, At: time.Now().UTC()}
			if err == nil {
				err = a.Validate()
			}
			if err != nil {
				return command.UsageError(cmd, err)
			}
			nc, err := access.Connect(url, "muster defender alarms")
			if err != nil {
				return err
			}
			defer nc.Close()
			kept, err := defender.Acknowledge(cmd.Context(), nc, a)
			if err != nil {
				return err
			}
			if kept != a {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "alarm %s of %s was acknowledged by %s at %s\n", kept.Opened, chamber, kept.By, kept.At.Format(time.RFC3339))
				return nil
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "acknowledged alarm %s of %s\n", a.Opened, chamber)
			return nil
		},
	}
	f := cmd.Flags()
	command.NATSFlag(f, &url)
	f.StringVar(&by, "by", command.UserName(), "who acknowledges")
	f.StringVar(&note, "note", "", "what is done about it")
	return command.WithUsageErrors(cmd)
}
