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
