package uchart

import "slices"

// The constants of counters.
const (
	counterContexts = 10 // contexts that tell a counter; by chance 10 values are in order once in 1.8 million times
	fewContexts     = 32 // that mostly tell what is no counter
	counterStarts   = 20 // intervals between contexts for each in which a counter may start again
)

// counters returns the SVIDs of the newest point that count: hours of RF, wafers, what is
// left of a target. Their charts would alarm without end. They are told from sensors that
// drift in that no sample of a context lies before one of the context before it, in all
// contexts that limits may rest on. A sensor that begins to drift is flagged, and so
// doesn't get there.
func (p Policy) counters(points []Point) []string {
	if len(points) < counterContexts {
		return nil
	}
	var names []string
	newest := points[len(points)-1].Chart
	r := runsBack{points: points, newest: newest, layouts: make([]layout, 0, fewContexts)}
	for svid, name := range newest.SVIDs {
		if r.counts(svid) {
			names = append(names, name)
		}
	}
	return names
}

// runsBack goes through contexts from the newest back. Most SVIDs vary from one context to the next,
// and the two newest tell so: those before aren't looked at, and where they have the SVIDs and steps
// is found for as many as are.
type runsBack struct {
	points  []Point
	newest  *Chart
	layouts []layout // of the newest contexts, that first
}

// at returns a context by how many are newer.
func (r *runsBack) at(newer int) (*Chart, layout) {
	chart := r.points[len(r.points)-1-newer].Chart
	if newer == len(r.layouts) {
		r.layouts = append(r.layouts, newLayout(r.newest, chart))
	}
	return chart, r.layouts[newer]
}

// counts reports whether an SVID rises in all steps that it has values in, or falls in all.
func (r *runsBack) counts(svid int) bool {
	up, down := true, true
	seen := false
	for step := 0; step < len(r.newest.Steps) && (up || down); step++ {
		c := counting{}
		for i := 0; i < len(r.points) && !c.mixed; i++ {
			chart, l := r.at(i)
			low, ok := l.value(chart, svid, step, Min)
			high, _ := l.value(chart, svid, step, Max)
			if ok {
				c.before(low, high)
			}
			// A sensor that goes to and fro between two values, as 0 and 1, overlaps with nothing.
			c.mixed = c.mixed || counterStarts*min(c.up, c.down) > len(r.points)-1
		}
		if c.n == 0 {
			continue
		}
		seen = true
		up, down = up && c.monotone(c.up, c.down), down && c.monotone(c.down, c.up)
	}
	return seen && (up || down)
}

// counting follows the samples of one SVID and step from context to context, back in time.
type counting struct {
	n, up, down int     // contexts, and of them those beyond, or before, all of the one before them
	mixed       bool    // some overlap, or more than a counter go either way
	low, high   float64 // of the context after
}

// before takes the samples of the context before.
func (c *counting) before(low, high float64) {
	switch {
	case c.n == 0:
	case low == c.low && high == c.high: // it rests
	case c.low >= high:
		c.up++
	case c.high <= low:
		c.down++
	default:
		c.mixed = true
	}
	c.n, c.low, c.high = c.n+1, low, high
}

// monotone reports whether it goes one way in a third of the intervals or more, and the
// other way no more often than a counter starts again.
func (c *counting) monotone(forth, back int) bool {
	intervals := c.n - 1
	return !c.mixed && c.n >= counterContexts && 3*forth >= intervals && counterStarts*back <= intervals
}

// excluded returns the SVIDs of the chart, or of the newest point, that the policy excludes.
func (p Policy) excluded(points []Point, chart *Chart) []string {
	if len(p.Exclude) == 0 {
		return nil
	}
	names := slices.Clone(chart.SVIDs)
	if len(points) > 0 {
		names = append(names, points[len(points)-1].Chart.SVIDs...)
	}
	selection := ChartSelection{Statistics: []Statistic{Mean}, SVIDs: p.Exclude}
	names = slices.DeleteFunc(names, func(name string) bool { return !selection.has(name, Mean) })
	slices.Sort(names)
	return slices.Compact(names)
}
