package uchart

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/muster-dev/muster/defender/pca"
)

// MultivariatePolicy is by what rules a context is judged by principal components.
// The zero value of a field but FalseAlarms stands for its default.
//
// The variables are the statistics of all SVIDs in all steps (batch-wise unfolding,
// Nomikos and MacGregor 1995), standard deviations as logarithms since they are
// skewed, and all scaled to unit variance. The model keeps as many components as explain Variance, and
// its limits are those of T² and Q in cross-validation, which hold for contexts
// that it was not trained on, each for half of the budget.
type MultivariatePolicy struct {
	// FalseAlarms is the probability, about, with which a context of an undisturbed
	// process exceeds T² or Q; 0 turns the multivariate charts off.
	FalseAlarms float64
	// MinHistory is the number of earlier contexts below which nothing is
	// concluded; default 20, at least 8. Window is the number of newest ones that
	// the model is trained on; default 50.
	MinHistory, Window int
	// Statistics are the variables; default Mean and StdDev.
	Statistics []Statistic
	// Variance is the share of variance that components explain; default 0.8.
	Variance float64
	// Reference, if above 0, takes variables as differences to their mean over so
	// many contexts before: what the process does compared to lately. It finds
	// smaller faults in a chamber that drifts, and is blind to slow drift.
	Reference int
	// Refit is how many unflagged contexts a model serves before the next is trained;
	// default 16. A model rests on the contexts up to the newest whose number since
	// maintenance (see [Verdict.Run]) is a multiple of it, so that judging again, by
	// any worker, gives the same verdict.
	Refit int
	// NoCourses takes runs as independent of each other; see [Course].
	NoCourses bool
	// Bound is how many robust sigmas a variable counts with, about: what lies beyond counts by
	// its logarithm. It keeps the budget where values have heavy tails, since else one value far
	// out is most of T² or Q, and finds less of faults in single variables. 0 is no bound.
	Bound float64
}

func (p MultivariatePolicy) withDefaults() MultivariatePolicy {
	if p.MinHistory <= 0 {
		p.MinHistory = 20
	}
	p.MinHistory = max(p.MinHistory, 8)
	if p.Window <= 0 {
		p.Window = 50
	}
	p.Window = max(p.Window, p.MinHistory)
	if len(p.Statistics) == 0 {
		p.Statistics = []Statistic{Mean, StdDev}
	}
	if !(p.Variance > 0 && p.Variance <= 1) {
		p.Variance = 0.8
	}
	if p.Refit <= 0 {
		p.Refit = 16
	}
	return p
}

// Leaving out one run at a time is work that grows with the fourth power of their
// number. Above so much of it, runs³ (runs + variables), cross-validation leaves out
// a part of folds instead.
const (
	maxLeaveOneOut = 6_000_000
	folds          = 10
)

// A Judger judges like [Judge] and remembers the models it trained and the widths of
// limits, which are quantiles that take long to compute. It is safe for concurrent
// use; its verdicts are those of Judge.
type Judger struct {
	Policy Policy
	models modelCache
}

// Judge concludes on a chart; see [Judge].
func (j *Judger) Judge(history []Point, chart *Chart) Verdict {
	return judge(history, "", chart, j.Policy, &j.models)
}

// JudgeLot is Judge of a chart of a wafer lot; that of earlier contexts is in their points.
func (j *Judger) JudgeLot(history []Point, lot string, chart *Chart) Verdict {
	return judge(history, lot, chart, j.Policy, &j.models)
}

// modelCache holds models by their version, and widths of limits.
//
// A chamber's model gives way to another after some runs and isn't asked for any
// more, so models are held in two generations: one that was asked for is in the young
// one, and what wasn't asked for in a whole generation is forgotten.
type modelCache struct {
	mu         sync.Mutex
	young, old map[uint64]*trained
	asked      int // how often models were asked for in this generation
	widths     map[width]float64
}

// width is what [multiple] is computed from.
type width struct {
	probability float64
	n           int
}

const (
	// A generation ends when each of its models could have been asked for so often.
	perModel  = 4
	minAsked  = 64
	maxModels = 4096 // of a generation
	maxWidths = 1024
)

