package pca_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/pca"
)

func printed(t *testing.T, what string, got float64, want string) {
	t.Helper()
	_, fraction, _ := strings.Cut(want, ".")
	w, err := strconv.ParseFloat(want, 64)
	if err != nil {
		t.Fatal(err)
	}
	if half := 0.5 * math.Pow10(-len(fraction)); math.Abs(got-w) > half*1.000001 {
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
		if s.Q > 1e-20 {
			t.Errorf("with all components Q is %v", s.Q)
		}
	}
	if math.Abs(sum-3*13) > 1e-9 {
		t.Errorf("T² sums up to %v, want p(n-1) = 39", sum)
	}
	// Observation 1 is outside at 1 %, by its low impurities.
	limit, err := pca.T2Training(0.01, 14, 3)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := m.Score(startup[0])
	if s.T2 < limit {
		t.Errorf("observation 1 has T² %.2f, limit %.2f", s.T2, limit)
	}
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

// TestT2FutureIsTheTableOfF compares with 5 % points of F as printed in tables.
func TestT2FutureIsTheTableOfF(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		n, k int
		f    string // F(0.05; k, n-k)
	}{{12, 2, "4.10"}, {23, 3, "3.10"}, {34, 4, "2.69"}} {
		l, err := pca.T2Future(0.05, test.n, test.k)
		if err != nil {
			t.Fatal(err)
		}
		printed(t, "F", l*float64(test.n*(test.n-test.k))/float64(test.k*(test.n+1)*(test.n-1)), test.f)
	}
	for _, bad := range [][3]float64{{0, 10, 2}, {1, 10, 2}, {.05, 2, 2}, {.05, 10, 0}} {
		if _, err := pca.T2Future(bad[0], int(bad[1]), int(bad[2])); err == nil {
			t.Errorf("T2Future%v is accepted", bad)
		}
		if _, err := pca.T2Training(bad[0], int(bad[1]), int(bad[2])); err == nil {
			t.Errorf("T2Training%v is accepted", bad)
		}
	}
}

// TestQLimitOfEqualEigenvaluesIsChiSquare compares with printed points of
// chi-square: for equal eigenvalues Jackson and Mudholkar's limit is Wilson and
// Hilferty's approximation of it, good to a part in a thousand.
func TestQLimitOfEqualEigenvaluesIsChiSquare(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		alpha float64
		n     int
		want  float64
	}{{.05, 5, 11.070}, {.01, 5, 15.086}, {.05, 10, 18.307}, {.01, 20, 37.566}, {.05, 30, 43.773}} {
		eigen := make([]float64, test.n)
		for i := range eigen {
			eigen[i] = 2
		}
		if got := pca.QLimit(test.alpha, eigen) / 2; math.Abs(got/test.want-1) > 3e-3 {
			t.Errorf("the %g point of chi-square(%d) is %v, want %v", test.alpha, test.n, got, test.want)
		}
	}
	if got := pca.QLimit(.01, nil); got != 0 {
		t.Errorf("without components left out the limit is %v", got)
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
	for _, test := range []struct {
		n, p       int
		parametric bool // Jackson and Mudholkar's limit is good with many runs
	}{{400, 10, true}, {30, 60, false}} {
		rng := rand.New(rand.NewPCG(7, uint64(test.n)))
		t2Limit, err := pca.T2Future(alpha, test.n, 2)
		if err != nil {
			t.Fatal(err)
		}
		t2, q := 0, 0
		for range models {
			runs := factors(rng, test.n, test.p)
			m, err := pca.Train(runs, pca.Config{Components: 2})
			if err != nil {
				t.Fatal(err)
			}
			qLimit := pca.QLimit(alpha, m.Eigenvalues()[2:])
			if !test.parametric {
				reference, err := pca.CrossValidate(runs, pca.Config{Components: 2}, 0)
				if err != nil {
					t.Fatal(err)
				}
				qLimit = reference.Q.Limit(alpha)
			}
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
		"NaN":           {[][]float64{{1}, {math.NaN()}, {2}}, pca.Config{}},
		"too many":      {[][]float64{{1}, {3}, {2}}, pca.Config{Components: 2}},
		"floors":        {[][]float64{{1}, {3}, {2}}, pca.Config{Floor: []float64{1, 2}}},
		"share above 1": {[][]float64{{1}, {3}, {2}}, pca.Config{Variance: 2}},
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
