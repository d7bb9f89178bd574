package local

import (
	"context"
	"math"
	"slices"
	"sync"

	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/groupview"
)

// load measures how messages come and go: their rates by what the broker has stored and has left, which no worker's failure distorts,
// and the time to process one by the defenders' own histograms.
type load struct {
	backlog  *backlog
	running  func() []*Process
	mu       sync.Mutex
	rates    groupview.Rates
	measured map[string]histogram
}

// read measures once.
func (l *load) read(ctx context.Context) (console.Load, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, oldest, err := l.backlog.tide(ctx)
	if err != nil {
		return console.Load{}, err
	}
	v := console.Load{At: now.At.UTC(), Waiting: now.Waiting, Oldest: oldest}
	if in, out, ok := l.rates.Add(now); ok {
		v.In, v.Out = &in, &out
	}

	taken := l.taken()
	if p50, ok := taken.quantile(0.5); ok {
		p99, _ := taken.quantile(0.99)
		p50, p99 = p50*1000, p99*1000
		v.P50, v.P99 = &p50, &p99
	}
	return v, nil
}

// taken returns how long messages took that were processed since the last reading.
func (l *load) taken() histogram {
	now := map[string]histogram{}
	var mu sync.Mutex
	var reading sync.WaitGroup
	for _, p := range l.running() { // beside each other: one that hangs must not keep the others waiting
		reading.Go(func() {
			families, err := p.Gather()
			if err != nil {
				return
			}
			h := histogramOf(families, "defender_process_time_seconds")
			mu.Lock()
			defer mu.Unlock()
			now[p.Name] = h
		})
	}
	reading.Wait()
	var sum histogram
	for name, h := range now {
		sum = sum.plus(h.minus(l.measured[name]))
	}
	l.measured = now
	return sum
}

// histogram counts values at or below bounds.
type histogram struct {
	bounds []float64
	counts []float64 // cumulative
}

func histogramOf(families []*dto.MetricFamily, name string) (h histogram) {
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var x histogram
			for _, b := range m.GetHistogram().GetBucket() {
				if math.IsInf(b.GetUpperBound(), 1) {
					continue
				}
				x.bounds, x.counts = append(x.bounds, b.GetUpperBound()), append(x.counts, float64(b.GetCumulativeCount()))
			}
			h = h.plus(x)
		}
	}
	return h
}

func (h histogram) plus(g histogram) histogram { return h.with(g, 1) }

// minus takes away an earlier reading. A process that began again has counted less: then all of it is new.
func (h histogram) minus(g histogram) histogram {
	if n := len(h.counts); n > 0 && len(g.counts) == n && g.counts[n-1] > h.counts[n-1] {
		return h
	}
	return h.with(g, -1)
}

func (h histogram) with(g histogram, sign float64) histogram {
	if len(h.counts) == 0 {
		h = histogram{bounds: g.bounds, counts: make([]float64, len(g.counts))}
	}
	if len(g.counts) != len(h.counts) {
		return h
	}
	sum := histogram{bounds: h.bounds, counts: slices.Clone(h.counts)}
	for i := range g.counts {
		sum.counts[i] += sign * g.counts[i]
	}
	return sum
}

// quantile estimates a quantile by linear interpolation within its bucket, as Prometheus' histogram_quantile does.
func (h histogram) quantile(q float64) (float64, bool) {
	n := len(h.counts)
	if n == 0 || h.counts[n-1] <= 0 {
		return 0, false
	}
	rank := q * h.counts[n-1]
	i := slices.IndexFunc(h.counts, func(c float64) bool { return c >= rank })
	var lower, below float64
	if i > 0 {
		lower, below = h.bounds[i-1], h.counts[i-1]
	}
	if h.counts[i] == below {
		return h.bounds[i], true
	}
	return lower + (h.bounds[i]-lower)*(rank-below)/(h.counts[i]-below), true
}
