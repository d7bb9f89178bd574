package spc

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// The constants of moving ranges of two values (Montgomery, appendix VI).
const (
	D2 = 1.128 // mean of a moving range in standard deviations
	// medianD2 is the median of a moving range in standard deviations: that of
	// |x-y|, sqrt(2) times the upper quartile of the normal distribution (0.954 in
	// Wheeler and Chambers).
	medianD2 = 0.9538725524
)

// madFactor makes the median absolute deviation of normal values estimate their
// standard deviation: 1 over the upper quartile of the normal distribution.
const madFactor = 1.4826022185

// Limits are those of a control chart.
type Limits struct {
	Center float64 `json:"center"`
	Lower  float64 `json:"lower"`
	Upper  float64 `json:"upper"`
}

// Outside reports whether x lies beyond a limit; a value on a limit doesn't, NaN
// does.
func (l Limits) Outside(x float64) bool { return !(x >= l.Lower && x <= l.Upper) }

// Estimate is what a process is taken to be: its level and the standard deviation
// of one value.
type Estimate struct {
	Center float64 `json:"center"`
	Sigma  float64 `json:"sigma"` // 0 or more
	N      int     `json:"n"`     // values it rests on
}

// Limits returns center ± k sigma.
func (e Estimate) Limits(k float64) Limits {
	return Limits{Center: e.Center, Lower: e.Center - k*e.Sigma, Upper: e.Center + k*e.Sigma}
}

// Z returns the distance of x from the center in sigmas. Without variation it is
// 0 on the center and infinite elsewhere.
func (e Estimate) Z(x float64) float64 {
	d := x - e.Center
	if d == 0 {
		return 0
	}
	return d / e.Sigma
}

// Estimator is a way to estimate center and sigma.
type Estimator uint8

// The estimators. All agree for normal values without trend; they differ in what
// outliers and trends do to them.
const (
	// MovingRange: mean and mean moving range over 1.128, the textbook's
	// individuals chart (Montgomery 6.4). Trends hardly widen it; outliers do.
	MovingRange Estimator = iota
	// MedianMovingRange: mean and median moving range over 0.954 (Wheeler and
	// Chambers): a few outliers don't widen it.
	MedianMovingRange
	// StandardDeviation: mean and s/c4. The most precise for a stable process;
	// trends and outliers widen it.
	StandardDeviation
	// MedianMAD: median and 1.4826 median absolute deviation. It withstands
	// outliers of up to half of the values, at 37 % efficiency of sigma.
	MedianMAD
	// Trimmed: mean of the middle 80 % and standard deviation of the values
	// winsorized there, made consistent for the normal distribution. It withstands
	// outliers of up to 10 % at each end.
	Trimmed
)

var estimatorNames = [...]string{"moving-range", "median-moving-range", "standard-deviation", "median-mad", "trimmed"}

// String returns the name, such as "moving-range".
func (e Estimator) String() string {
	if int(e) < len(estimatorNames) {
		return estimatorNames[e]
	}
	return fmt.Sprintf("estimator(%d)", uint8(e))
}

// MarshalText implements [encoding.TextMarshaler].
func (e Estimator) MarshalText() ([]byte, error) {
	if int(e) >= len(estimatorNames) {
		return nil, fmt.Errorf("unknown estimator %d", uint8(e))
	}
	return []byte(estimatorNames[e]), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (e *Estimator) UnmarshalText(text []byte) error {
	i := slices.Index(estimatorNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("unknown estimator %q, want one of %v", text, estimatorNames)
	}
	*e = Estimator(i)
	return nil
}

// ErrTooFew says that there are too few values to estimate anything from.
var ErrTooFew = errors.New("too few values")

// Of estimates center and sigma of the values, in time order. Values that are
// NaN or infinite, fewer than two values, and an estimate that overflows are
// errors. A constant series has sigma 0.
func (e Estimator) Of(xs []float64) (Estimate, error) {
	if len(xs) < 2 {
		return Estimate{}, fmt.Errorf("estimating from %d values: %w: give at least 2", len(xs), ErrTooFew)
	}
	for i, x := range xs {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return Estimate{}, fmt.Errorf("estimating from %d values: value %d is %v: leave it out", len(xs), i, x)
		}
	}
	est := Estimate{N: len(xs)}
	switch e {
	case MovingRange:
		est.Center, est.Sigma = mean(xs), mean(movingRanges(xs))/D2
	case MedianMovingRange:
		est.Center, est.Sigma = mean(xs), Median(movingRanges(xs))/medianD2
	case StandardDeviation:
		est.Center = mean(xs)
		est.Sigma = stdDev(xs, est.Center) / c4(len(xs))
	case MedianMAD:
		est.Center, est.Sigma = MAD(xs)
	case Trimmed:
		est.Center, est.Sigma = trimmed(xs, 0.1)
	default:
		return Estimate{}, fmt.Errorf("unknown estimator %d", uint8(e))
	}
	if math.IsInf(est.Center, 0) || math.IsNaN(est.Sigma) || math.IsInf(est.Sigma, 0) {
		return Estimate{}, fmt.Errorf("estimating from %d values: they are too large for 64-bit floating point", len(xs))
	}
	return est, nil
}

// mean shifts by the first value, for the last digits.
func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x - xs[0]
	}
	return xs[0] + sum/float64(len(xs))
}

func stdDev(xs []float64, center float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += float64((x - center) * (x - center))
	}
	return math.Sqrt(sum / float64(len(xs)-1))
}

// c4 is the mean of the standard deviation of n normal values in sigmas
// (Montgomery, appendix VI).
func c4(n int) float64 {
	a, _ := math.Lgamma(float64(n) / 2)
	b, _ := math.Lgamma(float64(n-1) / 2)
	return math.Sqrt(2/float64(n-1)) * math.Exp(a-b)
}

func movingRanges(xs []float64) []float64 {
	ranges := make([]float64, len(xs)-1)
	for i := range ranges {
		ranges[i] = math.Abs(xs[i+1] - xs[i])
	}
	return ranges
}

// Median returns the median, of an even number of values the mean of the middle
// two, and NaN of none. It doesn't change xs.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(xs))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return sorted[mid-1] + (sorted[mid]-sorted[mid-1])/2
}

// MAD returns the median and 1.4826 times the median absolute deviation from it,
// which for normal values estimates the standard deviation.
func MAD(xs []float64) (median, sigma float64) {
	median = Median(xs)
	deviations := make([]float64, len(xs))
	for i, x := range xs {
		deviations[i] = math.Abs(x - median)
	}
	return median, madFactor * Median(deviations)
}

// trimmed returns the mean without a share of the values at each end, and the
// standard deviation of the values with those ends replaced by their neighbours
// (winsorized), divided by what it is for the standard normal distribution.
func trimmed(xs []float64, share float64) (center, sigma float64) {
	sorted := slices.Sorted(slices.Values(xs))
	cut := int(share * float64(len(xs)))
	middle := sorted[cut : len(sorted)-cut]
	center = mean(middle)
	for i := range cut {
		sorted[i], sorted[len(sorted)-1-i] = middle[0], middle[len(middle)-1]
	}
	g := float64(cut) / float64(len(xs))
	factor := 1.0
	if cut > 0 {
		// The variance of a standard normal value that is clipped at ±z.
		z := distuv.UnitNormal.Quantile(1 - g)
		factor = math.Sqrt(1 - 2*g - 2*z*distuv.UnitNormal.Prob(z) + 2*g*z*z)
	}
	return center, stdDev(sorted, mean(sorted)) / factor
}
