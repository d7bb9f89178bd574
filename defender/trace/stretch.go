package trace

import (
	"math"

	"github.com/muster-dev/muster/tchart"
)

// columnar are rows that lie in memory by column, so that many can be taken at once. The methods
// that append take the n rows after the one at hand; they report false if one of them isn't what it
// should be.
type columnar interface {
	rows
	// alike returns how many rows, at least, follow with the texts of the row at hand in these fields.
	alike(fields []int) int
	numbers(field, n int, to []float64) ([]float64, bool)
	times(field, n int, to []float64) ([]float64, bool)
	wholes(field, n int, to []int64) ([]int64, bool)
	// skip goes n rows on, at most as many as alike has returned.
	skip(n int)
}

// stretches takes rows of a wafer many at once.
type stretches struct {
	rows   columnar // nil if the file is read row by row
	fields []int    // that rows of a wafer have in common
	single int      // rows that are to be read one by one
	steps  []int64  // scratch
}

func newStretches(table rows, columns [roles]int) stretches {
	s := stretches{}
	s.rows, _ = table.(columnar)
	for _, role := range append(keyRoles[:], faultRole) {
		if at := columns[role]; at >= 0 {
			s.fields = append(s.fields, at)
		}
	}
	return s
}

// stretch adds the rows after the one at hand that belong to the same wafer, as far as they are at
// hand, too. If one of them has a problem it adds none, and they are read one by one: that tells
// which row and column it is.
func (r *Reader) stretch() {
	s := &r.stretches
	if s.rows == nil || r.next == nil || len(r.problems.List) > 0 {
		return
	}
	if s.single > 0 {
		s.single--
		return
	}

	t := &r.next.Trace
	before := len(t.Time)
	room := min(tchart.MaxRows, tchart.MaxPoints/len(t.SVIDs)) - before
	n := min(s.rows.alike(s.fields), room)
	if n <= 0 {
		return
	}
	if !r.take(t, n) {
		s.single = n
		t.Time, t.Step = t.Time[:before], t.Step[:before]
		for i := range t.Values {
			t.Values[i] = t.Values[i][:before]
		}
		return
	}
	s.rows.skip(n)
}

// take appends n rows to a trace, and reports whether all have times, steps and numbers. If not, it
// leaves columns of different lengths.
func (r *Reader) take(t *tchart.Trace, n int) (ok bool) {
	table := r.stretches.rows
	before := len(t.Time)
	if t.Time, ok = table.times(r.columns[timeRole], n, t.Time); !ok {
		return false
	}
	for _, at := range t.Time[before:] {
		if math.IsNaN(at) || math.IsInf(at, 0) {
			return false
		}
	}
	if t.Step, ok = r.takeSteps(t.Step, n); !ok {
		return false
	}
	for i, field := range r.sensors {
		if t.Values[i], ok = table.numbers(field, n, t.Values[i]); !ok {
			return false
		}
	}
	return true
}

// takeSteps appends the steps of n rows.
func (r *Reader) takeSteps(to []int32, n int) ([]int32, bool) {
	at := r.columns[stepRole]
	if at < 0 {
		for range n {
			to = append(to, 1)
		}
		return to, true
	}

	s := &r.stretches
	var ok bool
	s.steps, ok = s.rows.wholes(at, n, s.steps[:0])
	for _, step := range s.steps {
		if step != int64(int32(step)) {
			return to, false
		}
		to = append(to, int32(step))
	}
	return to, ok
}
