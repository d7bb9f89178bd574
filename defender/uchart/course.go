package uchart

import (
	"math"
	"slices"
)

// CourseKind is how the values of a statistic depend on those of the runs before.
type CourseKind string

// The kinds of courses.
const (
	Independent    CourseKind = ""               // they don't
	Autoregressive CourseKind = "autoregressive" // a part of the distance from the center remains
	Wandering      CourseKind = "wandering"      // the level itself moves: seasoning, drift
	InLots         CourseKind = "lots"           // runs of a lot have a part in common
)

// Course says what the value of the next run is expected to be, by those before it. One
// course holds for all charts of a statistic, but for those that clearly contradict it: what
// one chart can't tell from few runs, all of them together can. Limits are then limits of what is unexpected, an alarm less often
// for a process whose runs depend on each other.
type Course struct {
	Statistic Statistic  `json:"statistic"`
	Kind      CourseKind `json:"kind"`
	// Phi is the share of the distance from the center that remains in the next run, of an
	// autoregressive course.
	Phi float64 `json:"phi,omitempty"`
	// Weight is that of the newest value in the level of a chart's own wandering course, where it
	// isn't the usual one.
	Weight float64 `json:"weight,omitempty"`
	// Between is the variance of lots over that of the runs of a lot, and Lots how many it
	// rests on. With fewer than two it is unknown: a lot is judged by its own runs alone, and
	// its first run isn't judged.
	Between float64 `json:"between,omitempty"`
	Lots    int     `json:"lots,omitempty"`
	// Own is how many charts of the statistic have a course of their own instead.
	Own int `json:"own,omitempty"`

	single bool // it is one chart's own, estimated from its few values
}

// The constants of courses.
const (
	courseCharts   = 60   // charts that a course is concluded from at most: more say the same
	courseContexts = 10   // fewest contexts that a course is concluded from
	wanderWeight   = 0.2  // weight of the newest value in the level of a wandering course (Hunter 1986)
	wanderStart    = 5    // values that the level starts from
	leastGain      = 0.07 // of the variance that an autoregressive forecast has to explain
	blockContexts  = 10   // contexts of a block by whose means a wandering level is recognized
	leastPhi       = 0.2
	mostPhi        = 0.98
	courseErrors   = 2.0 // standard errors of independent runs that dependence has to exceed besides
	leastBetween   = 0.1 // ratio of variances below which lots don't matter
	leastPerLot    = 3   // mean runs of a lot: below, the name of the lot says little
	horizonMost    = 25  // runs after which a forecast becomes no vaguer: a lasting fault must stay one
)

// A series is the values of one chart in the contexts that limits rest on, oldest first.
// All series of a course are of the same contexts.
type series []float64

// courseOf concludes on the course of a statistic from its charts, which are those of that
// many sensors. Lots are numbered as lotNumbers does.
func courseOf(s Statistic, all []series, sensors int, lots []int) Course {
	c := Course{Statistic: s}
	if len(lots) < courseContexts {
		return c
	}
	if every := (len(all) + courseCharts - 1) / courseCharts; every > 1 {
		some := make([]series, 0, courseCharts)
		for i := 0; i < len(all); i += every {
			some = append(some, all[i])
		}
		all, sensors = some, min(sensors, len(some))
	}
	if count := lotCount(lots); count > 0 && len(lots) >= leastPerLot*count {
		c.Lots = count
		if count < 2 {
			c.Kind = InLots
			return c
		}
		if c.Between = between(all, lots); c.Between >= leastBetween {
			c.Kind = InLots
			return c
		}
		c.Between, c.Lots = 0, 0
	}
	c.serial(all, sensors)
	return c
}

