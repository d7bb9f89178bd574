package uchart

import (
	"encoding/binary"
	"math"
	"path"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/muster-dev/muster/defender/spc"
)

// FrozenPolicy says how frozen limits are made and what is watched by them besides
// single values. The zero value has the limits follow the newest contexts.
//
// Phase I is the first Contexts unflagged contexts, after maintenance or since the
// history begins; until they are there, limits follow the newest ones. Then center
// and sigma of each chart are estimated once: as for moving limits, but without
// values further than Outliers robust sigmas (median and median absolute deviation)
// from the median. They stay until maintenance or until the rules change, so that
// drift, however slow, leaves them in the end.
type FrozenPolicy struct {
	// Contexts is the length of Phase I; 0 is no frozen limits. The history has to
	// hold as many unflagged ones: about half of its length is safe.
	Contexts int
	// Outliers is in robust sigmas; default 5.
	Outliers float64
	EWMA     EWMAPolicy
	CUSUM    CUSUMPolicy
	Rules    RulesPolicy
}

// ChartSelection says which charts something applies to.
type ChartSelection struct {
	Statistics []Statistic // default Mean
	SVIDs      []string    // patterns with * and ?; none is all
}

// EWMAPolicy adds exponentially weighted moving averages to frozen limits: they find
// small shifts that last. Values are counted as no further out than the limits of
// single values, so that one outlier isn't reported again and again.
type EWMAPolicy struct {
	ChartSelection
	Lambda float64 // weight of the newest value; 0 is no EWMA, usually 0.05 to 0.4
	// L is the width of the limits in standard deviations of the average; 0 has it
	// chosen to keep the budget, with allowance for the estimated center.
	L float64
}

// CUSUMPolicy adds cumulative sums to frozen limits. They are clipped like those of
// EWMAPolicy.
type CUSUMPolicy struct {
	ChartSelection
	K float64 // reference value in sigmas; 0 is no CUSUM, usually 0.5
	// H is the decision interval in sigmas; 0 has it chosen to keep the budget by
	// Siegmund's approximation, and K is raised by what the estimated center may be
	// off.
	H float64
}

// RulesPolicy adds run rules to frozen limits. Their false alarms are those of the
// rules, on each chart, and not part of the budget: nine in a row on one side come
// up by chance once in 256 contexts on each chart.
type RulesPolicy struct {
	ChartSelection
	Rules spc.Rules // 0 is none
}

// Baseline is frozen limits: what Phase I found of each chart. It is kept in the
// verdict of the first context that was judged by it.
type Baseline struct {
	Limits     LimitsID    `json:"limits"`
	Rules      uint64      `json:"rules,string"` // hash of the rules it was made by
	SVIDs      []string    `json:"svids"`
	Steps      []int32     `json:"steps"`
	Statistics []Statistic `json:"statistics"`
	// Estimates holds, for each SVID, step and statistic in this order, center,
	// sigma and number of contexts as little-endian float64; the number is 0 where
	// there is no chart.
	Estimates []byte `json:"estimates"`
	// Courses are those of statistics whose runs depend on each other: sigma is that of a
	// forecast then. Phis are there if charts have a course of their own: for each chart, in
	// the order of Estimates, [Course.Phi] of its own course, 0 if that is independent, 1 more than
	// [Course.Weight] if it wanders, as little-endian float64; NaN where it has none. Tail is that of all charts.
	Courses []Course `json:"courses,omitempty"`
	Phis    []byte   `json:"phis,omitempty"`
	Tail    Tail     `json:"tail,omitzero"`
	// Context is that in whose verdict the baseline is kept; empty while that isn't
	// stored.
	Context string `json:"-"`
}

const (
	estimateBytes = 3 * 8
	phiBytes      = 8
)

