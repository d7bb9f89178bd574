package attribute

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/muster-dev/muster/defender/spc"
)

// T is a t-chart: of the time between events. The times of a stable stream are
// exponential or Weibull distributed, far from normal, so limits are those of a
// transformed or fitted distribution.
type T struct {
	Method Method
	Limits spc.Limits // in the unit of the times
	// Transformed are the limits on the transformed scale, of the power method.
	Transformed spc.Limits
	Shape       float64 // of the Weibull distribution; 1 is exponential
	Scale       float64 // of the Weibull or the mean of the exponential distribution
	N           int
}

// Method is a way to find the limits of a t-chart.
type Method uint8

// The methods of t-charts.
const (
	// Power charts t^(1/3.6), which is nearly normal for exponential times
	// (Nelson 1994; Montgomery 7.3.5 with the exponent 0.2777), as individuals and
	// transforms the limits back.
	Power Method = iota
	// PowerScreened does the same and leaves moving ranges beyond 3.267 mean
	// moving ranges out of sigma, once.
	PowerScreened
	// Weibull takes the median and the normal distribution's 3 sigma tail
	// probabilities of the Weibull distribution of maximum likelihood.
	Weibull
	// Exponential does the same with the exponential distribution of the same mean.
	Exponential
)

// nelsonPower is the power that makes exponential times nearly normal.
const nelsonPower = 1 / 3.6

// NewT estimates a t-chart from times between events in time order. Two are
// needed at least. A time of 0 or less is an error, as all methods break on it:
// count events at the same time as one, an alarmed wafer once, say.
func NewT(method Method, times []float64) (T, error) {
	for i, t := range times {
		if !(t > 0) || math.IsInf(t, 0) {
			return T{}, fmt.Errorf("t-chart: time %d is %v: times between events are above 0; count events at the same time as one", i, t)
		}
	}
	if len(times) < 2 {
		return T{}, fmt.Errorf("t-chart of %d times: %w: give at least 2", len(times), spc.ErrTooFew)
	}
	c := T{Method: method, N: len(times)}
	switch method {
	case Power, PowerScreened:
		return c, c.power(times)
	case Weibull:
		shape, err := weibullShape(times)
		if err != nil {
			return T{}, err
		}
		c.Shape, c.Scale = shape, math.Pow(meanPower(times, shape), 1/shape)
	case Exponential:
		c.Shape, c.Scale = 1, meanPower(times, 1)
	default:
		return T{}, fmt.Errorf("t-chart: unknown method %d", method)
	}
	d := distuv.Weibull{K: c.Shape, Lambda: c.Scale}
	c.Limits = spc.Limits{Center: d.Quantile(0.5), Lower: d.Quantile(lowTail), Upper: d.Quantile(1 - lowTail)}
	return c, nil
}

// lowTail is the probability of a normal value below -3 sigma.
var lowTail = distuv.UnitNormal.CDF(-3)

func (c *T) power(times []float64) error {
	y := make([]float64, len(times))
	for i, t := range times {
		y[i] = math.Pow(t, nelsonPower)
	}
	e, err := spc.MovingRange.Of(y)
	if err != nil {
		return fmt.Errorf("t-chart: %w", err)
	}
	if c.Method == PowerScreened {
		e.Sigma = screenedSigma(y, e.Sigma)
	}
	c.Transformed = e.Limits(3)
	back := func(y float64) float64 { return math.Pow(max(y, 0), 1/nelsonPower) }
	c.Limits = spc.Limits{Center: back(c.Transformed.Center), Lower: back(c.Transformed.Lower), Upper: back(c.Transformed.Upper)}
	return nil
}

// screenedSigma estimates sigma from the moving ranges within their own limit.
func screenedSigma(y []float64, sigma float64) float64 {
	limit, sum, n := spc.D4*sigma*spc.D2, 0.0, 0
	for i := 1; i < len(y); i++ {
		if r := math.Abs(y[i] - y[i-1]); r <= limit {
			sum += r
			n++
		}
	}
	return sum / float64(n) / spc.D2
}

// meanPower returns the mean of t^k.
func meanPower(times []float64, k float64) float64 {
	sum := 0.0
	for _, t := range times {
		sum += math.Pow(t, k)
	}
	return sum / float64(len(times))
}

// weibullShape solves the likelihood equation of the shape k,
// sum(t^k ln t)/sum(t^k) - 1/k = mean(ln t), whose left side rises with k. Times
// are taken relative to the largest, so that no power overflows.
func weibullShape(times []float64) (float64, error) {
	longest := 0.0
	for _, t := range times {
		longest = max(longest, t)
	}
	meanLog := 0.0
	logs := make([]float64, len(times))
	for i, t := range times {
		logs[i] = math.Log(t / longest)
		meanLog += logs[i] / float64(len(times))
	}
	excess := func(k float64) float64 {
		var sum, weighted float64
		for _, l := range logs {
			p := math.Exp(k * l)
			sum += p
			weighted += p * l
		}
		return weighted/sum - 1/k - meanLog
	}
	low, high := 1e-3, 1.0
	for excess(high) < 0 {
		if high *= 2; high > 1e6 {
			return 0, fmt.Errorf("t-chart: %d times are all but equal: no Weibull distribution can be fitted, use the power method", len(times))
		}
	}
	for range 200 {
		mid := low + (high-low)/2
		if mid == low || mid == high {
			break
		}
		if excess(mid) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	return high, nil
}
