package uchart

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRanked(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		xs := make([]float64, 1+random.IntN(90))
		values := 1 + random.IntN(60) // few: many are equal
		for i := range xs {
			xs[i] = float64(random.IntN(values))
		}
		sorted := slices.Sorted(slices.Values(xs))
		k := random.IntN(len(xs))
		if got := ranked(xs, k); got != sorted[k] {
			t.Fatalf("of %v number %d is %v, want %v", sorted, k, got, sorted[k])
		}
		if slices.Max(xs[:k+1]) != sorted[k] || slices.Min(xs[k:]) != sorted[k] {
			t.Fatalf("%v isn't divided at %d", xs, k)
		}
		if slices.Sort(xs); !slices.Equal(xs, sorted) {
			t.Fatalf("%v became %v", sorted, xs)
		}
	}
}