// Valid reports whether the estimates fit the names; nil isn't valid.
func (b *Baseline) Valid() bool {
	if b == nil {
		return false
	}
	charts := len(b.SVIDs) * len(b.Steps) * len(b.Statistics)
	return len(b.Estimates) == charts*estimateBytes && (len(b.Phis) == 0 || len(b.Phis) == charts*phiBytes)
}

// Estimate returns what Phase I found of a chart, given by its positions in a valid
// baseline, and false if it found nothing.
func (b *Baseline) Estimate(svid, step, statistic int) (spc.Estimate, bool) {
	at := ((svid*len(b.Steps)+step)*len(b.Statistics) + statistic) * estimateBytes
	word := func(i int) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(b.Estimates[at+8*i:]))
	}
	e := spc.Estimate{Center: word(0), Sigma: word(1), N: int(word(2))}
	return e, e.N > 0 && e.Sigma >= 0 && !math.IsInf(e.Sigma, 0) && !math.IsNaN(e.Center) && !math.IsInf(e.Center, 0)
}

func (p FrozenPolicy) withDefaults() FrozenPolicy {
	if !(p.Outliers > 0) {
		p.Outliers = 5
	}
	for _, s := range []*ChartSelection{&p.EWMA.ChartSelection, &p.CUSUM.ChartSelection, &p.Rules.ChartSelection} {
		if len(s.Statistics) == 0 {
			s.Statistics = []Statistic{Mean}
		}
	}
	return p
}

func (s ChartSelection) has(svid string, stat Statistic) bool {
	if !slices.Contains(s.Statistics, stat) {
		return false
	}
	return len(s.SVIDs) == 0 || slices.ContainsFunc(s.SVIDs, func(pattern string) bool {
		// path.Match keeps * from crossing slashes, which mean nothing here.
		ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(svid, "/", "\x00"))
		return err == nil && ok
	})
}

// frozenVersion is part of a baseline's rules; it changes when estimates may.
const frozenVersion = 4

// estimateRules is a hash of what a baseline's estimates depend on besides contexts.
func (p Policy) estimateRules() uint64 {
	h := xxhash.New()
	word := func(v uint64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, v)) }
	for _, v := range []uint64{frozenVersion, uint64(p.Frozen.Contexts), math.Float64bits(p.Frozen.Outliers), uint64(p.MinHistory)} {
		word(v)
	}
	for _, s := range p.watched() {
		word(uint64(s))
	}
	return h.Sum64()
}

// watched are the statistics that something is judged by, each once.
func (p Policy) watched() []Statistic {
	stats := slices.Clone(p.Statistics)
	f := p.Frozen
	for _, more := range []struct {
		on    bool
		stats []Statistic
	}{{f.EWMA.Lambda > 0, f.EWMA.Statistics}, {f.CUSUM.K > 0, f.CUSUM.Statistics}, {f.Rules.Rules != 0, f.Rules.Statistics}} {
		if !more.on {
			continue
		}
		for _, s := range more.stats {
			if !slices.Contains(stats, s) {
				stats = append(stats, s)
			}
		}
	}
	return stats
}

// baseline returns the frozen limits that apply after the history, which begins
// after the last maintenance: those of the newest context that knows them, else new
// ones of the first contexts if these are enough; nil if they aren't.
func (p Policy) baseline(history []Point, basis *basis) (b *Baseline, fresh bool) {
	if p.Frozen.Contexts <= 0 {
		return nil, false
	}
	rules := p.estimateRules()
	for _, point := range slices.Backward(history) {
		if b := point.Baseline; b.Valid() && b.Rules == rules {
			return b, false
		}
	}
	points := basis.points
	if len(points) < max(p.Frozen.Contexts, p.MinHistory) {
		return nil, false
	}
	b = p.estimate(points[:max(p.Frozen.Contexts, p.MinHistory)])
	b.Rules = rules
	return b, true
}

