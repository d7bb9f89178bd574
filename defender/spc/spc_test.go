package spc_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-dev/muster/defender/spc"
)

func repeat(x float64, n int) []float64 { return slices.Repeat([]float64{x}, n) }

func TestEachRuleSignalsWhenItsPatternIsComplete(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	alternating := []float64{.1, .5, .2, .6, .1, .5, .2, .6, .1, .5, .2, .6, .1, .5}
	for name, test := range map[string]struct {
		rule spc.Rules
		zs   []float64
		want []int // positions that signal
	}{
		"beyond 3 sigma":                      {spc.Nelson1, []float64{3, 3.01, -3.01, -3, 9}, []int{1, 2, 4}},
		"nine on one side":                    {spc.Nelson2, repeat(.5, 10), []int{8, 9}},
		"nine below":                          {spc.Nelson2, repeat(-.5, 9), []int{8}},
		"the center ends a run":               {spc.Nelson2, append(append(repeat(.5, 8), 0), repeat(.5, 8)...), nil},
		"a hole ends a run":                   {spc.Nelson2, append(append(repeat(.5, 8), nan), repeat(.5, 8)...), nil},
		"six rising":                          {spc.Nelson3, []float64{0, .1, .2, .3, .4, .5, .6, .5}, []int{5, 6}},
		"six falling":                         {spc.Nelson3, []float64{.6, .7, .5, .4, .3, .2, .1}, []int{6}},
		"equal neighbours end a trend":        {spc.Nelson3, []float64{0, .1, .2, .3, .3, .4, .5, .6, .7}, nil},
		"fourteen alternating":                {spc.Nelson4, alternating, []int{13}},
		"thirteen alternating":                {spc.Nelson4, alternating[1:], nil},
		"alternation broken":                  {spc.Nelson4, append(slices.Clone(alternating[:13]), -.3), nil},
		"two of three beyond 2":               {spc.Nelson5, []float64{2.1, 0, 2.2, 0, 0, 2.3, -2.3, -2.4}, []int{2, 7}},
		"only sight of a pattern is no news":  {spc.Nelson5, []float64{2.1, 2.2, 0, 0}, []int{1}},
		"four of five beyond 1":               {spc.Nelson6, []float64{1.1, 1.1, -5, 1.1, 1.1, 0}, []int{4}},
		"fifteen within 1":                    {spc.Nelson7, append(repeat(.9, 15), 1.1), []int{14}},
		"eight beyond 1 on both sides":        {spc.Nelson8, []float64{1.1, -1.1, 1.1, -1.1, 1.1, -1.1, 1.1, -1.1}, []int{7}},
		"eight beyond 1, one within":          {spc.Nelson8, []float64{1.1, -1.1, 1.1, -1.1, 1.1, -1.1, .9, -1.1}, nil},
		"Western Electric: eight on one side": {spc.WE4, repeat(.5, 9), []int{7, 8}},
		"Western Electric: two of three":      {spc.WE2, []float64{2.1, 0, 2.2}, []int{2}},
		"Western Electric: four of five":      {spc.WE3, []float64{-1.1, 0, -1.1, -1.1, -1.1}, []int{4}},
		"Western Electric: beyond 3":          {spc.WE1, []float64{3.5}, []int{0}},
		"infinite":                            {spc.WE1, []float64{math.Inf(-1)}, []int{0}},
	} {
		var got []int
		for i, hit := range test.rule.Check(test.zs) {
			if hit != 0 {
				got = append(got, i)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %s signals at %v, want %v", name, test.rule, got, test.want)
		}
	}
}

func TestRuleNamesComeBack(t *testing.T) {
	t.Parallel()
	for _, set := range []spc.Rules{0, spc.Nelson1, spc.Nelson, spc.WesternElectric, spc.Nelson3 | spc.WE4} {
		back, err := spc.ParseRules(set.Names()...)
		if err != nil || back != set {
			t.Errorf("%s comes back as %s, %v", set, back, err)
		}
	}
	if set, err := spc.ParseRules("nelson", "western-electric"); err != nil || set != spc.Nelson|spc.WesternElectric {
		t.Errorf("the groups are %s, %v", set, err)
	}
	if _, err := spc.ParseRules("nelson-9"); err == nil {
		t.Error("an unknown rule is accepted")
	}
}

func TestEstimatorsAgreeOnNormalValues(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	xs := make([]float64, 40_000)
	for i := range xs {
		xs[i] = 100 + 3*rng.NormFloat64()
	}
	for e := range spc.Trimmed + 1 {
		got, err := e.Of(xs)
		if err != nil || math.Abs(got.Center-100) > .1 || math.Abs(got.Sigma-3) > .08 || got.N != len(xs) {
			t.Errorf("%s estimates %+v, %v, want 100 and 3", e, got, err)
		}
		name, err := e.MarshalText()
		var back spc.Estimator
		if err != nil || back.UnmarshalText(name) != nil || back != e {
			t.Errorf("%s comes back as %s", e, back)
		}
	}
}

func TestRobustEstimatesWithstandOutliers(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	xs := make([]float64, 1000)
	for i := range xs {
		if xs[i] = rng.NormFloat64(); i%20 == 0 {
			xs[i] += 1000 // 5 %
		}
	}
	for e, most := range map[spc.Estimator]float64{spc.MedianMovingRange: 1.3, spc.MedianMAD: 1.2, spc.Trimmed: 1.3} {
		if got, err := e.Of(xs); err != nil || got.Sigma > most {
			t.Errorf("%s estimates sigma %v, %v, want about 1", e, got.Sigma, err)
		}
	}
	if got, err := spc.StandardDeviation.Of(xs); err != nil || got.Sigma < 100 {
		t.Errorf("the standard deviation is %v, %v: the test has no outliers", got.Sigma, err)
	}
}

func TestImpossibleValuesAreRefused(t *testing.T) {
	t.Parallel()
	for e := range spc.Trimmed + 1 {
		if _, err := e.Of([]float64{1}); !errors.Is(err, spc.ErrTooFew) {
			t.Errorf("%s of one value: error is %v", e, err)
		}
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			if _, err := e.Of([]float64{1, bad, 2}); err == nil {
				t.Errorf("%s accepts %v", e, bad)
			}
		}
		if got, err := e.Of([]float64{5, 5, 5}); err != nil || got.Sigma != 0 || got.Center != 5 {
			t.Errorf("%s of a constant is %+v, %v", e, got, err)
		}
	}
	if _, err := spc.MovingRange.Of([]float64{math.MaxFloat64, -math.MaxFloat64}); err == nil {
		t.Error("an overflow is accepted")
	}
	for _, err := range []error{spc.EWMA{Lambda: 2, L: 3}.Validate(), spc.EWMA{Lambda: .2}.Validate(),
		spc.CUSUM{K: -1, H: 4}.Validate(), spc.CUSUM{K: .5}.Validate(), spc.CUSUM{K: .5, H: 4, HeadStart: 2}.Validate()} {
		if err == nil {
			t.Error("impossible settings are accepted")
		}
	}
}

