package tchart

import "math"

// How a column of values is written.
const (
	kindDecimal    = iota // integers times 10^-digits, with exceptions
	kindGrid              // decimals nearest to the ticks of a clock, with corrections
	kindBits              // the bits of the values, taken as integers
	kindPlanes            // bytes of the values in planes, compressed
	kindXORPlanes         // the same of each value's bits XORed with the one before
	kindDiffPlanes        // the same of the difference of the bits
	kindRaw               // bits as they are
)

const (
	maxDigits = 15
	maxExact  = int64(1) << 53 // integers up to here are exact as float64
)

var pow10 = [maxDigits + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// decimal returns the integer k with v = k/10^digits to the bit, if there is one.
func decimal(v float64, digits int) (int64, bool) {
	scaled := math.RoundToEven(v * pow10[digits])
	if !(math.Abs(scaled) <= float64(maxExact)) { // false for NaN too
		return 0, false
	}
	k := int64(scaled)
	// Division rounds correctly, and so gives the float64 nearest to the decimal
	// fraction, which is what a sensor's printed reading is parsed to.
	return k, math.Float64bits(float64(k)/pow10[digits]) == math.Float64bits(v)
}

// digitsOf returns up to two numbers of digits worth trying for a column: the
// fewest with which nearly all of a sample is decimal, and the fewest with which
// all that can be is. It returns none when too few values are decimal. What
// doesn't fit becomes an exception, as in ALP (Afroozeh, Kuffo, Boncz:
// "ALP: Adaptive Lossless floating-Point Compression", SIGMOD 2023).
func digitsOf(column []float64) []int {
	const samples, tries = 256, 32
	var need [maxDigits + 1]int // values by digits needed
	n, misfits := 0, 0
	for i := 0; i < len(column); i += (len(column) + samples - 1) / samples {
		d := 0
		for d <= maxDigits {
			if _, fits := decimal(column[i], d); fits {
				break
			}
			d++
		}
		if d <= maxDigits {
			need[d]++
		} else if misfits++; misfits > tries && misfits > n/2 {
			return nil
		}
		n++
	}
	if misfits > n/2 {
		return nil
	}
	few, all, seen := -1, 0, 0
	for d, count := range need {
		if seen += count; few < 0 && seen*16 >= (n-misfits)*15 {
			few = d
		}
		if count > 0 {
			all = d
		}
	}
	if few == all {
		return []int{all}
	}
	return []int{few, all}
}

// exception is a value that isn't decimal with the digits of its column.
type exception struct {
	index int
	bits  uint64
}

// integersOf appends the integers of a column; where a value is no integer with
// these digits it appends what disturbs its neighbours least, and an exception.
func integersOf(ints []int64, exceptions []exception, column []float64, digits int) ([]int64, []exception) {
	last := int64(0)
	for i, v := range column {
		k, ok := decimal(v, digits)
		if !ok {
			exceptions = append(exceptions, exception{i, math.Float64bits(v)})
			if k == 0 || max(k-last, last-k) > 1<<20 {
				k = last
			}
		}
		ints = append(ints, k)
		last = k
	}
	return ints, exceptions
}

// lattice returns the first integer and the greatest common divisor of all
// distances to it, at least 1: sensors often count in steps of 2 or 5.
func lattice(ints []int64) (origin, factor int64) {
	if len(ints) == 0 {
		return 0, 1
	}
	origin = ints[0]
	var g uint64
	for _, k := range ints {
		d := uint64(max(k-origin, origin-k))
		for d != 0 {
			g, d = d, g%d
		}
		if g == 1 {
			break
		}
	}
	return origin, int64(max(g, 1))
}
