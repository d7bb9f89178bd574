package defender

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/analyze"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/internal/command"
)

func newAnalyze() *cobra.Command {
	var strategies, report, output, faults, writeFaults string
	var all bool
	var columns trace.Columns
	cmd := &cobra.Command{
		Use:   "analyze FILE...",
		Short: "Judge recorded traces offline and show why",
		Long: "Analyze runs the defender's pipeline on trace files: each run is judged by those\n" +
			"before it in its group. A group is the runs of one chamber, recipe and whatever\n" +
			"--group-column holds, over all files; without such a column it is a file. It prints\n" +
			"the runs that are flagged and why groups without a judged run have none, and with\n" +
			"--html writes a page with trace overlays, control charts, and T² and Q with their\n" +
			"contributions, that needs nothing else.\n\n" +
			"Alarms are compared with runs whose fault is known, by how far each sensor is off: those\n" +
			"that --faults names, and other alarms of the files with a known fault. The fault of the\n" +
			"most similar one is shown with a confidence, or that it is unknown.\n\n" +
			"Files are CSV or Parquet, a row a sample, the rows of a run together and runs in their\n" +
			"order. They have a column for the name of the run, one for the time (seconds or\n" +
			"timestamps), one for the recipe step (an integer) and one for each sensor. By default\n" +
			"the first three are name, Time and Step Number; columns fault (a known fault, empty\n" +
			"if none), set and wafer are no sensors. Files may be larger than the memory; for\n" +
			"--html they are read twice.",
		Example: "  muster defender analyze traces.csv --html report.html\n" +
			"  muster defender analyze *.csv --strategies strategies.yaml --output json\n" +
			"  muster defender analyze line2.csv --faults faults.json      # as defender faults list writes them\n" +
			"  muster defender analyze fab.csv --run-column run_id --time-column ts --step-column step \\\n" +
			"      --chamber-column chamber --recipe-column recipe --ignore-columns lot,operator",
		Args: command.Args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			set, strategiesErr := strategiesOf(strategies)
			labels, labelsErr := labelsOf(faults)
			if err := errors.Join(command.CheckOutput(output), strategiesErr, labelsErr, checkTwice(report, args)); err != nil {
				return command.UsageError(cmd, err)
			}
			whole, err := wholeFor(output)
			if err != nil {
				return err
			}
			if whole != nil {
				defer func() { err = errors.Join(err, whole.Close()) }()
			}
			heap, progress := newHeap(), newProgress(cmd.ErrOrStderr(), time.Now)
			defer heap.restore()
			analysis := &analyze.Analysis{Strategies: set, Columns: columns, Keep: keepFor(report), Whole: whole, Progress: func(at analyze.Progress) {
				heap.show(at)
				progress.show(at)
			}}
			r, err := analysis.Files(cmd.Context(), args)
			if err != nil {
				return explain(cmd, err)
			}
			r.Classify(labels)
			if err := errors.Join(writeLabelsOf(writeFaults, r), writeReport(report, r)); err != nil {
				return err
			}
			if output == "json" {
				return r.WriteJSON(cmd.OutOrStdout())
			}
			return writeRuns(cmd.OutOrStdout(), r, all)
		},
	}
	f := cmd.Flags()
	f.StringVar(&strategies, "strategies", "", "YAML file of defense strategies; without it the default")
	f.StringVar(&report, "html", "", "write a report with charts to this file")
	f.StringVar(&output, "output", "table", "table or json")
	f.StringVar(&faults, "faults", "", "file of labelled runs to compare alarms with, as muster defender faults list --output json writes it")
	f.StringVar(&writeFaults, "write-faults", "", "write the alarms with a known fault to this file of labelled runs")
	f.BoolVar(&all, "all", false, "list all runs, not the flagged ones only")
	columnFlags(f, &columns)
	return command.WithUsageErrors(cmd)
}

// explain says what to do about an error of an analysis.
func explain(cmd *cobra.Command, err error) error {
	if cmd.Context().Err() != nil {
		return fmt.Errorf("analyzing was interrupted, and no result is written: %w", err)
	}
	problems := new(trace.Problems)
	if !errors.As(err, &problems) {
		return err
	}
	ofColumns := func(p trace.Problem) bool { return p.Line == 1 || strings.Contains(p.What, "ignore the column") }
	if slices.ContainsFunc(problems.List, ofColumns) {
		err = fmt.Errorf("%w\nsay what columns hold with --run-column, --time-column, --step-column and others, or leave some out with --ignore-columns", err)
	}
	return command.UsageError(cmd, err)
}

// keepFor returns how much of verdicts is kept in memory.
func keepFor(report string) analyze.Keep {
	if report != "" {
		return analyze.KeepFigures
	}
	return analyze.KeepReasons
}

// wholeFor returns a file for whole verdicts, if an output has them.
func wholeFor(output string) (*analyze.Verdicts, error) {
	if output != "json" {
		return nil, nil
	}
	return analyze.NewVerdicts()
}

// checkTwice checks that files can be read twice, as a report does.
func checkTwice(report string, files []string) error {
	if report == "" {
		return nil
	}
	var errs []error
	for _, name := range files {
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
			errs = append(errs, fmt.Errorf("--html reads each file twice, and %s is no regular file: write it to one first", name))
		}
	}
	return errors.Join(errs...)
}

// strategiesOf reads a strategy file; without a name it is the default.
func strategiesOf(name string) (*strategy.Set, error) {
	if name == "" {
		return strategy.Default(), nil
	}
	return strategy.Load(name)
}

// labelsOf reads a file of labelled runs; without a name there are none.
func labelsOf(name string) ([]defender.FaultLabel, error) {
	if name == "" {
		return nil, nil
	}
	return readLabels(name)
}

// columnFlags adds the flags that say what the columns of files hold.
func columnFlags(f *pflag.FlagSet, columns *trace.Columns) {
	f.StringVar(&columns.Run, "run-column", "", "column with the name of the run (default name)")
	f.StringVar(&columns.Time, "time-column", "", "column with the time of the sample (default Time)")
	f.StringVar(&columns.Step, "step-column", "", "column with the recipe step (default Step Number); - if there is none")
	f.StringVar(&columns.Fault, "fault-column", "", "column with a known fault (default fault, if there is one)")
	f.StringVar(&columns.Chamber, "chamber-column", "", "column with the chamber, for groups and strategies; none by default")
	f.StringVar(&columns.Recipe, "recipe-column", "", "column with the recipe, likewise")
	f.StringVar(&columns.Group, "group-column", "", "column with anything else that groups runs, such as a product")
	f.StringSliceVar(&columns.Ignore, "ignore-columns", nil, "columns that are no sensors, with commas between")
}

// writeReport writes beside the file and then takes its place, so that a report
// that is there is a whole one. Without a name there is none to write.
func writeReport(name string, r *analyze.Report) (err error) {
	if name == "" {
		return nil
	}
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

// writeLabelsOf writes the labels that a report has, as of now, to the file of a name.
func writeLabelsOf(name string, r *analyze.Report) error {
	if name == "" {
		return nil
	}
	list, now := append([]defender.FaultLabel{}, r.Labels()...), time.Now().UTC()
	for i := range list {
		list[i].By, list[i].At = command.UserName(), now
	}
	var text bytes.Buffer
	if err := command.WriteJSON(&text, list); err != nil {
		return fmt.Errorf("writing the labelled runs: %w", err)
	}
	if err := os.WriteFile(name, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the labelled runs: %w", err)
	}
	return nil
}

func writeRuns(out io.Writer, r *analyze.Report, all bool) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "GROUP\tRUN\tSTATE\tKNOWN FAULT\tBY LABELS\tWHY")
	for _, g := range r.Groups {
		for _, run := range g.Runs {
			if all || run.Verdict.Flagged() {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", g.Name, run.Context, run.Verdict.State, command.OrDash(run.Fault), faultText(run.Classification), command.OrDash(run.Reason))
			}
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if err := writeNotes(out, r); err != nil {
		return err
	}
	if err := writeDrifts(out, r); err != nil {
		return err
	}
	t := r.Total
	_, err := fmt.Fprintf(out, "\n%d runs: %d learning, %d normal, %d alarms, %d bad data\n", t.Runs, t.Learning, t.Normal, t.Alarms, t.BadData)
	if err == nil && r.Labelled {
		_, err = fmt.Fprintf(out, "known faults: %d of %d judged ones found, %d alarms of normal runs\n", t.Detected, t.Faults, t.False)
	}
	return err
}

// writeDrifts says which groups have drifted, and how far by their last run that has.
func writeDrifts(out io.Writer, r *analyze.Report) error {
	for _, g := range r.Groups {
		for _, run := range slices.Backward(g.Runs) {
			drift := run.Verdict.DriftReason()
			if drift == "" {
				continue
			}
			if _, err := fmt.Fprintf(out, "\nGroup %q, by run %s, has %s\n", g.Name, run.Context, drift); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// maxNotes is how many groups without a judged run are listed.
const maxNotes = 10

// writeNotes says why groups have no judged run.
func writeNotes(out io.Writer, r *analyze.Report) error {
	var notes []string
	for _, g := range r.Groups {
		if g.Note != "" {
			notes = append(notes, fmt.Sprintf("group %q: %s", g.Name, g.Note))
		}
	}
	if len(notes) == 0 {
		return nil
	}
	list := notes[:min(len(notes), maxNotes)]
	if more := len(notes) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more such groups", more))
	}
	_, err := fmt.Fprintf(out, "\nNothing was judged in %d of %d groups:\n  %s\nWhich runs are one group is said by --chamber-column, --recipe-column and --group-column.\n",
		len(notes), len(r.Groups), strings.Join(list, "\n  "))
	return err
}
