package defender

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-dev/muster/defender/attribute"
	"github.com/muster-dev/muster/defender/spc"
	"github.com/muster-dev/muster/defender/uchart"
)

// AlarmCharts are control charts of a chamber's alarms rather than of its sensors:
// they tell that it alarms more often, or worse, than it did.
type AlarmCharts struct {
	// Violations is a u'-chart of violated charts per judged chart; nil below
	// minAlarmSamples runs.
	Violations *AlarmChart `json:"violations"`
	// Between is a t-chart of the hours between runs with an alarm, each counted once;
	// nil below minAlarmTimes of them. A time below the lower limit is a change for
	// the worse.
	Between *AlarmChart `json:"between"`
	// Runs is a g-chart of the runs between those with an alarm, for a chamber that
	// isn't always in use; nil as Between is.
	Runs *AlarmChart `json:"runs"`
}

// AlarmChart is a control chart with its points, oldest first.
type AlarmChart struct {
	Baseline int          `json:"baseline"` // points that its limits rest on
	Points   []AlarmPoint `json:"points"`
}

// AlarmPoint is one point of a chart.
type AlarmPoint struct {
	Context string     `json:"context"`
	Value   float64    `json:"value"`
	Limits  spc.Limits `json:"limits"`
	Out     bool       `json:"out"`
}

// How many points there have to be for charts of alarms. Limits rest on the first
// ones, at most MaxAlarmSamples.
const (
	minAlarmSamples = 20
	minAlarmTimes   = 8
	runsBaseline    = 50
	timesBaseline   = 20
)

// ChartAlarms charts the alarms of runs of one chamber and recipe, oldest first,
// since the last maintenance among them. Runs that were not judged don't count.
func ChartAlarms(rows []UChart) AlarmCharts {
	var ids []string
	var samples []attribute.Sample
	var alarmed []UChart
	var gaps []float64 // runs between, one for each of alarmed but the first
	gap := 0.0
	for _, u := range rows {
		switch v := u.Verdict; v.State {
		case uchart.Maintenance:
			ids, samples, alarmed, gaps, gap = nil, nil, nil, nil, 0
		case uchart.Normal, uchart.Alarm:
			if v.Charts > 0 {
				ids = append(ids, u.Context.ID)
				samples = append(samples, attribute.Sample{Count: float64(v.Violated), Units: float64(v.Charts)})
			}
			if v.State == uchart.Normal {
				gap++
				continue
			}
			if n := len(alarmed); n > 0 {
				if !u.Context.End.After(alarmed[n-1].Context.End) {
					continue // runs that end together are one event
				}
				gaps = append(gaps, gap)
			}
			alarmed, gap = append(alarmed, u), 0
		}
	}
	return AlarmCharts{Violations: violations(ids, samples), Between: between(alarmed), Runs: runsBetween(alarmed, gaps)}
}

// trend says in what way the alarm of a run is one too many; "" if in none.
func trend(history []UChart, u UChart) string {
	if u.Verdict.State != uchart.Alarm {
		return ""
	}
	c := ChartAlarms(append(slices.Clone(history), u))
	var ways []string
	if p, ok := c.Violations.latest(u.Context.ID); ok && p.Value > p.Limits.Upper {
		ways = append(ways, fmt.Sprintf("%.3g of its charts are violated, usually %.3g, at most %.3g", p.Value, p.Limits.Center, p.Limits.Upper))
	}
	if p, ok := c.Between.latest(u.Context.ID); ok && p.Value < p.Limits.Lower {
		ways = append(ways, fmt.Sprintf("%.3g h after the alarm before, usually %.3g, at least %.3g", p.Value, p.Limits.Center, p.Limits.Lower))
	}
	if p, ok := c.Runs.latest(u.Context.ID); ok && p.Value < p.Limits.Lower {
		ways = append(ways, fmt.Sprintf("%.0f runs after the alarm before, usually %.0f, at least %.0f", p.Value, p.Limits.Center, p.Limits.Lower))
	}
	return strings.Join(ways, "; ")
}

// latest returns the last point if it is of the context and outside of its limits.
func (c *AlarmChart) latest(context string) (AlarmPoint, bool) {
	if c == nil || len(c.Points) == 0 {
		return AlarmPoint{}, false
	}
	p := c.Points[len(c.Points)-1]
	return p, p.Out && p.Context == context
}

func violations(ids []string, samples []attribute.Sample) *AlarmChart {
	if len(samples) < minAlarmSamples {
		return nil
	}
	c := &AlarmChart{Baseline: min(len(samples), runsBaseline)}
	u, err := attribute.NewLaneyU(samples[:c.Baseline])
	if err != nil {
		return nil
	}
	u.SigmaZ = max(u.SigmaZ, 1) // few violations vary less than they will
	for i, s := range samples {
		c.Points = append(c.Points, AlarmPoint{Context: ids[i], Value: s.Rate(), Limits: u.Limits(s.Units), Out: u.Out(s)})
	}
	return c
}

func between(alarmed []UChart) *AlarmChart {
	if len(alarmed) <= minAlarmTimes {
		return nil
	}
	var hours []float64
	for i := 1; i < len(alarmed); i++ {
		hours = append(hours, alarmed[i].Context.End.Sub(alarmed[i-1].Context.End).Hours())
	}
	c := &AlarmChart{Baseline: min(len(hours), timesBaseline)}
	t, err := attribute.NewT(hours[:c.Baseline])
	if err != nil {
		return nil
	}
	c.add(alarmed, hours, t.Limits)
	return c
}

// tail is the probability beyond 3 sigma on one side.
const tail = 0.00135

func runsBetween(alarmed []UChart, gaps []float64) *AlarmChart {
	if len(gaps) < minAlarmTimes {
		return nil
	}
	c := &AlarmChart{Baseline: min(len(gaps), timesBaseline)}
	g, err := attribute.NewG(gaps[:c.Baseline])
	if err != nil {
		return nil
	}
	c.add(alarmed, gaps, g.ProbabilityLimits(tail))
	return c
}

func (c *AlarmChart) add(alarmed []UChart, values []float64, l spc.Limits) {
	for i, v := range values {
		c.Points = append(c.Points, AlarmPoint{Context: alarmed[i+1].Context.ID, Value: v, Limits: l, Out: l.Outside(v)})
	}
}
