package uchart

import (
	"math"
)

// restingSigma returns what stands for the sigma of the mean of an SVID that didn't move
// in any of the points. Where it only ever was 0, which has no digits, those of the chart
// at hand tell; it may be nil.
func restingSigma(points []Point, layouts []layout, chart *Chart, svid, step int) float64 {
	digit := math.Inf(1)
	for i := range points {
		point := &points[i]
		for _, s := range []Statistic{Min, Max} {
			if x, ok := layouts[i].value(point.Chart, svid, step, s); ok {
				digit = min(digit, lastDigit(x))
			}
		}
	}
	if math.IsInf(digit, 0) && chart != nil {
		return chart.restingSigma(svid, step)
	}
	if math.IsInf(digit, 0) {
		return 0
	}
	return digit / digitSigmas
}
