// Syncbench measures what each sync mode of NATS servers costs: publish, and publish,
// consume and ack, with one server and three, with 1 and 32 publishers, beside the rate at
// which the disk syncs a file in the same run.
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
	dir := flag.String("dir", os.TempDir(), "keep the stores in this `DIRECTORY`, on the disk that is to be measured")
	runs := flag.Int("runs", 3, "`number` of runs of each mode; the modes take turns")
	during := flag.Duration("time", 5*time.Second, "`time` that each run publishes for")
	only := flag.String("only", "", "only modes whose text contains `TEXT`: \"R1\", \"sync always\", \"ack, R3\"")
	flag.Parse()
	modes := slices.DeleteFunc(handoff.SyncModes(), func(m handoff.SyncMode) bool { return !strings.Contains(m.String(), *only) })
	var faults []string
	for _, c := range []struct {
		wrong bool
		text  string
	}{
		{flag.NArg() > 0, fmt.Sprintf("takes no arguments, %d are given", flag.NArg())},
		{*runs < 1, fmt.Sprintf("-runs is %d: give at least 1", *runs)},
		{*during < 100*time.Millisecond, fmt.Sprintf("-time is %v: give at least 100ms", *during)},
		{len(modes) == 0, fmt.Sprintf("-only %q fits no mode, such as %q", *only, handoff.SyncModes()[0])},
	} {
		if c.wrong {
			faults = append(faults, c.text)
		}
	}
	if faults != nil {
		_, _ = fmt.Fprintln(os.Stderr, "syncbench:", strings.Join(faults, "\nsyncbench: "))
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, modes, *runs, *dir, *during, *file); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "syncbench:", err)
		stop()
		os.Exit(1)
	}
}

// report is the form of the JSON file.
type report struct {
	Go   string            `json:"go"`
	CPUs int               `json:"cpus"`
	Runs []handoff.SyncRun `json:"runs"`
}

func run(ctx context.Context, modes []handoff.SyncMode, runs int, dir string, during time.Duration, file string) error {
	_, _ = fmt.Fprintln(os.Stdout, "stores in", handoff.FilesystemOf(dir))
	byMode := map[handoff.SyncMode][]handoff.SyncRun{}
	var all []handoff.SyncRun
	var errs []error
	for range runs {
		for _, m := range modes {
			if ctx.Err() != nil {
				break
			}
			r, err := handoff.MeasureSync(ctx, m, dir, during)
			if err != nil {
				errs = append(errs, fmt.Errorf("measuring %v: %w", m, err))
				continue
			}
			_, _ = fmt.Fprintf(os.Stderr, "%v: %.0f/s, %.0f fsyncs/s\n", m, r.PerSecond, r.Fsyncs)
			byMode[m], all = append(byMode[m], r), append(all, r)
		}
	}
	err := errors.Join(errors.Join(errs...), ctx.Err(), table(os.Stdout, modes, byMode))
	if err != nil || file == "" {
		return err
	}
	text, err := json.MarshalIndent(report{runtime.Version(), runtime.GOMAXPROCS(0), all}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// table shows the medians; "of default" compares a mode with the same one at the default
// sync.
func table(out io.Writer, modes []handoff.SyncMode, byMode map[handoff.SyncMode][]handoff.SyncRun) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(w, "what\treplicas\tpublishers\tsync\t/s\tof default\tper fsync\truns\t")
	rate := func(r handoff.SyncRun) float64 { return r.PerSecond }
	for _, m := range modes {
		rs := byMode[m]
		if len(rs) == 0 {
			continue
		}
		what, of := "publish", "-"
		if m.Consume {
			what = "publish, consume, ack"
		}
		base := m
		base.Sync = "default"
		if b := byMode[base]; len(b) > 0 {
			of = fmt.Sprintf("%.2f", median(rs, rate)/median(b, rate))
		}
		_, _ = fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%.0f\t%s\t%.2f\t%d\t\n", what, m.Replicas, m.Publishers, m.Sync, median(rs, rate), of,
			median(rs, func(r handoff.SyncRun) float64 { return r.PerSecond / r.Fsyncs }), len(rs))
	}
	return w.Flush()
}

func median(runs []handoff.SyncRun, of func(handoff.SyncRun) float64) float64 {
	var xs []float64
	for _, r := range runs {
		xs = append(xs, of(r))
	}
	slices.Sort(xs)
	return (xs[(len(xs)-1)/2] + xs[len(xs)/2]) / 2
}
