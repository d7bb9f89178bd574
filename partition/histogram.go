package partition

import "time"

// Histogram counts durations by size.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets []Bucket // ascending; the last one has a bound, so Count may be more than its count
}

// Bucket is how many durations were at most Bound. The counts are cumulative.
type Bucket struct {
	Bound time.Duration
	Count uint64
}

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

func (h *histogram) snapshot() Histogram {
	out := Histogram{Count: h.n, Sum: h.sum, Buckets: make([]Bucket, len(bounds))}
	var cumulative uint64
	for i, b := range bounds {
		cumulative += h.counts[i]
		out.Buckets[i] = Bucket{Bound: b, Count: cumulative}
	}
	return out
}
