// Package doctor has the command that says which failures of its NATS servers an installation survives.
package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/broker/survey"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/internal/command"
)

// New returns the command that looks at the NATS servers.
func New() *cobra.Command {
	var monitor []string
	var group, stream, output string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say which failures of the NATS servers this installation survives",
		Long: "Doctor reads the monitoring endpoint of each NATS server and says, for each row of\n" +
			"docs/durability.md, whether acknowledged messages survive it: with these replicas, this\n" +
			"sync_interval and these limits. It changes nothing. It exits with 1 if a setting should\n" +
			"be changed, a copy is behind, or an endpoint does not answer.\n" +
			"The node plane has a doctor of its own: muster nodes doctor.",
		Example: "  muster doctor --monitor http://127.0.0.1:8222\n" +
			"  muster doctor --monitor http://nats-0:8222,http://nats-1:8222,http://nats-2:8222\n" +
			"  muster doctor --output json | jq '.rows[] | select(.ok | not)'",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(monitor) == 0 {
				return command.UsageError(cmd, errors.New("--monitor is empty: give the URL of each server's monitoring endpoint, such as http://127.0.0.1:8222"))
			}
			if output != "text" && output != "json" {
				return command.UsageError(cmd, fmt.Errorf("--output is %q: give text or json", output))
			}
			var servers []survey.Server
			for _, u := range monitor {
				s, err := survey.Read(cmd.Context(), u)
				if errors.Is(err, survey.ErrNoURL) {
					return command.UsageError(cmd, err)
				}
				if err != nil {
					return err
				}
				servers = append(servers, s)
			}
			rows := survey.Assess(servers, group, stream)
			if err := writeSurvey(cmd.OutOrStdout(), output, servers, rows); err != nil {
				return err
			}
			failed := 0
			for _, r := range rows {
				if !r.OK {
					failed++
				}
			}
			if failed > 0 {
				return fmt.Errorf("%d of %d rows need a change", failed, len(rows))
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&monitor, "monitor", []string{"http://127.0.0.1:8222"}, "URL of a server's monitoring endpoint (http_port), one for each server, with commas between")
	f.StringVar(&group, "group", defender.Group, "name of the group")
	f.StringVar(&stream, "stream", defender.Partition(1).Stream, "data stream of the group; with shards the part of the names before the number")
	f.StringVar(&output, "output", "text", "text or json")
	return command.WithUsageErrors(cmd)
}

func writeSurvey(w io.Writer, output string, servers []survey.Server, rows []survey.Row) error {
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(map[string]any{"servers": servers, "rows": rows})
	}
	for _, s := range servers {
		sync := "syncs before it acknowledges"
		if !s.SyncAlways {
			sync = fmt.Sprintf("syncs every %v", s.Sync)
		}
		_, _ = fmt.Fprintf(w, "Server %s, NATS %s, %s; %.2f of %.1f GiB used in %s\n", s.Name, s.Version, sync, float64(s.Storage)/(1<<30), float64(s.MaxStorage)/(1<<30), s.StoreDir)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "\nFAILURE\t\tWHAT IT DOES")
	for _, r := range rows {
		mark := "ok"
		if !r.OK {
			mark = "CHANGE"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s\n", r.Failure, mark, r.Text)
	}
	return t.Flush()
}
