package pca_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/muster-dev/muster/defender/pca"
)

// near allows for the order in which things are added up.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Abs(b) }

// TestCrossValidate_asTrained: whatever the runs are, those left out have the scores that a
// model of the others gives them.
func TestCrossValidate_asTrained(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20, 21))
	for _, n := range []int{5, 12, 50} {
		for _, p := range []int{2, 9, 60} {
			for name, change := range map[string]func(run []float64, i int){
				"factors":                          func([]float64, int) {},
				"a variable that never moves":      func(run []float64, _ int) { run[0] = 751 },
				"a variable that moves once":       func(run []float64, i int) { run[0] = 0.1 + float64(i/2%2*(1-min(i/3, 1))) },
				"one far out":                      func(run []float64, i int) { run[1] += 1e9 * float64(max(1-i, 0)) },
				"a small spread at a large mean":   func(run []float64, _ int) { run[1] = 1e5 + run[1] },
				"variables of very different size": func(run []float64, _ int) { run[0] *= 1e-120 },
				"no noise": func(run []float64, i int) {
					for j := range run {
						run[j] = float64((i*7)%5*(j+1)) + float64(i*i%3)
					}
				},
			} {
				runs := factors(random, n, p)
				for i, run := range runs {
					change(run, i)
				}
				for _, c := range []pca.Config{{}, {Covariance: true}, {Variance: 1}, {Components: 2}} {
					t.Run(fmt.Sprintf("%d runs of %d variables, %s, %+v", n, p, name, c), func(t *testing.T) { checkLeftOut(t, runs, c, min(n, 10)) })
				}
			}
		}
	}
}

func checkLeftOut(t *testing.T, runs [][]float64, c pca.Config, folds int) {
	t.Helper()
	got, err := pca.CrossValidate(runs, c, folds)
	for i, run := range runs {
		var rest [][]float64
		for k := range runs {
			if k%folds != i%folds {
				rest = append(rest, runs[k])
			}
		}
		m, failed := pca.Train(rest, c)
		if failed != nil {
			if err == nil {
				t.Errorf("without run %d: %v, and it was cross-validated", i, failed)
			}
			return
		}
		want, failed := m.Score(run)
		if failed != nil || err != nil {
			t.Fatalf("run %d: %v, %v", i, failed, err)
		}
		// What lies in the plane of the model has no more digits than its length.
		length := want.Q
		for _, s := range want.Scores {
			length += s * s
		}
		if !near(got.T2s[i], want.T2) || math.Abs(got.Qs[i]-want.Q) > 1e-9*want.Q+1e-13*length {
			t.Errorf("run %d is scored %v and %v, want %v and %v", i, got.T2s[i], got.Qs[i], want.T2, want.Q)
		}
	}
}