// multiple is the function of that name.
func (c *modelCache) multiple(probability float64, n int) float64 {
	if c == nil {
		return multiple(probability, n)
	}
	at := width{probability, n}
	c.mu.Lock()
	m, ok := c.widths[at]
	c.mu.Unlock()
	if ok {
		return m
	}
	m = multiple(probability, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.widths == nil || len(c.widths) >= maxWidths {
		c.widths = make(map[width]float64)
	}
	c.widths[at] = m
	return m
}

// get returns the model of a version, trained if it isn't there.
func (c *modelCache) get(version uint64, train func() *trained) *trained {
	if c == nil {
		return train()
	}
	c.mu.Lock()
	m, ok := c.young[version]
	if !ok {
		m, ok = c.old[version]
	}
	c.mu.Unlock()
	if !ok {
		m = train() // others need not wait for it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.young == nil || c.asked > perModel*len(c.young)+minAsked || len(c.young) >= maxModels {
		c.young, c.old, c.asked = make(map[uint64]*trained), c.young, 0
	}
	c.young[version] = m
	return m
}

// A variable is one column of the unfolded contexts.
type variable struct {
	svid, step int // positions in trained.names
	stat       Statistic
	unit       float64 // median in training, of standard deviations; 1 if that is 0
}

// trained is a model with what it takes to use it; model is nil when there was
// nothing to train one from.
type trained struct {
	names     *Chart // the SVIDs and steps that variables refer to, and nothing else
	variables []variable
	model     *pca.Model
	t2Limit   float64
	qLimit    float64
	courses   []Course  // of statistics that aren't independent, or not of all variables
	each      []Course  // of variables; nil without courses
	sigmas    []float64 // of what isn't expected of variables; nil without courses
	centers   []float64 // of variables; nil without courses
	rests     int       // runs that centers are means of
	usual     []usual   // of variables, before what courses lead to expect is taken off
	bounds    *bounds   // nil: variables aren't bounded
}

// judge concludes on a chart without the SVIDs that are left out. An SVID of the model
// that the chart lacks a statistic of is left out, too, and told.
func (p MultivariatePolicy) judge(basis *basis, chart *Chart, left []string, models *modelCache) (m *Multivariate, lacks []string) {
	p = p.withDefaults()
	base := p.base(basis)
	if len(base) < p.MinHistory+p.Reference {
		return nil, nil
	}
	left = slices.Sorted(slices.Values(left))
	id := p.modelID(base, left)
	t := models.get(id.Version, func() *trained { return p.train(base, left) })
	if t.model == nil {
		return nil, nil
	}
	before := basis.newest(p.Reference)
	run, missing := t.run(before, layoutsOf(before, t.names), chart, newLayout(t.names, chart))
	var signature []Level
	if missing == nil {
		signature = t.signature(run)
		if !t.expect(run, basis) {
			return nil, nil // the first run of a lot, before there are lots to compare it with
		}
	}
	if missing != nil {
		svid := t.names.SVIDs[missing.svid]
		m, lacks = p.judge(basis, chart, append(left, svid), models)
		lack := fmt.Sprintf("SVID %q has no %s in step %d: T² and Q leave it out", svid, missing.stat, t.names.Steps[missing.step])
		return m, append([]string{lack}, lacks...)
	}
	t.bounds.apply(run)
	s, err := t.model.Score(run)
	if err != nil {
		return nil, nil
	}
	m = &Multivariate{Model: id, Components: t.model.Components(), Variables: len(t.variables),
		T2: min(s.T2, math.MaxFloat64), T2Limit: t.t2Limit, Q: min(s.Q, math.MaxFloat64), QLimit: t.qLimit, Courses: t.courses}
	by, total := s.QBy, s.Q
	if m.T2/m.T2Limit > m.Q/m.QLimit {
		by, total = s.T2By, s.T2
	}
	m.By = t.largest(by, total)
	m.Signature = signature
	return m, nil
}

// base returns the points to train on: those up to the newest whose number is a
// multiple of Refit, or of half of it and so on while there are few.
func (p MultivariatePolicy) base(basis *basis) []Point {
	points := basis.points
	for every := p.Refit; every > 1; every /= 2 {
		if until := basis.until(basis.last / every * every); len(until) >= p.MinHistory+p.Reference {
			points = until
			break
		}
	}
	return points[max(0, len(points)-p.Window-p.Reference):]
}

// modelID names a model by all that it depends on: two with the same version are the
// same, whatever chamber, recipe or process they come from.
func (p MultivariatePolicy) modelID(base []Point, left []string) LimitsID {
	rules := []uint64{rulesVersion, math.Float64bits(p.FalseAlarms), uint64(p.MinHistory), uint64(p.Window), math.Float64bits(p.Variance), uint64(p.Reference)}
	for _, s := range p.Statistics {
		rules = append(rules, uint64(s))
	}
	for _, svid := range left {
		rules = append(rules, xxhash.Sum64String(svid))
	}
	for _, number := range lotNumbers(base, base[len(base)-1].Lot) {
		rules = append(rules, uint64(number+1))
	}
	if p.Bound > 0 {
		rules = append(rules, math.Float64bits(p.Bound))
	}
	return limitsOf(base, append(rules, uint64(len(left)))...)
}

// train makes a model of the base's contexts, without the SVIDs that are left out.
func (p MultivariatePolicy) train(base []Point, left []string) *trained {
	newest := base[len(base)-1].Chart
	layouts := layoutsOf(base, newest)
	t := &trained{names: &Chart{SVIDs: newest.SVIDs, Steps: newest.Steps}, variables: p.variables(base, layouts, left)}
	var runs [][]float64
	for i := p.Reference; i < len(base); i++ {
		if run, missing := t.run(base[i-p.Reference:i], layouts[i-p.Reference:i], base[i].Chart, layouts[i]); missing == nil {
			runs = append(runs, run)
		}
	}
	t.usual = usualOf(runs, len(t.variables))
	c := pca.Config{Variance: p.Variance}
	if !p.NoCourses && p.Reference == 0 && len(runs) == len(base) {
		runs = t.whiten(runs, lotNumbers(base, base[len(base)-1].Lot)[:len(base)])
	}
	if len(runs) < min(p.MinHistory, len(base)-wanderStart) {
		return t
	}
	if p.Bound > 0 {
		t.bounds = boundsOf(runs, len(t.variables), p.Bound)
		for _, run := range runs {
			t.bounds.apply(run)
		}
	}
	parts := 0
	if n := len(runs); n*n*n*(n+len(t.variables)) > maxLeaveOneOut {
		parts = folds
	}
	reference, err := pca.CrossValidate(runs, c, parts)
	if err != nil {
		return t
	}
	m, err := pca.Train(runs, c)
	if err != nil {
		return t
	}
	t.model = m
	each := p.FalseAlarms / 2
	t.t2Limit, t.qLimit = reference.T2Limit(m.Components(), each), reference.Q.Limit(each)
	return t
}

// whiten replaces variables of statistics whose runs depend on each other by what was not
// expected of them. Runs of which nothing could be expected are left out.
func (t *trained) whiten(runs [][]float64, lots []int) [][]float64 {
	columns := make([]series, len(t.variables))
	for j := range columns {
		columns[j] = make(series, len(runs))
		for i, run := range runs {
			columns[j][i] = run[j]
		}
	}
	t.setCourses(columns, lots)
	if len(t.courses) == 0 {
		return runs
	}

	t.centers, t.sigmas, t.rests = make([]float64, len(columns)), make([]float64, len(columns)), len(runs)
	out := make([]bool, len(runs))
	for j, xs := range columns {
		c := t.each[j]
		if c.Kind == Independent {
			continue
		}
		t.centers[j] = mean(xs)
		residuals := c.residuals(xs, lots, t.centers[j])
		t.sigmas[j], _ = residualSigma(residuals)
		for i, e := range residuals {
			runs[i][j] = e
			out[i] = out[i] || math.IsNaN(e)
		}
	}
	kept := runs[:0]
	for i, run := range runs {
		if !out[i] {
			kept = append(kept, run)
		}
	}
	return kept
}

// setCourses concludes on the courses of variables.
func (t *trained) setCourses(columns []series, lots []int) {
	t.each = make([]Course, len(columns))
	for _, s := range []Statistic{Mean, StdDev, Min, Max, Range, Slope, Area} {
		var all []series
		sensors, last := 0, -1
		for j, v := range t.variables {
			if v.stat != s {
				continue
			}
			if all = append(all, columns[j]); v.svid != last {
				sensors, last = sensors+1, v.svid
			}
		}
		if len(all) == 0 {
			continue
		}
		course := courseOf(s, all, sensors, lots)
		shared := course
		for j, v := range t.variables {
			if v.stat != s {
				continue
			}
			if t.each[j] = shared.own(columns[j]); shared.differs(t.each[j]) {
				course.Own++
			}
		}
		if course.Kind != Independent || course.Own > 0 {
			t.courses = append(t.courses, course)
		}
	}
}

// expect replaces variables of the run at hand likewise; false if nothing can be expected.
func (t *trained) expect(run []float64, basis *basis) bool {
	if len(t.courses) == 0 {
		return true
	}
	points := basis.newest(courseMemory)
	layouts := layoutsOf(points, t.names)
	lots := lotNumbers(points, basis.lot)
	for j, v := range t.variables {
		c := t.each[j]
		if c.Kind == Independent {
			continue
		}
		f := forecast{course: c, center: t.centers[j], rests: t.rests, sigma: t.sigmas[j]}
		f.follow(points, lots, func(i int) (float64, bool) { return v.of(points[i].Chart, layouts[i]) })
		expected, factor, ok := f.next(lots[len(points)], basis.horizon)
		if !ok {
			return false
		}
		run[j] = (run[j] - expected) / factor
	}
	return true
}

// variables are those that every context of the base has, without SVIDs that don't
// move in at least half of them: like the single charts' noise theirs is nothing
// like normal, and a rare move would be most of Q.
func (p MultivariatePolicy) variables(base []Point, layouts []layout, left []string) []variable {
	newest := base[len(base)-1].Chart
	xs := make([]float64, len(base))
	var vs []variable
	for svid, name := range newest.SVIDs {
		if slices.Contains(left, name) {
			continue
		}
		for step := range newest.Steps {
			if still(base, layouts, svid, step) {
				continue
			}
			for _, stat := range p.Statistics {
				v := variable{svid, step, stat, 1}
				if !v.raw(xs, base, layouts) {
					continue
				}
				if stat == StdDev {
					if m := median(xs); m > 0 {
						v.unit = m
					}
				}
				vs = append(vs, v)
			}
		}
	}
	return slices.Clone(vs) // it stays for long, and has grown
}

// still reports whether an SVID doesn't move in a step in half of the base or more.
func still(base []Point, layouts []layout, svid, step int) bool {
	n := 0
	for i := range base {
		point := &base[i]
		if x, _ := layouts[i].value(point.Chart, svid, step, StdDev); x == 0 {
			n++
		}
	}
	return 2*n >= len(base)
}

// raw sets xs to the statistic in each context of the base, and reports whether all
// have it.
func (v variable) raw(xs []float64, base []Point, layouts []layout) bool {
	for i := range base {
		point := &base[i]
		x, ok := layouts[i].value(point.Chart, v.svid, v.step, v.stat)
		if !ok {
			return false
		}
		xs[i] = x
	}
	return true
}

// stillness is added to standard deviations before the logarithm, as a share of
// the usual one: a sensor that rests for a context isn't infinitely unusual.
const stillness = 0.3

// of returns the variable's value in a chart.
func (v variable) of(c *Chart, l layout) (float64, bool) {
	x, ok := l.value(c, v.svid, v.step, v.stat)
	if v.stat == StdDev && ok {
		x = math.Log(x/v.unit + stillness)
	}
	return x, ok && !math.IsInf(x, 0)
}

// run returns the variables of a chart, less their means over the contexts before it
// that are given, or a variable that is missing.
func (t *trained) run(before []Point, layouts []layout, chart *Chart, l layout) ([]float64, *variable) {
	run := make([]float64, len(t.variables))
	for j, v := range t.variables {
		x, ok := v.of(chart, l)
		if !ok {
			return nil, &t.variables[j]
		}
		run[j] = x
		for i := range before {
			point := &before[i]
			y, ok := v.of(point.Chart, layouts[i])
			if !ok {
				return nil, &t.variables[j]
			}
			run[j] -= y / float64(len(before))
		}
	}
	return run, nil
}

// largest lists the largest contributions as shares.
func (t *trained) largest(by []float64, total float64) []Contribution {
	order := make([]int, 0, maxContributions+1) // of few out of many: no need to sort them all
	for i, x := range by {
		at := len(order)
		for at > 0 && math.Abs(by[order[at-1]]) < math.Abs(x) {
			at--
		}
		if at < maxContributions {
			order = slices.Insert(order, at, i)
			order = order[:min(len(order), maxContributions)]
		}
	}
	var list []Contribution
	for _, i := range order {
		share := by[i] / total
		if !(math.Abs(share) <= math.MaxFloat64) || share == 0 {
			break
		}
		v := t.variables[i]
		list = append(list, Contribution{SVID: t.names.SVIDs[v.svid], Step: t.names.Steps[v.step], Statistic: v.stat, Share: share})
	}
	return list
}
