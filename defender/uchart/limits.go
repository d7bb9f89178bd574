package uchart

import "slices"

// ControlLimits are those of one chart, for one context.
type ControlLimits struct {
	SVID                 string
	Step                 int32
	Statistic            Statistic
	Center, Lower, Upper float64 // in the chart's unit
}

// Limits returns the limits that [Judge] compares a context's charts with, also of charts within them, which a verdict does not list.
// History and policy are as for Judge; a policy with frozen limits keeps them in its verdicts, and Limits returns those that would hold
// without. There are none while fewer contexts than MinHistory count, and of charts that can't be judged.
func Limits(history []Point, chart *Chart, p Policy) []ControlLimits {
	p = p.withDefaults()
	basis := newBasis(sinceReset(history), p.Enough())
	defer basis.leave()
	points := basis.newest(p.Window)
	if len(points) < p.MinHistory {
		return nil
	}
	chart = chart.without(slices.Concat(p.excluded(points, chart), p.counters(basis.points)))
	charts := p.distances(points, chart, false, points[len(points)-1].Lot, 1, nil)
	single := charts.list
	if len(single) == 0 {
		return nil
	}
	width := max(multiple(p.FalseAlarms/float64(len(single)), len(points)), charts.tail.limit(p.FalseAlarms, nil))
	out := make([]ControlLimits, len(single))
	for i, c := range single {
		sigma := c.Upper // left open by distances
		out[i] = ControlLimits{c.SVID, c.Step, c.Statistic, c.Center, c.Center - float64(width*sigma), c.Center + float64(width*sigma)}
	}
	return out
}
