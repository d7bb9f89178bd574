package pca_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/muster-dev/muster/defender/pca"
)

func printed(t *testing.T, what string, got float64, want string) {
	t.Helper()
	_, fraction, _ := strings.Cut(want, ".")
	w, err := strconv.ParseFloat(want, 64)
	if err != nil {
		t.Fatal(err)
	}
	if half := 0.5 * math.Pow10(-len(fraction)); !(math.Abs(got-w) <= half*1.000001) {
		t.Errorf("%s is %.8g, printed as %s", what, got, want)
	}
}

// startup is the start-up phase of a chemical process of Tracy, Young and Mason
// (1992): impurities, temperature, concentration.
var startup = [][]float64{
	{14.92, 85.77, 42.26}, {16.90, 83.77, 43.44}, {17.38, 84.46, 42.74}, {16.90, 86.27, 43.60}, {16.92, 85.23, 43.18},
	{16.71, 83.81, 43.72}, {17.07, 86.08, 43.33}, {16.93, 85.85, 43.41}, {16.71, 85.73, 43.28}, {16.88, 86.27, 42.59},
	{16.73, 83.46, 44.00}, {17.07, 85.81, 42.78}, {17.60, 85.92, 43.11}, {16.90, 84.23, 43.48},
}

// TestTracyYoungMason compares T² of the 14 observations with the published
// column: with all components, T² is that of the raw variables.
func TestTracyYoungMason(t *testing.T) {
	t.Parallel()
	m, err := pca.Train(startup, pca.Config{Components: 3})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, want := range strings.Fields("10.93 2.04 5.58 3.86 0.04 2.25 1.44 1.21 0.68 2.17 4.17 1.40 2.33 0.90") {
		s, err := m.Score(startup[i])
		if err != nil {
			t.Fatal(err)
		}
		printed(t, "T² of observation "+strconv.Itoa(i+1), s.T2, want)
		sum += s.T2
		by := 0.0
		for _, c := range s.T2By {
			by += c
		}
		if math.Abs(by-s.T2) > 1e-9 {
			t.Errorf("contributions sum up to %v, T² is %v", by, s.T2)
		}
		if s.Q < 0 || s.Q > 1e-20 {
			t.Errorf("with all components Q is %v", s.Q)
		}
	}
	if math.Abs(sum-3*13) > 1e-9 {
		t.Errorf("T² sums up to %v, want p(n-1) = 39", sum)
	}
	// Observation 1 is outside, by its low impurities.
	s, _ := m.Score(startup[0])
	if s.T2By[0] < s.T2By[1] || s.T2By[0] < s.T2By[2] {
		t.Errorf("contributions of observation 1 are %v, want impurities the largest", s.T2By)
	}
}

// TestNISTPrincipalComponents is the example of NIST/SEMATECH 6.5.5.2: 10 runs of
// 3 variables.
func TestNISTPrincipalComponents(t *testing.T) {
	t.Parallel()
	runs := [][]float64{{7, 4, 3}, {4, 1, 8}, {6, 3, 5}, {8, 6, 1}, {8, 5, 7}, {7, 2, 9}, {5, 3, 3}, {9, 5, 8}, {7, 4, 5}, {8, 2, 2}}
	m, err := pca.Train(runs, pca.Config{Components: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"1.769", "0.927", "0.304"} {
		printed(t, "eigenvalue "+strconv.Itoa(i+1), m.Eigenvalues()[i], want)
	}
	if got := m.Explained(); math.Abs(got-(1.7688+.9271)/3) > 1e-4 {
		t.Errorf("two components explain %v", got)
	}
}

func TestLimitsWithoutVariationAreTheMean(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ got, want float64 }{
		{pca.Moments{Mean: 3}.Limit(.01), 3},
		{pca.Moments{}.Limit(.01), 0},
		{pca.Moments{Variance: 1}.Limit(.01), 0},
	} {
		if test.got != test.want {
			t.Errorf("the limit is %v, want %v", test.got, test.want)
		}
	}
}

