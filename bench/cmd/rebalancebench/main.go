// Rebalancebench changes the number of consumers of 900 partitions, with Muster and with Kafka's
// protocols, and prints one table: how long it takes until all have their share, and for how
// long nobody worked on a partition.
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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/muster-dev/muster/bench/handoff"
)

func main() {
	handoff.ServeIfChild()
	file := flag.String("json", "", "also write every run to `FILE`")
	runs := flag.Int("runs", 3, "`number` of runs of each contender in each case; they take turns")
	only := flag.String("only", "", "only contenders whose name contains `TEXT`: \"muster\", \"KIP-848\", \"cooperative, fast\"")
	flag.Parse()
	turns := handoff.Rebalances(*runs, *only)
	var faults []string
	if flag.NArg() > 0 {
		faults = append(faults, fmt.Sprintf("takes no arguments, %d are given", flag.NArg()))
	}
	if *runs < 1 {
		faults = append(faults, fmt.Sprintf("-runs is %d: give at least 1", *runs))
	}
	if len(turns) == 0 {
		faults = append(faults, fmt.Sprintf("-only %q fits no contender, such as \"muster\"", *only))
	}
	if faults != nil {
		_, _ = fmt.Fprintln(os.Stderr, "rebalancebench:", strings.Join(faults, "\nrebalancebench: "))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, turns, *file); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "rebalancebench:", err)
		stop()
		os.Exit(1)
	}
}

// report is the form of the JSON file.
type report struct {
	Go      string           `json:"go"`
	CPUs    int              `json:"cpus"`
	Results []handoff.Result `json:"results"`
}

func run(ctx context.Context, turns []handoff.Turn, file string) error {
	began := time.Now()
	results, err := handoff.Measure(ctx, turns, func(r handoff.Result, x handoff.Run) {
		_, _ = fmt.Fprintf(os.Stderr, "%4.0f s: %s, %d to %d consumers: stable after %.1f s\n", time.Since(began).Seconds(), r.Contender, r.Before, r.After, x.Stable.Seconds())
	})
	return errors.Join(err, show(results, file))
}

// show prints the table and writes the file, if it is wanted.
func show(results []handoff.Result, file string) error {
	if err := table(os.Stdout, results); err != nil || file == "" {
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
	_, _ = fmt.Fprintln(w, "partitions\tconsumers\tcontender\tfirst start, s\tstable, s\tmoved\tpause p50\tp99\tmax, ms\tlost\tconc.\tdisorder\tdupl.\truns\t")
	for i, r := range results {
		if i > 0 && results[i-1].Case != r.Case {
			_, _ = fmt.Fprintln(w, strings.Repeat("\t", 14))
		}
		started := r.Median(func(x handoff.Run) float64 { return x.Started.Seconds() })
		stable := r.Median(func(x handoff.Run) float64 { return x.Stable.Seconds() })
		pause := r.Spread(func(x handoff.Run) handoff.Spread { return x.Pause })
		f := r.Sum()
		_, _ = fmt.Fprintf(w, "%d\t%d to %d\t%s\t%.2f\t%.2f\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t\n", r.Slots, r.Before, r.After, r.Contender,
			started, stable, pause.N, ms(pause.P50), ms(pause.P99), ms(pause.Max), f.Lost, f.Concurrent, f.OutOfOrder, f.Duplicates, len(r.Runs))
	}
	return w.Flush()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }
