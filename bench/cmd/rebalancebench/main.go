// Rebalancebench changes the number of consumers of 900 partitions, with Muster and with Kafka's
// protocols, and prints one table: how long it takes until all have their share, and for how
// long no consumer worked on a partition.
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
	runs := flag.Int("runs", 1, "`number` of runs of each contender; they take turns")
	quick := flag.Bool("quick", false, "90 partitions and four consumers: to see that every contender works")
	defaults := flag.Bool("defaults", false, "also Kafka's clients with the timers that are their defaults, which notice a crash after 45 s, and its older protocol")
	only := flag.String("only", "", "only contenders whose name contains `TEXT`: \"muster\", \"KIP-848\", \"Java\"")
	flag.Parse()
	contenders := slices.DeleteFunc(handoff.Rebalancers(*defaults), func(c handoff.Contender) bool { return !strings.Contains(c.Name, *only) })
	var faults []string
	if flag.NArg() > 0 {
		faults = append(faults, fmt.Sprintf("takes no arguments, %d are given", flag.NArg()))
	}
	if *runs < 1 {
		faults = append(faults, fmt.Sprintf("-runs is %d: give at least 1", *runs))
	}
	if len(contenders) == 0 {
		faults = append(faults, fmt.Sprintf("-only %q fits no contender, such as \"muster\"", *only))
	}
	if faults != nil {
		_, _ = fmt.Fprintln(os.Stderr, "rebalancebench:", strings.Join(faults, "\nrebalancebench: "))
		flag.Usage()
		os.Exit(2)
	}
	load := handoff.FullRebalance()
	if *quick {
		load = handoff.QuickRebalance()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, contenders, load, *runs, *file); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "rebalancebench:", err)
		stop()
		os.Exit(1)
	}
}

// report is the form of the JSON file.
type report struct {
	Go   string                 `json:"go"`
	CPUs int                    `json:"cpus"`
	Runs []handoff.RebalanceRun `json:"runs"`
}

func run(ctx context.Context, contenders []handoff.Contender, load handoff.RebalanceLoad, times int, file string) error {
	fmt.Println("stores in", handoff.StoreFilesystem())
	began := time.Now()
	var all []handoff.RebalanceRun
	var errs []error
	for range times {
		for _, c := range contenders {
			if ctx.Err() != nil {
				break
			}
			runs, err := handoff.MeasureRebalances(ctx, c, load)
			if err != nil {
				errs = append(errs, fmt.Errorf("measuring %s: %w", c.Name, err))
			}
			all = append(all, runs...)
			_, _ = fmt.Fprintf(os.Stderr, "%4.0f s: %s\n", time.Since(began).Seconds(), c.Name)
		}
	}
	return errors.Join(errors.Join(errs...), ctx.Err(), show(contenders, load, all, file))
}

// show prints the table and writes the file, if it is wanted.
func show(contenders []handoff.Contender, load handoff.RebalanceLoad, runs []handoff.RebalanceRun, file string) error {
	if err := table(os.Stdout, contenders, load, runs); err != nil || file == "" {
		return err
	}
	text, err := json.MarshalIndent(report{runtime.Version(), runtime.GOMAXPROCS(0), runs}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

const head = "partitions\tstep\tconsumers\tcontender\tassigned, s\tconsuming, s\tmoves\tpause p50\tp99\tlongest, ms\tlost\tconc.\tdisorder\tdupl.\truns\t"

// table has the steps one below the other, each with all contenders. What is lost and so on is
// of a whole group, with all of its steps.
func table(out io.Writer, contenders []handoff.Contender, load handoff.RebalanceLoad, runs []handoff.RebalanceRun) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, head)
	for i, name := range handoff.StepNames() {
		if i > 0 {
			_, _ = fmt.Fprintln(w, strings.Repeat("\t", strings.Count(head, "\t")))
		}
		for _, c := range contenders {
			s, f, n := handoff.StepOf(runs, c.Name, name)
			if n == 0 {
				continue
			}
			_, _ = fmt.Fprintf(w, "%d\t%s\t%d to %d\t%s\t%.2f\t%.2f\t%d\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t\n", load.Partitions, s.Name, s.From, s.To, c.Name,
				s.Assigned.Seconds(), s.Consuming.Seconds(), s.Moves, ms(s.Pause.P50), ms(s.Pause.P99), ms(s.Pause.Max),
				f.Lost, f.Concurrent, f.OutOfOrder, f.Duplicates, n)
		}
	}
	return w.Flush()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }
