// Package backtest has the command that runs a recorded load through the simulated cluster.
package backtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/internal/command"
	"github.com/muster-dev/muster/internal/command/nodes"
	"github.com/muster-dev/muster/nodes/backtest"
	"github.com/muster-dev/muster/nodes/connect"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/fit"
)

// flags are what is asked of a backtest besides the settings that it tests.
type flags struct {
	trace, chart   string
	days, from, to float64
	interval, boot time.Duration
	spotShare      float64
	seed           uint64
	sweep          []string
}

// New returns the command backtest.
func New() *cobra.Command {
	var n *nodes.Command
	var b flags
	cmd := &cobra.Command{
		Use:   "backtest",
		Short: "Run a recorded pod trace through the simulated cluster and the real reconciler",
		Long: "Backtest tells what the settings would have meant for a recorded load: how long pods\n" +
			"waited, node-hours and their cost, what was done. The pods' CPU and memory requests\n" +
			"and the times they ran are the trace's; GPUs are ignored. Decisions and transactions\n" +
			"are those of production, cloud and cluster are simulated, on virtual time.\n\n" +
			"A trace is a CSV file with the columns name, cpu_milli, memory_mib, creation_time,\n" +
			"deletion_time and scheduled_time (seconds; scheduled_time empty if the pod never ran).\n" +
			"With POOLS, a column pool names the pool that a pod is for.\n\n" +
			"Without INSTANCE_TYPES it takes c6i, m6i and r6i from 16 to 128 vCPUs, the one first that\n" +
			"runs every pod, and without MAX_WORKERS 100. With perfect foresight means: every pod runs\n" +
			"from its creation, nodes come and go in no time and are filled without gaps.",
		Example: "  muster nodes backtest --trace pods.csv --days 7 --sizing fit --chart week.svg\n" +
			"  muster nodes backtest --trace pods.csv --sweep SIZING=fit,pods-per-node --sweep PENDING_UP_SEC=60,180\n" +
			"  muster nodes backtest --trace pods.csv --from 120 --to 127 --spot-share 0.5 --output json",
		Args: command.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return b.run(cmd.Context(), n) },
	}
	n = nodes.NewCommand(nodes.Options{}, cmd, connect.Known(connect.Groups()[:1]))
	f := cmd.Flags()
	f.StringVar(&b.trace, "trace", "", "the trace's file")
	f.Float64Var(&b.days, "days", 0, "only the busiest N days in a row")
	f.Float64Var(&b.from, "from", -1, "only from this day of the trace")
	f.Float64Var(&b.to, "to", -1, "only until this day of the trace")
	f.StringArrayVar(&b.sweep, "sweep", nil, "SETTING=value,value: run with each, side by side; several combine")
	f.StringVar(&b.chart, "chart", "", "draw nodes and waiting pods over time into this .svg file")
	f.Uint64Var(&b.seed, "seed", 1, "of what is drawn: how long instances boot; the same seed gives the same result")
	f.DurationVar(&b.interval, "interval", time.Minute, "between two ticks")
	f.DurationVar(&b.boot, "boot", 90*time.Second, "from launch to Ready, on average; drawn within a third around it")
	f.Float64Var(&b.spotShare, "spot-share", -1, "share of node-hours paid at the Spot price, 0..1; by default as launched")
	return cmd
}

func (b flags) run(ctx context.Context, n *nodes.Command) error {
	wrong := func(err error) error { return command.UsageError(n.Command, err) }
	src, err := n.Sources()
	if err != nil {
		return err
	}
	axes, err := b.check(n.Flags().Changed)
	if err != nil {
		return wrong(err)
	}
	trace, err := openTrace(b.trace)
	if err != nil {
		return wrong(err)
	}
	c := backtest.Config{Trace: trace, Interval: b.interval, Boot: b.boot, Spread: 1. / 3, SpotShare: b.spotShare, Seed: b.seed}
	if c.Window, err = b.window(trace, n.Flags().Changed); err != nil {
		return wrong(err)
	}
	table, _ := src.Lookup("INSTANCE_TABLE")
	if c.Catalog, err = fit.OpenCatalog(table); err != nil {
		return wrong(err)
	}
	pods, _ := trace.Cut(c.Window)
	src.Defaults = map[string]string{"MAX_WORKERS": "100"}
	if types := backtest.DefaultTypes(c.Catalog, pods); len(types) > 0 {
		src.Defaults["INSTANCE_TYPES"] = strings.Join(types, ",")
	}
	combinations, err := backtest.Combine(axes, src.Lookup)
	if err != nil {
		return wrong(err)
	}
	for _, k := range combinations {
		if err := c.Check(k.Policy); err != nil {
			return wrong(err)
		}
	}
	results, err := backtest.Sweep(ctx, c, combinations, nil)
	if err != nil {
		return err
	}
	if b.chart != "" {
		if err := backtest.WriteChart(b.chart, results...); err != nil {
			return err
		}
	}
	return n.Write(results, func(w io.Writer, _ explain.Style) error { return backtest.WriteTable(w, results...) })
}

// check looks at the flags alone; the error lists all that is wrong with them.
func (b flags) check(changed func(string) bool) ([]backtest.Axis, error) {
	var errs []error
	wrong := func(ok bool, text string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(text, args...))
		}
	}
	wrong(b.trace != "", "--trace is missing: give the trace's file")
	wrong(!changed("days") || b.days > 0, "--days is %v: use a number above 0", b.days)
	wrong(!changed("from") || b.from >= 0, "--from is %v: use a day of the trace, 0 or more", b.from)
	wrong(!changed("to") || b.to > max(b.from, 0), "--to is %v: use a day after --from", b.to)
	wrong(!changed("days") || !changed("from") && !changed("to"), "--days and --from or --to: choose the busiest days, or name them")
	wrong(b.interval >= time.Second, "--interval is %v: use a second or more", b.interval)
	wrong(b.boot >= time.Second, "--boot is %v: use a second or more", b.boot)
	wrong(!changed("spot-share") || b.spotShare >= 0 && b.spotShare <= 1, "--spot-share is %v: use a share from 0 to 1", b.spotShare)
	if b.chart != "" {
		err := backtest.CheckChartName(b.chart)
		wrong(err == nil, "--chart: %w", err)
	}
	var axes []backtest.Axis
	for _, s := range b.sweep {
		a, err := backtest.ParseAxis(s)
		wrong(err == nil, "--sweep: %w", err)
		axes = append(axes, a)
	}
	return axes, errors.Join(errs...)
}

// window turns the flags into a window of the trace.
func (b flags) window(t backtest.Trace, changed func(string) bool) (backtest.Window, error) {
	day := func(d float64) time.Duration { return time.Duration(d * 24 * float64(time.Hour)) }
	w := t.Whole()
	if changed("days") {
		return t.Busiest(day(b.days)), nil
	}
	if changed("from") {
		w.From = day(b.from)
	}
	if changed("to") {
		w.To = day(b.to)
	}
	if pods, _ := t.Cut(w); w.To <= w.From || len(pods) == 0 {
		whole := t.Whole()
		return w, fmt.Errorf("--from and --to: no pod is between day %.2f and %.2f; the trace is from day %.2f to %.2f",
			w.From.Hours()/24, w.To.Hours()/24, whole.From.Hours()/24, whole.To.Hours()/24)
	}
	return w, nil
}

func openTrace(path string) (backtest.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return backtest.Trace{}, fmt.Errorf("--trace: %w", err)
	}
	defer func() { _ = f.Close() }()
	return backtest.ReadTrace(path, f)
}
