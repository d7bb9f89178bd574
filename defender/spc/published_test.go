package spc_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/spc"
)

// printed compares with numbers as a book prints them: equal after rounding to
// the digits given.
func printed(t *testing.T, what string, got float64, want string) {
	t.Helper()
	_, fraction, _ := strings.Cut(want, ".")
	w, err := strconv.ParseFloat(want, 64)
	if err != nil {
		t.Fatal(err)
	}
	// Half a unit of the last digit, and a hair for numbers that lie between two.
	if half := 0.5 * math.Pow10(-len(fraction)); !(math.Abs(got-w) <= half*1.000001) {
		t.Errorf("%s is %.8g, printed as %s", what, got, want)
	}
}

func numbers(t *testing.T, s string) []float64 {
	t.Helper()
	var xs []float64
	for _, f := range strings.Fields(s) {
		x, err := strconv.ParseFloat(f, 64)
		if err != nil {
			t.Fatal(err)
		}
		xs = append(xs, x)
	}
	return xs
}

// TestNISTIndividuals is the flow rate example of NIST/SEMATECH 6.3.2.2.
func TestNISTIndividuals(t *testing.T) {
	t.Parallel()
	e, err := spc.MovingRange.Of(numbers(t, "49.6 47.6 49.9 51.3 47.8 51.2 52.6 52.4 53.6 52.1"))
	if err != nil {
		t.Fatal(err)
	}
	printed(t, "center", e.Center, "50.81")
	printed(t, "mean moving range", e.Sigma*spc.D2, "1.8778")
	printed(t, "upper limit", e.Limits(3).Upper, "55.8041")
	printed(t, "lower limit", e.Limits(3).Lower, "45.8159")
}

// TestMontgomeryIndividuals is the viscosity of aircraft primer paint,
// Montgomery, example of chapter 6.4: 15 batches, mean 33.52, mean moving range
// 0.48, limits 34.80 and 32.24.
func TestMontgomeryIndividuals(t *testing.T) {
	t.Parallel()
	e, err := spc.MovingRange.Of(numbers(t, "33.75 33.05 34.00 33.81 33.46 34.02 33.68 33.27 33.49 33.20 33.62 33.00 33.54 33.12 33.84"))
	if err != nil {
		t.Fatal(err)
	}
	printed(t, "center", e.Center, "33.52")
	printed(t, "mean moving range", e.Sigma*spc.D2, "0.48")
	printed(t, "upper limit", e.Limits(3).Upper, "34.80")
	printed(t, "lower limit", e.Limits(3).Lower, "32.24")
}

// TestNISTEWMA is the example of NIST/SEMATECH 6.3.2.4.
func TestNISTEWMA(t *testing.T) {
	t.Parallel()
	c := spc.EWMA{Lambda: 0.3, L: 3, Target: spc.Estimate{Center: 50, Sigma: 2.0539}, Asymptotic: true}
	points := c.Run(numbers(t, "52.0 47.0 53.0 49.3 50.1 47.0 51.0 50.1 51.2 50.5 49.6 47.6 49.9 51.3 47.8 51.2 52.6 52.4 53.6 52.1"))
	want := strings.Fields("50.60 49.52 50.56 50.18 50.16 49.21 49.75 49.85 50.26 50.33 50.11 49.36 49.52 50.05 49.38 49.92 50.73 51.23 51.94 51.99")
	for i, p := range points {
		printed(t, fmt.Sprint("z of value ", i+1), p.Z, want[i])
		printed(t, "upper limit", p.Limits.Upper, "52.5884")
		printed(t, "lower limit", p.Limits.Lower, "47.4116") // the handbook cuts it to 47.4115
		if p.Out {
			t.Errorf("value %d is out", i+1)
		}
	}
}

// The data of Montgomery, table 9.1: 20 values at mean 10, then 10 at mean 11,
// sigma 1.
const montgomery91 = "9.45 7.99 9.29 11.66 12.16 10.18 8.04 11.46 9.20 10.34 9.03 11.47 10.51 9.40 10.08 9.37 10.62 10.31 8.52 10.84 " +
	"10.90 9.33 12.29 11.50 10.60 11.08 10.38 11.62 11.31 10.52"

