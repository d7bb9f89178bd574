package attribute_test

import (
	"encoding/csv"
	"math"
	"os"
	"strconv"
	"testing"

	"github.com/muster-dev/muster/defender/attribute"
	"github.com/muster-dev/muster/defender/spc"
	"github.com/muster-dev/muster/internal/realdata"
)

// table reads a CSV file with a header, as strings by column name.
func table(t *testing.T, name string) []map[string]string {
	t.Helper()
	f, err := os.Open(realdata.Path(t, "spc/"+name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]string
	for _, row := range rows[1:] {
		m := map[string]string{}
		for i, v := range row {
			m[rows[0][i]] = v
		}
		list = append(list, m)
	}
	return list
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func near(t *testing.T, what string, got, want, relative float64) {
	t.Helper()
	if !(math.Abs(got-want) <= relative*math.Max(math.Abs(want), 1e-9)) {
		t.Errorf("%s is %.10g, want %.10g", what, got, want)
	}
}

func TestUChartsHaveTheReferenceLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		phase1  int // samples that limits are from
		exclude []int
	}{
		"u_pcmanufact.csv": {phase1: 20},
		"u_dyedcloth.csv":  {phase1: 10},
		"u_circuit.csv":    {phase1: 26, exclude: []int{5, 19}},
	} {
		rows := table(t, name)
		var samples []attribute.Sample
		for _, r := range rows {
			samples = append(samples, attribute.Sample{Count: number(t, r["count"]), Units: number(t, r["units"])})
		}
		u, err := attribute.NewU(samples[:test.phase1], test.exclude...)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range rows {
			l := u.Limits(samples[i].Units)
			near(t, name+" center", l.Center, number(t, r["cl"]), 1e-12)
			near(t, name+" lower", l.Lower, number(t, r["lcl"]), 1e-12)
			near(t, name+" upper", l.Upper, number(t, r["ucl"]), 1e-12)
			near(t, name+" rate", samples[i].Rate(), number(t, r["u"]), 1e-12)
			if out := u.Out(samples[i]); out != (r["ooc"] == "TRUE") {
				t.Errorf("%s: sample %d out is %t, want %s", name, i+1, out, r["ooc"])
			}
		}
	}
}

func TestTChartsHaveTheReferenceLimits(t *testing.T) {
	t.Parallel()
	for _, want := range table(t, "t_expected.csv") {
		var times []float64
		for _, r := range table(t, "t_"+want["case"]+".csv") {
			times = append(times, number(t, r["t"]))
		}
		what := want["case"] + " " + want["method"]
		cl, lcl, ucl := number(t, want["cl"]), number(t, want["lcl"]), number(t, want["ucl"])
		check := func(l spc.Limits, relative float64) {
			t.Helper()
			near(t, what+" center", l.Center, cl, relative)
			near(t, what+" lower", l.Lower, lcl, 20*relative)
			near(t, what+" upper", l.Upper, ucl, relative)
		}
		switch want["method"] {
		// The reference takes 2.66 mean moving ranges, the package 3/1.128.
		case "nelson_imr_transformed":
			check(chart(t, times).Transformed, 5e-4)
		case "nelson_imr_back":
			check(chart(t, times).Limits, 5e-4)
		case "nelson_imr_back_screenedMR", "weibull_mle_quantile", "exponential_quantile", "log_imr_back": // not offered
		default:
			t.Errorf("method %s of the reference is not tested", want["method"])
		}
	}
}

// TestTChartsEqualThoseOfQic compares with numbers of R's qicharts2, to all
// digits given: it uses 3/1.128, too.
func TestTChartsEqualThoseOfQic(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]spc.Limits{
		"t_montgomery_valve.csv":      {Center: 430.04095, Lower: 0, Upper: 6937.93349},
		"t_qicharts2_cabg_deaths.csv": {Center: 11.20506, Lower: 0.00787179, Upper: 106.041831},
		"t_boot_coal_1851_1889.csv":   {Center: 78.25311, Lower: 0, Upper: 986.570443},
	} {
		var times []float64
		for _, r := range table(t, name) {
			times = append(times, number(t, r["t"]))
		}
		got := chart(t, times).Limits
		near(t, name+" center", got.Center, want.Center, 1e-7)
		near(t, name+" lower", got.Lower, want.Lower, 1e-6)
		near(t, name+" upper", got.Upper, want.Upper, 1e-8)
	}
}

