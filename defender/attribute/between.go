package attribute

import (
	"fmt"
	"math"

	"github.com/muster-dev/muster/defender/spc"
)

// T is a t-chart: of the time between events. The times of a stable stream are
// exponentially distributed, far from normal, so limits are those of transformed times.
type T struct {
	Limits spc.Limits // in the unit of the times
	// Transformed are the limits on the transformed scale.
	Transformed spc.Limits
	N           int
}

// nelsonPower is the power that makes exponential times nearly normal.
const nelsonPower = 1 / 3.6

// NewT estimates a t-chart from times between events in time order. It charts
// t^(1/3.6), which is nearly normal for exponential times (Nelson 1994; Montgomery
// 7.3.5 with the exponent 0.2777), as individuals and transforms the limits back.
// Two times are needed at least. A time of 0 or less is an error, as its moving range
// says nothing: count events at the same time as one, an alarmed wafer once, say.
func NewT(times []float64) (T, error) {
	y := make([]float64, len(times))
	for i, t := range times {
		if !(t > 0) || math.IsInf(t, 0) {
			return T{}, fmt.Errorf("t-chart: time %d is %v: times between events are above 0; count events at the same time as one", i, t)
		}
		y[i] = math.Pow(t, nelsonPower)
	}
	e, err := spc.MovingRange.Of(y)
	if err != nil {
		return T{}, fmt.Errorf("t-chart: %w", err)
	}

	l := e.Limits(3)
	back := func(y float64) float64 { return math.Pow(max(y, 0), 1/nelsonPower) }
	return T{
		Limits:      spc.Limits{Center: back(l.Center), Lower: back(l.Lower), Upper: back(l.Upper)},
		Transformed: l,
		N:           len(times),
	}, nil
}
