package analyze

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"

	"github.com/muster-dev/muster/defender/spc"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/plot"
)

//go:embed report.html
var page string

// What a report shows at most.
const (
	maxCharts   = 8  // control charts of a group
	maxDetails  = 12 // flagged runs of a group, in detail
	maxOverlays = 3  // trace overlays of a flagged run
	maxOthers   = 20 // runs behind an overlay
)

const (
	smallest           = 1e-3 // value on a logarithmic scale, which has no place for 0
	smallDot, largeDot = 2.4, 4.0
)

type groupView struct {
	Group   *Group
	Counts  Counts
	Scores  template.HTML
	T2, Q   template.HTML
	Charts  []template.HTML
	Details []detailView
	Hidden  int // flagged runs that aren't shown in detail
}

type detailView struct {
	Run    *Run
	By     template.HTML
	Traces []template.HTML
}

// WriteHTML writes the report as one page without any reference to another place. It reads the
// files again for the traces that the page shows.
func (r *Report) WriteHTML(w io.Writer) error {
	t, err := template.New("report").Funcs(template.FuncMap{"percent": percent}).Parse(page)
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	drawings, err := r.draw()
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	var views []groupView
	for _, g := range r.Groups {
		views = append(views, g.view(drawings[g]))
	}
	if err := t.Execute(w, map[string]any{"Report": r, "Groups": views}); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

func percent(part, whole int) string {
	if whole == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}

func (g *Group) view(d *drawing) groupView {
	v := groupView{Group: g, Counts: g.Counts()}
	multivariate := func(of func(*uchart.Multivariate) (float64, float64)) func(*Run) (float64, float64, bool) {
		return func(run *Run) (float64, float64, bool) {
			if run.Verdict.Multivariate == nil {
				return 0, 0, false
			}
			x, limit := of(run.Verdict.Multivariate)
			return x, limit, true
		}
	}
	v.Scores = g.series("Largest distance of a single chart, in sigmas (log scale)", func(run *Run) (float64, float64, bool) {
		return run.Verdict.Score, run.Verdict.ScoreLimit, run.Verdict.ScoreLimit > 0
	})
	v.T2 = g.series("Hotelling's T² (log scale)", multivariate(func(m *uchart.Multivariate) (float64, float64) { return m.T2, m.T2Limit }))
	v.Q = g.series("Q, squared prediction error (log scale)", multivariate(func(m *uchart.Multivariate) (float64, float64) { return m.Q, m.QLimit }))
	for _, c := range d.charts {
		v.Charts = append(v.Charts, g.controlChart(c))
	}
	for _, i := range d.details {
		v.Details = append(v.Details, g.detail(d, i))
	}
	v.Hidden = d.hidden
	return v
}

// series draws one figure of each run with its limit, on a logarithmic scale since
// faults are often a hundred times out.
func (g *Group) series(title string, of func(*Run) (value, limit float64, ok bool)) template.HTML {
	p := &plot.Chart{Title: title, X: "run", Width: 960, Height: 220, LogY: true}
	p.IncludeX(1, float64(len(g.Runs)))
	var xs, values, limits []float64
	for i, run := range g.Runs {
		v, limit, ok := of(run)
		if !ok {
			v, limit = math.NaN(), math.NaN()
		}
		xs, values, limits = append(xs, float64(i+1)), append(values, max(v, smallest)), append(limits, max(limit, smallest))
	}
	p.Line("signal", xs, values)
	p.Line("limit", xs, limits)
	if p.Empty() {
		return ""
	}

	for i, run := range g.Runs {
		about := fmt.Sprintf("%s%s: %.4g, limit %.4g", run.Context, faultOf(run), values[i], limits[i])
		if values[i] > limits[i] {
			p.Dot("out", largeDot, xs[i], values[i], about)
		} else {
			p.Dot("dot", smallDot, xs[i], values[i], about)
		}
	}
	return template.HTML(p.SVG()) //nolint:gosec // built of escaped texts
}

func faultOf(run *Run) string {
	if run.Fault == "" {
		return ""
	}
	return " (" + run.Fault + ")"
}

// chartKey names one chart.
type chartKey struct {
	svid string
	step int32
	stat uchart.Statistic
}

// worstCharts returns the charts that were outside most often, then farthest.
func (g *Group) worstCharts() []chartKey {
	type weight struct {
		times int
		far   float64
	}
	weights := map[chartKey]weight{}
	for _, run := range g.Runs {
		for _, v := range run.Verdict.Violations {
			k := chartKey{v.SVID, v.Step, v.Statistic}
			w := weights[k]
			weights[k] = weight{w.times + 1, max(w.far, math.Abs(v.Sigmas))}
		}
	}
	var keys []chartKey
	for k := range weights {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b chartKey) int {
		x, y := weights[a], weights[b]
		return cmp.Or(cmp.Compare(y.times, x.times), cmp.Compare(y.far, x.far), cmp.Compare(a.svid, b.svid), cmp.Compare(a.step, b.step), cmp.Compare(a.stat, b.stat))
	})
	return keys[:min(len(keys), maxCharts)]
}