// estimate makes a baseline of the contexts of Phase I.
func (p Policy) estimate(points []Point) *Baseline {
	// A counter that stands still later must not be judged by how it counted.
	model := points[len(points)-1].Chart.without(p.counters(points))
	b := &Baseline{Limits: p.limitsID(points), SVIDs: slices.Clone(model.SVIDs), Steps: slices.Clone(model.Steps), Statistics: p.watched()}
	layouts := layoutsOf(points, model)
	watching := p
	watching.Statistics = b.Statistics
	charts := watching.gather(points, layouts, model, false)
	lots := lotNumbers(points, points[len(points)-1].Lot)[:len(points)]
	courses := make([]Course, len(charts))
	if !p.NoCourses {
		b.Courses, courses = coursesOf(b.Statistics, charts, lots)
	}

	far := make([]float64, len(points))
	next := 0
	for svid := range b.SVIDs {
		for step := range b.Steps {
			for _, s := range b.Statistics {
				var e spc.Estimate
				phi := math.NaN()
				if next < len(charts) && charts[next].is(svid, step, s) {
					c, course := &charts[next], courses[next]
					next++
					if b.course(s).differs(course) && c.whole {
						phi = course.stored()
					}
					floor := c.noise.of(s)
					if c.noise.spread == 0 && s == Mean {
						floor = restingSigma(points, layouts, nil, svid, step)
					}
					e = p.estimateChart(c, course, lots, floor, far)
				}
				b.Phis = binary.LittleEndian.AppendUint64(b.Phis, math.Float64bits(phi))
				for _, v := range []float64{e.Center, e.Sigma, float64(e.N)} {
					b.Estimates = binary.LittleEndian.AppendUint64(b.Estimates, math.Float64bits(v))
				}
			}
		}
	}
	if !slices.ContainsFunc(b.Courses, func(c Course) bool { return c.Own > 0 }) {
		b.Phis = nil
	}
	b.Tail = tailOf(far, normals{Charts: len(charts)}, nil)
	// Chambers may use the same names of contexts; the estimates tell them apart.
	b.Limits.Version ^= xxhash.Sum64(b.Estimates) ^ xxhash.Sum64(b.Phis) ^ p.estimateRules()
	return b
}

func (g *gathered) is(svid, step int, s Statistic) bool {
	return g.svid == svid && g.step == step && g.Statistic == s
}

// course returns that of a statistic.
func (b *Baseline) course(s Statistic) Course {
	for _, c := range b.Courses {
		if c.Statistic == s {
			return c
		}
	}
	return Course{Statistic: s}
}

// stored is what a baseline keeps of a chart's own course: phi, or 1 more than the weight of a
// wandering one.
func (c Course) stored() float64 {
	if c.Kind == Wandering {
		return 1 + c.Weight
	}
	return c.Phi
}

// courses returns those of the baseline's statistics.
func (b *Baseline) courses() []Course {
	courses := make([]Course, len(b.Statistics))
	for i, s := range b.Statistics {
		courses[i] = b.course(s)
	}
	return courses
}

// courseOf returns that of a chart, given by its positions in a valid baseline and the course of
// its statistic.
func (b *Baseline) courseOf(c Course, svid, step, statistic int) Course {
	if len(b.Phis) == 0 {
		return c
	}
	at := ((svid*len(b.Steps)+step)*len(b.Statistics) + statistic) * phiBytes
	phi := math.Float64frombits(binary.LittleEndian.Uint64(b.Phis[at:]))
	switch {
	case phi == 0:
		return Course{Statistic: c.Statistic}
	case phi > 0 && phi < 1:
		return Course{Statistic: c.Statistic, Kind: Autoregressive, Phi: phi, single: true}
	case phi > 1 && phi < 2:
		return Course{Statistic: c.Statistic, Kind: Wandering, Weight: phi - 1, single: true}
	}
	return c
}

