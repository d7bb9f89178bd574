package uchart

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/muster-dev/muster/defender/spc"
)

// Signal is a chart whose course, rather than its last value, is unusual.
type Signal struct {
	By        string    `json:"by"` // SignalEWMA, SignalCUSUM or the name of a run rule, such as nelson-2
	SVID      string    `json:"svid"`
	Step      int32     `json:"step"`
	Statistic Statistic `json:"statistic"`
	// Value and Limit are the average or sum that is out and its limit, signed alike,
	// in sigmas from the center; of a run rule Value is that of the last context and
	// Limit 0.
	Value float64 `json:"value"`
	Limit float64 `json:"limit,omitempty"`
}

// String describes the signal in one line.
func (s Signal) String() string {
	what := fmt.Sprintf("%s of %s, step %d, %s", s.By, s.SVID, s.Step, s.Statistic)
	if s.Limit == 0 {
		return fmt.Sprintf("%s, at %+.1f sigma", what, s.Value)
	}
	return fmt.Sprintf("%s at %+.2f sigma, limit %+.2f", what, s.Value, s.Limit)
}

// watch follows charts over the contexts since Phase I and the one at hand. Nothing
// of its state is kept: it follows from the stored contexts, at most as many as the
// history has, and so is the same for every defender that judges.
type watch struct {
	policy      FrozenPolicy
	models      *modelCache
	ewma, cusum float64 // budget of each chart
	clip        float64 // sigmas that a value counts for at most
}

func (w *watch) run(v *Verdict, b *Baseline, tracks []track, points []Point) {
	layouts := make([]layout, len(points))
	model := &Chart{SVIDs: b.SVIDs, Steps: b.Steps}
	for i := range points {
		layouts[i] = newLayout(model, points[i].Chart)
	}
	var signals []Signal
	zs := make([]float64, 0, len(points)+1)
	for _, t := range tracks {
		watched := w.watches(t)
		if !watched.any() {
			continue
		}
		t.estimate.Sigma *= t.course.marginal()
		zs = t.standardized(zs[:0], points, layouts)
		signals = append(signals, w.signals(t, watched, zs)...)
	}
	if len(signals) == 0 {
		return
	}
	v.State = Alarm
	v.Signaled = len(signals)
	slices.SortStableFunc(signals, func(a, b Signal) int { return cmp.Compare(b.excess(), a.excess()) })
	v.Signals = signals[:min(len(signals), maxViolations)]
}

// watched is by what a track is watched.
type watched struct {
	ewma, cusum bool
	rules       spc.Rules // 0: none
}

func (w watched) any() bool { return w.ewma || w.cusum || w.rules != 0 }

func (w *watch) watches(t track) watched {
	out := watched{
		ewma:  w.policy.EWMA.Lambda > 0 && w.policy.EWMA.has(t.SVID, t.Statistic),
		cusum: w.policy.CUSUM.K > 0 && w.policy.CUSUM.has(t.SVID, t.Statistic),
	}
	if w.policy.Rules.has(t.SVID, t.Statistic) {
		out.rules = w.policy.Rules.Rules
	}
	return out
}

// standardized appends the track's values in the earlier runs and the newest one, as
// distances from the center in sigmas; NaN where a run has none, or it was suspended.
func (t track) standardized(zs []float64, points []Point, layouts []layout) []float64 {
	for i := range points {
		point := &points[i]
		z := math.NaN()
		if x, ok := layouts[i].value(point.Chart, t.svid, t.step, t.Statistic); ok && !slices.Contains(point.Suspended, t.SVID) {
			z = sigmas(x-t.estimate.Center, t.estimate.Sigma)
		}
		zs = append(zs, z)
	}
	return append(zs, sigmas(t.Value-t.estimate.Center, t.estimate.Sigma))
}

// signals returns what a track's standardized values, the newest one last, signal. It
// clips them.
func (w *watch) signals(t track, by watched, zs []float64) (out []Signal) {
	add := func(by string, value, limit float64) {
		out = append(out, Signal{By: by, SVID: t.SVID, Step: t.Step, Statistic: t.Statistic, Value: value, Limit: limit})
	}
	if by.rules != 0 {
		var runs spc.Runs
		var hit spc.Rules
		for _, z := range zs {
			hit = runs.Next(z, by.rules)
		}
		for _, name := range hit.Names() {
			add(name, zs[len(zs)-1], 0)
		}
	}
	for i, z := range zs {
		zs[i] = max(-w.clip, min(z, w.clip)) // NaN stays
	}
	if by.ewma {
		if z, limit := w.average(zs, t.estimate.N); math.Abs(z) > limit {
			add(SignalEWMA, z, math.Copysign(limit, z))
		}
	}
	if by.cusum {
		if sum, limit := w.sum(zs, t.estimate.N); math.Abs(sum) > limit {
			add(SignalCUSUM, sum, math.Copysign(limit, sum))
		}
	}
	return out
}

// excess orders signals: averages and sums by how far beyond their limit they are,
// then rules.
func (s Signal) excess() float64 {
	if s.Limit == 0 {
		return 0
	}
	return s.Value / s.Limit
}

// average returns the EWMA of standardized values and its limit. The center is an
// estimate, too, and its error stays in every average: chosen limits allow for it.
func (w *watch) average(zs []float64, n int) (z, limit float64) {
	c := spc.EWMA{Lambda: w.policy.EWMA.Lambda, L: 1, Target: spc.Estimate{Sigma: 1}}
	var at spc.EWMAPoint
	for _, x := range zs {
		at = c.Next(at, x)
	}
	sd := at.Limits.Upper
	if w.policy.EWMA.L > 0 {
		return at.Z, w.policy.EWMA.L * sd
	}
	return at.Z, w.models.multiple(w.ewma, n) * math.Sqrt(float64(sd*sd)+1/float64(n))
}

// sum returns the larger of the two cumulative sums, that of falls negative, and its
// limit.
func (w *watch) sum(zs []float64, n int) (sum, limit float64) {
	c := spc.CUSUM{K: w.policy.CUSUM.K, H: w.policy.CUSUM.H, Target: spc.Estimate{Sigma: 1}}
	if c.H == 0 {
		normal := -distuv.UnitNormal.Quantile(w.cusum / 2)
		// Sigma is an estimate as well: sums are in units that may be too small.
		c.H = decisionInterval(c.K, 1/w.cusum) * w.models.multiple(w.cusum, n) / normal
		c.K += normal / math.Sqrt(float64(n))
	}
	var at spc.CUSUMPoint
	for _, x := range zs {
		at = c.Next(at, x)
	}
	if at.Low > at.High {
		return -at.Low, c.H
	}
	return at.High, c.H
}

// decisionInterval returns the h with which a two-sided CUSUM of normal values has
// the average run length, by Siegmund's approximation (Sequential Analysis, 1985;
// Montgomery 9.1.4): (exp(2kb)-2kb-1)/(2k²) for one side, b = h + 1.166.
func decisionInterval(k, runLength float64) float64 {
	low, high := 0.0, 1.0
	one := func(h float64) float64 {
		b := h + 1.166
		return (math.Exp(2*k*b) - 2*k*b - 1) / (2 * k * k)
	}
	for one(high) < 2*runLength && high < 1e6 {
		high *= 2
	}
	for range 60 {
		if mid := (low + high) / 2; one(mid) < 2*runLength {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}
