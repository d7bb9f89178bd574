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

// positions returns where each wanted name is present, -1 for one that isn't. The result is
// for reading: where all are in the same order, as usual, it is shared.
func positions[T comparable](wanted, present []T) []int {
	if len(wanted) <= len(inOrder) && sameNames(wanted, present) {
		return inOrder[:len(wanted):len(wanted)]
	}
	at := make([]int, len(wanted))
	for i, w := range wanted {
		at[i] = i
		if i >= len(present) || present[i] != w {
			at[i] = slices.Index(present, w)
		}
	}
	return at
}

// sameNames reports whether names are equal. Charts of one calculator mostly share theirs.
func sameNames[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	return len(a) == 0 || &a[0] == &b[0] || slices.Equal(a, b)
}

// inOrder holds each index at itself. A verdict compares a chart with hundreds of others, so
// that a slice for each comparison would be most of what it allocates.
var inOrder = func() (at [1024]int) {
	for i := range at {
		at[i] = i
	}
	return at
}()