// serial chooses the forecast that explains most of the variance, if that is enough.
func (c *Course) serial(all []series, sensors int) {
	var phi, n float64
	for _, xs := range all {
		if rho, ok := xs.correlation(); ok {
			phi += rho
			n++
		}
	}
	if n == 0 {
		return
	}
	runs := float64(len(all[0]))
	phi = unbiased(phi/n, runs)
	// Few sensors tell little: by chance alone their charts depend on each other by this much.
	chance := courseErrors / math.Sqrt(float64(sensors))
	least := 1.0
	if of := blocks(len(all[0])); between(all, of) >= leastBetween+chance*blockError(of) {
		least, c.Kind = Course{Kind: Wandering}.unexplained(all), Wandering
	}
	if phi < leastPhi+chance/math.Sqrt(runs) {
		return
	}
	if left := (Course{Kind: Autoregressive, Phi: phi}).unexplained(all); left < min(least, 1-leastGain) {
		c.Kind, c.Phi = Autoregressive, phi
	}
}

// blocks numbers successive contexts by blocks. Means of blocks differ far more where the
// level moves slowly than successive values depend on each other.
func blocks(n int) []int {
	count := n / blockContexts
	out := make([]int, n)
	for i := range out {
		out[i] = i * count / n
	}
	return out
}

// blockError is about the standard deviation of between for one chart of independent runs:
// that of chi-square over its degrees of freedom, over the runs of a block.
func blockError(blocks []int) float64 {
	count := lotCount(blocks)
	if count < 2 {
		return math.Inf(1)
	}
	return math.Sqrt(2/float64(count-1)) * float64(count) / float64(len(blocks))
}

// unexplained returns the share of the variance that the forecasts leave, over all charts.
func (c Course) unexplained(all []series) float64 {
	var sum, n float64
	var out []float64
	for _, xs := range all {
		center := mean(xs)
		if out == nil {
			out = make([]float64, len(xs))
		}
		c.serialResiduals(out, xs, center)
		var left, total float64
		for i, e := range out {
			if i < wanderStart || math.IsNaN(e) {
				continue
			}
			d := xs[i] - center
			left += float64(e * e)
			total += float64(d * d)
		}
		if total > 0 {
			sum += left / total
			n++
		}
	}
	if n == 0 {
		return 1
	}
	return sum / n
}

