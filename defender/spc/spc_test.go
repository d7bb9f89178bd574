package spc_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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
		"the center ends a run below":         {spc.Nelson2, append(append(repeat(-.5, 8), 0), repeat(-.5, 8)...), nil},
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
		"six rising, all above the center":    {spc.Nelson3, []float64{.1, .2, .3, .4, .5, .6}, []int{5}},
		"six rising after equal neighbours":   {spc.Nelson3, []float64{.1, .1, .2, .3, .4, .5, .6}, []int{6}},
		"six rising after a hole":             {spc.Nelson3, []float64{-.1, nan, .1, .2, .3, .4, .5, .6}, []int{7}},
		"fourteen alternating after a rise":   {spc.Nelson4, append([]float64{0}, alternating...), []int{14}},
		"fourteen alternating after equals":   {spc.Nelson4, append([]float64{.1}, alternating...), []int{14}},
		"two of three below -2":               {spc.Nelson5, []float64{-2.1, 0, -2.2, 0}, []int{2}},
		"on 2 sigma is not beyond":            {spc.Nelson5, []float64{2, 2.1, 2, 0, 0, -2, -2.1, -2}, nil},
		"four of five below -1":               {spc.Nelson6, []float64{-1.1, 5, -1.1, -1.1, -1.1}, []int{4}},
		"on 1 sigma is not beyond":            {spc.Nelson6, []float64{1.1, 1, 1.1, 1, 1.1, 0, -1.1, -1, -1.1, -1, -1.1}, nil},
		"fifteen within 1, some on it":        {spc.Nelson7, append(repeat(1, 14), -1, -1), []int{14, 15}},
		"fourteen within 1":                   {spc.Nelson7, append(repeat(.9, 14), -1.1, .9), nil},
		"eight beyond 1, one on it":           {spc.Nelson8, []float64{1.1, -1.1, 1.1, -1.1, 1.1, -1.1, 1, -1.1, 1.1}, nil},
		"seven on one side, then the other":   {spc.WE4, append(repeat(.5, 7), repeat(-.5, 8)...), []int{14}},
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
	for name, group := range map[string]struct {
		set  spc.Rules
		want []string
	}{"nelson": {spc.Nelson, spc.RuleNames()[:8]}, "western-electric": {spc.WesternElectric, spc.RuleNames()[8:]}} {
		if got := group.set.Names(); !slices.Equal(got, group.want) {
			t.Errorf("the group %s is %v, want %v", name, got, group.want)
		}
	}
	if set, err := spc.ParseRules("western-electric-2", "nelson", "western-electric-4"); err != nil || set != spc.Nelson|spc.WE2|spc.WE4 {
		t.Errorf("a group between two rules gives %s, %v", set, err)
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

// TestEstimatesOfFewValues are worked out by hand.
func TestEstimatesOfFewValues(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		by     spc.Estimator
		xs     []float64
		center float64
		sigma  float64
	}{
		{spc.MovingRange, []float64{1, 4}, 2.5, 3 / 1.128},
		{spc.MovingRange, []float64{1, 4, 3, 3}, 2.75, 4. / 3 / 1.128},
		{spc.MedianMovingRange, []float64{1, 4, 3, 3}, 2.75, 1 / .9538725524},
		{spc.StandardDeviation, []float64{1, 4}, 2.5, 3 * math.Sqrt(math.Pi) / 2},           // c4 is sqrt(2/pi)
		{spc.StandardDeviation, []float64{1, 2, 3, 4, 5}, 3, math.Sqrt(2.5) / .93998560299}, // c4 as in tables: 0.9400
		{spc.MedianMAD, []float64{100, 1, 2, 4, 3}, 3, 1.4826022185},
		{spc.MedianMAD, []float64{1, 2, 4, 9}, 3, 1.5 * 1.4826022185},
		{spc.Trimmed, []float64{1, 2, 3}, 2, 1},
		// Winsorized to 2, 2, 3, ..., 8, 9, 9; clipped at 1.28 a normal value has 0.8238 sigmas.
		{spc.Trimmed, []float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 100}, 5.5, math.Sqrt(66.5/9) / .8238049277},
	} {
		given := slices.Clone(test.xs)
		got, err := test.by.Of(test.xs)
		if err != nil || !(math.Abs(got.Center-test.center) <= 1e-12) || !(math.Abs(got.Sigma/test.sigma-1) <= 1e-7) || got.N != len(test.xs) {
			t.Errorf("%s of %v is %+v, %v, want center %v and sigma %v", test.by, test.xs, got, err, test.center, test.sigma)
		}
		if !slices.Equal(given, test.xs) {
			t.Errorf("%s changes the values it is given to %v", test.by, test.xs)
		}
	}
	if got := spc.Median(nil); !math.IsNaN(got) {
		t.Errorf("the median of nothing is %v, want NaN", got)
	}
}

