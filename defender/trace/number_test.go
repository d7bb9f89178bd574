package trace

import (
	"math"
	"strconv"
	"testing"
)

// FuzzDecimal: what decimal takes is what strconv.ParseFloat makes of it, bit by bit.
func FuzzDecimal(f *testing.F) {
	for _, s := range []string{"0", "-0", "12.5", ".5", "5.", "-.", "", "999999999999999", "0.000000000000001", "123456789.012345", "1e3", "0x1", "1_0", " 1", "+1", "Inf", "nan", "0.1", "1234567890123456"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := decimal(s)
		if !ok {
			return
		}
		want, err := strconv.ParseFloat(s, 64)
		if err != nil || math.Float64bits(got) != math.Float64bits(want) {
			t.Errorf("%q is %v, want %v (%v)", s, got, want, err)
		}
	})
}

// TestDecimalTakesMostFields: the numbers of ordinary files need nothing slower.
func TestDecimalTakesMostFields(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"751", "-362", "11.946", "0", "99.5488", "-0.001", "19998.4"} {
		if _, ok := decimal(s); !ok {
			t.Errorf("it does not take %q", s)
		}
	}
}