// TestComponentsAreChosenByVariance of eigenvalues that explain 59, 31 and 10 %.
func TestComponentsAreChosenByVariance(t *testing.T) {
	t.Parallel()
	nist := [][]float64{{7, 4, 3}, {4, 1, 8}, {6, 3, 5}, {8, 6, 1}, {8, 5, 7}, {7, 2, 9}, {5, 3, 3}, {9, 5, 8}, {7, 4, 5}, {8, 2, 2}}
	square := [][]float64{{1, 1}, {1, -1}, {-1, 1}, {-1, -1}} // two equal eigenvalues
	rng := rand.New(rand.NewPCG(12, 13))
	for name, test := range map[string]struct {
		runs [][]float64
		c    pca.Config
		want int
	}{
		"the first is enough":      {nist, pca.Config{Variance: .5}, 1},
		"the second is needed":     {nist, pca.Config{Variance: .6}, 2},
		"80 % by default":          {nist, pca.Config{}, 2},
		"the third is needed":      {nist, pca.Config{Variance: .95}, 3},
		"all of it":                {nist, pca.Config{Variance: 1}, 3},
		"bounded":                  {nist, pca.Config{Variance: .95, MaxComponents: 1}, 1},
		"exactly half":             {square, pca.Config{Variance: .5, MaxComponents: 2, Covariance: true}, 1},
		"a third of 9 runs":        {factors(rng, 9, 8), pca.Config{Variance: 1}, 3},
		"one of 3 runs":            {startup[:3], pca.Config{Variance: 1}, 1},
		"all that 4 runs allow":    {startup[:4], pca.Config{Components: 2}, 2},
		"no more than there are":   {[][]float64{{1, 2}, {2, 4}, {4, 8}, {3, 6}, {7, 14}}, pca.Config{Components: 2}, 1},
		"a bound beyond there are": {[][]float64{{1, 2}, {2, 4}, {4, 8}, {3, 6}, {7, 14}}, pca.Config{Variance: 1, MaxComponents: 9}, 1},
	} {
		m, err := pca.Train(test.runs, test.c)
		if err != nil || m.Components() != test.want {
			t.Errorf("%s: %v, want %d components", name, err, test.want)
			continue
		}
		if m.Runs() != len(test.runs) {
			t.Errorf("%s: the model is of %d runs, want %d", name, m.Runs(), len(test.runs))
		}
	}
}

// TestEigenvaluesSumUpToTheVariance: to 1 of each scaled variable. Runs that two
// factors move without noise have two eigenvalues, in whatever unit.
func TestEigenvaluesSumUpToTheVariance(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(14, 15))
	for _, p := range []int{8, 60} { // by way of X'X and of XX'
		m, err := pca.Train(factors(rng, 30, p), pca.Config{})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0.0
		for _, e := range m.Eigenvalues() {
			sum += e
		}
		if math.Abs(sum/float64(p)-1) > 1e-9 || len(m.Eigenvalues()) != min(p, 29) {
			t.Errorf("%d eigenvalues of %d variables sum up to %v", len(m.Eigenvalues()), p, sum)
		}
		for _, unit := range []float64{1e-6, 1, 1e6} {
			runs := make([][]float64, 30)
			for i := range runs {
				a, b := rng.NormFloat64(), rng.NormFloat64()
				for j := range p {
					runs[i] = append(runs[i], unit*(a*math.Sin(float64(j))+b*math.Cos(2*float64(j))))
				}
			}
			m, err := pca.Train(runs, pca.Config{Covariance: true})
			if err != nil || len(m.Eigenvalues()) != 2 {
				t.Errorf("two factors of %d variables in units of %g have eigenvalues %v, %v", p, unit, m.Eigenvalues(), err)
			}
		}
	}
}