func TestPhaseIExcludesDisturbances(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	xs := make([]float64, 50)
	for i := range xs {
		xs[i] = rng.NormFloat64()
	}
	xs[10], xs[11], xs[30] = 40, 8, -9 // the 40 hides the others at first
	b, err := spc.PhaseI{}.Estimate(xs)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(b.Excluded, []int{10, 11, 30}) || b.N != 47 || b.Rounds < 2 || math.Abs(b.Center) > .4 || b.Sigma > 1.4 {
		t.Errorf("baseline is %+v, want one without values 10, 11, 30", b)
	}
	half := append(repeat(0, 5), 10, -20, 300, -4000, 50000)
	if b, err := (spc.PhaseI{Estimator: spc.MedianMAD}).Estimate(half); !errors.Is(err, spc.ErrTooFew) {
		t.Errorf("half of it outside gives %+v, %v, want an error", b, err)
	}
	if _, err := (spc.PhaseI{MinN: 60}).Estimate(xs); !errors.Is(err, spc.ErrTooFew) {
		t.Errorf("50 of 60 values: error is %v", err)
	}
}

func TestHeadStartFindsAnEarlyShiftSooner(t *testing.T) {
	t.Parallel()
	first := func(c spc.CUSUM) int {
		return slices.IndexFunc(c.Run(repeat(1, 50)), spc.CUSUMPoint.Out)
	}
	target := spc.Estimate{Sigma: 1}
	plain, head := first(spc.CUSUM{K: .5, H: 4, Target: target}), first(spc.CUSUM{K: .5, H: 4, Target: target, HeadStart: .5})
	if plain != 8 || head != 4 {
		t.Errorf("a shift of 1 sigma is found after %d values, with a head start after %d, want 8 and 4", plain, head)
	}
}

func TestHolesChangeNothing(t *testing.T) {
	t.Parallel()
	with, without := []float64{1, math.NaN(), 2, 3}, []float64{1, 2, 3}
	e := spc.EWMA{Lambda: .2, L: 3, Target: spc.Estimate{Sigma: 1}}
	if a, b := e.Run(with), e.Run(without); a[3] != b[2] || a[1].Out {
		t.Errorf("EWMA ends at %+v with a hole, %+v without", a[3], b[2])
	}
	c := spc.CUSUM{K: .5, H: 4, Target: spc.Estimate{Sigma: 1}}
	if a, b := c.Run(with), c.Run(without); a[3] != b[2] {
		t.Errorf("CUSUM ends at %+v with a hole, %+v without", a[3], b[2])
	}
}
