package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/report"
)

// bounds of the histograms' buckets.
var bounds = [...]time.Duration{time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second}

// histogram counts durations by bounds.
type histogram struct {
	counts [len(bounds)]uint64 // not cumulative
	n      uint64
	sum    time.Duration
}

func (h *histogram) observe(d time.Duration) {
	h.n++
	h.sum += d
	for i, b := range bounds {
		if d <= b {
			h.counts[i]++
			return
		}
	}
}

func (h *histogram) snapshot() report.Histogram {
	out := report.Histogram{Count: h.n, Sum: h.sum, Buckets: make([]report.Bucket, len(bounds))}
	var cumulative uint64
	for i, b := range bounds {
		cumulative += h.counts[i]
		out.Buckets[i] = report.Bucket{Bound: b, Count: cumulative}
	}
	return out
}
