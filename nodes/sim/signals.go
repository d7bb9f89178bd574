package sim

import (
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// signals is the utilisation and the number of pending pods over time.
type signals struct {
	time    *timeline
	load    float64 // overrides the computed utilisation if not negative
	history []sample
}

// sample is what was true from a moment until the next sample.
type sample struct {
	at      time.Time
	cpu     float64
	pending int
}

// note adds a sample if anything has changed.
func (s *signals) note(all []*node, pending int) {
	now := sample{at: s.time.now, cpu: s.utilisation(all), pending: pending}
	n := len(s.history)
	if n == 0 || s.history[n-1].cpu != now.cpu || s.history[n-1].pending != now.pending {
		s.history = append(s.history, now)
	}
}

// utilisation is the share of the Ready workers' CPU that pods request, 0 without workers.
func (s *signals) utilisation(all []*node) float64 {
	if s.load >= 0 {
		return s.load
	}
	var used, allocatable int64
	for _, n := range all {
		if n.ControlPlane || !n.Ready {
			continue
		}
		used += n.used.MilliCPU
		allocatable += n.Allocatable.MilliCPU
	}
	if allocatable == 0 {
		return 0
	}
	return float64(used) / float64(allocatable)
}

// forget drops what is older than a day.
func (s *signals) forget() {
	s.history = slices.DeleteFunc(s.history, func(o sample) bool { return s.time.now.Sub(o.at) > 24*time.Hour })
}

// readings returns the signals now and over a policy's windows.
func (s *signals) readings(p nodes.Policy) nodes.Readings {
	last := s.history[len(s.history)-1]
	cpu := func(o sample) float64 { return o.cpu }
	pending := func(o sample) float64 { return float64(o.pending) }
	r := nodes.Readings{At: s.time.now, CPU: nodes.Read(last.cpu), Pending: nodes.Read(float64(last.pending))}
	r.PendingOther = r.Pending
	r.CPUMin, r.CPUMax = s.over(p.CPUUpFor, cpu, math.Min), s.over(p.IdleDownFor, cpu, math.Max)
	r.PendingMin, r.PendingMax = s.over(p.PendingUpFor, pending, math.Min), s.over(p.IdleDownFor, pending, math.Max)
	return r
}

// over folds a signal over the window that ends now. What was before the first sample is taken to have been like it.
func (s *signals) over(window time.Duration, value func(sample) float64, fold func(a, b float64) float64) nodes.Reading {
	v := value(s.history[len(s.history)-1])
	for i := len(s.history) - 2; i >= 0 && s.history[i+1].at.After(s.time.now.Add(-window)); i-- {
		v = fold(v, value(s.history[i]))
	}
	return nodes.Read(v)
}
