package trace

import (
	"math"
	"strconv"
	"strings"
)

// parse returns the number that a field holds, NaN where it is empty.
func parse(s string) (float64, bool) {
	if v, ok := decimal(s); ok {
		return v, true
	}
	s = strings.TrimSpace(s)
	if s == "" {
		return math.NaN(), true
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}

// exactDigits is how many decimal digits a float64 holds exactly, whatever they are.
const exactDigits = 15

var powersOfTen = [exactDigits + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// decimal is strconv.ParseFloat for what files mostly have: a few digits with a point between
// them. Digits and power of ten are exact, so their quotient is the nearest float64. It takes
// nothing else.
func decimal[text string | []byte](s text) (float64, bool) {
	negative := len(s) > 0 && s[0] == '-'
	if negative {
		s = s[1:]
	}
	if len(s) > exactDigits+1 {
		return 0, false
	}

	whole, at := uint64(0), 0
	for ; at < len(s) && s[at]-'0' <= 9; at++ {
		whole = whole*10 + uint64(s[at]-'0')
	}
	digits, fraction := at, 0
	if at < len(s) && s[at] == '.' {
		for at++; at < len(s) && s[at]-'0' <= 9; at++ {
			whole = whole*10 + uint64(s[at]-'0')
			fraction++
		}
		digits += fraction
	}
	if at < len(s) || digits == 0 || digits > exactDigits {
		return 0, false
	}

	v := float64(whole)
	if fraction > 0 {
		v /= powersOfTen[fraction]
	}
	if negative {
		v = -v
	}
	return v, true
}
