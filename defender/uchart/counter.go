package uchart

import "slices"

// The constants of counters.
const (
	counterContexts = 10 // contexts that tell a counter; by chance 10 values are in order once in 1.8 million times
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
	layouts := layoutsOf(points, newest)
	for svid, name := range newest.SVIDs {
		if counts(points, layouts, svid, len(newest.Steps)) {
			names = append(names, name)
		}
	}
	return names
}

// counts reports whether an SVID rises in all steps that it has values in, or falls in all.
func counts(points []Point, layouts []layout, svid, steps int) bool {
	up, down := true, true
	seen := false
	for step := 0; step < steps && (up || down); step++ {
		c := counting{}
		for i := 0; i < len(points) && !c.mixed; i++ { // most SVIDs are mixed at once
			low, ok := layouts[i].value(points[i].Chart, svid, step, Min)
			high, _ := layouts[i].value(points[i].Chart, svid, step, Max)
			if ok {
				c.next(low, high)
			}
		}
		if c.n == 0 {
			continue
		}
		seen = true
		up, down = up && c.monotone(c.up, c.down), down && c.monotone(c.down, c.up)
	}
	return seen && (up || down)
}

// counting follows the samples of one SVID and step from context to context.
type counting struct {
	n, up, down int // contexts, and of them those beyond, or before, all of the last one
	mixed       bool
	low, high   float64 // of the last one
}

func (c *counting) next(low, high float64) {
	switch {
	case c.n == 0:
	case low == c.low && high == c.high: // it rests
	case low >= c.high:
		c.up++
	case high <= c.low:
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