// TestVariablesThatNeverMovedAreLeftOut, unless a floor says what a move is worth.
func TestVariablesThatNeverMovedAreLeftOut(t *testing.T) {
	t.Parallel()
	for name, value := range map[string][3]float64{
		"0": {}, "a constant": {7, 7, 7}, "rounding": {.3, .1 + .2, .3}, "an overflow": {1e200, -1e200, 1e200},
	} {
		for _, covariance := range []bool{false, true} {
			runs := [][]float64{{1, value[0]}, {3, value[1]}, {2, value[2]}}
			m, err := pca.Train(runs, pca.Config{Components: 1, Covariance: covariance})
			if err != nil {
				t.Fatal(err)
			}
			s, err := m.Score([]float64{3, value[0] + 5})
			if err != nil || math.Abs(s.T2-1) > 1e-12 || s.Q > 1e-12 || s.QBy[1] != 0 {
				t.Errorf("%s, covariance %t: a move of it gives T² %v, Q %v, %v, want 1 and 0", name, covariance, s.T2, s.Q, err)
			}
		}
	}
	m, err := pca.Train([][]float64{{1, 7}, {3, 7}, {2, 7}}, pca.Config{Components: 1, Floor: []float64{0, .5}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := m.Score([]float64{3, 6}); err != nil || math.Abs(s.Q-4) > 1e-12 || math.Abs(s.QBy[1]+4) > 1e-12 {
		t.Errorf("a move of two floors gives Q %v by %v, %v, want 4", s.Q, s.QBy, err)
	}
}

// TestTheLargestLoadingIsPositive, and the first of equal ones, so that equal
// training gives scores of equal sign.
func TestTheLargestLoadingIsPositive(t *testing.T) {
	t.Parallel()
	// loadings are read off the scores of runs in which one variable is 1 higher.
	loadings := func(runs [][]float64, components int) [][]float64 {
		m, err := pca.Train(runs, pca.Config{Components: components, Covariance: true})
		if err != nil {
			t.Fatal(err)
		}
		at, err := m.Score(runs[0])
		if err != nil {
			t.Fatal(err)
		}
		all := make([][]float64, components)
		for j := range runs[0] {
			run := slices.Clone(runs[0])
			run[j]++
			s, err := m.Score(run)
			if err != nil {
				t.Fatal(err)
			}
			for a := range all {
				all[a] = append(all[a], s.Scores[a]-at.Scores[a])
			}
		}
		return all
	}
	rng := rand.New(rand.NewPCG(16, 17))
	for _, p := range []int{5, 12, 40} { // by way of X'X and of XX'
		for a, loads := range loadings(factors(rng, 12, p), 4) {
			if slices.Max(loads) < -slices.Min(loads) {
				t.Errorf("loadings of component %d of %d variables are %v", a+1, p, loads)
			}
		}
	}
	for name, runs := range map[string][][]float64{
		"opposite":        {{0, 0}, {1, -1}, {2, -2}, {4, -4}},
		"opposite, noisy": {{0, 0}, {1, -1}, {2, -2}, {4, -4}, {1, 1}, {-1, -1}},
		"three":           {{0, 0, 0}, {1, -1, -1}, {2, -2, -2}, {4, -4, -4}},
	} {
		if loads := loadings(runs, 1)[0]; loads[0] <= 0 || loads[1] >= 0 {
			t.Errorf("%s variables have loadings %v, want the first positive", name, loads)
		}
	}
}

// TestCrossValidationScoresWhatIsLeftOut by models of every other run.
func TestCrossValidationScoresWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	runs := factors(rand.New(rand.NewPCG(18, 19)), 11, 6)
	c := pca.Config{Components: 2}
	got, err := pca.CrossValidate(runs, c, 2)
	if err != nil {
		t.Fatal(err)
	}
	for i, run := range runs {
		var rest [][]float64
		for k := range runs {
			if k%2 != i%2 {
				rest = append(rest, runs[k])
			}
		}
		m, err := pca.Train(rest, c)
		if err != nil {
			t.Fatal(err)
		}
		if s, err := m.Score(run); err != nil || !near(got.T2s[i], s.T2) || !near(got.Qs[i], s.Q) {
			t.Errorf("run %d is scored %v and %v, want %v and %v", i, got.T2s[i], got.Qs[i], s.T2, s.Q)
		}
	}
	for what, of := range map[string]struct {
		moments pca.Moments
		values  []float64
	}{"T²": {got.T2, got.T2s}, "Q": {got.Q, got.Qs}} {
		mean, variance := stat.MeanVariance(of.values, nil)
		if math.Abs(of.moments.Mean/mean-1) > 1e-12 || math.Abs(of.moments.Variance/variance-1) > 1e-12 {
			t.Errorf("moments of %s are %+v, want %v and %v", what, of.moments, mean, variance)
		}
	}
	if _, err := pca.CrossValidate(runs[:4], c, 2); err == nil || !strings.Contains(err.Error(), "without part 1 of 2:") {
		t.Errorf("training on half of 4 runs: %v, want an error of part 1 of 2", err)
	}
	one, err := pca.CrossValidate(runs, c, len(runs))
	if err != nil {
		t.Fatal(err)
	}
	for _, folds := range []int{0, -1, len(runs) + 1} {
		if other, err := pca.CrossValidate(runs, c, folds); err != nil || !slices.Equal(other.Qs, one.Qs) {
			t.Errorf("%d folds don't leave out one run at a time: %v", folds, err)
		}
	}
}

// factors makes runs of p variables that two hidden factors move.
func factors(rng *rand.Rand, n, p int) [][]float64 {
	runs := make([][]float64, n)
	for i := range runs {
		a, b := rng.NormFloat64(), rng.NormFloat64()
		for j := range p {
			runs[i] = append(runs[i], 100+3*a*math.Sin(float64(j))+2*b*math.Cos(2*float64(j))+rng.NormFloat64()/2)
		}
	}
	return runs
}

// TestLimitsHoldOnNewRuns counts false alarms of T² and Q by simulation, over
// many models: the share depends on which runs one was trained on.
func TestLimitsHoldOnNewRuns(t *testing.T) {
	t.Parallel()
	const alpha, models, fresh = 0.05, 40, 50
	for _, test := range []struct{ n, p, folds int }{{400, 10, 10}, {30, 60, 0}} {
		rng := rand.New(rand.NewPCG(7, uint64(test.n)))
		t2, q := 0, 0
		for range models {
			runs := factors(rng, test.n, test.p)
			m, err := pca.Train(runs, pca.Config{Components: 2})
			if err != nil {
				t.Fatal(err)
			}
			reference, err := pca.CrossValidate(runs, pca.Config{Components: 2}, test.folds)
			if err != nil {
				t.Fatal(err)
			}
			t2Limit, qLimit := reference.T2.Limit(alpha), reference.Q.Limit(alpha)
			for _, run := range factors(rng, fresh, test.p) {
				s, err := m.Score(run)
				if err != nil {
					t.Fatal(err)
				}
				if s.T2 > t2Limit {
					t2++
				}
				if s.Q > qLimit {
					q++
				}
			}
		}
		t.Logf("%d runs of %d variables: of %d new ones %.1f %% exceed T², %.1f %% exceed Q, want 5 %%",
			test.n, test.p, models*fresh, 100*float64(t2)/models/fresh, 100*float64(q)/models/fresh)
		for what, count := range map[string]int{"T²": t2, "Q": q} {
			if share := float64(count) / models / fresh; share < .03 || share > .08 {
				t.Errorf("%d runs of %d variables: %.3f exceed the limit of %s", test.n, test.p, share, what)
			}
		}
	}
}

func TestContributionsNameTheFaultySensor(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(8, 9))
	m, err := pca.Train(factors(rng, 40, 25), pca.Config{Variance: .8})
	if err != nil {
		t.Fatal(err)
	}
	run := factors(rng, 1, 25)[0]
	run[17] -= 6
	s, err := m.Score(run)
	if err != nil {
		t.Fatal(err)
	}
	worst, sum := 0, 0.0
	for j, c := range s.QBy {
		if sum += math.Abs(c); math.Abs(c) > math.Abs(s.QBy[worst]) {
			worst = j
		}
	}
	if worst != 17 || s.QBy[17] >= 0 || math.Abs(sum-s.Q) > 1e-9 {
		t.Errorf("the largest contribution to Q = %v is %v of variable %d, want a negative one of 17", s.Q, s.QBy[worst], worst)
	}
}

