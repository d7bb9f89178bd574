package backtest

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteTable writes results side by side for people, one column each.
func WriteTable(out io.Writer, results ...Result) error {
	w := &bytes.Buffer{}
	first := results[0]
	fmt.Fprintf(w, "trace            %s, day %.2f to %.2f (%.1f days)\n", first.Trace, first.From, first.To, first.To-first.From)
	fmt.Fprintf(w, "pods             %d, %d of them there when the window begins; CPU and memory as asked for, the GPUs of %d pods ignored\n", first.Pods.Total, first.Pods.Carried, first.Pods.GPU)
	same := func(f func(Result) string) bool {
		return !slices.ContainsFunc(results, func(r Result) bool { return f(r) != f(first) })
	}
	types := func(r Result) string { return strings.Join(r.Types, ",") }
	if same(types) {
		fmt.Fprintf(w, "instance types   %s\n", strings.Join(first.Types, ", "))
	}
	most := func(r Result) string { return fmt.Sprint(r.Max) }
	if same(most) {
		fmt.Fprintf(w, "MAX_WORKERS      %d\n", first.Max)
	}
	fmt.Fprintf(w, "seed             %d\n\n", first.Seed)

	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, f func(Result) string) {
		line := name + "\t"
		for _, r := range results {
			line += f(r) + "\t"
		}
		_, _ = fmt.Fprintln(t, line)
	}
	number := func(name string, f func(Result) int) {
		row(name, func(r Result) string { return fmt.Sprint(f(r)) })
	}
	for i, s := range first.Settings {
		row(s.Setting, func(r Result) string { return r.Settings[i].Value })
	}
	if len(first.Settings) == 0 {
		row("SIZING", func(r Result) string { return r.Sizing })
	}
	if !same(types) {
		row("INSTANCE_TYPES", types)
	}
	if !same(most) {
		row("MAX_WORKERS", most)
	}
	wait := func(name string, f func(Waiting) float64) {
		row(name, func(r Result) string { return span(f(r.Waiting)) })
	}
	wait("waiting p50", func(w Waiting) float64 { return w.P50 })
	wait("p90", func(w Waiting) float64 { return w.P90 })
	wait("p99", func(w Waiting) float64 { return w.P99 })
	wait("max", func(w Waiting) float64 { return w.Max })
	wait("mean", func(w Waiting) float64 { return w.Mean })
	row("node-hours", func(r Result) string { return fmt.Sprintf("%.1f", r.Nodes.Hours) })
	row("perfect foresight", func(r Result) string { return fmt.Sprintf("%.1f", r.Nodes.Foresight) })
	row("cost, USD", func(r Result) string { return fmt.Sprintf("%.2f", r.Nodes.Cost) })
	row("perfect foresight, USD", func(r Result) string { return fmt.Sprintf("%.2f", r.Nodes.BoundCost) })
	number("most nodes", func(r Result) int { return r.Nodes.Most })
	number("scale-ups", func(r Result) int { return r.Actions.ScaleUps })
	number("failed", func(r Result) int { return r.Actions.ScaleUpsFailed })
	number("scale-downs", func(r Result) int { return r.Actions.ScaleDowns })
	number("failed", func(r Result) int { return r.Actions.DownsFailed })
	number("nodes launched", func(r Result) int { return r.Actions.Launched })
	number("nodes terminated", func(r Result) int { return r.Actions.Terminated })
	number("pods ran", func(r Result) int { return r.Pods.Ran })
	number("pending at the end", func(r Result) int { return r.Pods.Pending })
	number("never fitting", func(r Result) int { return r.Pods.NeverFit })
	number("withdrawn", func(r Result) int { return r.Pods.Withdrawn })
	number("evicted", func(r Result) int { return r.Pods.Evicted })
	number("ticks", func(r Result) int { return r.Ticks })
	number("ticks with errors", func(r Result) int { return r.Errors })
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	said := map[string]bool{}
	for _, r := range results {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(r.Nodes.ByType)) {
			parts = append(parts, fmt.Sprintf("%s %.1f h", name, r.Nodes.ByType[name]))
		}
		fmt.Fprintf(w, "%s: %s\n", label(r), strings.Join(parts, ", "))
		if r.FirstErr != "" {
			fmt.Fprintf(w, "first error: %s\n", r.FirstErr)
		}
		if r.Pods.Example != "" && !said[r.Pods.Example] {
			said[r.Pods.Example] = true
			fmt.Fprintf(w, "never fitting, for example: %s\n", r.Pods.Example)
		}
	}
	_, err := w.WriteTo(out)
	return err
}

// span writes seconds as people do.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.2fs", seconds)
	case d < 10*time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()[:len(d.Round(time.Minute).String())-2]
}
