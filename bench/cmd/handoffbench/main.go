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
	quick := flag.Bool("quick", false, "one run of a small case with one replica, under a minute")
	only := flag.String("only", "", "only contenders whose name contains `TEXT`")
	flag.Parse()
	turns := handoff.Turns(*runs, *quick, *only)
	var faults []string
	if flag.NArg() > 0 {
		faults = append(faults, fmt.Sprintf("takes no arguments, %d are given", flag.NArg()))
	}
	if *runs < 1 {
		faults = append(faults, fmt.Sprintf("-runs is %d: give at least 1", *runs))
	}
	if len(turns) == 0 {
		faults = append(faults, fmt.Sprintf("-only %q fits no contender: give part of the name of one of %q", *only, names()))
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

func names() []string {
	var all []string
	for _, c := range handoff.Contenders() {
		if !slices.Contains(all, c.Name) {
			all = append(all, c.Name)
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
		_, _ = fmt.Fprintf(progress, "%4.0f s: %s, %d to %d workers, %d replicas: %d published, %d lost\n", time.Since(began).Seconds(), r.Contender, r.Before, r.After, r.Replicas, x.Published, x.Lost)
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

func table(out io.Writer, results []handoff.Result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "keys\tworkers\treplicas\tcontender\tpublished\tlost\tconc.\tdisorder\tdupl.\tmoved\tpause p50\tp99\tmax, ms\tstuck\tdrained/s\tper core\tserver µs\truns\t")
	for i, r := range results {
		if i > 0 && (results[i-1].Case != r.Case || results[i-1].Replicas != r.Replicas) {
			_, _ = fmt.Fprintln(w, strings.Repeat("\t", 18))
		}
		f, p := r.Sum(), r.Pause()
		_, _ = fmt.Fprintf(w, "%d\t%d to %d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%d\t\n", r.Keys, r.Before, r.After, r.Replicas, r.Contender,
			f.Published, f.Lost, f.Concurrent, f.OutOfOrder, f.Duplicates, p.N, ms(p.P50), ms(p.P99), ms(p.Max), stuck(r),
			drained(r, handoff.Run.Rate), drained(r, handoff.Run.PerCore), drained(r, func(x handoff.Run) float64 { return float64(x.ServerPerMessage()) / 1e3 }), len(r.Runs))
	}
	return w.Flush()
}

func stuck(r handoff.Result) (n int) {
	for _, x := range r.Runs {
		n += x.Stuck
	}
	return n
}

// drained shows the median of a figure of the drain, if there was one.
func drained(r handoff.Result, of func(handoff.Run) float64) string {
	if !slices.ContainsFunc(r.Runs, func(x handoff.Run) bool { return x.Drained > 0 }) {
		return ""
	}
	return fmt.Sprintf("%.0f", r.Median(of))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }
