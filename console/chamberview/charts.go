package chamberview

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
)

// What the console shows of a chamber.
const (
	chartPoints  = 100
	chartSeries  = 8
	chartHistory = 40 // contexts before those that are shown, for the limits of the first
)

// chartKey names one chart of a chamber.
type chartKey struct {
	svid string
	step int32
	stat uchart.Statistic
}

// ReadSeries reads a chamber's newest contexts as control charts: the score by which they are judged, and the charts that were outside
// their limits most often, filled up with means. There are none for a chamber without stored runs.
func ReadSeries(ctx context.Context, store defender.Store, ch defender.Chamber) ([]console.Series, error) {
	out := []console.Series{}
	charts, err := store.UCharts(ctx, ch, chartPoints+chartHistory)
	if err != nil || len(charts) == 0 {
		return out, err
	}
	slices.Reverse(charts)
	limits, from := limitsOf(charts), max(0, len(charts)-chartPoints)
	charts, limits = charts[from:], limits[from:]
	out = append(out, scores(charts))
	for _, k := range worthShowing(charts) {
		out = append(out, seriesOf(charts, limits, k))
	}
	return out, nil
}

func worthShowing(charts []defender.UChart) []chartKey {
	outside := map[chartKey]int{}
	var keys []chartKey
	for _, u := range charts {
		for _, x := range u.Verdict.Violations {
			k := chartKey{x.SVID, x.Step, x.Statistic}
			if outside[k] == 0 {
				keys = append(keys, k)
			}
			outside[k]++
		}
	}
	slices.SortStableFunc(keys, func(a, b chartKey) int { return cmp.Compare(outside[b], outside[a]) })
	newest := charts[len(charts)-1].Chart
	for _, step := range newest.Steps {
		for _, svid := range newest.SVIDs {
			k := chartKey{svid, step, uchart.Mean}
			if len(keys) < chartSeries && outside[k] == 0 {
				keys = append(keys, k)
			}
		}
	}
	return keys[:min(chartSeries, len(keys))]
}

func scores(charts []defender.UChart) console.Series {
	out := console.Series{SVID: "score of the context", Stat: "score"}
	for _, u := range charts {
		p := console.Point{At: u.Context.End, Context: u.Context.ID, Value: &u.Verdict.Score}
		if u.Verdict.ScoreLimit > 0 {
			p.Upper = &u.Verdict.ScoreLimit
		}
		if u.Verdict.Flagged() {
			p.Flags = []string{u.Verdict.Reason()}
		}
		out.Points = append(out.Points, p)
	}
	return out
}

// limitsOf returns the limits of each context's charts by the contexts of its recipe before it. A verdict lists only those that are
// violated.
func limitsOf(charts []defender.UChart) []map[chartKey]uchart.ControlLimits {
	history := map[string][]uchart.Point{}
	out := make([]map[chartKey]uchart.ControlLimits, len(charts))
	for i, u := range charts {
		before := history[u.Context.Recipe]
		out[i] = map[chartKey]uchart.ControlLimits{}
		for _, l := range uchart.Limits(before, u.Chart, uchart.Policy{}) { // as judge does
			out[i][chartKey{l.SVID, l.Step, l.Statistic}] = l
		}
		history[u.Context.Recipe] = append(before, uchart.NewPoint(u.Context.ID, u.Chart, u.Verdict))
	}
	return out
}

func seriesOf(charts []defender.UChart, limits []map[chartKey]uchart.ControlLimits, k chartKey) console.Series {
	out := console.Series{SVID: k.svid, Step: fmt.Sprint(k.step), Stat: k.stat.String()}
	for n, u := range charts {
		p := console.Point{At: u.Context.End, Context: u.Context.ID}
		i := slices.Index(u.Chart.SVIDs, k.svid)
		if j, ok := slices.BinarySearch(u.Chart.Steps, k.step); ok && i >= 0 {
			if x, ok := u.Chart.Value(i, j, k.stat); ok {
				p.Value = &x
			}
		}
		if l, ok := limits[n][k]; ok {
			p.Lower, p.Centre, p.Upper = &l.Lower, &l.Center, &l.Upper
		}
		for _, x := range u.Verdict.Violations {
			if x.SVID == k.svid && x.Step == k.step && x.Statistic == k.stat {
				p.Lower, p.Centre, p.Upper = &x.Lower, &x.Center, &x.Upper
				p.Flags = []string{fmt.Sprintf("%+.1f sigma", x.Sigmas)}
			}
		}
		out.Points = append(out.Points, p)
	}
	return out
}
