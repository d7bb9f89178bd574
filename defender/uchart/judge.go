package uchart

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Policy is by what rules a context is judged. The zero value of a field stands
// for its default.
type Policy struct {
	// FalseAlarms is the budget: the probability, at most, with which a context
	// of an undisturbed process raises an alarm, all its charts together. The
	// default is 0.01, one context in a hundred.
	FalseAlarms float64
	// MinHistory is the number of earlier contexts below which the verdict is
	// Learning; default 10, at least 3.
	MinHistory int
	// Window is the number of newest contexts that limits are estimated from;
	// default 25.
	Window int
	// Statistics are those that are judged; by default Mean, StdDev and Slope:
	// where the signal is, how much it varies, and whether it drifts within the
	// step. The others say the same again (Area is Mean times duration) or hang on
	// single samples (Min, Max, Range); Count is judged as data quality.
	Statistics []Statistic
	// NoUnivariate leaves single charts out, but for those of SVIDs that never moved, which
	// the multivariate charts can't judge; data quality is always judged.
	NoUnivariate bool
	// Multivariate judges all charts together; off in the zero value.
	Multivariate MultivariatePolicy
	// Exclude are patterns with * and ? of SVIDs that are judged by nothing, data quality
	// included.
	Exclude []string
	// NoCourses takes runs as independent of each other; see [Course].
	NoCourses bool
	// Frozen has single charts judged by limits that stay; off in the zero value,
	// where limits follow the newest contexts.
	Frozen FrozenPolicy
}

// The constants of Judge.
const (
	rulesVersion = 9 // part of LimitsID.Version; changes when verdicts may

	// d2 is the mean of a moving range of two samples, in standard deviations
	// (Montgomery, Introduction to Statistical Quality Control, appendix VI).
	d2 = 1.128
	// freedom is the degrees of freedom of the estimate MRbar/d2 for each moving
	// range: its variance is 0.826 sigma^2/(n-1) for large n (Cryer and Ryan, "The
	// estimation of sigma for an X chart: MRbar/d2 or S/c4?", Journal of Quality
	// Technology 22, 1990), that of a standard deviation with f degrees of freedom
	// about sigma^2/(2f).
	freedom = 1 / (2 * 0.826)

	maxSigmas = 1e6 // stands for more, where there is no variation to measure by
)

// Judge concludes from a chamber's earlier contexts, oldest first and all of one
// recipe, whether a context is unusual. It is a pure function: the same
// arguments give the same bits. Flagged points and points beyond the policy's
// window are not used.
//
// Data first: a context with missing, very short or overlong steps, long gaps or many
// excluded rows is BadData and not judged further, since every statistic of a truncated
// trace is off. An SVID that is missing, or lacks most of its values, is named, and its
// charts and what models know of it are suspended: the other SVIDs are judged. Such a
// context is BadData, or Alarm if the others raise one.
//
// While an alarm stands ([Point.Standing]) limits and models rest on the contexts before
// the one that opened it, unless these are too few to judge by: they neither follow a
// fault nor run out.
//
// Then each chart is an individuals chart (Montgomery, chapter 6.4): center the
// mean of the history, sigma the mean moving range divided by d2 = 1.128. Three
// things differ from the textbook's center ± 3 sigma = center ± 2.66 MRbar:
//
//   - A context has hundreds of charts, and at 0.27 % each nearly every one would
//     raise an alarm. The limits are widened so that all charts of a context
//     together stay within the policy's budget, whatever their correlation
//     (Bonferroni: each gets an equal share of it).
//   - Mean and sigma are estimates from few contexts. So the multiple of sigma is
//     that of Student's t instead of the normal distribution, with the degrees of
//     freedom of the moving range, and sigma is multiplied by sqrt(1+1/n), which
//     makes the limits a prediction interval for the next context. The budget
//     holds from MinHistory contexts on, not only in the long run.
//   - Sigma isn't less than the noise within the context implies (s/sqrt(n) for a
//     mean of n samples, s/sqrt(2n) for a standard deviation, and so on, with s
//     pooled over the history). Sensors that are read out in coarse steps and
//     rarely move would otherwise seem to have no variation at all.
//
// One chart outside its limits makes the verdict Alarm. Score is the largest
// distance from a center in sigmas, and ScoreLimit the multiple of sigma at which
// the limits are. The budget assumes statistics that are about normal and
// independent from one context to the next; a drifting chamber breaks the second
// assumption. The limits follow drift that is slow compared to the window, which
// is the price of judging by the newest contexts only.
//
// An SVID that doesn't move in at least half of the earlier contexts, such as a
// reflected power that reads 0 and now and then 1, has nothing like normal noise.
// Its mean is judged by the spread of single samples, so that it raises an alarm
// when it stays at a new value and not when it moves for a moment; its standard
// deviation and slope aren't judged. If it never moved, half of the last digit of its
// values stands for the spread: a change by a digit is no alarm.
//
// With a frozen policy, limits stay as Phase I found them, and run rules, EWMA and
// CUSUM watch the course since; see [FrozenPolicy].
//
// SVIDs that count, such as hours of RF, have no charts; see [Verdict.Counters].
//
// With a multivariate policy, the context is also judged by principal components;
// see [MultivariatePolicy].
func Judge(history []Point, chart *Chart, p Policy) Verdict {
	return judge(history, "", chart, p, nil)
}