// between returns the variance of lots over that within them (one-way analysis of
// variance, random effects), over all charts.
func between(all []series, lots []int) float64 {
	count := lotCount(lots)
	if count < 2 {
		return 0
	}
	sizes := make([]float64, count)
	for _, l := range lots {
		sizes[l]++
	}
	runs, squares := float64(len(lots)), 0.0
	for _, n := range sizes {
		squares += float64(n * n)
	}
	typical := (runs - squares/runs) / float64(count-1)
	freedom := runs - float64(count)
	if freedom < 3 {
		return 0
	}

	var ratios, n float64
	means := make([]float64, count)
	for _, xs := range all {
		clear(means)
		for i, x := range xs {
			means[lots[i]] += (x - xs[0]) / sizes[lots[i]]
		}
		grand := 0.0
		for l, m := range means {
			grand += m * sizes[l] / runs
		}
		var within, across float64
		for i, x := range xs {
			d := x - xs[0] - means[lots[i]]
			within += float64(d * d)
		}
		for l, m := range means {
			across += float64(sizes[l] * float64((m-grand)*(m-grand)))
		}
		if within > 0 {
			ratios += across / float64(count-1) / (within / freedom) * (freedom - 2) / freedom
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return max(0, (ratios/n-1)/typical)
}

// residuals returns what each value has that wasn't expected by those before it, on the
// scale of a forecast of the next value by many; NaN where nothing can be expected.
func (c Course) residuals(xs series, lots []int, center float64) []float64 {
	out := make([]float64, len(xs))
	if c.Kind != InLots {
		c.serialResiduals(out, xs, center)
		return out
	}
	f := forecast{course: c, center: center, rests: len(xs)}
	for i, x := range xs {
		l := 0
		if lots != nil {
			l = lots[i]
		}
		expected, factor, ok := f.next(l, 1)
		if out[i] = math.NaN(); ok {
			out[i] = (x - expected) / factor
		}
		f.add(x, l)
	}
	return out
}

// serialResiduals is residuals of a course that isn't by lots. A forecast of the next value
// deviates by one sigma of it, and needs no more than the value or level before: choosing
// courses makes thousands of them.
func (c Course) serialResiduals(out, xs []float64, center float64) {
	switch c.Kind {
	case Autoregressive:
		last := math.NaN()
		for i, x := range xs {
			out[i] = x - (center + float64(c.Phi*(last-center)))
			last = x
		}
	case Wandering:
		f := forecast{course: c}
		for i, x := range xs {
			if out[i] = x - f.last; i < wanderStart {
				out[i] = math.NaN()
			}
			f.add(x, 0)
		}
	default:
		for i, x := range xs {
			out[i] = x - center
		}
	}
}

// A forecast follows a chart from value to value.
type forecast struct {
	course Course
	center float64
	rests  int     // values that the center is the mean of
	sigma  float64 // of a forecast of the next value; 0: unknown
	n      int
	last   float64 // value of an autoregressive course, level of a wandering one
	lot    int     // number of the newest value's lot
	inLot  float64 // values of it
	sum    float64 // of them, less the center
}

// add takes the next value in.
func (f *forecast) add(x float64, lot int) {
	if f.n == 0 || lot != f.lot {
		f.lot, f.inLot, f.sum = lot, 0, 0
	}
	f.inLot++
	f.sum += x - f.center
	switch {
	case f.course.Kind != Wandering:
		f.last = x
	case f.n < wanderStart:
		f.last += (x - f.last) / float64(f.n+1)
	default:
		f.last += f.course.weight() * (x - f.last)
	}
	f.n++
}

// follow takes in the values of the contexts at hand, as of returns them.
func (f *forecast) follow(points []Point, lots []int, of func(i int) (float64, bool)) {
	from := 0
	if f.course.Kind == Autoregressive {
		// The newest value alone counts.
		for from = len(points) - 1; from > 0; from-- {
			if _, ok := of(from); ok {
				break
			}
		}
		from = max(from, 0)
	}
	for i := from; i < len(points); i++ {
		if x, ok := of(i); ok {
			f.add(x, lots[i])
		}
	}
}

// next returns what the value that many runs later is expected to be, and how many sigmas
// of a forecast of the next one its deviation is; false if nothing can be expected.
func (f *forecast) next(lot, horizon int) (expected, factor float64, ok bool) {
	h := float64(min(horizon, horizonMost))
	switch c := f.course; c.Kind {
	case Autoregressive:
		if f.n == 0 {
			return 0, 0, false
		}
		expected, factor = c.later(f.last-f.center, h, float64(f.rests))
		return f.center + expected, math.Hypot(factor, f.leverage(h)), true
	case Wandering:
		if f.n < wanderStart {
			return 0, 0, false
		}
		w := c.weight()
		return f.last, math.Sqrt(1 + (h-1)*float64(w*w)), true
	case InLots:
		inLot, sum := f.inLot, f.sum
		if f.n == 0 || lot != f.lot {
			inLot, sum = 0, 0
		}
		return c.inLot(f.center, inLot, sum)
	}
	return f.center, 1, true
}

// weight is that of the newest value in the level of a wandering course.
func (c Course) weight() float64 {
	if c.Weight > 0 {
		return c.Weight
	}
	return wanderWeight
}

// leverage is the part that an estimated phi has in the deviation of a forecast, in sigmas of a
// forecast of the next value (Fuller and Hasza, "Properties of predictors for autoregressive
// time series", Journal of the American Statistical Association 76, 1981). It grows with the
// distance from the center: of how a sensor returns from where it never was, its values tell
// little. Where all charts tell phi together, it is known far better.
func (f *forecast) leverage(horizon float64) float64 {
	c := f.course
	if !c.single || !(f.sigma > 0) || f.rests < 2 {
		return 0
	}
	slope := horizon * math.Pow(c.Phi, horizon-1) // of phi^horizon
	deviation := math.Sqrt((1 - float64(c.Phi*c.Phi)) / float64(f.rests))
	return slope * deviation * math.Abs(f.last-f.center) / f.sigma
}

// later expects the value some runs after one of an autoregressive course, as distances from
// a center that is the mean of some values. The longer the runs depend on each other, the
// less is known of the center, to which the forecast returns. Limits are multiplied by
// sqrt(1+1/values) besides, which is the center's part in a forecast of the next value.
func (c Course) later(last, horizon, values float64) (expected, factor float64) {
	remains := math.Pow(c.Phi, horizon)
	variance := (1 - float64(remains*remains)) / (1 - float64(c.Phi*c.Phi))
	returns := (1 - remains) / (1 - c.Phi)
	ofCenter := float64(returns*returns) / values
	return remains * last, math.Sqrt((variance + ofCenter) / (1 + 1/values))
}

// inLot expects the next value of a lot that has n values with that sum of distances from
// the center: the best linear prediction (Robinson, "That BLUP is a good thing",
// Statistical Science 6, 1991), with allowance for the center, which is that of few lots.
func (c Course) inLot(center, n, sum float64) (expected, factor float64, ok bool) {
	if c.Lots < 2 {
		if n == 0 {
			return 0, 0, false
		}
		return center + sum/n, math.Sqrt(1 + 1/n), true
	}
	weight := n * c.Between / (1 + n*c.Between)
	if n > 0 {
		expected = weight * sum / n
	}
	ofCenter := float64((1-weight)*(1-weight)) * c.Between / float64(c.Lots)
	return center + expected, math.Sqrt(1 + c.Between*(1-weight) + ofCenter), true
}

// marginal is the standard deviation of single values in sigmas of a forecast.
func (c Course) marginal() float64 {
	switch c.Kind {
	case Autoregressive:
		return 1 / math.Sqrt(1-float64(c.Phi*c.Phi))
	case InLots:
		return math.Sqrt(1 + c.Between)
	}
	return 1
}

// correlation returns that of successive values, and false of a constant.
func (xs series) correlation() (float64, bool) {
	center := mean(xs)
	var products, squares float64
	for i, x := range xs {
		squares += float64((x - center) * (x - center))
		if i > 0 {
			products += float64((x - center) * (xs[i-1] - center))
		}
	}
	return products / squares, squares > 0
}

// mean shifts by the first value, for the last digits.
func mean(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += x - xs[0]
	}
	return xs[0] + sum/float64(len(xs))
}

// lotNumbers numbers the lots of points by their first run, from 0; that of the context
// at hand follows as the last. Runs without a lot are told by -1 in all places: a course is
// by lots only if all runs have one.
func lotNumbers(points []Point, lot string) []int {
	numbers := make([]int, len(points)+1)
	known := map[string]int{}
	for i := range numbers {
		name := lot
		if i < len(points) {
			name = points[i].Lot
		}
		if name == "" {
			for j := range numbers {
				numbers[j] = -1
			}
			return numbers
		}
		number, ok := known[name]
		if !ok {
			number = len(known)
			known[name] = number
		}
		numbers[i] = number
	}
	return numbers
}

// lotCount returns how many lots there are; 0 if runs have none.
func lotCount(lots []int) int {
	if len(lots) == 0 {
		return 0
	}
	return slices.Max(lots) + 1
}

// residualSigma returns the standard deviation of a forecast of the next value, by moving
// ranges of the residuals, and how many it rests on.
func residualSigma(residuals []float64) (sigma float64, n int) {
	known := make([]float64, 0, len(residuals))
	for _, e := range residuals {
		if !math.IsNaN(e) {
			known = append(known, e)
		}
	}
	if len(known) < 2 {
		return math.NaN(), len(known)
	}
	_, sigma = individuals(known)
	return sigma, len(known)
}

// horizonIn returns how many contexts after the newest point the one at hand is.
func (b *basis) horizonIn(history []Point) int {
	if len(b.points) == 0 {
		return 1
	}
	newest := b.points[len(b.points)-1].Context
	h := 1
	for _, p := range slices.Backward(history) {
		if p.Context == newest {
			return h
		}
		h++
	}
	return h
}
