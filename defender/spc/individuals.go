package spc

import "fmt"

// PhaseI estimates limits from a period that may hold disturbances: it estimates,
// leaves out what is outside, and estimates again until nothing is (Montgomery
// 6.2.1, NIST/SEMATECH 6.3.1). The zero value of a field stands for its default.
type PhaseI struct {
	Estimator Estimator
	K         float64 // limits in sigmas; default 3
	MinN      int     // fewest values that may remain; default 2, at least 2
	// MaxExcluded is the largest share that may be left out, 0 to 1; default
	// 0.25. A period of which more is outside has no one state to estimate.
	MaxExcluded float64
	// Floor is the least sigma, in the unit of the values; default 0. It keeps
	// values that hardly move from being outside by their last digit.
	Floor float64
}

// Baseline is the result of Phase I. It is frozen: what comes later is judged by
// it and doesn't change it.
type Baseline struct {
	Estimate
	Excluded []int // positions of the values left out, ascending
	Rounds   int   // estimates made, at least 1
}

// Estimate returns the baseline of the values, in time order. It is an error
// when fewer than MinN or less than 1-MaxExcluded of the values remain.
func (p PhaseI) Estimate(xs []float64) (Baseline, error) {
	if p.K == 0 {
		p.K = 3
	}
	if p.MaxExcluded == 0 {
		p.MaxExcluded = 0.25
	}
	p.MinN = max(p.MinN, 2)
	out := make([]bool, len(xs))
	kept := make([]float64, 0, len(xs))
	for rounds := 1; ; rounds++ {
		kept = kept[:0]
		for i, x := range xs {
			if !out[i] {
				kept = append(kept, x)
			}
		}
		if excluded := len(xs) - len(kept); len(kept) < p.MinN || float64(excluded) > p.MaxExcluded*float64(len(xs)) {
			return Baseline{}, fmt.Errorf("limits from phase I of %d values: %d were outside %g sigma and %d remain, want at least %d and at most %.0f %% outside: %w",
				len(xs), excluded, p.K, len(kept), p.MinN, 100*p.MaxExcluded, ErrTooFew)
		}
		e, err := p.Estimator.Of(kept)
		if err != nil {
			return Baseline{}, fmt.Errorf("limits from phase I: %w", err)
		}
		e.Sigma = max(e.Sigma, p.Floor)
		limits, again := e.Limits(p.K), false
		for i, x := range xs {
			if !out[i] && limits.Outside(x) {
				out[i], again = true, true
			}
		}
		if !again {
			return Baseline{Estimate: e, Excluded: positions(out), Rounds: rounds}, nil
		}
	}
}

func positions(set []bool) []int {
	var at []int
	for i, in := range set {
		if in {
			at = append(at, i)
		}
	}
	return at
}
