package pca

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// made makes runs of p variables with a common part.
func made(n, p int) [][]float64 {
	r := rand.New(rand.NewPCG(1, 2))
	runs := make([][]float64, n)
	for i := range runs {
		run := make([]float64, p)
		common := r.NormFloat64()
		for j := range run {
			run[j] = r.NormFloat64() + common*float64(j%3)
		}
		runs[i] = run
	}
	return runs
}

// BenchmarkTrain is the work of one part of a cross-validation, as uchart has it: 45 runs.
func BenchmarkTrain(b *testing.B) {
	runs := made(45, 76)
	for b.Loop() {
		if _, err := Train(runs, Config{}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCrossValidate is that of 50 runs in ten parts, with few variables and with many.
func BenchmarkCrossValidate(b *testing.B) {
	for _, p := range []int{30, 76, 800} {
		b.Run(strconv.Itoa(p), func(b *testing.B) {
			runs := made(50, p)
			for b.Loop() {
				if _, err := CrossValidate(runs, Config{}, 10); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
