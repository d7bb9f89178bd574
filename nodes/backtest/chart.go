package backtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/plot"
)

const (
	chartWidth  = 1000
	nodesHeight = 380
	podsHeight  = 260
	columns     = 1200 // as many moments as are told apart
	colors      = 6    // in the style sheet, one for each run
)

// chartStyle has colours that people with colour-blindness tell apart, too (Okabe and Ito).
const chartStyle = `svg { background: #fff; font-family: system-ui, sans-serif; }
.title { font-size: 14px; font-weight: 600; fill: #222; } .tick { font-size: 11px; fill: #555; } .grid { stroke: #e1e1e1; }
path { fill: none; stroke-width: 1.4; } .needed { fill: #d7d7d7; stroke: #969696; stroke-width: .6; }
.run0 { stroke: #0072b2; } .run1 { stroke: #d55e00; } .run2 { stroke: #009e73; } .run3 { stroke: #cc79a7; } .run4 { stroke: #e69f00; } .run5 { stroke: #56b4e9; }
`

// CheckChartName reports what is wrong with the name of a file for a chart.
func CheckChartName(path string) error {
	if strings.ToLower(filepath.Ext(path)) != ".svg" {
		return fmt.Errorf("the chart's name is %q: end it in .svg", path)
	}
	return nil
}

// WriteChart draws the results of one or more runs of the same window into a file, as SVG: nodes paid for and nodes needed with perfect
// foresight above, pods that wait below.
func WriteChart(path string, results ...Result) error {
	if err := CheckChartName(path); err != nil {
		return err
	}
	if err := os.WriteFile(path, []byte(drawChart(results)), 0o644); err != nil { //nolint:gosec // as readable as any result
		return fmt.Errorf("writing the chart: %w", err)
	}
	return nil
}

func drawChart(results []Result) string {
	first := results[0]
	above := &plot.Chart{Title: chartTitle(first), Y: "nodes", X: "day of the trace", Width: chartWidth, Height: nodesHeight, CountY: true}
	below := &plot.Chart{Y: "pods waiting", X: "day of the trace", Width: chartWidth, Height: podsHeight, CountY: true}
	above.IncludeX(first.From, first.To)
	below.IncludeX(first.From, first.To)

	xs, ys := steps(first, first.Needed, func(s Step) (time.Duration, int) { return s.At, s.Nodes })
	above.Area("needed", xs, ys)
	for i, r := range results {
		class := fmt.Sprintf("run%d", i%colors)
		xs, ys := steps(r, r.Series, func(s Sample) (time.Duration, int) { return s.At, s.Nodes })
		above.Line(class, xs, ys)
		above.Legend(class, label(r))
		xs, ys = steps(r, r.Series, func(s Sample) (time.Duration, int) { return s.At, s.Pending })
		below.Line(class, xs, ys)
	}
	above.Legend("needed", "needed with perfect foresight")
	return plot.File(chartStyle, above, below)
}

func chartTitle(r Result) string {
	types := strings.Join(r.Types, ", ")
	if len(types) > 60 {
		types = fmt.Sprintf("%d instance types", len(r.Types))
	}
	return fmt.Sprintf("%s, day %.1f to %.1f: %d pods, %s", filepath.Base(r.Trace), r.From, r.To, r.Pods.Total, types)
}

// label names a run among others.
func label(r Result) string {
	if len(r.Settings) == 0 {
		return "paid for, SIZING=" + r.Sizing
	}
	var parts []string
	for _, s := range r.Settings {
		parts = append(parts, s.Setting+"="+s.Value)
	}
	return strings.Join(parts, " ")
}

// steps turns a series into a line of steps, of which a column of the chart shows the lowest and the highest.
func steps[T any](r Result, series []T, value func(T) (time.Duration, int)) (xs, ys []float64) {
	width := (r.To - r.From) / columns
	add := func(x float64, y int) { xs, ys = append(xs, x), append(ys, float64(y)) }
	last := 0
	if len(series) > 0 {
		_, last = value(series[0])
	}
	for i := 0; i < len(series); {
		at, y := value(series[i])
		x := r.From + at.Hours()/24
		low, high := y, y
		for i++; i < len(series); i++ {
			at, v := value(series[i])
			if r.From+at.Hours()/24 >= x+width {
				break
			}
			low, high, y = min(low, v), max(high, v), v
		}
		add(x, last)
		if low < min(last, y) {
			add(x, low)
		}
		if high > max(last, y) {
			add(x, high)
		}
		add(x, y)
		last = y
	}
	if len(xs) > 0 {
		add(r.To, last)
	}
	return xs, ys
}