// estimateChart estimates one chart by its course, and raises far to how far out its values
// are.
func (p Policy) estimateChart(c *gathered, course Course, lots []int, floor float64, far []float64) spc.Estimate {
	xs, shift := []float64(c.values), 0.0
	if course.Kind != Independent {
		shift = mean(c.values)
		xs = course.residuals(c.values, lots, shift)
	}
	known := make([]float64, 0, len(xs))
	for _, x := range xs {
		if !math.IsNaN(x) {
			known = append(known, x)
		}
	}
	if len(known) < 2 {
		return spc.Estimate{}
	}
	e := p.estimateOne(known, floor)
	if c.whole && !c.noise.still && e.N > 0 {
		farthest(far, xs, e.Center, e.Sigma*math.Sqrt(1+1/float64(e.N)))
	}
	if course.Kind != Independent && e.N > 0 {
		e.Center = shift // forecasts are about it
	}
	return e
}

// estimateOne estimates one chart, N 0 where that is impossible. When more than a
// quarter of the values are far out there is no one level to be far from, and all
// count.
func (p Policy) estimateOne(xs []float64, floor float64) spc.Estimate {
	screen, err := spc.PhaseI{Estimator: spc.MedianMAD, K: p.Frozen.Outliers, MinN: 2, Floor: floor}.Estimate(xs)
	if err == nil {
		for _, i := range slices.Backward(screen.Excluded) {
			xs = slices.Delete(xs, i, i+1)
		}
	}
	center, sigma := individuals(xs)
	sigma = max(sigma, floor)
	if math.IsInf(sigma, 0) || math.IsNaN(sigma) || math.IsInf(center, 0) || math.IsNaN(center) {
		return spc.Estimate{}
	}
	return spc.Estimate{Center: center, Sigma: sigma, N: len(xs)}
}

// frozen judges by frozen limits. It sets all of v that single charts set.
func (p Policy) frozen(v *Verdict, b *Baseline, fresh bool, history []Point, basis *basis, chart *Chart, models *modelCache) {
	v.Limits = b.Limits
	v.Limits.At = b.Context
	v.Courses = b.Courses
	if fresh {
		v.Frozen = b
	}
	basis.room.tracks = b.tracks(basis.room.tracks[:0], chart, p)
	tracks := basis.room.tracks
	kinds := 1.0
	var ewmas, cusums int
	for i := range tracks {
		t := &tracks[i]
		if p.Frozen.EWMA.Lambda > 0 && p.Frozen.EWMA.has(t.SVID, t.Statistic) {
			ewmas++
		}
		if p.Frozen.CUSUM.K > 0 && p.Frozen.CUSUM.has(t.SVID, t.Statistic) {
			cusums++
		}
		if slices.Contains(p.Statistics, t.Statistic) {
			v.Charts++
		}
	}
	for _, n := range []int{ewmas, cusums} {
		if n > 0 {
			kinds++
		}
	}
	budget := p.FalseAlarms / kinds
	watched := ewmas+cusums > 0 || p.Frozen.Rules.Rules != 0
	if v.Charts > 0 {
		known := tracks
		if len(b.Courses) > 0 {
			basis.room.known = b.expected(basis.room.known[:0], tracks, basis)
			known = basis.room.known
		}
		basis.room.single = p.frozenSingles(basis.room.single[:0], v, b, known, budget, models)
		v.Drift = b.drift(known)
		if len(known) == 0 && v.Multivariate == nil {
			v.State = Learning
		}
	}
	if watched {
		w := watch{policy: p.Frozen, models: models, ewma: budget / float64(max(ewmas, 1)), cusum: budget / float64(max(cusums, 1)), clip: max(v.ScoreLimit, 3)}
		w.run(v, b, tracks, since(history, b))
	}
}

// track is one chart with its frozen estimate.
type track struct {
	Violation
	estimate             spc.Estimate
	course               Course
	svid, step, position int     // in the baseline
	factor               float64 // sigmas of the estimate that a value deviates by, as expected
}

