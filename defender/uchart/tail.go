package uchart

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Tail is how far the most deviating chart of a run lies out, as far as learning runs tell. It
// is a normal value z times exp(h z²/2): Tukey's h, "Modern techniques in data analysis",
// 1977; Hoaglin, "Summarizing shape numerically: the g-and-h distributions", 1985. With h 0
// runs are normal, with h 1/3 about half as many lie beyond 2^(1/3) times a distance, the
// power law of Hill's estimate, which overshoots where values are hardly more than normal.
type Tail struct {
	Threshold float64 `json:"threshold"` // in sigmas
	Share     float64 `json:"share"`     // of runs beyond it
	Excess    float64 `json:"excess"`    // h
	Sample    int     `json:"sample"`    // runs beyond the threshold that it is estimated from
	normals
}

// normals is how far out the most deviating chart of a run lies, if charts are normal and
// independent of each other.
type normals struct {
	Charts int `json:"charts"`
	// Contexts are those that the sigma of each chart rests on; 0 if it counts as known.
	// It is known where limits are frozen: Phase I leaves out what would distort it.
	Contexts int `json:"contexts,omitempty"`
}

// The constants of tails.
const (
	tailRuns     = 10  // fewest runs that a tail is estimated from
	tailShare    = 0.4 // of the runs are its sample at most
	tailSample   = 10  // runs that it is estimated from at most: nearer runs tell less of the farthest
	tailPerSpare = 25  // runs for each one farthest out that may be disturbed: it counts as the next
)

// beyond returns what a run exceeds with a probability.
func (c normals) beyond(probability float64, models *modelCache) float64 {
	each := -math.Expm1(math.Log1p(-probability) / float64(max(c.Charts, 1)))
	if c.Contexts > 0 {
		return models.multiple(each, c.Contexts)
	}
	return -distuv.UnitNormal.Quantile(each / 2)
}

// tailOf estimates the tail of how far out runs are. The largest of them are censored.
func tailOf(far []float64, c normals, models *modelCache) Tail {
	if len(far) < tailRuns {
		return Tail{}
	}
	sorted := slices.Clone(far)
	slices.Sort(sorted)
	slices.Reverse(sorted)
	n := float64(len(sorted))
	spared := len(sorted) / tailPerSpare
	k := min(int(tailShare*n), tailSample+spared)
	threshold := sorted[k]
	if !(threshold > 0) || math.IsInf(sorted[spared], 0) {
		return Tail{}
	}

	t := Tail{Threshold: threshold, Share: (float64(k) + 0.5) / n, Sample: k - spared, normals: c}
	from := c.beyond(t.Share, models)
	var excess, scale float64
	for i := range k {
		at := max(i, spared)
		z := c.beyond((float64(at)+0.5)/n, models)
		excess += math.Log(sorted[at]/threshold) - math.Log(z/from)
		scale += (z*z - from*from) / 2
	}
	t.Excess = max(excess/scale, 0)
	return t
}

// limit returns what the next run exceeds with the given probability; 0 if that isn't known.
//
// The excess is an estimate, and frozen limits keep its error as long as they stay (Albers and
// Kallenberg, "Estimation in Shewhart control charts: effects and corrections", Metrika 59,
// 2004). Where distances follow a power law, the sum that it rests on has a gamma
// distribution, and the next run's distance over it Fisher's: the limit that is exceeded with
// probability p has Sample ((share/p)^(1/Sample) - 1) in place of the logarithm of share/p, as
// Student's t stands for the normal distribution (prediction for the exponential distribution
// from a censored sample: Lawless, "Statistical Models and Methods for Lifetime Data", 1982,
// chapter 3).
func (t Tail) limit(probability float64, models *modelCache) float64 {
	if t.Sample < 1 || !(probability < t.Share) {
		return 0
	}
	sample, far := float64(t.Sample), math.Log(t.Share/probability)
	doubt := 1.0
	if t.Contexts == 0 {
		doubt = sample * math.Expm1(far/sample) / far
	}
	from, z := t.beyond(t.Share, models), t.beyond(probability, models)
	return t.Threshold * z / from * math.Exp(t.Excess*doubt*(z*z-from*from)/2)
}

// farthest raises far to the distances of a chart's values from what was expected, in
// sigmas.
func farthest(far, values []float64, center, sigma float64) {
	if !(sigma > 0) || math.IsInf(sigma, 0) {
		return
	}
	per := 1 / sigma
	for i, x := range values {
		if d := math.Abs(float64(x-center) * per); d > far[i] {
			far[i] = d
		}
	}
}

// leftOut raises far to how far out each value is by the limits that all others give: as far
// as if it were the next one (deleted residuals: Cook and Weisberg, "Residuals and Influence
// in Regression", 1982). By limits that it is part of, a value of few is never far out.
// Expected values are about 0, others about the mean of the others.
func leftOut(far, values []float64, expected bool, floor float64) {
	known := make([]int, 0, len(values))
	for i, x := range values {
		if !math.IsNaN(x) {
			known = append(known, i)
		}
	}
	n := len(known)
	if n < 4 {
		return
	}
	first, sum, moving := values[known[0]], 0.0, 0.0
	for k, i := range known {
		sum += values[i] - first
		if k > 0 {
			moving += math.Abs(values[i] - values[known[k-1]])
		}
	}

	for k, i := range known {
		x, rest := values[i], moving
		if k > 0 {
			rest -= math.Abs(x - values[known[k-1]])
		}
		if k < n-1 {
			rest -= math.Abs(values[known[k+1]] - x)
		}
		if k > 0 && k < n-1 {
			rest += math.Abs(values[known[k+1]] - values[known[k-1]])
		}
		center := 0.0
		if !expected {
			center = first + (sum-(x-first))/float64(n-1)
		}
		sigma := max(rest/float64(n-2)/d2, floor) * math.Sqrt(1+1/float64(n-1))
		farthest(far[i:i+1], values[i:i+1], center, sigma)
	}
}
