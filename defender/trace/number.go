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
func decimal(s string) (float64, bool) {
	negative := s != "" && s[0] == '-'
	if negative {
		s = s[1:]
	}
	if len(s) > exactDigits+1 {
		return 0, false
	}

	var whole uint64
	digits, point := 0, -1
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			whole = whole*10 + uint64(c-'0')
			digits++
		case c == '.' && point < 0:
			point = digits
		default:
			return 0, false
		}
	}
	if digits == 0 || digits > exactDigits {
		return 0, false
	}

	v := float64(whole)
	if point >= 0 {
		v /= powersOfTen[digits-point]
	}
	if negative {
		v = -v
	}
	return v, true
}