func (k chartKey) of(c *uchart.Chart) float64 {
	svid := slices.Index(c.SVIDs, k.svid)
	step, found := slices.BinarySearch(c.Steps, k.step)
	if svid < 0 || !found {
		return math.NaN()
	}
	v, ok := c.Value(svid, step, k.stat)
	if !ok {
		return math.NaN()
	}
	return v
}

// controlChart draws an individuals chart over all runs: limits are a Phase I
// estimate from the runs that weren't flagged, and marks say which of Nelson's
// rules a run completes.
func (g *Group) controlChart(c *chartDrawing) template.HTML {
	k := c.chartKey
	p := &plot.Chart{Title: fmt.Sprintf("%s, step %d, %s", k.svid, k.step, k.stat), X: "run", Width: 620, Height: 220}
	values := c.values
	var xs, usual []float64
	for i, run := range g.Runs {
		v := values[i]
		xs = append(xs, float64(i+1))
		if !run.Verdict.Flagged() && !math.IsNaN(v) {
			usual = append(usual, v)
		}
	}
	p.Line("signal", xs, values)

	base, err := spc.PhaseI{Estimator: spc.MedianMovingRange, MinN: 5}.Estimate(usual)
	if err != nil { // it wanders, so that a quarter of the runs is outside
		if base.Estimate, err = spc.MedianMovingRange.Of(usual); err == nil {
			p.Title += " (not stable: no run excluded)"
		}
	}
	if err == nil {
		l := base.Limits(3)
		p.Level("center", l.Center)
		p.Level("limit", l.Upper)
		p.Level("limit", l.Lower)
	}

	var runs spc.Runs
	for i, run := range g.Runs {
		class, radius, about := "dot", smallDot, fmt.Sprintf("%s%s: %.6g", run.Context, faultOf(run), values[i])
		if err == nil {
			if hits := runs.Next(base.Z(values[i]), spc.Nelson1|spc.Nelson2|spc.Nelson3|spc.Nelson5|spc.Nelson6); hits != 0 {
				class, radius, about = "warn", largeDot, about+", "+hits.String()
				if hits&spc.Nelson1 != 0 {
					class = "out"
				}
			}
		}
		p.Dot(class, radius, xs[i], values[i], about)
	}
	return template.HTML(p.SVG()) //nolint:gosec // built of escaped texts
}

// detail shows why one run is flagged.
func (g *Group) detail(d *drawing, at int) detailView {
	run := g.Runs[at]
	v := detailView{Run: run}
	if m := run.Verdict.Multivariate; m != nil && len(m.By) > 0 {
		var names []string
		var shares []float64
		for _, b := range m.By {
			names, shares = append(names, fmt.Sprintf("%s, step %d, %s", b.SVID, b.Step, b.Statistic)), append(shares, b.Share)
		}
		which := "Contributions to Q"
		if m.T2/m.T2Limit > m.Q/m.QLimit {
			which = "Contributions to T²"
		}
		v.By = template.HTML(plot.Bars(which, names, shares)) //nolint:gosec // built of escaped texts
	}
	for _, svid := range run.shown() {
		v.Traces = append(v.Traces, g.overlay(d, at, svid))
	}
	return v
}

// overlay draws a sensor's trace over those of the runs before it.
func (g *Group) overlay(d *drawing, at int, svid string) template.HTML {
	run := g.Runs[at]
	p := &plot.Chart{Title: svid + " of " + run.Context + " over runs that aren't flagged", X: "s", Width: 620, Height: 220}
	for _, other := range g.before(at) {
		t := d.traces[traceKey{other, svid}]
		p.Line("other", t.xs, t.ys)
	}
	t := d.traces[traceKey{at, svid}]
	p.Line("this", t.xs, t.ys)
	return template.HTML(p.SVG()) //nolint:gosec // built of escaped texts
}