func TestSigmaDoesNotDependOnTheLevel(t *testing.T) {
	t.Parallel()
	for e := range spc.Trimmed + 1 {
		low, err := e.Of([]float64{0, 0, 1})
		if err != nil {
			t.Fatal(err)
		}
		high, err := e.Of([]float64{3e8, 3e8, 3e8 + 1}) // their squares differ by less than rounding
		if err != nil || !(math.Abs(high.Sigma-low.Sigma) <= 1e-7) || !(math.Abs(high.Center-3e8-low.Center) <= 1e-7) {
			t.Errorf("%s estimates %+v at a high level, %v, %+v at a low one", e, high, err, low)
		}
	}
}

func TestAValueOnALimitIsInside(t *testing.T) {
	t.Parallel()
	l := spc.Estimate{Center: 10, Sigma: 2}.Limits(3)
	if l != (spc.Limits{Center: 10, Lower: 4, Upper: 16}) {
		t.Errorf("limits are %+v, want 4 to 16", l)
	}
	for x, want := range map[float64]bool{4: false, 3.99: true, 16: false, 16.01: true, 10: false, math.NaN(): true, math.Inf(1): true} {
		if got := l.Outside(x); got != want {
			t.Errorf("%v is outside: %t, want %t", x, got, want)
		}
	}
}

func TestZCountsSigmasFromTheCenter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ sigma, x, want float64 }{
		{2, 13, 1.5}, {2, 9, -.5}, {2, 10, 0}, {0, 10, 0}, {0, 10.1, math.Inf(1)}, {0, 9, math.Inf(-1)},
	} {
		if got := (spc.Estimate{Center: 10, Sigma: test.sigma}).Z(test.x); got != test.want {
			t.Errorf("%v is %v sigmas of %v from 10, want %v", test.x, got, test.sigma, test.want)
		}
	}
}

