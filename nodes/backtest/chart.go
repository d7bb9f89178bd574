package backtest

import (
	"errors"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Size of a chart.
const (
	chartWidth  = 26 * vg.Centimeter
	chartHeight = 17 * vg.Centimeter
	columns     = 1200 // as many moments as are told apart
)

// ChartFormat tells by the name of a file whether a chart can be written to it, and as what: "svg" or "png".
func ChartFormat(path string) (string, error) {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".svg", ".png":
		return ext[1:], nil
	default:
		return "", fmt.Errorf("the chart's name is %q: end it in .svg or .png", path)
	}
}

// WriteChart draws the results of one or more runs of the same window into a file, as SVG or PNG by the end of its name: nodes paid for
// and nodes needed with perfect foresight above, pods that wait below.
func WriteChart(path string, results ...Result) error {
	format, err := ChartFormat(path)
	if err != nil {
		return err
	}
	var canvas vg.CanvasWriterTo
	if format == "svg" {
		canvas = vgsvg.New(chartWidth, chartHeight)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(chartWidth, chartHeight), vgimg.UseDPI(120))}
	}
	if err := drawChart(draw.New(canvas), results); err != nil {
		return fmt.Errorf("drawing the chart: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	_, err = canvas.WriteTo(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the chart: %w", err)
	}
	return nil
}

// palette is told apart by people with colour-blindness, too (Okabe and Ito).
func palette(i int) color.Color {
	colors := []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}, {230, 159, 0, 255}, {86, 180, 233, 255}}
	return colors[i%len(colors)]
}

func drawChart(c draw.Canvas, results []Result) error {
	first := results[0]
	above, below := plot.New(), plot.New()
	above.Title.Text = fmt.Sprintf("%s, day %.1f to %.1f: %d pods, %s", filepath.Base(first.Trace), first.From, first.To, first.Pods.Total, strings.Join(first.Types, ", "))
	if len(above.Title.Text) > 110 {
		above.Title.Text = fmt.Sprintf("%s, day %.1f to %.1f: %d pods, %d instance types", filepath.Base(first.Trace), first.From, first.To, first.Pods.Total, len(first.Types))
	}
	above.Title.Padding = 2 * vg.Millimeter
	above.Y.Label.Text = "nodes"
	below.Y.Label.Text = "pods waiting"
	below.X.Label.Text = "day of the trace"
	for _, p := range []*plot.Plot{above, below} {
		p.BackgroundColor = color.White
		p.X.Min, p.X.Max = first.From, first.To
		p.X.Tick.Marker, p.Y.Tick.Marker = wholeTicks{12}, wholeTicks{6}
		p.Legend.Top, p.Legend.XOffs, p.Legend.YOffs = true, -2*vg.Millimeter, -1*vg.Millimeter
		grid := plotter.NewGrid()
		grid.Horizontal.Color, grid.Vertical.Color = color.Gray{225}, color.Gray{240}
		p.Add(grid)
	}
	needed, err := plotter.NewLine(steps(first, first.Needed, func(s Step) (time.Duration, int) { return s.At, s.Nodes }))
	if err != nil {
		return err
	}
	needed.Color, needed.FillColor, needed.Width = color.Gray{150}, color.Gray{215}, vg.Points(0.5)
	above.Add(needed)
	for i, r := range results {
		name := label(r)
		nodes, err := plotter.NewLine(steps(r, r.Series, func(s Sample) (time.Duration, int) { return s.At, s.Nodes }))
		if err != nil {
			return err
		}
		nodes.Color, nodes.Width = palette(i), vg.Points(1.2)
		above.Add(nodes)
		above.Legend.Add(name, nodes)
		pods, err := plotter.NewLine(steps(r, r.Series, func(s Sample) (time.Duration, int) { return s.At, s.Pending }))
		if err != nil {
			return err
		}
		pods.Color, pods.Width = palette(i), vg.Points(1)
		below.Add(pods)
		below.Legend.Add(name, pods)
	}
	above.Legend.Add("needed with perfect foresight", needed)
	above.Y.Min, below.Y.Min = 0, 0
	above.Y.Max, below.Y.Max = headroom(above.Y.Max, len(results)+1), headroom(below.Y.Max, len(results))
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadX: 4 * vg.Millimeter, PadY: 5 * vg.Millimeter, PadTop: 3 * vg.Millimeter, PadBottom: 3 * vg.Millimeter, PadLeft: 3 * vg.Millimeter, PadRight: 6 * vg.Millimeter}
	c.SetColor(color.White)
	c.Fill(c.Path())
	for i, canvas := range plot.Align([][]*plot.Plot{{above}, {below}}, tiles, c) {
		[]*plot.Plot{above, below}[i].Draw(canvas[0])
	}
	return nil
}

// wholeTicks marks whole numbers, at most n.
type wholeTicks struct{ most int }

// Ticks returns the marks from lo to hi.
func (w wholeTicks) Ticks(lo, hi float64) []plot.Tick {
	step := 1.0
	for _, next := range []float64{2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6} {
		if (hi-lo)/step <= float64(w.most) {
			break
		}
		step = next
	}
	var out []plot.Tick
	for v := math.Ceil(lo/step) * step; v <= hi; v += step {
		out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	if len(out) < 2 { // less than a day: let the library choose
		return plot.DefaultTicks{}.Ticks(lo, hi)
	}
	return out
}

// headroom leaves place for a legend of this many lines above the curves.
func headroom(most float64, lines int) float64 { return max(most, 1) * (1.08 + 0.09*float64(lines)) }

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
func steps[T any](r Result, series []T, value func(T) (time.Duration, int)) plotter.XYs {
	var out plotter.XYs
	width := (r.To - r.From) / columns
	add := func(x float64, y int) { out = append(out, plotter.XY{X: x, Y: float64(y)}) }
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
	if len(out) > 0 {
		add(r.To, last)
	}
	return out
}
