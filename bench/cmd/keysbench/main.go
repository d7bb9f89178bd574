// Keysbench disturbs slots with one key that has far more messages than the others, or a far
// slower handler, and prints one table: how long the messages of the other keys take then.
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
	load := handoff.FullKeyLoad()
	file := flag.String("json", "", "also write every round to `FILE`")
	quick := flag.Bool("quick", false, "one short round with fewer keys, to see that every contender works")
	only := flag.String("only", "", "only contenders whose name contains `TEXT`: \"muster\", \"64 in flight\", \"Kafka\"")
	flag.IntVar(&load.Rounds, "rounds", load.Rounds, "`number` of rounds, in each of which the disturbances take turns")
	flag.DurationVar(&load.During, "time", load.During, "`time` that messages are published for with each disturbance; at least 1s")
	flag.Parse()
	if *quick {
		load = handoff.QuickKeyLoad()
	}
	contenders := slices.DeleteFunc(handoff.KeyContenders(), func(c handoff.Contender) bool { return !strings.Contains(c.Name, *only) })
	if faults := faults(load, contenders, *only); faults != nil {
		_, _ = fmt.Fprintln(os.Stderr, "keysbench:", strings.Join(faults, "\nkeysbench: "))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, contenders, load, *file); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "keysbench:", err)
		stop()
		os.Exit(1)
	}
}

// faults returns what is wrong with how the program was called.
func faults(load handoff.KeyLoad, contenders []handoff.Contender, only string) (faults []string) {
	if flag.NArg() > 0 {
		faults = append(faults, fmt.Sprintf("takes no arguments, %d are given", flag.NArg()))
	}
	if load.Rounds < 1 {
		faults = append(faults, fmt.Sprintf("-rounds is %d: give at least 1", load.Rounds))
	}
	if load.During < time.Second {
		faults = append(faults, fmt.Sprintf("-time is %v: give at least 1s", load.During))
	}
	if len(contenders) == 0 {
		faults = append(faults, fmt.Sprintf("-only %q fits no contender, such as \"muster\"", only))
	}
	return faults
}

// report is the form of the JSON file.
type report struct {
	Go      string              `json:"go"`
	CPUs    int                 `json:"cpus"`
	Results []handoff.KeyResult `json:"results"`
}

func run(ctx context.Context, contenders []handoff.Contender, load handoff.KeyLoad, file string) error {
	fmt.Println("stores in", handoff.StoreFilesystem())
	began := time.Now()
	var results []handoff.KeyResult
	var errs []error
	for _, c := range contenders {
		if ctx.Err() != nil {
			break
		}
		r, err := handoff.MeasureKeys(ctx, c, load)
		if err != nil {
			errs = append(errs, fmt.Errorf("measuring %s: %w", c.Name, err))
			continue
		}
		_, _ = fmt.Fprintf(os.Stderr, "%4.0f s: %s\n", time.Since(began).Seconds(), c.Name)
		results = append(results, r)
	}
	return errors.Join(errors.Join(errs...), ctx.Err(), show(results, file))
}

// show prints the table and writes the file, if it is wanted.
func show(results []handoff.KeyResult, file string) error {
	if err := table(os.Stdout, results); err != nil || file == "" {
		return err
	}
	text, err := json.MarshalIndent(report{runtime.Version(), runtime.GOMAXPROCS(0), results}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// head names the columns. The first p50 and p99 are of the other keys of a disturbed slot.
const head = "contender\tone key is\tothers, p50\tp99, ms\ttimes p99\tthe key, p50\tp99, ms\tother slots, p99, ms\tlost\tconc.\tdisorder\tdupl.\trounds\t"

func table(out io.Writer, results []handoff.KeyResult) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, head)
	for i, r := range results {
		if i > 0 {
			_, _ = fmt.Fprintln(w, strings.Repeat("\t", strings.Count(head, "\t")))
		}
		for d, of := range handoff.Disturbances() {
			ms := func(quantile func(handoff.KeyPhase) time.Duration) string {
				return fmt.Sprintf("%.1f", float64(r.Median(d, quantile))/1e6)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f\t%s\t%s\t%s\t", r.Contender, text(of),
				ms(func(p handoff.KeyPhase) time.Duration { return p.Neighbors.P50 }),
				ms(func(p handoff.KeyPhase) time.Duration { return p.Neighbors.P99 }), r.Ratio(d),
				ms(func(p handoff.KeyPhase) time.Duration { return p.Odd.P50 }),
				ms(func(p handoff.KeyPhase) time.Duration { return p.Odd.P99 }),
				ms(func(p handoff.KeyPhase) time.Duration { return p.Elsewhere.P99 }))
			// They are of all phases, so they are shown once.
			if d == 0 {
				_, _ = fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%d\t\n", r.Lost, r.Concurrent, r.OutOfOrder, r.Duplicates, len(r.Rounds))
			} else {
				_, _ = fmt.Fprintln(w, "\t\t\t\t\t")
			}
		}
	}
	return w.Flush()
}

// text describes a disturbance.
func text(d handoff.Disturbance) string {
	switch {
	case d.Rate > 1:
		return fmt.Sprintf("%s, %d times the rate", d.Name, d.Rate)
	case d.Work > 1:
		return fmt.Sprintf("%s, %d times the time", d.Name, d.Work)
	}
	return "as the others"
}
