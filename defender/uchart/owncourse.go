package uchart

import "math"

// Charts of a statistic share a course because one chart's few runs can't tell it. A chart
// whose runs clearly contradict that course gets one of its own: a plant, or a chamber with a
// heated wall, has sensors that depend far longer on what was before than most. Judged by
// the course of the others, such a sensor leaves its limits for hours.

// ownEvidence is by how much twice the logarithm of the likelihood has to be greater by the
// chart's own course. One more parameter adds that much by chance in one of 370 charts, as in
// limits at 3 sigma; a chart that departs by chance is judged by nearly the same course.
const ownEvidence = 9

// ownWeights are those of the newest value that a chart of a wandering statistic may have
// instead of the usual one: the more its level moves in a run compared to its noise, the more
// (Muth, "Optimal properties of exponentially weighted forecasts", Journal of the American
// Statistical Association 55, 1960).
var ownWeights = [...]float64{0.4, 0.6, 0.8}

// own returns the course of one chart: that of its statistic unless its values, which are
// independent or autoregressive then, contradict it. Charts in lots have no other: how lots
// differ can't be told from few of them. Charts of a wandering statistic wander, too, but may
// be followed faster: few runs of a level that moves look like a return to a center, which it
// never makes.
func (c Course) own(xs series) Course {
	if c.Kind == InLots || len(xs) < courseContexts {
		return c
	}
	rho, ok := xs.correlation()
	if !ok {
		return c
	}

	own := Course{Statistic: c.Statistic, single: true}
	phi := unbiased(rho, float64(len(xs)))
	switch {
	case c.Kind == Wandering:
		own = c.ownWeight(xs)
	case phi >= leastPhi:
		own.Kind, own.Phi = Autoregressive, phi
	}
	n := float64(len(xs) - wanderStart) // values that unexplained looks at
	by, ofOwn := c.unexplained([]series{xs}), own.unexplained([]series{xs})
	if !(n*math.Log(by/ofOwn) > ownEvidence) {
		return c
	}
	return own
}

// ownWeight returns the wandering course of another weight that explains most.
func (c Course) ownWeight(xs series) Course {
	best, least := c, math.Inf(1)
	for _, weight := range ownWeights {
		own := Course{Statistic: c.Statistic, Kind: Wandering, Weight: weight, single: true}
		if left := own.unexplained([]series{xs}); left < least {
			best, least = own, left
		}
	}
	return best
}

// unbiased returns the correlation of successive values by that which that many have about
// their mean: it is too small by (1+4rho)/n about (Kendall 1954).
func unbiased(rho, n float64) float64 {
	return max(0, min((rho+1/n)/(1-4/n), mostPhi))
}

// differs reports whether a chart's course is another than that of its statistic.
func (c Course) differs(own Course) bool {
	return c.Kind != own.Kind || c.Phi != own.Phi || c.Weight != own.Weight
}
