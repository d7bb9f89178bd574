package uchart

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// charts of sensors that are made by a function of the run, its lot and the run before.
func chartsBy(seed uint64, sensors, n int, next func(rng *rand.Rand, i int, last float64) float64) []series {
	rng := rand.New(rand.NewPCG(seed, 11))
	all := make([]series, sensors)
	for s := range all {
		last := rng.NormFloat64()
		for i := range n {
			last = next(rng, i, last)
			all[s] = append(all[s], last)
		}
	}
	return all
}

func noLots(n int) []int { return lotNumbers(make([]Point, n), "")[:n] }

func TestCourse(t *testing.T) {
	t.Parallel()
	independent := func(rng *rand.Rand, _ int, _ float64) float64 { return rng.NormFloat64() }
	t.Run("is_found", func(t *testing.T) {
		t.Parallel()
		for seed := range uint64(20) {
			ar := chartsBy(seed, 20, 50, func(rng *rand.Rand, _ int, last float64) float64 { return 0.6*last + 0.8*rng.NormFloat64() })
			if c := courseOf(Mean, ar, 20, noLots(50)); c.Kind != Autoregressive || math.Abs(c.Phi-0.6) > 0.1 {
				t.Errorf("seed %d: an autoregressive course of 0.6 is %+v", seed, c)
			}
			if c := courseOf(Mean, chartsBy(seed, 20, 50, independent), 20, noLots(50)); c.Kind != Independent {
				t.Errorf("seed %d: independent runs are %+v", seed, c)
			}
			// The level wanders, under noise.
			levels := chartsBy(seed, 20, 50, func(rng *rand.Rand, _ int, last float64) float64 { return last + 0.2*rng.NormFloat64() })
			for s, noise := range chartsBy(seed+100, 20, 50, independent) {
				for i := range noise {
					levels[s][i] += noise[i]
				}
			}
			if c := courseOf(Mean, levels, 20, noLots(50)); c.Kind != Wandering {
				t.Errorf("seed %d: a level that wanders is %+v", seed, c)
			}
		}
	})
	t.Run("is_by_lots_if_they_matter", func(t *testing.T) {
		t.Parallel()
		points := make([]Point, 50)
		for i := range points {
			points[i].Lot = fmt.Sprint("lot ", i/10)
		}
		lots := lotNumbers(points, "lot 5")
		if lots[50] != 5 {
			t.Errorf("the lot at hand is number %d", lots[50])
		}
		lots = lots[:50]
		all := chartsBy(3, 20, 50, independent)
		if c := courseOf(Mean, all, 20, lots); c.Kind != Independent {
			t.Errorf("lots that don't matter are %+v", c)
		}
		rng := rand.New(rand.NewPCG(5, 5))
		for _, xs := range all {
			for i := range xs {
				if i%10 == 0 {
					by := 2 * rng.NormFloat64()
					for j := i; j < i+10; j++ {
						xs[j] += by
					}
				}
			}
		}
		if c := courseOf(Mean, all, 20, lots); c.Kind != InLots || c.Lots != 5 || c.Between < 2.5 || c.Between > 6 {
			t.Errorf("lots with 4 times the variance of wafers are %+v", c)
		}
		if c := courseOf(Mean, all, 20, make([]int, 50)); c.Kind != InLots || c.Lots != 1 {
			t.Errorf("the only lot there was is %+v", c)
		}
		single := make([]int, 50)
		for i := range single {
			single[i] = i
		}
		if c := courseOf(Mean, chartsBy(3, 20, 50, independent), 20, single); c.Kind != Independent {
			t.Errorf("lots of single wafers are %+v", c)
		}
	})
}

