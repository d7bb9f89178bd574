// Handoffbench moves keys between workers under load in several ways, side by
// side, and prints one table.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/muster-dev/muster/bench/handoff"
)

func main() {
	handoff.ServeIfChild()
	file := flag.String("json", "", "also write every run to `FILE`")
	runs := flag.Int("runs", 3, "`number` of runs of each contender in each case with one replica; with three it is one less, at least 1")
	quick := flag.Bool("quick", false, "one run of a small case with one replica, without the contenders that notice a crash after 45 s; about four minutes")
	matrix := flag.Bool("matrix", false, "the one table instead: every way to publish, consume and acknowledge in its best configuration, with one replica and three, default sync and always; about 24 minutes a run, so give -runs 1")
	only := flag.String("only", "", "only contenders whose name contains `TEXT`")
	profiles := flag.String("profiles", "", "write CPU profiles of the workers and the NATS servers during each drain to `DIRECTORY`, which must exist")
	backlog := flag.Int("backlog", 0, "drain this `number` of messages instead of each case's own; for a profile take 200000")
	flag.Parse()
	turns := handoff.Turns(*runs, *quick, *only)
	if *matrix {
		turns = handoff.Matrix(*runs, *quick, *only)
	}
	for i := range turns {
		turns[i].Profiles = *profiles
		if *backlog > 0 {
			turns[i].Load.Backlog = *backlog
		}
	}
	var faults []string
	if *backlog < 0 {
		faults = append(faults, fmt.Sprintf("-backlog is %d: give 0 or more", *backlog))
	}
	if flag.NArg() > 0 {
		faults = append(faults, fmt.Sprintf("takes no arguments, %d are given", flag.NArg()))
	}
	if *runs < 1 {
		faults = append(faults, fmt.Sprintf("-runs is %d: give at least 1", *runs))
	}
	if len(turns) == 0 {
		faults = append(faults, fmt.Sprintf("-only %q fits no contender: give part of the name of one of %q", *only, names(*matrix)))
	}
	if faults != nil {
		_, _ = fmt.Fprintln(os.Stderr, "handoffbench:", strings.Join(faults, "\nhandoffbench: "))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, os.Stderr, turns, *file); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "handoffbench:", err)
		stop()
		os.Exit(1)
	}
}

// names returns the names of all contenders, each once.
func names(matrix bool) []string {
	turns := handoff.Turns(1, false, "")
	if matrix {
		turns = handoff.Matrix(1, false, "")
	}
	var all []string
	for _, t := range turns {
		for _, c := range t.Contenders {
			if !slices.Contains(all, c.Name) {
				all = append(all, c.Name)
			}
		}
	}
	return all
}

// report is the form of the JSON file.
type report struct {
	Go      string           `json:"go"`
	CPUs    int              `json:"cpus"`
	Results []handoff.Result `json:"results"`
}

func run(ctx context.Context, out, progress io.Writer, turns []handoff.Turn, file string) error {
	_, _ = fmt.Fprintln(out, "stores in", handoff.StoreFilesystem())
	began := time.Now()
	results, err := handoff.Measure(ctx, turns, func(r handoff.Result, x handoff.Run) {
		_, _ = fmt.Fprintf(progress, "%4.0f s: %s, %d to %d workers, %d replicas, sync %s: %d published, %d lost, %.0f drained/s\n",
			time.Since(began).Seconds(), r.Contender, r.Before, r.After, r.Replicas, r.Sync, x.Published, x.Lost, x.Rate())
	})
	return errors.Join(err, show(out, results, file))
}

// show prints the table and writes the file, if it is wanted.
func show(out io.Writer, results []handoff.Result, file string) error {
	if err := table(out, results); err != nil || file == "" {
		return err
	}
	text, err := json.MarshalIndent(report{runtime.Version(), runtime.GOMAXPROCS(0), results}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// column is a column of the table; what a run doesn't have is left empty.
type column struct {
	head string
	of   func(handoff.Result) string
}

var columns = []column{
	{"keys", func(r handoff.Result) string { return fmt.Sprint(r.Keys) }},
	{"workers", func(r handoff.Result) string { return fmt.Sprintf("%d to %d", r.Before, r.After) }},
	{"replicas", func(r handoff.Result) string { return fmt.Sprint(r.Replicas) }},
	{"sync", func(r handoff.Result) string { return r.Sync }},
	{"contender", func(r handoff.Result) string { return r.Contender }},
	{"published", func(r handoff.Result) string { return fmt.Sprint(r.Sum().Published) }},
	{"lost", func(r handoff.Result) string { return fmt.Sprint(r.Sum().Lost) }},
	{"conc.", func(r handoff.Result) string { return fmt.Sprint(r.Sum().Concurrent) }},
	{"disorder", func(r handoff.Result) string { return fmt.Sprint(r.Sum().OutOfOrder) }},
	{"dupl.", func(r handoff.Result) string { return fmt.Sprint(r.Sum().Duplicates) }},
	{"moved", func(r handoff.Result) string { return positive("%.0f", float64(r.Spread(pause).N)) }},
	{"pause p50", func(r handoff.Result) string { return quantile(r.Spread(pause), r.Spread(pause).P50) }},
	{"p99", func(r handoff.Result) string { return quantile(r.Spread(pause), r.Spread(pause).P99) }},
	{"max, ms", func(r handoff.Result) string { return quantile(r.Spread(pause), r.Spread(pause).Max) }},
	{"takeover p50", func(r handoff.Result) string { return quantile(r.Spread(takeover), r.Spread(takeover).P50) }},
	{"p99, ms", func(r handoff.Result) string { return quantile(r.Spread(takeover), r.Spread(takeover).P99) }},
	{"published/s", func(r handoff.Result) string { return positive("%.0f", r.PublishRate()) }},
	{"drained/s", func(r handoff.Result) string { return positive("%.0f", r.Median(handoff.Run.Rate)) }},
	{"broker µs", func(r handoff.Result) string { return positive("%.1f", r.Median(handoff.Run.ServerPerMessage)) }},
	{"client µs", func(r handoff.Result) string { return positive("%.1f", r.Median(handoff.Run.ClientPerMessage)) }},
	{"runs", func(r handoff.Result) string { return fmt.Sprint(len(r.Runs)) }},
}

func table(out io.Writer, results []handoff.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, c := range columns {
		_, _ = fmt.Fprint(w, c.head, "\t")
	}
	_, _ = fmt.Fprintln(w)
	for i, r := range results {
		if i > 0 && !together(results[i-1], r) {
			_, _ = fmt.Fprintln(w, strings.Repeat("\t", len(columns)))
		}
		for _, c := range columns {
			_, _ = fmt.Fprint(w, c.of(r), "\t")
		}
		_, _ = fmt.Fprintln(w)
	}
	return w.Flush()
}

// together reports whether two results are of one turn.
func together(a, b handoff.Result) bool {
	return a.Case == b.Case && a.Replicas == b.Replicas && a.Sync == b.Sync
}

func pause(r handoff.Run) handoff.Spread    { return r.Pause }
func takeover(r handoff.Run) handoff.Spread { return r.Takeover }

func quantile(s handoff.Spread, d time.Duration) string {
	if s.N == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", float64(d)/1e6)
}

func positive(format string, x float64) string {
	if x <= 0 {
		return ""
	}
	return fmt.Sprintf(format, x)
}
