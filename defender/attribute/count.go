package attribute

import (
	"fmt"
	"math"
	"slices"

	"github.com/muster-dev/muster/defender/spc"
)

// Sample is a count of events in a number of units, such as the violations on so
// many wafers.
type Sample struct {
	Count float64 // 0 or more
	Units float64 // above 0
}

// Rate returns events a unit.
func (s Sample) Rate() float64 { return s.Count / s.Units }

// U is a u-chart (Montgomery 7.3.2): events a unit where the number of units
// varies. Its limits are Center ± 3 SigmaZ sqrt(Center/units), not below 0.
type U struct {
	Center float64
	// SigmaZ is 1 on a plain u-chart. On Laney's u'-chart it is the variation of
	// the standardized rates from sample to sample: above 1 the counts vary more
	// than a Poisson count would, as alarms that come in bursts do.
	SigmaZ float64
	N      int // samples used
}

// NewU estimates a u-chart. Samples whose positions are listed in exclude are
// left out. Counts below 0, units not above 0, and no samples are errors.
func NewU(samples []Sample, exclude ...int) (U, error) {
	var count, units float64
	n := 0
	for i, s := range samples {
		if !(s.Count >= 0) || !(s.Units > 0) || math.IsInf(s.Count, 0) || math.IsInf(s.Units, 0) {
			return U{}, fmt.Errorf("u-chart: sample %d has %v events in %v units: give a count of 0 or more and units above 0", i, s.Count, s.Units)
		}
		if slices.Contains(exclude, i) {
			continue
		}
		count += s.Count
		units += s.Units
		n++
	}
	if n == 0 {
		return U{}, fmt.Errorf("u-chart of %d samples, %d excluded: %w", len(samples), len(exclude), spc.ErrTooFew)
	}
	return U{Center: count / units, SigmaZ: 1, N: n}, nil
}

// NewLaneyU estimates a u'-chart (Laney 2002), which needs two samples at least.
// SigmaZ is the mean moving range of the standardized rates over 1.128 and may
// also be below 1, where counts vary less than Poisson's.
func NewLaneyU(samples []Sample, exclude ...int) (U, error) {
	u, err := NewU(samples, exclude...)
	if err != nil {
		return U{}, err
	}
	var z []float64
	for i, s := range samples {
		if !slices.Contains(exclude, i) {
			z = append(z, u.z(s))
		}
	}
	e, err := spc.MovingRange.Of(z)
	if err != nil {
		return U{}, fmt.Errorf("u'-chart: %w", err)
	}
	u.SigmaZ = e.Sigma
	return u, nil
}

// z is the distance of a sample's rate from the center, in Poisson sigmas.
func (u U) z(s Sample) float64 {
	if u.Center == 0 {
		return 0
	}
	return (s.Rate() - u.Center) / math.Sqrt(u.Center/s.Units)
}

// Limits returns those of a sample of this many units.
func (u U) Limits(units float64) spc.Limits {
	width := 3 * u.SigmaZ * math.Sqrt(u.Center/units)
	return spc.Limits{Center: u.Center, Lower: max(0, u.Center-width), Upper: u.Center + width}
}

// Out reports whether the rate of a sample is beyond its limits.
func (u U) Out(s Sample) bool { return u.Limits(s.Units).Outside(s.Rate()) }

// G is a g-chart (Benneyan 2001): of the number of uneventful units between two
// eventful ones, which is geometric when each is eventful with the same
// probability.
type G struct {
	Mean float64 // of the number between, 0 or more
	N    int
}

// NewG estimates a g-chart from numbers between events, each 0 or more.
func NewG(between []float64) (G, error) {
	if len(between) == 0 {
		return G{}, fmt.Errorf("g-chart: %w", spc.ErrTooFew)
	}
	sum := 0.0
	for i, g := range between {
		if !(g >= 0) || math.IsInf(g, 0) {
			return G{}, fmt.Errorf("g-chart: number %d is %v: give 0 or more", i, g)
		}
		sum += g
	}
	return G{Mean: sum / float64(len(between)), N: len(between)}, nil
}

// ProbabilityLimits returns the median and the numbers that are exceeded, or
// fallen below, with at most the probability tail each. The distribution is so
// skewed that there is often no lower one: it is then 0, and nothing is below it.
func (g G) ProbabilityLimits(tail float64) spc.Limits {
	return spc.Limits{Center: g.quantile(0.5), Lower: g.quantile(tail), Upper: g.quantile(1 - tail)}
}

// quantile is the smallest number with at least this cumulative probability,
// 1-(1-p)^(k+1) with p = 1/(mean+1).
func (g G) quantile(q float64) float64 {
	if g.Mean == 0 {
		return 0
	}
	return max(0, math.Ceil(math.Log1p(-q)/math.Log(g.Mean/(g.Mean+1))-1-1e-12))
}