func chart(t *testing.T, times []float64) attribute.T {
	t.Helper()
	c, err := attribute.NewT(times)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLaneysChartWidensWithOverdispersion(t *testing.T) {
	t.Parallel()
	// Rates that differ from sample to sample by 6 Poisson sigmas, up and down.
	var burst, steady []attribute.Sample
	for i := range 40 {
		burst = append(burst, attribute.Sample{Count: 100 + 60*float64(i%2), Units: 10})
		steady = append(steady, attribute.Sample{Count: 130, Units: 10})
	}
	u, err := attribute.NewLaneyU(burst)
	if err != nil {
		t.Fatal(err)
	}
	// Each moving range is 6/sqrt(1.3*10)... in Poisson sigmas: (16-10)/sqrt(13/10).
	near(t, "sigma z", u.SigmaZ, 6/math.Sqrt(1.3)/spc.D2, 1e-12)
	plain, err := attribute.NewU(burst)
	if err != nil {
		t.Fatal(err)
	}
	if !plain.Out(burst[1]) && plain.Limits(10).Upper > u.Limits(10).Upper {
		t.Error("the plain chart's limits are wider than Laney's")
	}
	if u.Out(burst[0]) || u.Out(burst[1]) {
		t.Error("Laney's chart flags the usual variation")
	}
	if s, err := attribute.NewLaneyU(steady); err != nil || s.SigmaZ != 0 {
		t.Errorf("without variation sigma z is %v, %v", s.SigmaZ, err)
	}
}

func TestGChartLimits(t *testing.T) {
	t.Parallel()
	g, err := attribute.NewG([]float64{20, 18, 22, 20})
	if err != nil {
		t.Fatal(err)
	}
	p := g.ProbabilityLimits(0.00135)
	// P(X > k) = (20/21)^(k+1) falls to 0.00135 at k = 134.4.
	near(t, "upper probability limit", p.Upper, 135, 0)
	near(t, "median", p.Center, 14, 0)
}

func TestLaneysChartWeighsSamplesByTheirUnits(t *testing.T) {
	t.Parallel()
	// 20 events in 20 units: the rates 0.5 and 1.125 are 1 Poisson sigma below and
	// half of one above the center.
	u, err := attribute.NewLaneyU([]attribute.Sample{{Count: 2, Units: 4}, {Count: 18, Units: 16}})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "sigma z", u.SigmaZ, 1.5/spc.D2, 1e-15)
}

// TestTheFewestAndSmallestInputs charts what is just enough.
func TestTheFewestAndSmallestInputs(t *testing.T) {
	t.Parallel()
	l := chart(t, []float64{8, 8, 8}).Limits
	near(t, "center of equal times", l.Center, 8, 1e-12)
	near(t, "lower limit of equal times", l.Lower, 8, 1e-12)
	near(t, "upper limit of equal times", l.Upper, 8, 1e-12)
	u, err := attribute.NewU([]attribute.Sample{{Count: 0, Units: 1}, {Count: 9, Units: 1}, {Count: 2, Units: 3}}, 1)
	if want := (attribute.U{Center: 0.5, SigmaZ: 1, N: 2}); err != nil || u != want {
		t.Errorf("with a count of 0 and one sample excluded the u-chart is %+v, %v, want %+v", u, err, want)
	}
	g, err := attribute.NewG([]float64{0, 4})
	if want := (attribute.G{Mean: 2, N: 2}); err != nil || g != want {
		t.Errorf("with a number of 0 the g-chart is %+v, %v, want %+v", g, err, want)
	}
	if l := (attribute.G{Mean: 0, N: 1}).ProbabilityLimits(0.01); l != (spc.Limits{}) {
		t.Errorf("where every unit is eventful the limits are %+v, want 0", l)
	}
}

// TestGChartQuantilesThatAreWholeNumbers takes the smallest number that has the
// probability, also where it has exactly that: with mean 1 the cumulative
// probabilities are 1/2, 3/4, 7/8.
func TestGChartQuantilesThatAreWholeNumbers(t *testing.T) {
	t.Parallel()
	g := attribute.G{Mean: 1, N: 1}
	for tail, want := range map[float64]spc.Limits{
		0.25:  {Center: 0, Lower: 0, Upper: 1},
		0.125: {Center: 0, Lower: 0, Upper: 2},
		0.12:  {Center: 0, Lower: 0, Upper: 3},
	} {
		if got := g.ProbabilityLimits(tail); got != want {
			t.Errorf("limits for a tail of %g are %+v, want %+v", tail, got, want)
		}
	}
}

func TestImpossibleInputsAreRefused(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"time of 0":        second(attribute.NewT([]float64{1, 0, 2})),
		"negative time":    second(attribute.NewT([]float64{1, -1})),
		"NaN time":         second(attribute.NewT([]float64{1, math.NaN()})),
		"one time":         second(attribute.NewT([]float64{1})),
		"no samples":       second(attribute.NewU(nil)),
		"no units":         second(attribute.NewU([]attribute.Sample{{Count: 1}})),
		"negative count":   second(attribute.NewU([]attribute.Sample{{Count: -1, Units: 1}})),
		"all excluded":     second(attribute.NewU([]attribute.Sample{{Count: 1, Units: 1}}, 0)),
		"one for Laney":    second(attribute.NewLaneyU([]attribute.Sample{{Count: 1, Units: 1}})),
		"no numbers":       second(attribute.NewG(nil)),
		"negative between": second(attribute.NewG([]float64{-1})),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }
