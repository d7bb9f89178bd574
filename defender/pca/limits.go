package pca

import "gonum.org/v1/gonum/stat/distuv"

// boxLimit returns the control limit of T² or Q, a statistic with this mean and variance
// that is distributed as g chi-square(h) (Box 1954; Nomikos and MacGregor 1995).
func boxLimit(alpha, mean, variance float64) float64 {
	if !(mean > 0) || !(variance > 0) {
		return mean
	}
	g, h := variance/(2*mean), 2*mean*mean/variance
	return g * distuv.ChiSquared{K: h}.Quantile(1-alpha)
}