func TestEstimatorNames(t *testing.T) {
	t.Parallel()
	if got := spc.MovingRange.String() + " " + spc.Trimmed.String(); got != "moving-range trimmed" {
		t.Errorf("the first and the last estimator are called %s", got)
	}
	unknown := spc.Trimmed + 1
	if got := unknown.String(); got != "estimator(5)" {
		t.Errorf("an unknown estimator is called %s", got)
	}
	if text, err := unknown.MarshalText(); err == nil {
		t.Errorf("an unknown estimator is written as %s", text)
	}
	if err := unknown.UnmarshalText([]byte("mode")); err == nil {
		t.Errorf("an unknown estimator is read as %s", unknown)
	}
	if _, err := unknown.Of([]float64{1, 2}); err == nil {
		t.Error("an unknown estimator estimates")
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
	// Half of the ranges are 0, so that only the mean overflows.
	if _, err := spc.MedianMovingRange.Of([]float64{0, math.MaxFloat64, math.MaxFloat64, math.MaxFloat64}); err == nil {
		t.Error("an overflow of the mean is accepted")
	}
}

func TestSettingsOfChartsAreValidated(t *testing.T) {
	t.Parallel()
	sigma := func(s float64) spc.Estimate { return spc.Estimate{Sigma: s} }
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []interface{ Validate() error }{
		spc.EWMA{Lambda: 1, L: 3}, spc.EWMA{Lambda: .01, L: .1, Target: sigma(2)},
		spc.CUSUM{K: 0, H: 4}, spc.CUSUM{K: .5, H: .1, HeadStart: 1, Target: sigma(2)},
	} {
		if err := c.Validate(); err != nil {
			t.Errorf("%+v is rejected: %v", c, err)
		}
	}
	for _, c := range []interface{ Validate() error }{
		spc.EWMA{Lambda: 2, L: 3}, spc.EWMA{Lambda: 0, L: 3}, spc.EWMA{Lambda: nan, L: 3}, spc.EWMA{Lambda: -.1, L: 3},
		spc.EWMA{Lambda: .2}, spc.EWMA{Lambda: .2, L: inf}, spc.EWMA{Lambda: .2, L: nan}, spc.EWMA{Lambda: .2, L: -3},
		spc.EWMA{Lambda: .2, L: 3, Target: sigma(-1)}, spc.EWMA{Lambda: .2, L: 3, Target: sigma(nan)},
		spc.CUSUM{K: -1, H: 4}, spc.CUSUM{K: inf, H: 4}, spc.CUSUM{K: nan, H: 4},
		spc.CUSUM{K: .5}, spc.CUSUM{K: .5, H: inf}, spc.CUSUM{K: .5, H: nan}, spc.CUSUM{K: .5, H: -4},
		spc.CUSUM{K: .5, H: 4, HeadStart: 1.1}, spc.CUSUM{K: .5, H: 4, HeadStart: -.1}, spc.CUSUM{K: .5, H: 4, HeadStart: nan},
		spc.CUSUM{K: .5, H: 4, Target: sigma(-1)}, spc.CUSUM{K: .5, H: 4, Target: sigma(nan)},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

func TestBothSidesOfACUSUMAreAlike(t *testing.T) {
	t.Parallel()
	c := spc.CUSUM{K: .5, H: 3, Target: spc.Estimate{Center: 10, Sigma: 2}, HeadStart: .25}
	xs := []float64{10, 13, 12.5, 9, 7, 12, 14, 14, 13, 6, 4, 3}
	mirrored := make([]float64, len(xs))
	for i, x := range xs {
		mirrored[i] = 20 - x
	}
	down := c.Run(mirrored)
	for i, up := range c.Run(xs) {
		want := spc.CUSUMPoint{High: up.Low, Low: up.High, RunHigh: up.RunLow, RunLow: up.RunHigh, OutHigh: up.OutLow, OutLow: up.OutHigh, N: i + 1}
		if down[i] != want || up.N != i+1 {
			t.Errorf("after value %d the sums are %+v, mirrored %+v", i+1, up, down[i])
		}
	}
}

func TestACUSUMIsOutBeyondItsInterval(t *testing.T) {
	t.Parallel()
	c := spc.CUSUM{K: .5, H: 2, Target: spc.Estimate{Center: 10, Sigma: 2}, HeadStart: .5}
	// In the unit of the values k is 1, h is 4 and the sums start at 2.
	points := c.Run([]float64{13, 11, 11.5, 8})
	want := []spc.CUSUMPoint{
		{High: 4, RunHigh: 1, N: 1},
		{High: 4, RunHigh: 2, N: 2},
		{High: 4.5, RunHigh: 3, OutHigh: true, N: 3},
		{High: 1.5, Low: 1, RunHigh: 4, RunLow: 1, N: 4},
	}
	if !slices.Equal(points, want) {
		t.Errorf("the sums are\n%+v, want\n%+v", points, want)
	}
	for i, p := range c.Run([]float64{7, 9, 8.5, 12}) { // the same downward
		if w := want[i]; p.Low != w.High || p.OutLow != w.OutHigh || p.RunLow != w.RunHigh || p.Out() != (i == 2) {
			t.Errorf("after value %d of the mirrored series the sums are %+v, want %+v mirrored", i+1, p, w)
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

func TestPhaseIKeepsToItsSettings(t *testing.T) {
	t.Parallel()
	xs := []float64{1, 2, 3, 1000} // median 2.5, sigma 1.48; without the last one median 2, sigma 1.48
	for name, test := range map[string]struct {
		p        spc.PhaseI
		xs       []float64
		excluded []int
		rounds   int
		fails    bool
	}{
		"a quarter may be outside":        {spc.PhaseI{Estimator: spc.MedianMAD}, xs, []int{3}, 2, false},
		"two of seven are more":           {spc.PhaseI{Estimator: spc.MedianMAD}, []float64{1, 2, 3, 2, 1, 500, 1000}, nil, 0, true},
		"unless that is allowed":          {spc.PhaseI{Estimator: spc.MedianMAD, MaxExcluded: 2. / 7}, []float64{1, 2, 3, 2, 1, 500, 1000}, []int{5, 6}, 2, false},
		"less is allowed":                 {spc.PhaseI{Estimator: spc.MedianMAD, MaxExcluded: .2}, xs, nil, 0, true},
		"just enough remain":              {spc.PhaseI{Estimator: spc.MedianMAD, MinN: 3}, xs, []int{3}, 2, false},
		"too few remain":                  {spc.PhaseI{Estimator: spc.MedianMAD, MinN: 4}, xs, nil, 0, true},
		"two values are enough":           {spc.PhaseI{}, []float64{1, 2}, nil, 1, false},
		"one value is not":                {spc.PhaseI{MinN: -1}, []float64{1}, nil, 0, true},
		"3 sigma by default":              {spc.PhaseI{Estimator: spc.MedianMAD}, []float64{1, 2, 3, 2, 6.4, -2.4}, nil, 1, false},
		"narrower limits":                 {spc.PhaseI{Estimator: spc.MedianMAD, K: 2, MaxExcluded: .5}, []float64{1, 2, 3, 2, 6.4, -2.4}, []int{4, 5}, 2, false},
		"the last digit is outside":       {spc.PhaseI{Estimator: spc.MedianMAD}, []float64{5, 5, 5, 5.1}, []int{3}, 2, false},
		"unless the floor says otherwise": {spc.PhaseI{Estimator: spc.MedianMAD, Floor: .05}, []float64{5, 5, 5, 5.1}, nil, 1, false},
	} {
		b, err := test.p.Estimate(test.xs)
		if test.fails {
			if !errors.Is(err, spc.ErrTooFew) {
				t.Errorf("%s: %+v, %v, want an error", name, b, err)
			}
			continue
		}
		if err != nil || !slices.Equal(b.Excluded, test.excluded) || b.Rounds != test.rounds || b.N != len(test.xs)-len(test.excluded) {
			t.Errorf("%s: %+v, %v, want %v excluded in %d rounds", name, b, err, test.excluded, test.rounds)
		}
	}
	_, err := spc.PhaseI{Estimator: spc.MedianMAD}.Estimate([]float64{1, 2, 3, 2, 1, 500, 1000})
	if want := "2 were outside 3 sigma and 5 remain, want at least 2 and at most 25 % outside"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v, want it to say that %s", err, want)
	}
	if b, err := (spc.PhaseI{Floor: .05}).Estimate(repeat(5, 4)); err != nil || b.Sigma != .05 {
		t.Errorf("sigma of a constant with a floor is %v, %v, want the floor", b.Sigma, err)
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
