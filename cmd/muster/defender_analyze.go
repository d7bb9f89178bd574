package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/defender/analyze"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
)

func newDefenderAnalyze() *cobra.Command {
	var strategies, report, output string
	var all bool
	cmd := &cobra.Command{
		Use:   "analyze FILE...",
		Short: "Judge recorded traces offline and show why",
		Long: "Analyze runs the defender's pipeline on trace files: each run is judged by those\n" +
			"before it in its file (and experiment, where names tell it). It prints the runs\n" +
			"that are flagged, and with --html writes a page with trace overlays, control\n" +
			"charts, and T² and Q with their contributions, that needs nothing else.\n\n" +
			"Files are CSV with the columns set, wafer, name, fault, Time, Step Number and one\n" +
			"for each sensor.",
		Example: "  muster defender analyze traces.csv --html report.html\n  muster defender analyze *.csv --strategies strategies.yaml --output json",
		Args:    usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return usageError(cmd, err)
			}
			set := strategy.Default()
			if strategies != "" {
				var err error
				if set, err = strategy.Load(strategies); err != nil {
					return usageError(cmd, err)
				}
			}
			r, err := analyze.Files(cmd.Context(), set, args)
			if problems := new(trace.Problems); errors.As(err, &problems) {
				return usageError(cmd, err)
			}
			if err != nil {
				return err
			}
			if report != "" {
				if err := writeReport(report, r); err != nil {
					return err
				}
			}
			if output == "json" {
				return writeIndented(cmd.OutOrStdout(), r)
			}
			return writeRuns(cmd.OutOrStdout(), r, all)
		},
	}
	f := cmd.Flags()
	f.StringVar(&strategies, "strategies", "", "YAML file of defense strategies; without it the default")
	f.StringVar(&report, "html", "", "write a report with charts to this file")
	f.StringVar(&output, "output", "table", "table or json")
	f.BoolVar(&all, "all", false, "list all runs, not the flagged ones only")
	return withUsageErrors(cmd)
}

// writeReport writes beside the file and then takes its place, so that a report
// that is there is a whole one.
func writeReport(name string, r *analyze.Report) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".report-*")
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = errors.Join(r.WriteHTML(f), f.Chmod(0o644), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}

func writeRuns(out io.Writer, r *analyze.Report, all bool) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "GROUP\tRUN\tSTATE\tKNOWN FAULT\tWHY")
	for _, g := range r.Groups {
		for _, run := range g.Runs {
			if all || run.Verdict.Flagged() {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", g.Name, run.Context, run.Verdict.State, orDash(run.Fault), orDash(run.Reason))
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	t := r.Total
	_, err := fmt.Fprintf(out, "\n%d runs: %d learning, %d normal, %d alarms, %d bad data\n", t.Runs, t.Learning, t.Normal, t.Alarms, t.BadData)
	if err == nil && r.Labelled {
		_, err = fmt.Fprintf(out, "known faults: %d of %d judged ones found, %d alarms of normal runs\n", t.Detected, t.Faults, t.False)
	}
	return err
}

func checkOutput(output string) error {
	return unless(slices.Contains([]string{"table", "json"}, output), fmt.Errorf("--output is %q: give table or json", output))
}

func writeIndented(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