func judge(history []Point, lot string, chart *Chart, p Policy, models *modelCache) Verdict {
	p = p.withDefaults()
	history = sinceReset(history)
	basis := newBasis(history, p.Enough())
	defer basis.leave()
	basis.lot, basis.horizon = lot, basis.horizonIn(history)
	points := basis.newest(p.Window)
	v := Verdict{State: Learning, Run: basis.run, Lot: lot, Limits: p.limitsID(points), Content: chart.Content()}
	excluded := p.excluded(points, chart)
	q := inspect(points, chart, excluded)
	v.Faults, v.Suspended = q.list(), q.svids()
	if len(q.faults) > 0 {
		v.State, v.Suspended = BadData, nil
		return v
	}
	v.Counters = slices.DeleteFunc(p.counters(basis.points), func(name string) bool { return slices.Contains(excluded, name) })
	left := slices.Concat(v.Suspended, excluded, v.Counters)
	p.judgeProcess(&v, history, &basis, chart.without(left), left, models)
	if v.Multivariate != nil && v.State != Alarm {
		v.Multivariate.Signature = nil // only a fault is recognized by it
	}
	if len(v.Suspended) > 0 && v.State != Alarm {
		v.State = BadData
	}
	return v
}

// Enough is the number of contexts below which nothing is concluded of the process.
func (p Policy) Enough() int {
	if p.NoUnivariate {
		m := p.Multivariate.withDefaults()
		return m.MinHistory + m.Reference
	}
	return p.withDefaults().MinHistory
}

// judgeProcess concludes by the SVIDs that aren't left out; the chart has no others.
func (p Policy) judgeProcess(v *Verdict, history []Point, basis *basis, chart *Chart, left []string, models *modelCache) {
	points := basis.newest(p.Window)
	var baseline *Baseline
	var fresh bool
	if !p.NoUnivariate {
		baseline, fresh = p.baseline(history, basis)
	}
	if len(points) < p.MinHistory && baseline == nil {
		return
	}
	v.State = Normal
	if p.Multivariate.FalseAlarms > 0 {
		var lacks []string
		v.Multivariate, lacks = p.Multivariate.judge(basis, chart, left, models)
		v.Faults = append(v.Faults, lacks...)
		if v.Multivariate != nil && v.Multivariate.Out() {
			v.State = Alarm
		}
	}
	switch {
	case p.NoUnivariate && v.Multivariate == nil:
		v.State = Learning
		return
	case baseline != nil:
		p.frozen(v, baseline, fresh, history, basis, chart, models)
		return
	}
	// Models leave out SVIDs that rest. By their single charts these are judged even where
	// others aren't: nothing else would show what becomes of them.
	single := p.distances(points, chart, p.NoUnivariate, basis.lot, basis.horizon, models)
	v.Charts, v.Courses = len(single.list), single.courses
	if v.Charts == 0 {
		if single.unknown > 0 && v.State == Normal && v.Multivariate == nil {
			v.State = Learning // the first run of a lot, before there are lots to compare it with
		}
		return
	}
	v.ScoreLimit = max(models.multiple(p.FalseAlarms/float64(v.Charts), len(points)), single.tail.limit(p.FalseAlarms, models))
	v.weigh(single.list)
}

func (p Policy) withDefaults() Policy {
	if !(p.FalseAlarms > 0 && p.FalseAlarms < 1) {
		p.FalseAlarms = 0.01
	}
	if p.MinHistory <= 0 {
		p.MinHistory = 10
	}
	p.MinHistory = max(p.MinHistory, 3)
	if p.Window <= 0 {
		p.Window = 25
	}
	p.Window = max(p.Window, p.MinHistory)
	if len(p.Statistics) == 0 {
		p.Statistics = []Statistic{Mean, StdDev, Slope}
	}
	p.Frozen = p.Frozen.withDefaults()
	return p
}

