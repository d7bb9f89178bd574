package pca

import "gonum.org/v1/gonum/stat/distuv"

// Reference is how T² and Q of normal runs are distributed that a model was not
// trained on, by cross-validation. With fewer runs than variables
// the model fits its own runs far better than any other, so limits from the
// training residuals raise false alarms; these don't.
type Reference struct {
	T2, Q   Moments
	T2s, Qs []float64 // of each run, by the model of all the others
}

// Moments are those of a statistic over runs.
type Moments struct{ Mean, Variance float64 }

// Limit returns what a run exceeds with probability alpha, if the statistic is
// distributed like a multiple of chi-square (Box 1954, as Nomikos and MacGregor
// 1995 set limits of Q).
func (m Moments) Limit(alpha float64) float64 { return boxLimit(alpha, m.Mean, m.Variance) }

// T2Limit returns the T² that a run exceeds with probability alpha by a model of that many
// components: F's distribution, which T² of a run that the model wasn't trained on has
// (Tracy, Young and Mason 1992), on the scale that cross-validation found. Components are
// chosen by the variance in training, which makes their T² larger than theory has it.
func (r Reference) T2Limit(components int, alpha float64) float64 {
	n, k := float64(len(r.T2s)), float64(components)
	if n-k <= 2 || !(r.T2.Mean > 0) {
		return r.T2.Limit(alpha)
	}
	f := distuv.F{D1: k, D2: n - k}
	return max(r.T2.Limit(alpha), r.T2.Mean*f.Quantile(1-alpha)/f.Mean())
}

func momentsOf(xs []float64) Moments {
	var m Moments
	for _, x := range xs {
		m.Mean += x / float64(len(xs))
	}
	for _, x := range xs {
		m.Variance += float64((x - m.Mean) * (x - m.Mean) / float64(len(xs)-1))
	}
	return m
}
