package uchart

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Tail is how far the most deviating chart of a run lies out, as far as learning runs tell:
// a share of runs lie beyond a threshold, and half as many at 2^Index times it (Hill, "A
// simple general approach to inference about the tail of a distribution", Annals of
// Statistics 3, 1975). Limits that assume normal values are widened to what the tail says.
type Tail struct {
	Threshold float64 `json:"threshold"` // in sigmas
	Share     float64 `json:"share"`     // of runs beyond it
	Index     float64 `json:"index"`     // 1 over the exponent of the power law
}

// The constants of tails.
const (
	tailRuns     = 10   // fewest runs that a tail is estimated from
	tailShare    = 0.4  // of the runs are its sample
	tailPerSpare = 25   // runs for each one farthest out that may be disturbed: it counts as the next
	tailDoubt    = 1.64 // standard errors by which an index has to be larger than usual: 5 %
)

// tailOf estimates the tail of how far out runs are. It is the maximum likelihood estimate
// of a sample whose largest values are censored. There is none if its index is that of the
// usual distribution, but for sampling error; usual returns what a run exceeds with a
// probability.
func tailOf(far []float64, usual func(probability float64) float64) Tail {
	sorted := slices.Clone(far)
	if len(sorted) < tailRuns {
		return Tail{}
	}
	slices.SortFunc(sorted, func(a, b float64) int { // largest first
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	n := float64(len(sorted))
	k, spared := int(tailShare*n), len(sorted)/tailPerSpare
	threshold := sorted[k]
	if !(threshold > 0) || math.IsInf(sorted[spared], 0) {
		return Tail{}
	}

	sample := float64(k - spared)
	index := 0.0
	for i := range k {
		index += math.Log(sorted[max(i, spared)]/threshold) / sample
	}
	expected, from := 0.0, usual((float64(k)+0.5)/n)
	for i := range k {
		expected += math.Log(usual((float64(max(i, spared))+0.5)/n)/from) / sample
	}
	if !(index > expected*(1+tailDoubt/math.Sqrt(sample))) {
		return Tail{}
	}
	return Tail{Threshold: threshold, Share: float64(k) / n, Index: index}
}

// farthestOf returns what the most deviating of that many normal values exceeds with a
// probability.
func farthestOf(charts int) func(probability float64) float64 {
	return func(probability float64) float64 {
		each := -math.Expm1(math.Log1p(-probability) / float64(max(charts, 1)))
		return -distuv.UnitNormal.Quantile(each / 2)
	}
}

// limit returns what a run exceeds with the given probability; 0 if that isn't known.
func (t Tail) limit(probability float64) float64 {
	if t.Share == 0 {
		return 0
	}
	return t.Threshold * math.Pow(t.Share/probability, t.Index)
}
