package pca_test

import (
	"math/rand/v2"
	"testing"

	"github.com/muster-dev/muster/defender/pca"
)

// TestT2Limit holds limits far out to their probability, for models of fewer runs than
// variables that nothing is common to: there T² has tails that a multiple of chi-square
// doesn't have.
func TestT2Limit(t *testing.T) {
	t.Parallel()
	const runs, variables, models, trials, alpha = 50, 80, 30, 400, 0.0025
	rng := rand.New(rand.NewPCG(3, 3))
	draw := func() []float64 {
		run := make([]float64, variables)
		for i := range run {
			run[i] = rng.NormFloat64()
		}
		return run
	}
	out, outOfBox := 0, 0
	for range models {
		var training [][]float64
		for range runs {
			training = append(training, draw())
		}
		reference, err := pca.CrossValidate(training, pca.Config{}, 10)
		if err != nil {
			t.Fatal(err)
		}
		m, err := pca.Train(training, pca.Config{})
		if err != nil {
			t.Fatal(err)
		}
		limit, box := reference.T2Limit(m.Components(), alpha), reference.T2.Limit(alpha)
		for range trials {
			s, err := m.Score(draw())
			if err != nil {
				t.Fatal(err)
			}
			if s.T2 > limit {
				out++
			}
			if s.T2 > box {
				outOfBox++
			}
		}
	}
	share, ofBox := float64(out)/(models*trials), float64(outOfBox)/(models*trials)
	t.Logf("%.2f %% of new runs exceed the limit of %.2f %%, and %.2f %% that of chi-square", 100*share, 100*alpha, 100*ofBox)
	if share > alpha || ofBox < 2*alpha {
		t.Errorf("%.2f %% of new runs exceed the limit of %.2f %%, and %.2f %% that of chi-square", 100*share, 100*alpha, 100*ofBox)
	}
}
