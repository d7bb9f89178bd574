package uchart

import (
	"math"
	"slices"
)

// layout says where an earlier chart has the SVIDs and steps of the one at hand.
type layout struct{ svids, steps []int }

func newLayout(chart, earlier *Chart) layout {
	return layout{positions(chart.SVIDs, earlier.SVIDs), positions(chart.Steps, earlier.Steps)}
}

// value looks up a statistic of the chart at hand in an earlier one.
func (l layout) value(earlier *Chart, svid, step int, s Statistic) (float64, bool) {
	if l.svids[svid] < 0 || l.steps[step] < 0 {
		return 0, false
	}
	return earlier.Value(l.svids[svid], l.steps[step], s)
}

// restingSigma is for an SVID whose limits were frozen at a center that it never left. The
// layout is that of the limits in the chart.
func (l layout) restingSigma(center float64, chart *Chart, svid, step int) float64 {
	if digit := lastDigit(center); !math.IsInf(digit, 0) {
		return digit / digitSigmas
	}
	return chart.restingSigma(l.svids[svid], l.steps[step])
}

func positions[T comparable](wanted, present []T) []int {
	at := make([]int, len(wanted))
	for i, w := range wanted {
		at[i] = i
		if i >= len(present) || present[i] != w { // the order is usually the same
			at[i] = slices.Index(present, w)
		}
	}
	return at
}
