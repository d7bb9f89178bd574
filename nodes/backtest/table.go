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

// WriteTable writes results side by side for people, one column each. There has to be at least one.
func WriteTable(out io.Writer, results ...Result) error {
	w := &bytes.Buffer{}
	t := table{results: results, out: tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)}
	t.writeCaption(w)
	t.writeSettings()
	t.writeMeasurements()
	if err := t.out.Flush(); err != nil {
		return err
	}

	fmt.Fprintln(w)
	t.writeNotes(w)
	_, err := w.WriteTo(out)
	return err
}

// table is results beside each other.
type table struct {
	results []Result
	out     *tabwriter.Writer
}

func typesOf(r Result) string { return strings.Join(r.Types, ",") }

func mostOf(r Result) string { return fmt.Sprint(r.Max) }

// same reports whether all results have the same value.
func (t table) same(f func(Result) string) bool {
	return !slices.ContainsFunc(t.results, func(r Result) bool { return f(r) != f(t.results[0]) })
}

// row writes a line with a value of each result.
func (t table) row(name string, f func(Result) string) {
	line := name + "\t"
	for _, r := range t.results {
		line += f(r) + "\t"
	}
	_, _ = fmt.Fprintln(t.out, line)
}

func (t table) number(name string, f func(Result) int) {
	t.row(name, func(r Result) string { return fmt.Sprint(f(r)) })
}

// wait writes a line with a time of waiting, which f returns in seconds.
func (t table) wait(name string, f func(Waiting) float64) {
	t.row(name, func(r Result) string { return span(f(r.Waiting)) })
}

// writeCaption writes what the results have in common.
func (t table) writeCaption(w *bytes.Buffer) {
	first := t.results[0]
	fmt.Fprintf(w, "trace            %s, day %.2f to %.2f (%.1f days)\n", first.Trace, first.From, first.To, first.To-first.From)
	fmt.Fprintf(w, "pods             %d, %d of them there when the window begins; CPU and memory as asked for, the GPUs of %d pods ignored\n", first.Pods.Total, first.Pods.Carried, first.Pods.GPU)
	if t.same(typesOf) {
		fmt.Fprintf(w, "instance types   %s\n", strings.Join(first.Types, ", "))
	}
	if t.same(mostOf) {
		fmt.Fprintf(w, "MAX_WORKERS      %d\n", first.Max)
	}
	fmt.Fprintf(w, "seed             %d\n\n", first.Seed)
}

// writeSettings writes the settings in which the results differ.
func (t table) writeSettings() {
	first := t.results[0]
	for i, s := range first.Settings {
		t.row(s.Setting, func(r Result) string { return r.Settings[i].Value })
	}
	if len(first.Settings) == 0 {
		t.row("SIZING", func(r Result) string { return r.Sizing })
	}
	if !t.same(typesOf) {
		t.row("INSTANCE_TYPES", typesOf)
	}
	if !t.same(mostOf) {
		t.row("MAX_WORKERS", mostOf)
	}
}

// writeMeasurements writes what came out.
func (t table) writeMeasurements() {
	t.wait("waiting p50", func(w Waiting) float64 { return w.P50 })
	t.wait("p90", func(w Waiting) float64 { return w.P90 })
	t.wait("p99", func(w Waiting) float64 { return w.P99 })
	t.wait("max", func(w Waiting) float64 { return w.Max })
	t.wait("mean", func(w Waiting) float64 { return w.Mean })
	t.row("node-hours", func(r Result) string { return fmt.Sprintf("%.1f", r.Nodes.Hours) })
	t.row("perfect foresight", func(r Result) string { return fmt.Sprintf("%.1f", r.Nodes.Foresight) })
	t.row("cost, USD", func(r Result) string { return fmt.Sprintf("%.2f", r.Nodes.Cost) })
	t.row("perfect foresight, USD", func(r Result) string { return fmt.Sprintf("%.2f", r.Nodes.BoundCost) })

	t.writePools()
	t.number("most nodes", func(r Result) int { return r.Nodes.Most })
	t.number("scale-ups", func(r Result) int { return r.Actions.ScaleUps })
	t.number("failed", func(r Result) int { return r.Actions.ScaleUpsFailed })
	t.number("scale-downs", func(r Result) int { return r.Actions.ScaleDowns })
	t.number("failed", func(r Result) int { return r.Actions.DownsFailed })
	t.number("nodes launched", func(r Result) int { return r.Actions.Launched })
	t.number("nodes terminated", func(r Result) int { return r.Actions.Terminated })
	t.number("pods ran", func(r Result) int { return r.Pods.Ran })
	t.number("pending at the end", func(r Result) int { return r.Pods.Pending })
	t.number("never fitting", func(r Result) int { return r.Pods.NeverFit })
	t.number("withdrawn", func(r Result) int { return r.Pods.Withdrawn })
	t.number("evicted", func(r Result) int { return r.Pods.Evicted })
	t.number("evicted without room", func(r Result) int { return r.Pods.Displaced })
	t.number("ticks", func(r Result) int { return r.Ticks })
	t.number("ticks with errors", func(r Result) int { return r.Errors })
}

// writePools writes what each pool of the first result came to in all of them.
func (t table) writePools() {
	for i, p := range t.results[0].Pools {
		of := func(r Result) PoolResult { return r.Pools[i] }
		t.row("pool "+p.Name+", node-hours", func(r Result) string { return fmt.Sprintf("%.1f", of(r).Hours) })
		t.row("cost, USD", func(r Result) string { return fmt.Sprintf("%.2f", of(r).Cost) })
		t.number("most nodes", func(r Result) int { return of(r).Most })
		t.number("nodes launched", func(r Result) int { return of(r).Launched })
	}
}

// writeNotes writes what has no place in the columns: the hours of each type, errors and examples.
func (t table) writeNotes(w *bytes.Buffer) {
	said := map[string]bool{}
	for _, r := range t.results {
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