func TestWhatCantBeTrainedIsAnError(t *testing.T) {
	t.Parallel()
	for name, train := range map[string]struct {
		runs [][]float64
		c    pca.Config
	}{
		"two runs":      {[][]float64{{1}, {2}}, pca.Config{}},
		"constant":      {[][]float64{{1, 2}, {1, 2}, {1, 2}}, pca.Config{}},
		"no variables":  {[][]float64{{}, {}, {}}, pca.Config{}},
		"uneven":        {[][]float64{{1, 2}, {1}, {1, 2}}, pca.Config{}},
		"NaN":           {[][]float64{{1, 5}, {math.NaN(), 7}, {2, 4}}, pca.Config{}},
		"infinite":      {[][]float64{{1, 5}, {math.Inf(-1), 7}, {2, 4}}, pca.Config{}},
		"negative":      {[][]float64{{1}, {3}, {2}}, pca.Config{Components: -1}},
		"too many":      {[][]float64{{1}, {3}, {2}}, pca.Config{Components: 2}},
		"floors":        {[][]float64{{1}, {3}, {2}}, pca.Config{Floor: []float64{1, 2}}},
		"share above 1": {[][]float64{{1}, {3}, {2}}, pca.Config{Variance: 2}},
		"share below 0": {[][]float64{{1}, {3}, {2}}, pca.Config{Variance: -.5}},
	} {
		if _, err := pca.Train(train.runs, train.c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	m, err := pca.Train(startup, pca.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range [][]float64{{1}, {1, math.NaN(), 2}} {
		if _, err := m.Score(run); err == nil {
			t.Errorf("run %v is scored", run)
		}
	}
}

func TestScalingAndOrderDontMatter(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(10, 11))
	for _, p := range []int{8, 60} { // by way of X'X and of XX'
		runs := factors(rng, 30, p)
		scaled := make([][]float64, len(runs))
		for i, run := range runs {
			for j := range run {
				scaled[i] = append(scaled[i], run[p-1-j]*1e6+5)
			}
		}
		a, err := pca.Train(runs, pca.Config{Components: 3})
		if err != nil {
			t.Fatal(err)
		}
		b, err := pca.Train(scaled, pca.Config{Components: 3})
		if err != nil {
			t.Fatal(err)
		}
		for i := range runs {
			x, _ := a.Score(runs[i])
			y, _ := b.Score(scaled[i])
			if math.Abs(x.T2-y.T2) > 1e-6 || math.Abs(x.Q-y.Q) > 1e-6 {
				t.Errorf("run %d of %d variables: T² %v and %v, Q %v and %v", i, p, x.T2, y.T2, x.Q, y.Q)
			}
		}
	}
}