// expected appends to known the tracks with what is expected of each by its course, without
// those that nothing can be expected of yet.
func (b *Baseline) expected(known, tracks []track, basis *basis) []track {
	points := basis.newest(courseMemory)
	layouts := layoutsOf(points, &Chart{SVIDs: b.SVIDs, Steps: b.Steps})
	lots := lotNumbers(points, basis.lot)
	for _, t := range tracks {
		if c := t.course; c.Kind != Independent {
			f := forecast{course: c, center: t.estimate.Center, rests: t.estimate.N, sigma: t.estimate.Sigma}
			f.follow(points, lots, func(i int) (float64, bool) {
				return layouts[i].value(points[i].Chart, t.svid, t.step, t.Statistic)
			})
			var ok bool
			if t.Center, t.factor, ok = f.next(lots[len(points)], basis.horizon); !ok {
				continue
			}
		}
		known = append(known, t)
	}
	return known
}

// courseMemory is how many of the newest contexts a forecast follows; of what lies before,
// a wandering level has less than a hundredth.
const courseMemory = 25

// tracks appends the charts that the baseline and the chart at hand both have.
func (b *Baseline) tracks(tracks []track, chart *Chart, p Policy) []track {
	at := newLayout(&Chart{SVIDs: b.SVIDs, Steps: b.Steps}, chart)
	tracks = slices.Grow(tracks, len(b.Estimates)/estimateBytes)
	courses := b.courses()
	for svid := range b.SVIDs {
		for step := range b.Steps {
			for position, s := range b.Statistics {
				e, ok := b.Estimate(svid, step, position)
				if !ok || e.N < p.MinHistory/2 {
					continue
				}
				value, ok := at.value(chart, svid, step, s)
				if !ok {
					continue
				}
				if e.Sigma == 0 { // it never moved
					e.Sigma = at.restingSigma(e.Center, chart, svid, step)
				}
				tracks = append(tracks, track{factor: 1, estimate: e, course: b.courseOf(courses[position], svid, step, position), svid: svid, step: step, position: position,
					Violation: Violation{SVID: b.SVIDs[svid], Step: b.Steps[step], Statistic: s, Value: value, Center: e.Center}})
			}
		}
	}
	return tracks
}

// frozenSingles judges single values, and returns their charts in the room that it is given.
// Charts that fewer contexts of Phase I remained for have limits that are wider in proportion.
func (p Policy) frozenSingles(single []Violation, v *Verdict, b *Baseline, tracks []track, budget float64, models *modelCache) []Violation {
	each := budget / float64(v.Charts)
	multiples := map[int]float64{}
	of := func(n int) float64 {
		if multiples[n] == 0 {
			multiples[n] = models.multiple(each, n)
		}
		return multiples[n]
	}
	v.ScoreLimit = max(of(b.Limits.N), b.Tail.limit(budget, models))
	single = slices.Grow(single, v.Charts)
	for i := range tracks {
		t := &tracks[i]
		if !slices.Contains(p.Statistics, t.Statistic) {
			continue
		}
		n := t.estimate.N
		sigma := t.estimate.Sigma * t.factor * math.Sqrt(1+1/float64(n)) * of(n) / of(b.Limits.N)
		c := t.Violation
		c.Upper, c.Sigmas = sigma, sigmas(c.Value-c.Center, sigma)
		single = append(single, c)
	}
	v.weigh(single)
	return single
}

// since returns the contexts after Phase I, as far as the history has them. Those
// with bad data aren't of the process.
func since(history []Point, b *Baseline) []Point {
	if at := slices.IndexFunc(history, func(p Point) bool { return p.Context == b.Limits.Last }); at >= 0 {
		history = history[at+1:]
	}
	points := make([]Point, 0, len(history))
	for _, p := range history {
		if p.Chart != nil && !p.Bad && !p.Older {
			points = append(points, p)
		}
	}
	return points
}

// Names of what a [Signal] may come from, besides those of run rules.
const (
	SignalEWMA  = "ewma"
	SignalCUSUM = "cusum"
)
