package uchart

import "math"

// singles are the single charts of a context that can be judged, in a fixed order, with
// their limits left open.
type singles struct {
	list    []Violation
	courses []Course // those that aren't independent, or not of all charts
	tail    Tail
	unknown int // charts of which nothing can be expected yet
}

// A gathered chart has its values in the contexts that limits rest on.
type gathered struct {
	Violation
	svid, step int
	noise      noise
	values     series
	whole      bool // all contexts have a value
}

// distances returns the single charts that can be judged; perhaps only those of SVIDs that
// never moved.
func (p Policy) distances(points []Point, chart *Chart, resting bool, lot string, horizon int, models *modelCache) singles {
	layouts := layoutsOf(points, chart)
	charts := p.gather(points, layouts, chart, resting)
	lots := lotNumbers(points, lot)
	var out singles
	courses := make([]Course, len(charts))
	if !resting && !p.NoCourses {
		out.courses, courses = coursesOf(p.Statistics, charts, lots[:len(points)])
	}

	far := make([]float64, len(points))
	out.list = make([]Violation, 0, len(charts))
	for i := range charts {
		c := &charts[i]
		var center, sigma, factor float64
		if courses[i].Kind != Independent {
			e := estimateCourse(courses[i], c.values, lots)
			var ok bool
			if center, factor, ok = e.expect(c.values, lots, horizon); !ok {
				out.unknown++
				continue
			}
			sigma = max(e.sigma, c.noise.of(c.Statistic)) * math.Sqrt(1+1/float64(e.n))
			leftOut(far, e.residuals, true, c.noise.of(c.Statistic))
			sigma *= factor
		} else {
			center, sigma = individuals(c.values)
			sigma = max(sigma, c.noise.of(c.Statistic))
			if c.noise.spread == 0 && c.Statistic == Mean {
				sigma = max(sigma, restingSigma(points, layouts, chart, c.svid, c.step))
			}
			sigma *= math.Sqrt(1 + 1/float64(len(c.values)))
			if c.whole && !c.noise.still {
				leftOut(far, c.values, false, c.noise.of(c.Statistic))
			}
		}
		if math.IsInf(sigma, 0) || math.IsNaN(sigma) || math.IsNaN(center) || math.IsInf(center, 0) {
			continue
		}
		c.Center, c.Upper, c.Sigmas = center, sigma, sigmas(c.Value-center, sigma)
		out.list = append(out.list, c.Violation)
	}
	out.tail = tailOf(far, normals{Charts: len(out.list), Contexts: len(points)}, models)
	return out
}

// gather returns the charts with their values in earlier contexts.
func (p Policy) gather(points []Point, layouts []layout, chart *Chart, resting bool) []gathered {
	charts := make([]gathered, 0, len(chart.SVIDs)*len(chart.Steps)*len(p.Statistics))
	room := make([]float64, 0, cap(charts)*len(points))
	cells := make([]int, len(points)) // of the SVID and step in each point; -1 where it has none
	for svid := range chart.SVIDs {
		for step := range chart.Steps {
			noise := withinNoise(points, layouts, chart, svid, step)
			for i, l := range layouts {
				if cells[i] = -1; l.svids[svid] >= 0 && l.steps[step] >= 0 {
					cells[i] = points[i].Chart.Cell(l.svids[svid], l.steps[step])
				}
			}
			for _, s := range p.Statistics {
				value, ok := chart.Value(svid, step, s)
				if !ok || noise.still && s != Mean || resting && (!noise.still || noise.spread > 0) {
					continue
				}
				from := len(room)
				for i, cell := range cells {
					if c := points[i].Chart; cell >= 0 && c.Valid[cell]&(1<<s) != 0 {
						room = append(room, c.Values[cell*NumStatistics+int(s)])
					}
				}
				xs := room[from:len(room):len(room)]
				if len(xs) < p.MinHistory {
					continue
				}
				charts = append(charts, gathered{
					Violation: Violation{SVID: chart.SVIDs[svid], Step: chart.Steps[step], Statistic: s, Value: value},
					svid:      svid, step: step, noise: noise, values: xs, whole: len(xs) == len(points),
				})
			}
		}
	}
	return charts
}

// coursesOf returns the courses of statistics whose runs depend on each other, in some charts
// at least, and that of each chart. A chart that some contexts lack has none.
func coursesOf(statistics []Statistic, charts []gathered, lots []int) (courses, each []Course) {
	each = make([]Course, len(charts))
	all := make([]series, 0, len(charts))
	for _, s := range statistics {
		all = all[:0]
		sensors, last := 0, -1
		for i := range charts {
			c := &charts[i]
			if c.Statistic != s || !c.whole || c.noise.still {
				continue
			}
			if all = append(all, c.values); c.svid != last {
				sensors, last = sensors+1, c.svid
			}
		}
		if len(all) == 0 {
			continue
		}
		course := courseOf(s, all, sensors, lots)
		shared := course
		for i := range charts {
			c := &charts[i]
			if c.Statistic != s || !c.whole {
				continue
			}
			if each[i] = shared; !c.noise.still {
				each[i] = shared.own(c.values)
			}
			if shared.differs(each[i]) {
				course.Own++
			}
		}
		if course.Kind != Independent || course.Own > 0 {
			courses = append(courses, course)
		}
	}
	return courses, each
}

// courseEstimate is what the contexts that limits rest on tell of a chart with a course.
type courseEstimate struct {
	course        Course
	center, sigma float64
	n             int
	residuals     []float64
}

func estimateCourse(c Course, xs series, lots []int) courseEstimate {
	e := courseEstimate{course: c, center: mean(xs)}
	e.residuals = c.residuals(xs, lots, e.center)
	e.sigma, e.n = residualSigma(e.residuals)
	return e
}

// expect returns what the next value is expected to be; lots end with that of the context
// at hand.
func (e *courseEstimate) expect(xs series, lots []int, horizon int) (center, factor float64, ok bool) {
	f := forecast{course: e.course, center: e.center, rests: len(xs), sigma: e.sigma}
	for i, x := range xs {
		f.add(x, lots[i])
	}
	return f.next(lots[len(lots)-1], horizon)
}
