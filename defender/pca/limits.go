package pca

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// T2Training returns the limit of T² that one of the n runs a model was trained
// on exceeds with probability alpha, for k components: Phase I of Tracy, Young
// and Mason (1992), from the beta distribution.
func T2Training(alpha float64, n, k int) (float64, error) {
	if err := checkLimit(alpha, n, k, k+2); err != nil {
		return 0, err
	}
	b := distuv.Beta{Alpha: float64(k) / 2, Beta: float64(n-k-1) / 2}
	return float64((n-1)*(n-1)) / float64(n) * b.Quantile(1-alpha), nil
}

// T2Future returns the limit of T² that a run which the model was not trained on
// exceeds with probability alpha: Phase II of Tracy, Young and Mason (1992), from
// the F distribution.
func T2Future(alpha float64, n, k int) (float64, error) {
	if err := checkLimit(alpha, n, k, k+1); err != nil {
		return 0, err
	}
	f := distuv.F{D1: float64(k), D2: float64(n - k)}
	return float64(k*(n+1)*(n-1)) / float64(n*(n-k)) * f.Quantile(1-alpha), nil
}

func checkLimit(alpha float64, n, k, fewest int) error {
	var errs []error
	if !(alpha > 0 && alpha < 1) {
		errs = append(errs, fmt.Errorf("alpha is %v, want between 0 and 1", alpha))
	}
	if k < 1 {
		errs = append(errs, fmt.Errorf("%d components, want at least 1", k))
	}
	if n < fewest {
		errs = append(errs, fmt.Errorf("%d runs are too few for %d components, want at least %d", n, k, fewest))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("limit of T²: %w", err)
	}
	return nil
}

// QLimit returns the limit of Q that a run exceeds with probability alpha, from
// the eigenvalues of the components left out of the model (Jackson and Mudholkar
// 1979). It is 0 when they are all 0. It takes the eigenvalues as known; where
// they are estimated from few runs of many variables it is too low, and
// [Reference] is the better choice.
func QLimit(alpha float64, eigenvalues []float64) float64 {
	var t1, t2, t3 float64
	for _, l := range eigenvalues {
		t1 += l
		t2 += l * l
		t3 += l * l * l
	}
	if !(t1 > 0) || !(t2 > 0) {
		return 0
	}
	h := 1 - 2*t1*t3/(3*t2*t2)
	z := distuv.UnitNormal.Quantile(1 - alpha)
	if h <= 0 {
		// The power transform fails for very uneven eigenvalues: Box's chi-square.
		return boxLimit(alpha, t1, 2*t2)
	}
	base := z*math.Sqrt(2*t2*h*h)/t1 + 1 + t2*h*(h-1)/(t1*t1)
	return t1 * math.Pow(base, 1/h)
}

// boxLimit returns the limit of g chi-square(h) with this mean and variance
// (Box 1954; Nomikos and MacGregor 1995).
func boxLimit(alpha, mean, variance float64) float64 {
	if !(mean > 0) || !(variance > 0) {
		return mean
	}
	g, h := variance/(2*mean), 2*mean*mean/variance
	return g * distuv.ChiSquared{K: h}.Quantile(1-alpha)
}
