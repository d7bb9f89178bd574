package pca

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkTrain is the work of one part of a cross-validation, as uchart has it: 45 runs.
func BenchmarkTrain(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	runs := make([][]float64, 45)
	for i := range runs {
		run := make([]float64, 76)
		common := r.NormFloat64()
		for j := range run {
			run[j] = r.NormFloat64() + common*float64(j%3)
		}
		runs[i] = run
	}
	for b.Loop() {
		if _, err := Train(runs, Config{}); err != nil {
			b.Fatal(err)
		}
	}
}
