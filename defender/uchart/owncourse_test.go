package uchart

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// slowSeries has successive values with a correlation.
func slowSeries(rng *rand.Rand, phi float64, n int) series {
	xs := make(series, n)
	at := rng.NormFloat64()
	for i := range xs {
		at = phi*at + math.Sqrt(1-phi*phi)*rng.NormFloat64()
		xs[i] = 100 + at
	}
	return xs
}

func TestCourse_own(t *testing.T) {
	t.Parallel()
	const charts, runs = 400, 50
	departs := func(shared Course, phi float64) (share, mean float64) {
		rng := rand.New(rand.NewPCG(7, 1))
		for range charts {
			if own := shared.own(slowSeries(rng, phi, runs)); shared.differs(own) {
				share += 1.0 / charts
				mean += own.Phi
			}
		}
		return share, mean / (share * charts)
	}
	t.Run("of_a_slow_sensor_among_independent_ones", func(t *testing.T) {
		t.Parallel()
		if share, phi := departs(Course{}, 0.9); share < 0.95 || math.Abs(phi-0.9) > 0.05 {
			t.Errorf("%.3f of the charts have their own course, with phi %.2f on average, want nearly all and 0.9", share, phi)
		}
	})
	t.Run("of_a_sensor_that_is_slower_than_others", func(t *testing.T) {
		t.Parallel()
		if share, _ := departs(Course{Kind: Autoregressive, Phi: 0.3}, 0.95); share < 0.9 {
			t.Errorf("%.3f of the charts have their own course, want nearly all", share)
		}
	})
	t.Run("not_of_a_chart_that_is_like_the_others", func(t *testing.T) {
		t.Parallel()
		for _, shared := range []Course{{}, {Kind: Autoregressive, Phi: 0.5}, {Kind: Autoregressive, Phi: 0.8}} {
			if share, _ := departs(shared, shared.Phi); share > 0.02 {
				t.Errorf("%.3f of the charts of %+v have their own course, want at most 0.02", share, shared)
			}
		}
	})
	t.Run("not_in_lots", func(t *testing.T) {
		t.Parallel()
		shared := Course{Kind: InLots, Between: 1, Lots: 2}
		if share, _ := departs(shared, 0.95); share > 0 {
			t.Errorf("%.3f of the charts of %+v have their own course, want none", share, shared)
		}
	})
	t.Run("of_a_level_that_moves_faster_than_others", func(t *testing.T) {
		t.Parallel()
		share := func(step, noise float64) float64 {
			rng := rand.New(rand.NewPCG(7, 4))
			own := 0.0
			for range charts {
				level, xs := 0.0, make(series, runs)
				for i := range xs {
					level += step * rng.NormFloat64()
					xs[i] = level + noise*rng.NormFloat64()
				}
				switch c := (Course{Kind: Wandering}).own(xs); {
				case c.Kind != Wandering:
					t.Errorf("a chart of a wandering statistic has %+v", c)
				case c.Weight > 0:
					own += 1.0 / charts
				}
			}
			return own
		}
		if got := share(1, 0.5); got < 0.9 {
			t.Errorf("%.3f of the charts are followed faster, want nearly all", got)
		}
		if got := share(0.2, 1); got > 0.02 {
			t.Errorf("%.3f of the charts that move as usual are followed faster, want at most 0.02", got)
		}
	})
	t.Run("not_of_few_runs_or_a_constant", func(t *testing.T) {
		t.Parallel()
		few := slowSeries(rand.New(rand.NewPCG(7, 2)), 0.95, courseContexts-1)
		for _, xs := range []series{few, make(series, runs)} {
			if own := (Course{}).own(xs); (Course{}).differs(own) {
				t.Errorf("%d runs have %+v", len(xs), own)
			}
		}
	})
}

func TestCourse_later(t *testing.T) {
	t.Parallel()
	c := Course{Kind: Autoregressive, Phi: 0.9}
	expected, factor := c.later(2, 1, 50)
	if math.Abs(expected-1.8) > 1e-12 || math.Abs(factor-1) > 1e-12 {
		t.Errorf("the next value is expected at %g with a factor of %g, want 1.8 and 1", expected, factor)
	}
	// Variance (1-0.9^50)/(1-0.81) of the runs between, ((1-0.9^25)/0.1)²/50 of the center, over 1+1/50.
	expected, factor = c.later(2, 25, 50)
	if math.Abs(expected-0.1435796) > 1e-6 || math.Abs(factor-2.6120350) > 1e-6 {
		t.Errorf("the value 25 runs later is expected at %g with a factor of %g", expected, factor)
	}
}

func TestBaseline_courseOf(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 3))
	const sensors, slow = 40, 39 // the last one is slow
	level := slowSeries(rng, 0.95, 50)
	var points []Point
	for i := range 50 {
		chart := &Chart{Steps: []int32{1}, Values: make([]float64, sensors*NumStatistics), Valid: make([]uint8, sensors)}
		for svid := range sensors {
			chart.SVIDs = append(chart.SVIDs, fmt.Sprint("sensor ", svid))
			x := rng.NormFloat64()
			if svid == slow {
				x = level[i]
			}
			cell := chart.Values[svid*NumStatistics:]
			cell[Count], cell[Mean], cell[StdDev] = 25, x, 1
			chart.Valid[svid] = 1<<Count | 1<<Mean | 1<<StdDev
		}
		points = append(points, Point{Context: fmt.Sprint("r", i), Chart: chart})
	}
	p := Policy{Statistics: []Statistic{Mean}, Frozen: FrozenPolicy{Contexts: 50}}.withDefaults()
	b := p.estimate(points)
	if !b.Valid() || len(b.Courses) != 1 || b.Courses[0].Own != 1 {
		t.Fatalf("the courses are %+v, want one chart with its own", b.Courses)
	}
	for svid := range sensors {
		c := b.courseOf(b.courses()[0], svid, 0, 0)
		if svid == slow && (c.Kind != Autoregressive || c.Phi < 0.7) || svid != slow && c.Kind != Independent {
			t.Errorf("sensor %d has %+v", svid, c)
		}
	}
	b.Phis = b.Phis[:8]
	if b.Valid() {
		t.Error("a baseline with too few courses is valid")
	}
}
