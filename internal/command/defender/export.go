package defender

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/connect"
	"github.com/muster-dev/muster/defender/export"
	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/misuse"
)

func newExport() *cobra.Command {
	var store, since, output string
	var chambers []string
	var o export.Options
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write traces, statistics, verdicts and alarms to Parquet files",
		Long: "Export writes a file for each table: traces (T-charts, a row per value), statistics\n" +
			"(U-charts, a row per sensor and step), verdicts (a row per run) and alarms (those of\n" +
			"flagged runs). The rows of a chamber come from the oldest run on." + cassandraHelp(),
		Example: "  muster defender export --store fdc.db --dir tables\n" +
			"  muster defender export --chamber etch01:chamber2 --tables verdicts,alarms --since 2026-03-01T00:00:00Z",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkExport(&o, chambers, since), command.CheckOutput(output), connect.Check(store, os.LookupEnv)); err != nil {
				return command.UsageError(cmd, err)
			}
			s, err := connect.Open(cmd.Context(), store, os.LookupEnv)
			if err != nil {
				return &misuse.Error{Err: err}
			}
			defer func() { _ = s.Close() }()
			written, expired, err := export.Run(cmd.Context(), s, o)
			if err != nil {
				return err
			}
			if output == "json" {
				return command.WriteJSON(cmd.OutOrStdout(), map[string]any{"written": written, "expired": expired})
			}
			for _, w := range written {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d rows\n", w.File, w.Rows)
			}
			if expired > 0 {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "the T-charts of %d runs have expired\n", expired)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&store, "store", "fdc.db", storeUsage)
	f.StringVar(&o.Dir, "dir", ".", "directory of the files; those of the same names are replaced")
	f.StringSliceVar(&o.Tables, "tables", export.Names(), "tables to write, with commas between")
	f.StringSliceVar(&chambers, "chamber", nil, "only this chamber, as tool:chamber; may be given again")
	f.StringVar(&since, "since", "", "only runs that ended at this time or later, as 2026-03-01T00:00:00Z")
	f.IntVar(&o.Runs, "runs", 10_000, "at most N runs of each chamber, the newest")
	f.StringVar(&output, "output", "table", "table or json")
	return command.WithUsageErrors(cmd)
}

// checkExport reads what flags say into o and returns everything that is wrong with it.
func checkExport(o *export.Options, chambers []string, since string) error {
	var errs []error
	for _, name := range chambers {
		c, err := defender.ParseChamber(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("--chamber: %w", err))
		}
		o.Chambers = append(o.Chambers, c)
	}
	for _, name := range o.Tables {
		if !slices.Contains(export.Names(), name) {
			errs = append(errs, fmt.Errorf("--tables names %q: give some of %s", name, strings.Join(export.Names(), ",")))
		}
	}
	if since != "" {
		var err error
		if o.Since, err = time.Parse(time.RFC3339Nano, since); err != nil {
			errs = append(errs, fmt.Errorf("--since %q is no time: write it as 2026-03-01T00:00:00Z", since))
		}
	}
	if info, err := os.Stat(o.Dir); err != nil || !info.IsDir() {
		errs = append(errs, fmt.Errorf("--dir %s is no directory: create it, or give another", o.Dir))
	}
	errs = append(errs, misuse.Within("runs", o.Runs, 1, 10_000_000))
	return errors.Join(errs...)
}
