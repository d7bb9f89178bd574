package uchart

import (
	"bytes"
	"math"
	"strconv"
)

// A sensor that never moved has no variation to measure a change by, but its values have
// a last digit. A change by that is the least that the sensor can show, and means
// nothing; a change by many of them does.
const (
	digitSigmas    = 2.0             // sigmas that a last digit is worth
	leastPrecision = 1.0 / 1_000_000 // of a value: digits after that come from computing
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

// restingSigma is by the chart alone.
func (c *Chart) restingSigma(svid, step int) float64 {
	digit := math.Inf(1)
	for _, s := range []Statistic{Min, Max} {
		if x, ok := c.Value(svid, step, s); ok {
			digit = min(digit, lastDigit(x))
		}
	}
	if math.IsInf(digit, 0) {
		return 0
	}
	return digit / digitSigmas
}

// lastDigit returns the value of the last decimal digit that a number needs, 1 for whole
// numbers, and infinity for 0.
func lastDigit(x float64) float64 {
	if x == 0 {
		return math.Inf(1)
	}
	b := strconv.AppendFloat(nil, math.Abs(x), 'e', -1, 64) // 7.5125e+02
	mantissa, exponent, _ := bytes.Cut(b, []byte("e"))
	e, err := strconv.Atoi(string(exponent))
	if err != nil {
		return math.Inf(1) // not a finite number
	}
	if len(mantissa) > 1 {
		e -= len(mantissa) - 2 // digits behind the point
	}
	return max(math.Pow10(min(e, 0)), leastPrecision*math.Abs(x))
}

// restingSigma is for an SVID whose limits were frozen at a center that it never left. The
// layout is that of the limits in the chart.
func (l layout) restingSigma(center float64, chart *Chart, svid, step int) float64 {
	if digit := lastDigit(center); !math.IsInf(digit, 0) {
		return digit / digitSigmas
	}
	return chart.restingSigma(l.svids[svid], l.steps[step])
}