// sinceReset returns what lies after the newest mark of maintenance.
func sinceReset(history []Point) []Point {
	for i, point := range slices.Backward(history) {
		if point.Reset {
			return history[i+1:]
		}
	}
	return history
}

func layoutsOf(points []Point, chart *Chart) []layout {
	layouts := make([]layout, len(points))
	for i := range points {
		point := &points[i]
		layouts[i] = newLayout(chart, point.Chart)
	}
	return layouts
}

// limitsID names the limits by all that they depend on.
func (p Policy) limitsID(points []Point) LimitsID {
	if len(points) == 0 {
		return LimitsID{}
	}
	rules := []uint64{rulesVersion, math.Float64bits(p.FalseAlarms), uint64(p.MinHistory)}
	for _, s := range p.Statistics {
		rules = append(rules, uint64(s))
	}
	return limitsOf(points, rules...)
}

// multiple returns how many sigmas away the limits are that one of n+1
// exchangeable normal values exceeds with the given probability.
func multiple(probability float64, n int) float64 {
	t := distuv.StudentsT{Sigma: 1, Nu: freedom * float64(n-1)}
	return -t.Quantile(probability / 2)
}

// individuals returns center and sigma of an individuals chart.
func individuals(xs []float64) (center, sigma float64) {
	sum, moving := 0.0, 0.0
	for i, x := range xs {
		sum += x - xs[0] // shifted, for the last digits
		if i > 0 {
			moving += math.Abs(x - xs[i-1])
		}
	}
	return xs[0] + sum/float64(len(xs)), moving / float64(len(xs)-1) / d2
}

func sigmas(distance, sigma float64) float64 {
	switch {
	case distance == 0:
		return 0
	case sigma == 0:
		return math.Copysign(maxSigmas, distance)
	}
	return max(-maxSigmas, min(distance/sigma, maxSigmas))
}

// noise is the noise within a context of one SVID in one step.
type noise struct {
	spread   float64 // standard deviation of a sample
	count    float64 // samples
	interval float64 // between them, s
	still    bool    // the SVID rarely moves
}

// withinNoise pools the noise over the history. It doesn't look at the values of the
// chart at hand: how an SVID that never moved moves now is no measure of that.
func withinNoise(points []Point, layouts []layout, chart *Chart, svid, step int) noise {
	var squares, degrees float64
	still, seen := 0, 0
	for i := range points {
		point := &points[i]
		sd, ok := layouts[i].value(point.Chart, svid, step, StdDev)
		n, _ := layouts[i].value(point.Chart, svid, step, Count)
		if !ok {
			continue
		}
		seen++
		if sd == 0 {
			still++
		}
		squares += float64(sd * sd * (n - 1))
		degrees += n - 1
	}
	count, _ := chart.Value(svid, step, Count)
	within := noise{count: count, interval: chart.Quality.interval(), still: 2*still >= seen}
	if squares > 0 {
		within.spread = math.Sqrt(squares / degrees)
	}
	return within
}

// of returns the standard deviation that the noise alone gives a statistic.
func (n noise) of(s Statistic) float64 {
	switch {
	case n.count < 1 || n.spread == 0:
		return 0
	case n.still:
		return n.spread // of the mean, too: one short move isn't a new level
	case s == Mean:
		return n.spread / math.Sqrt(n.count)
	case s == StdDev:
		return n.spread / math.Sqrt(2*n.count)
	case s == Slope && n.interval > 0:
		// The sum of squares about the mean of equidistant times.
		return n.spread / (n.interval * math.Sqrt(n.count*float64(n.count*n.count)/12))
	}
	return 0
}

// weigh sets limits and conclusions from the distances of all charts.
func (v *Verdict) weigh(single []Violation) {
	var outside []Violation
	for _, c := range single {
		far := math.Abs(c.Sigmas)
		v.Score = max(v.Score, far)
		if far <= v.ScoreLimit {
			continue
		}
		sigma := c.Upper
		c.Lower = c.Center - float64(v.ScoreLimit*sigma)
		c.Upper = c.Center + float64(v.ScoreLimit*sigma)
		outside = append(outside, c)
	}
	if len(outside) == 0 {
		return
	}
	v.State = Alarm
	v.Violated = len(outside)
	slices.SortStableFunc(outside, func(a, b Violation) int { return cmp.Compare(math.Abs(b.Sigmas), math.Abs(a.Sigmas)) })
	v.Violations = outside[:min(len(outside), maxViolations)]
}
