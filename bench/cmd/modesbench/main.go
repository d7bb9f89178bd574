// Modesbench drains full streams by one bare consumer a slot, in every mode that
// there is to keep messages and to give them out, and prints one table.
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
	runs := flag.Int("runs", 1, "`number` of runs of each mode; the modes take turns")
	slots := flag.Int("slots", 512, "`number` of slots, one consumer each; at least 8")
	messages := flag.Int("messages", 20_000, "`number` of messages to drain")
	replicas := flag.Int("replicas", 1, "`number` of servers and of replicas of everything: 1, 3 or 5")
	only := flag.String("only", "", "only modes whose text contains `TEXT`: \"work queue\", \"1 in flight\", \"4 shards\"")
	flag.Parse()
	modes := slices.DeleteFunc(handoff.Modes(*slots, *replicas), func(m handoff.Mode) bool { return !strings.Contains(", "+m.String(), *only) })
	var faults []string
	for _, c := range []struct {
		wrong bool
		text  string
	}{
		{flag.NArg() > 0, fmt.Sprintf("takes no arguments, %d are given", flag.NArg())},
		{*runs < 1, fmt.Sprintf("-runs is %d: give at least 1", *runs)},
		{*slots < 8 || *slots > 4096, fmt.Sprintf("-slots is %d: give 8 to 4096", *slots)},
		{*messages < 1, fmt.Sprintf("-messages is %d: give at least 1", *messages)},
		{*replicas != 1 && *replicas != 3 && *replicas != 5, fmt.Sprintf("-replicas is %d: give 1, 3 or 5", *replicas)},
		{len(modes) == 0, fmt.Sprintf("-only %q fits no mode, such as %q", *only, handoff.Mode{InFlight: 1, Shards: 4, Slots: 512, Replicas: 1})},
	} {
		if c.wrong {
			faults = append(faults, c.text)
		}
	}
	if faults != nil {
		_, _ = fmt.Fprintln(os.Stderr, "modesbench:", strings.Join(faults, "\nmodesbench: "))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, modes, *runs, *messages, *file); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "modesbench:", err)
		stop()
		os.Exit(1)
	}
}

// report is the form of the JSON file.
type report struct {
	Go   string            `json:"go"`
	CPUs int               `json:"cpus"`
	Runs []handoff.ModeRun `json:"runs"`
}

func run(ctx context.Context, modes []handoff.Mode, runs, messages int, file string) error {
	began := time.Now()
	_, _ = fmt.Fprintln(os.Stdout, "stores in", handoff.StoreFilesystem())
	byMode := map[handoff.Mode][]handoff.ModeRun{}
	var all []handoff.ModeRun
	var errs []error
	for range runs {
		for _, m := range modes {
			if ctx.Err() != nil {
				break
			}
			r, err := handoff.MeasureMode(ctx, m, messages)
			if err != nil {
				errs = append(errs, fmt.Errorf("measuring %v: %w", m, err))
				continue
			}
			_, _ = fmt.Fprintf(os.Stderr, "%4.0f s: %v: %.0f messages/s\n", time.Since(began).Seconds(), m, r.Rate())
			byMode[m], all = append(byMode[m], r), append(all, r)
		}
	}
	modes = slices.DeleteFunc(modes, func(m handoff.Mode) bool { return len(byMode[m]) == 0 })
	return errors.Join(errors.Join(errs...), ctx.Err(), show(modes, byMode, all, file))
}

func show(modes []handoff.Mode, byMode map[handoff.Mode][]handoff.ModeRun, all []handoff.ModeRun, file string) error {
	if err := table(os.Stdout, modes, byMode); err != nil || file == "" {
		return err
	}
	text, err := json.MarshalIndent(report{runtime.Version(), runtime.GOMAXPROCS(0), all}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func table(out io.Writer, modes []handoff.Mode, byMode map[handoff.Mode][]handoff.ModeRun) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "retention, state\tin flight\tshards\tslots\treplicas\tdrained/s\tserver µs\tagain\truns\t")
	for _, m := range modes {
		retention := "work queue, memory"
		if m.Limits {
			retention = "limits, file"
		}
		again := 0
		for _, r := range byMode[m] {
			again += r.Again
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%.0f\t%.0f\t%d\t%d\t\n", retention, m.InFlight, m.Shards, m.Slots, m.Replicas,
			median(byMode[m], handoff.ModeRun.Rate), median(byMode[m], func(r handoff.ModeRun) float64 { return float64(r.ServerPerMessage()) / 1e3 }), again, len(byMode[m]))
	}
	return w.Flush()
}

func median(runs []handoff.ModeRun, of func(handoff.ModeRun) float64) float64 {
	var xs []float64
	for _, r := range runs {
		xs = append(xs, of(r))
	}
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}
