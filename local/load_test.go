package local

import (
	"math"
	"testing"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	t.Run("quantiles are of the messages since the last reading", func(t *testing.T) {
		t.Parallel()
		bounds := []float64{0.001, 0.002, 0.004}
		before, now := histogram{bounds, []float64{100, 100, 100}}, histogram{bounds, []float64{100, 150, 200}}
		if p50, ok := now.minus(before).quantile(0.5); !ok || p50 != 0.002 {
			t.Errorf("p50 %v, %t", p50, ok)
		}
		if p99, _ := now.minus(before).quantile(0.99); math.Abs(p99-0.00396) > 1e-9 {
			t.Errorf("p99 %v", p99)
		}
		if _, ok := before.minus(before).quantile(0.5); ok {
			t.Error("no message has no quantile")
		}
		restarted := histogram{bounds, []float64{1, 1, 1}}
		if got := restarted.minus(now); got.counts[2] != 1 {
			t.Errorf("a process that began again counts %v", got.counts)
		}
	})
}
