package analyze

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
)

// drawing is what a report shows of a group beside the verdicts. It is known which traces that
// are only when all runs are judged, so the files are read again for them.
type drawing struct {
	charts  []*chartDrawing
	details []int // flagged runs that are shown in detail, by their place in the group
	hidden  int   // flagged runs that are not

	traces map[traceKey]line
	read   int // runs of the group that were read again
	calc   uchart.Calculator
}

// chartDrawing is the course of one chart over all runs of a group.
type chartDrawing struct {
	chartKey
	values []float64 // NaN where a run has none
}

// traceKey is a sensor's trace of a run, which is named by its place in its group.
type traceKey struct {
	run  int
	svid string
}

// line is a trace as it is drawn.
type line struct{ xs, ys []float64 }

// draw gets what the report shows of all groups.
func (r *Report) draw() (map[*Group]*drawing, error) {
	all := make(map[*Group]*drawing, len(r.Groups))
	for _, g := range r.Groups {
		all[g] = g.planDrawing()
	}
	for _, name := range r.Files {
		err := r.each(name, func(g *Group, w *trace.Wafer, _ int64) error { return all[g].add(g, w) })
		if err != nil {
			return nil, err
		}
	}
	for g, d := range all {
		if d.read < len(g.Runs) {
			return nil, fmt.Errorf("run %s is not there any more: a file has changed, so analyze it again", g.Runs[d.read].Context)
		}
	}
	return all, nil
}

// planDrawing decides what is shown of a group.
func (g *Group) planDrawing() *drawing {
	d := &drawing{traces: map[traceKey]line{}}
	for _, k := range g.worstCharts() {
		d.charts = append(d.charts, &chartDrawing{k, make([]float64, 0, len(g.Runs))})
	}
	for i, run := range g.Runs {
		switch {
		case !run.Verdict.Flagged():
		case len(d.details) == maxDetails:
			d.hidden++
		default:
			d.details = append(d.details, i)
			d.want(g, i)
		}
	}
	return d
}

// want notes the traces that the detail of a run shows.
func (d *drawing) want(g *Group, at int) {
	for _, svid := range g.Runs[at].shown() {
		d.traces[traceKey{at, svid}] = line{}
		for _, other := range g.before(at) {
			d.traces[traceKey{other, svid}] = line{}
		}
	}
}

// before returns the runs that a flagged one is drawn over: the last before it that aren't.
func (g *Group) before(at int) []int {
	var others []int
	for i := at - 1; i >= 0 && len(others) < maxOthers; i-- {
		if !g.Runs[i].Verdict.Flagged() {
			others = append(others, i)
		}
	}
	slices.Reverse(others)
	return others
}

// shown returns the sensors whose traces tell most about why a run is flagged.
func (run *Run) shown() (svids []string) {
	note := func(svid string) {
		if !slices.Contains(svids, svid) && len(svids) < maxOverlays {
			svids = append(svids, svid)
		}
	}
	for i, v := range run.Verdict.Violations {
		if i < 2 {
			note(v.SVID)
		}
	}
	if m := run.Verdict.Multivariate; m != nil {
		for _, b := range m.By {
			note(b.SVID)
		}
	}
	for _, v := range run.Verdict.Violations {
		note(v.SVID)
	}
	if len(svids) == 0 {
		svids = []string{run.sensor}
	}
	return svids
}

// add takes what is shown from a run that was read again.
func (d *drawing) add(g *Group, w *trace.Wafer) error {
	at := 0
	if d != nil {
		at = d.read
		d.read++
	}
	if d == nil || at >= len(g.Runs) || g.Runs[at].Context != w.Trace.Context {
		return fmt.Errorf("run %s was not there before: a file has changed, so analyze it again", w.Trace.Context)
	}

	for _, svid := range w.Trace.SVIDs {
		key := traceKey{at, svid}
		if _, wanted := d.traces[key]; wanted {
			xs, ys := samples(w, svid)
			d.traces[key] = line{xs, ys}
		}
	}
	if len(d.charts) == 0 {
		return nil
	}
	chart, err := d.calc.Compute(&w.Trace)
	if err != nil {
		return fmt.Errorf("run %s: %w", w.Trace.Context, err)
	}
	for _, c := range d.charts {
		c.values = append(c.values, c.of(chart))
	}
	return nil
}

// samples returns a sensor's trace since the run's beginning, without rows that go
// back in time, thinned to what a screen can show.
func samples(w *trace.Wafer, svid string) (xs, ys []float64) {
	at := slices.Index(w.Trace.SVIDs, svid)
	if at < 0 || len(w.Trace.Time) == 0 {
		return nil, nil
	}
	const most = 1200
	stride := max(1, len(w.Trace.Time)/most)
	latest, start := math.Inf(-1), math.NaN()
	for i := 0; i < len(w.Trace.Time); i += stride {
		t := w.Trace.Time[i]
		if math.IsNaN(t) || math.IsInf(t, 0) || t < latest {
			continue
		}
		if latest = t; math.IsNaN(start) {
			start = t
		}
		xs, ys = append(xs, t-start), append(ys, w.Trace.Values[at][i])
	}
	return xs, ys
}
