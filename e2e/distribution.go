package e2e

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Distribution is what is told of a set of durations.
type Distribution struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (d Distribution) String() string {
	if d.N == 0 {
		return "none"
	}
	return fmt.Sprintf("p50 %.1f, p99 %.1f, max %.1f (%d)", d.P50, d.P99, d.Max, d.N)
}

// distribution of durations, in milliseconds.
func distribution(ds []time.Duration) Distribution {
	if len(ds) == 0 {
		return Distribution{}
	}
	slices.Sort(ds)
	at := func(q float64) float64 {
		i := int(math.Ceil(q*float64(len(ds)))) - 1
		return math.Round(float64(ds[max(i, 0)])/1e4) / 100
	}
	return Distribution{N: len(ds), P50: at(.5), P99: at(.99), Max: at(1)}
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