// TestForecast checks expectations and factors against closed forms.
func TestForecast(t *testing.T) {
	t.Parallel()
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	f := forecast{course: Course{Kind: Autoregressive, Phi: 0.5}, center: 10}
	if _, _, ok := f.next(0, 1); ok {
		t.Error("something is expected before there was a value")
	}
	f.add(14, 0)
	at, factor, _ := f.next(0, 1)
	near("the next value", at, 12)
	near("its deviation", factor, 1)
	at, factor, _ = f.next(0, 2)
	near("the value after it", at, 11)
	near("its deviation", factor, math.Sqrt(1.25))

	own := forecast{course: Course{Kind: Autoregressive, Phi: 0.5, single: true}, center: 10, rests: 25, sigma: 1}
	own.add(14, 0)
	_, factor, _ = own.next(0, 2)
	_, known := own.course.later(4, 2, 25)
	near("its deviation with phi of 25 values, 4 sigmas from the center", factor, math.Sqrt(known*known+16*0.75/25))

	lots := forecast{course: Course{Kind: InLots, Between: 1, Lots: 4}, center: 10}
	lots.add(12, 0)
	lots.add(14, 0)
	at, factor, _ = lots.next(0, 1) // 2 of 3 parts of the lot's mean, 3 above the center
	near("the next wafer of the lot", at, 12)
	near("its deviation", factor, math.Sqrt(1+1.0/3+1.0/9/4))
	at, factor, _ = lots.next(1, 1)
	near("the first wafer of the next lot", at, 10)
	near("its deviation", factor, math.Sqrt(2.25))

	only := forecast{course: Course{Kind: InLots, Lots: 1}, center: 10}
	only.add(12, 0)
	if _, _, ok := only.next(1, 1); ok {
		t.Error("the first wafer of the second lot is expected to be somewhere")
	}
	at, factor, _ = only.next(0, 1)
	near("the second wafer of the only lot", at, 12)
	near("its deviation", factor, math.Sqrt2)

	wandering := forecast{course: Course{Kind: Wandering}}
	for range wanderStart {
		wandering.add(5, 0)
	}
	wandering.add(10, 0)
	at, factor, _ = wandering.next(0, 3)
	near("a level", at, 6)
	near("its deviation", factor, math.Sqrt(1+2*0.04))
	wandering.course.Weight = 0.6
	wandering.add(11, 0)
	at, factor, _ = wandering.next(0, 3)
	near("a level that is followed faster", at, 9)
	near("its deviation", factor, math.Sqrt(1+2*0.36))
	_, last, _ := wandering.next(0, horizonMost)
	_, later, _ := wandering.next(0, 10*horizonMost)
	near("the deviation long after", later, last)
}

func TestTail(t *testing.T) {
	t.Parallel()
	const charts, runs = 60, 50
	far := func(seed uint64, draw func(*rand.Rand) float64) []float64 {
		rng := rand.New(rand.NewPCG(seed, 17))
		out := make([]float64, runs)
		for i := range out {
			for range charts {
				out[i] = max(out[i], math.Abs(draw(rng)))
			}
		}
		return out
	}
	const budget = 0.005
	usual := normals{Charts: charts}
	cubic := func(rng *rand.Rand) float64 { return math.Pow(1-rng.Float64(), -1.0/3) } // a power law of exponent 3
	widened, exceeded := 0, 0.0
	for seed := range uint64(200) {
		tail := tailOf(far(seed, (*rand.Rand).NormFloat64), usual, nil)
		if tail.limit(budget, nil) > 1.25*usual.beyond(budget, nil) {
			widened++
		}
		limit := tailOf(far(seed, cubic), usual, nil).limit(budget, nil)
		exceeded -= math.Expm1(charts*math.Log1p(-math.Pow(limit, -3))) / 200
	}
	if widened > 20 {
		t.Errorf("the limits of %d of 200 samples of normal values are wider by a quarter, want at most 20", widened)
	}
	if exceeded > 2*budget {
		t.Errorf("a run of a power law exceeds its limit with probability %.4f, want about %g", exceeded, budget)
	}

	// Two runs that were disturbed, in whatever way, count as runs a bit out.
	xs := far(1, (*rand.Rand).NormFloat64)
	for _, by := range []float64{1e3, 1e9} {
		xs[3], xs[30] = by, by
		if limit := tailOf(xs, usual, nil).limit(budget, nil); limit > 8 {
			t.Errorf("two disturbed runs widen the limit to %v", limit)
		}
	}
	if tail := tailOf(make([]float64, runs), usual, nil); tail != (Tail{}) {
		t.Errorf("runs that don't vary have the tail %+v", tail)
	}

	// 2 sigmas are at z 2.0046, the limit at z 2.8070: 9 ((0.04/0.005)^(1/9) - 1) stands for log 8.
	one := Tail{Threshold: 2, Share: 0.045, Excess: 0.1, Sample: 9, normals: normals{Charts: 1}}
	if got, want := one.limit(budget, nil), 3.484931; math.Abs(got-want) > 1e-6 {
		t.Errorf("the limit is %v, want %v", got, want)
	}
}

// TestLeftOut compares distances with those by limits of the other values.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	values := []float64{3, 1, 4, math.NaN(), 1, 5, 9, 2, 6}
	for _, expected := range []bool{false, true} {
		far := make([]float64, len(values))
		leftOut(far, values, expected, 0.1)
		for i, x := range values {
			var others []float64
			for j, y := range values {
				if j != i && !math.IsNaN(y) {
					others = append(others, y)
				}
			}
			center, sigma := individuals(others)
			if expected {
				center = 0
			}
			want := math.Abs(x-center) / sigma / math.Sqrt(1+1/float64(len(others)))
			if math.IsNaN(x) {
				want = 0
			}
			if math.Abs(far[i]-want) > 1e-12 {
				t.Errorf("value %d is %v sigmas out, want %v", i, far[i], want)
			}
		}
	}

	far := make([]float64, 6)
	leftOut(far, []float64{1, 1, 1, 1, 1, 2}, false, 0.5)
	if want := 2 / math.Sqrt(1.2); math.Abs(far[5]-want) > 1e-12 {
		t.Errorf("one value of another level is %v sigmas out, want %v by the floor", far[5], want)
	}
}