// TestMontgomeryEWMA is Montgomery's example 9.2 (lambda 0.10, L 2.7), with the
// values of its table 9.10.
func TestMontgomeryEWMA(t *testing.T) {
	t.Parallel()
	c := spc.EWMA{Lambda: 0.1, L: 2.7, Target: spc.Estimate{Center: 10, Sigma: 1}}
	points := c.Run(numbers(t, montgomery91))
	want := strings.Fields("9.945 9.7495 9.70355 9.8992 10.1253 10.1307 9.92167 10.0755 9.98796 10.0232 9.92384 10.0785 10.1216 10.0495 10.0525 " +
		"9.98426 10.0478 10.074 9.91864 10.0108 10.0997 10.0227 10.2495 10.3745 10.3971 10.4654 10.4568 10.5731 10.6468 10.6341")
	for i, p := range points {
		printed(t, fmt.Sprint("z of value ", i+1), p.Z, want[i])
		// The asymptotic limits are 10.62 and 9.38, which values 29 and 30 exceed.
		if p.Out != (i >= 28) {
			t.Errorf("value %d out is %t", i+1, p.Out)
		}
	}
	printed(t, "first upper limit", points[0].Limits.Upper, "10.27")
	printed(t, "first lower limit", points[0].Limits.Lower, "9.73")
	printed(t, "second upper limit", points[1].Limits.Upper, "10.36")
	printed(t, "last upper limit", points[29].Limits.Upper, "10.62")
	printed(t, "last lower limit", points[29].Limits.Lower, "9.38")
}

// TestMontgomeryCUSUM is Montgomery's example 9.1 with the columns of its table
// 9.2 (k 0.5, h 5): the upper sum signals at value 29, and its counter of 7 says
// that the shift began after value 22.
func TestMontgomeryCUSUM(t *testing.T) {
	t.Parallel()
	c := spc.CUSUM{K: 0.5, H: 5, Target: spc.Estimate{Center: 10, Sigma: 1}}
	points := c.Run(numbers(t, montgomery91))
	high := strings.Fields("0 0 0 1.16 2.82 2.50 0.04 1.00 0 0 0 0.97 0.98 0 0 0 0.12 0 0 0.34 0.74 0 1.79 2.79 2.89 3.47 3.35 4.47 5.28 5.30")
	low := strings.Fields("0.05 1.56 1.77 0 0 0 1.46 0 0.30 0 0.47 0 0 0.10 0 0.13 0 0 0.98 0 0 0.17 0 0 0 0 0 0 0 0")
	counters := numbers(t, "0 0 0 1 2 3 4 5 0 0 0 1 2 0 0 0 1 0 0 1 2 0 1 2 3 4 5 6 7 8")
	for i, p := range points {
		printed(t, fmt.Sprint("upper sum of value ", i+1), p.High, high[i])
		printed(t, fmt.Sprint("lower sum of value ", i+1), p.Low, low[i])
		if p.RunHigh != int(counters[i]) {
			t.Errorf("upper counter of value %d is %d, want %v", i+1, p.RunHigh, counters[i])
		}
		if p.Out() != (i >= 28) {
			t.Errorf("value %d out is %t", i+1, p.Out())
		}
	}
}

// TestNISTCUSUM is the example of NIST/SEMATECH 6.3.2.3: k 0.3175, h 4.1959 in
// the unit of the data.
func TestNISTCUSUM(t *testing.T) {
	t.Parallel()
	const sigma = 0.635
	c := spc.CUSUM{K: 0.3175 / sigma, H: 4.1959 / sigma, Target: spc.Estimate{Center: 325, Sigma: sigma}}
	points := c.Run(numbers(t, "324.925 324.675 324.725 324.350 325.350 325.225 324.125 324.525 325.225 324.600 "+
		"324.625 325.150 328.325 327.250 327.825 328.500 326.675 327.775 326.875 328.350"))
	high := strings.Fields("0 0 0 0 0.03 0 0 0 0 0 0 0 3.01 4.94 7.45 10.63 11.99 14.44 16.00 19.04")
	low := strings.Fields("0 0.01 0 0.33 0 0 0.56 0.72 0.17 0.25 0.31 0 0 0 0 0 0 0 0 0")
	for i, p := range points {
		// The handbook rounds along the way: to 0.01.
		for _, s := range []struct {
			what string
			got  float64
			want string
		}{{"upper", p.High, high[i]}, {"lower", p.Low, low[i]}} {
			if math.Abs(s.got-numbers(t, s.want)[0]) > 0.0101 {
				t.Errorf("%s sum of value %d is %.4f, printed as %s", s.what, i+1, s.got, s.want)
			}
		}
		if p.Out() != (i >= 13) {
			t.Errorf("value %d out is %t, the handbook's chart signals from 14 on", i+1, p.Out())
		}
	}
}

// runLength simulates how long a chart takes to signal, on average.
func runLength(t *testing.T, what string, published, shift float64, runs int, newChart func() func(z float64) bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, uint64(len(what))))
	sum, squares := 0.0, 0.0
	for range runs {
		out, n := newChart(), 0.0
		for n++; !out(rng.NormFloat64() + shift); n++ {
		}
		sum += n
		squares += n * n
	}
	mean := sum / float64(runs)
	se := math.Sqrt((squares/float64(runs) - mean*mean) / float64(runs))
	t.Logf("%-42s shift %.1f: average run length %7.2f ± %.2f, published %.4g", what, shift, mean, 2*se, published)
	if math.Abs(mean-published) > 3.5*se {
		t.Errorf("%s, shift %g: average run length is %.2f ± %.2f, published is %.4g", what, shift, mean, se, published)
	}
}

// TestPublishedAverageRunLengths simulates run lengths of standard normal values.
// Sources: Champ and Woodall (1987), table 1, for the Western Electric rules;
// Montgomery, table 9.3, for CUSUM; Lucas and Saccucci (1990), as in Montgomery,
// table 9.11, for EWMA.
func TestPublishedAverageRunLengths(t *testing.T) {
	t.Parallel()
	const runs = 4000
	standard := spc.Estimate{Sigma: 1}
	rules := func(set spc.Rules) func() func(float64) bool {
		return func() func(float64) bool {
			var s spc.Runs
			return func(z float64) bool { return s.Next(z, set) != 0 }
		}
	}
	ewma := func(lambda, l float64) func() func(float64) bool {
		c := spc.EWMA{Lambda: lambda, L: l, Target: standard, Asymptotic: true}
		return func() func(float64) bool {
			var p spc.EWMAPoint
			return func(z float64) bool { p = c.Next(p, z); return p.Out }
		}
	}
	cusum := func(h float64) func() func(float64) bool {
		c := spc.CUSUM{K: 0.5, H: h, Target: standard}
		return func() func(float64) bool {
			var p spc.CUSUMPoint
			return func(z float64) bool { p = c.Next(p, z); return p.Out() }
		}
	}
	for _, test := range []struct {
		what      string
		shift     float64
		published float64
		chart     func() func(float64) bool
	}{
		{"Shewhart, 3 sigma", 0, 370.40, rules(spc.WE1)},
		{"Shewhart, 3 sigma", 1, 43.89, rules(spc.WE1)},
		{"Western Electric 1 and 2", 0, 225.44, rules(spc.WE1 | spc.WE2)},
		{"Western Electric 1 and 3", 0, 166.05, rules(spc.WE1 | spc.WE3)},
		{"Western Electric 1 and 4", 0, 152.73, rules(spc.WE1 | spc.WE4)},
		{"Western Electric 1 to 4", 0, 91.75, rules(spc.WesternElectric)},
		{"Western Electric 1 to 4", 1, 9.22, rules(spc.WesternElectric)},
		{"CUSUM, k 0.5, h 4", 0, 168, cusum(4)},
		{"CUSUM, k 0.5, h 4", 1, 8.38, cusum(4)},
		{"CUSUM, k 0.5, h 5", 0, 465, cusum(5)},
		{"CUSUM, k 0.5, h 5", 1, 10.4, cusum(5)},
		{"EWMA, lambda 0.1, L 2.814", 0, 500, ewma(0.1, 2.814)},
		{"EWMA, lambda 0.1, L 2.814", 1, 10.3, ewma(0.1, 2.814)},
		{"EWMA, lambda 0.2, L 2.962", 0, 500, ewma(0.2, 2.962)},
		{"EWMA, lambda 0.2, L 2.962", 1, 10.5, ewma(0.2, 2.962)},
		{"EWMA, lambda 0.4, L 3.054", 1, 14.3, ewma(0.4, 3.054)},
	} {
		runLength(t, test.what, test.published, test.shift, runs, test.chart)
	}
}
