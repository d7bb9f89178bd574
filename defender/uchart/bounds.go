package uchart

import "math"

// bounds keep single variables from being most of T² or Q; see MultivariatePolicy.Bound.
type bounds struct {
	sigmas float64
	usual  []usual // by median and quartiles, which values far out hardly move
}

// normalQuartiles is the distance of the quartiles of the normal distribution, in standard
// deviations.
const normalQuartiles = 1.3489795

func boundsOf(runs [][]float64, variables int, sigmas float64) *bounds {
	b := &bounds{sigmas: sigmas, usual: make([]usual, variables)}
	xs := make([]float64, len(runs))
	for j := range b.usual {
		for i, run := range runs {
			xs[i] = run[j]
		}
		half := len(xs) / 2
		middle := ranked(xs, half) // what is below comes before it
		first, third := ranked(xs[:half+1], len(xs)/4), ranked(xs[half:], len(xs)*3/4-half)
		b.usual[j] = usual{mean: middle, deviation: (third - first) / normalQuartiles}
	}
	return b
}

// apply bounds the variables of a run. One whose quartiles are equal has no scale, and stays.
func (b *bounds) apply(run []float64) {
	if b == nil {
		return
	}
	for j, x := range run {
		u := b.usual[j]
		if far := math.Abs(x-u.mean) / u.deviation; u.deviation > 0 && far > b.sigmas {
			run[j] = u.mean + math.Copysign(u.deviation*(b.sigmas+math.Log1p(far-b.sigmas)), x-u.mean)
		}
	}
}
