package uchart

import (
	"math"
	"slices"

	"github.com/muster-dev/muster/tchart"
)

// gapFactor says what a gap is: an interval between samples more than this many
// times the trace's mean interval.
const gapFactor = 5

// A Calculator computes charts and reuses its scratch memory. The zero value is
// ready. It isn't safe for concurrent use. Charts share their SVIDs and Steps, so these
// must not be changed.
type Calculator struct {
	rows   []int     // numbers of the rows used, in order; nil if all are
	time   []float64 // their times, since the first
	times  times     // of all rows used
	runs   []run
	steps  []int32
	column []float64 // a column's used rows
	x, t   []float64 // a run's finite samples
	some   times     // and theirs
	sums   []sums    // by step

	// Of the newest chart. Charts of the same tool and recipe share them, which saves memory and
	// makes them quick to compare.
	svids []string
	named []int32
}

// A run is consecutive used rows with the same step.
type run struct{ from, to, step, block int } // block is the first of its times

// Compute returns the chart of a trace. The error is that of
// [tchart.Trace.Validate], or that there are too many steps for a chart.
//
// Each column is read once, in blocks small enough to stay in the processor's
// first cache. The mean and the sums of squares and products about the mean of a
// block are computed in two passes over it, and blocks are merged with the
// formulas of Chan, Golub and LeVeque ("Algorithms for computing the sample
// variance", The American Statistician 37, 1983), for the products with time in
// the form given by Pébay (Sandia report SAND2008-6212). So a large mean with a
// small spread loses no digits, and the order of operations is fixed: the same
// trace gives the same bits everywhere.
//
// Defined results:
//   - A row whose time is not finite (BadTime) or before that of an earlier row
//     (Backward) is left out altogether: it can't be said when it was, and a
//     recorder that runs into the next wafer produces such rows.
//   - A NaN or infinite value (Missing) is left out of its own SVID's statistics.
//     The trapezoids of the area span the hole.
//   - Gaps are counted and spanned likewise.
//   - A step that occurs several times is one step; its area has no trapezoid
//     from one occurrence to the next.
//   - StdDev, Slope and Area need two samples, Slope two different times; what
//     can't be computed, or overflows, is not valid. A constant signal has
//     standard deviation, range and slope 0.
func (c *Calculator) Compute(t *tchart.Trace) (*Chart, error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	if !slices.Equal(c.svids, t.SVIDs) {
		c.svids = slices.Clone(t.SVIDs)
	}
	chart := &Chart{SVIDs: c.svids}
	c.selectRows(t.Time, &chart.Quality)
	c.findRuns(t.Step)
	if !slices.Equal(c.named, c.steps) {
		c.named = slices.Clone(c.steps)
	}
	chart.Steps = c.named
	cells := len(chart.SVIDs) * len(chart.Steps)
	chart.Values = make([]float64, cells*NumStatistics)
	chart.Valid = make([]uint8, cells)
	for svid, column := range t.Values {
		clear(c.sums)
		c.add(c.used(column), &chart.Quality)
		for step := range c.sums {
			c.sums[step].fill(chart, chart.Cell(svid, step))
		}
	}
	return chart, chart.Validate()
}

// Compute returns the chart of a trace; see [Calculator.Compute].
func Compute(t *tchart.Trace) (*Chart, error) {
	var c Calculator
	return c.Compute(t)
}

// selectRows decides which rows are used and what their times are.
func (c *Calculator) selectRows(time []float64, q *Quality) {
	q.Rows = len(time)
	latest, all := math.Inf(-1), true
	c.rows, c.time = c.rows[:0], c.time[:0]
	c.times.reset()
	for i, t := range time {
		switch {
		case math.IsNaN(t) || math.IsInf(t, 0):
			q.BadTime++
			all = false
			continue
		case t < latest:
			q.Backward++
			all = false
			continue
		}
		latest = t
		c.rows = append(c.rows, i)
		c.time = append(c.time, t)
	}
	if n := len(c.time); n > 0 {
		q.Duration = finite(c.time[n-1] - c.time[0])
		mean := q.Duration / float64(max(n-1, 1))
		for i := 1; i < n; i++ {
			dt := c.time[i] - c.time[i-1]
			c.times.half = append(c.times.half, dt/2)
			q.Longest = max(q.Longest, finite(dt))
			if dt > gapFactor*mean {
				q.Gaps++
			}
		}
		first := c.time[0]
		for i := range c.time {
			c.time[i] -= first
		}
	}
	if all {
		c.rows = nil
	}
}

func finite(v float64) float64 { return min(v, math.MaxFloat64) }

// findRuns splits the used rows by step.
func (c *Calculator) findRuns(step []int32) {
	c.runs, c.steps = c.runs[:0], c.steps[:0]
	at := func(i int) int32 {
		if c.rows != nil {
			i = c.rows[i]
		}
		return step[i]
	}
	for i := range c.time {
		s := at(i)
		if n := len(c.runs); n > 0 && c.runs[n-1].step == int(s) {
			c.runs[n-1].to = i + 1
			continue
		}
		c.runs = append(c.runs, run{from: i, to: i + 1, step: int(s)})
		c.steps = append(c.steps, s)
	}
	slices.Sort(c.steps)
	c.steps = slices.Compact(c.steps)
	for i := range c.runs {
		r := &c.runs[i]
		r.step, _ = slices.BinarySearch(c.steps, int32(r.step))
		r.block = len(c.times.blocks)
		c.times.add(c.time[r.from:r.to])
	}
	c.sums = slices.Grow(c.sums[:0], len(c.steps))[:len(c.steps)]
}

// used returns the used rows of a column.
func (c *Calculator) used(column []float64) []float64 {
	if c.rows == nil {
		return column
	}
	c.column = c.column[:0]
	for _, i := range c.rows {
		c.column = append(c.column, column[i])
	}
	return c.column
}

func (c *Calculator) add(column []float64, q *Quality) {
	for _, r := range c.runs {
		s, x := &c.sums[r.step], column[r.from:r.to]
		before := *s
		if s.addRun(x, c.times.of(r)) || allFinite(x) {
			continue
		}

		*s = before
		q.Missing += len(x)
		x = c.finiteOnly(x, c.time[r.from:r.to])
		q.Missing -= len(x)
		s.addRun(x, c.some)
	}
}

// allFinite relies on NaN and infinities surviving a sum; a sum of finite
// values that overflows only leads to the slower way.
func allFinite(x []float64) bool {
	var a, b, c, d float64
	for ; len(x) >= 4; x = x[4:] {
		a += x[0] - x[0]
		b += x[1] - x[1]
		c += x[2] - x[2]
		d += x[3] - x[3]
	}
	for _, v := range x {
		a += v - v
	}
	return a+b+c+d == 0
}

// finiteOnly returns the finite values of a run and sets their times.
func (c *Calculator) finiteOnly(x, t []float64) []float64 {
	c.x, c.t = c.x[:0], c.t[:0]
	c.some.reset()
	for i, v := range x {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		if n := len(c.t); n > 0 {
			c.some.half = append(c.some.half, (t[i]-c.t[n-1])/2)
		}
		c.x = append(c.x, v)
		c.t = append(c.t, t[i])
	}
	c.some.add(c.t)
	return c.x
}
