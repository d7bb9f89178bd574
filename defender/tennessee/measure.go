package main

import "github.com/muster-dev/muster/defender/uchart"

// counts are what judged runs gave.
type counts struct {
	runs, alarms  int // by the defender
	single, t2, q int // runs on which single charts, T² and Q raised the alarm
	learning      int
	plainRuns     int // alarms by the plain model of runs
	plainSamples  int // alarms by the plain model of samples
	over, samples int // samples over the limits of that, and all
}

func (c *counts) add(v uchart.Verdict, r run, p *plains) {
	if v.State == uchart.Learning {
		c.learning++
		return
	}
	c.runs++
	if v.Flagged() {
		c.alarms++
	}
	if v.Violated > 0 {
		c.single++
	}
	if m := v.Multivariate; m != nil && m.T2 > m.T2Limit {
		c.t2++
	}
	if m := v.Multivariate; m != nil && m.Q > m.QLimit {
		c.q++
	}
	if p.runs.out(featuresOf(r)) {
		c.plainRuns++
	}
	over := p.over(r)
	if over >= enough {
		c.plainSamples++
	}
	c.over, c.samples = c.over+over, c.samples+len(r.trace.Time)
}

func (c *counts) plus(d counts) {
	c.runs, c.alarms, c.learning = c.runs+d.runs, c.alarms+d.alarms, c.learning+d.learning
	c.single, c.t2, c.q = c.single+d.single, c.t2+d.t2, c.q+d.q
	c.plainRuns, c.plainSamples = c.plainRuns+d.plainRuns, c.plainSamples+d.plainSamples
	c.over, c.samples = c.over+d.over, c.samples+d.samples
}

// measured is what a course gave.
type measured struct {
	early, late counts // undisturbed runs up to learning, and after it
	disturbed   map[int]outcome
	courses     map[string]int // judged runs by the course of means
	episodes    int            // false alarms that follow no other
	leads       map[string]int // false alarms by the sensor that is most out
}

// outcome is how a disturbance was met.
type outcome struct {
	counts
	runs         int // before the plant tripped, or until the end
	first, plain int // run with the first alarm, of the defender and of the plain model of samples; 0: none
}

func measure(c *course) (measured, error) {
	m := measured{disturbed: map[int]outcome{}, courses: map[string]int{}, leads: map[string]int{}}
	p, err := trainBoth(c)
	if err != nil {
		return m, err
	}
	h, alarmed := newHistory(), false
	for i, r := range c.undisturbed {
		v := h.judge(r)
		if v.Flagged() {
			m.leads[lead(v)]++
			if !alarmed {
				m.episodes++
			}
		}
		alarmed = v.Flagged()
		if i < learning {
			m.early.add(v, r, &p)
			continue
		}
		m.late.add(v, r, &p)
		m.courses[courseOf(v)]++
	}
	for number, runs := range c.disturbed {
		m.disturbed[number] = meet(h.after(c.onset), runs, &p)
	}
	return m, nil
}

// lead names the sensor that is most out.
func lead(v uchart.Verdict) string {
	switch m := v.Multivariate; {
	case v.Violated > 0:
		return v.Violations[0].SVID
	case m != nil && len(m.By) > 0:
		return m.By[0].SVID
	}
	return "bad data"
}

// courseOf is the course that means of most sensors have in T² and Q.
func courseOf(v uchart.Verdict) string {
	if v.Multivariate == nil {
		return "no model"
	}
	for _, c := range v.Multivariate.Courses {
		if c.Statistic == uchart.Mean && c.Kind != uchart.Independent {
			return string(c.Kind)
		}
	}
	return "none"
}

// meet has a defender judge the runs of a disturbance.
func meet(h *history, runs []run, p *plains) outcome {
	o := outcome{runs: len(runs)}
	for i, r := range runs {
		v := h.judge(r)
		o.add(v, r, p)
		if v.Flagged() && o.first == 0 {
			o.first = i + 1
		}
		if o.plain == 0 && p.over(r) >= enough {
			o.plain = i + 1
		}
	}
	return o
}
