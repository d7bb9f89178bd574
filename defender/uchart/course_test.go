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
	normals, heavy := 0, 0
	for seed := range uint64(200) {
		if tailOf(far(seed, (*rand.Rand).NormFloat64), farthestOf(charts)) != (Tail{}) {
			normals++
		}
		cubic := func(rng *rand.Rand) float64 { return math.Pow(1-rng.Float64(), -1.0/3) } // a power law of exponent 3
		tail := tailOf(far(seed, cubic), farthestOf(charts))
		if tail.Share == 0.4 && tail.Index > 0.15 && tail.Index < 0.6 {
			heavy++
		}
	}
	if normals > 30 || heavy < 190 {
		t.Errorf("%d of 200 samples of normal values have a tail, and %d of a power law, want about 10 and all", normals, heavy)
	}

	// Two runs that were disturbed, in whatever way, count as runs a bit out.
	xs := far(1, (*rand.Rand).NormFloat64)
	for _, by := range []float64{1e3, 1e9} {
		xs[3], xs[30] = by, by
		if tail := tailOf(xs, farthestOf(charts)); tail.limit(0.005) > 8 {
			t.Errorf("two disturbed runs widen the limit to %v", tail.limit(0.005))
		}
	}
	if tail := tailOf(make([]float64, runs), farthestOf(charts)); tail != (Tail{}) {
		t.Errorf("runs that don't vary have the tail %+v", tail)
	}
	want := 2 * math.Pow(0.4/0.005, 0.5)
	if got := (Tail{Threshold: 2, Share: 0.4, Index: 0.5}).limit(0.005); math.Abs(got-want) > 1e-12 {
		t.Errorf("the limit is %v, want %v", got, want)
	}
}
