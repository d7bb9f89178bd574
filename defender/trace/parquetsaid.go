package trace

import (
	"math"

	"github.com/parquet-go/parquet-go/encoding"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// said is what the values of a page, or those of its dictionary, say as numbers, times or integers.
// Each value is converted once, however many rows have it: readings of a sensor repeat. It is made
// when it is first asked for, and holds until the values are others.
type said[T any] struct {
	made   bool
	values []T
	wrong  []bool // of values that say no such thing; empty if there are none
}

// forget has it made again for other values. The memory stays.
func (s *said[T]) forget() { s.made = false }

// of converts all values of a page, unless they are converted.
func (s *said[T]) of(p *parquetPage, convert func(i int) (T, bool)) {
	if s.made {
		return
	}
	n := p.distinct()
	s.made, s.values, s.wrong = true, s.values[:0], s.wrong[:0]
	for i := range n {
		v, ok := convert(i)
		s.values = append(s.values, v)
		if !ok && len(s.wrong) == 0 {
			s.wrong = append(s.wrong, make([]bool, n)...)
		}
		if !ok {
			s.wrong[i] = true
		}
	}
}

// take appends what n rows from a place on say, and reports whether all say such a thing. A row
// without a value says what missing does.
func (s *said[T]) take(p *parquetPage, at place, n int, missing func() (T, bool), to []T) ([]T, bool) {
	if p.whole && p.codes == nil && len(s.wrong) == 0 {
		return append(to, s.values[at.value:at.value+n]...), true
	}
	if p.whole && len(s.wrong) == 0 {
		for _, code := range p.codes[at.value : at.value+n] {
			to = append(to, s.values[code])
		}
		return to, true
	}

	nothing, allowed := missing()
	for range n {
		if p.null(at) {
			if !allowed {
				return to, false
			}
			to, at.row = append(to, nothing), at.row+1
			continue
		}
		i := at.value
		if p.codes != nil {
			i = int(p.codes[i])
		}
		if len(s.wrong) > 0 && s.wrong[i] {
			return to, false
		}
		to, at = append(to, s.values[i]), place{at.row + 1, at.value + 1}
	}
	return to, true
}

// parquetSaid is what the values of a column's page say as each of the types that are asked for.
type parquetSaid struct {
	numbers, times said[float64]
	wholes         said[int64]
}

func (s *parquetSaid) forget() {
	s.numbers.forget()
	s.times.forget()
	s.wholes.forget()
}

func noNumber() (float64, bool) { return cells.Cell{}.AsNumber() }

func noTime() (float64, bool) { return seconds(cells.Cell{}) }

func noWhole() (int64, bool) { return cells.Cell{}.AsWhole() }

// numbers appends what the n rows after the one at hand say, and reports whether all are numbers.
func (c *parquetColumn) numbers(n int, to []float64) ([]float64, bool) {
	from := c.page.after(c.at, 1)
	if c.page.values.Kind() == encoding.Double {
		return c.page.doubles(from, n, to), true
	}
	c.said.numbers.of(&c.page, func(i int) (float64, bool) { return c.convert(c.page.entry(i)).AsNumber() })
	return c.said.numbers.take(&c.page, from, n, noNumber, to)
}

// times is numbers of times; a missing one is NaN, which the caller rejects.
func (c *parquetColumn) times(n int, to []float64) ([]float64, bool) {
	from := c.page.after(c.at, 1)
	if c.page.values.Kind() == encoding.Double {
		return c.page.doubles(from, n, to), true
	}
	c.said.times.of(&c.page, func(i int) (float64, bool) { return seconds(c.convert(c.page.entry(i))) })
	return c.said.times.take(&c.page, from, n, noTime, to)
}

// wholes is numbers of integers.
func (c *parquetColumn) wholes(n int, to []int64) ([]int64, bool) {
	c.said.wholes.of(&c.page, func(i int) (int64, bool) { return c.convert(c.page.entry(i)).AsWhole() })
	return c.said.wholes.take(&c.page, c.page.after(c.at, 1), n, noWhole, to)
}

// doubles appends n values from a place on, NaN where a row has none.
func (p *parquetPage) doubles(from place, n int, to []float64) []float64 {
	values := p.values.Double()
	switch {
	case p.whole && p.codes == nil:
		return append(to, values[from.value:from.value+n]...)
	case p.whole:
		for _, code := range p.codes[from.value : from.value+n] {
			to = append(to, values[code])
		}
		return to
	}
	for range n {
		if p.null(from) {
			to, from.row = append(to, math.NaN()), from.row+1
			continue
		}
		i := from.value
		if p.codes != nil {
			i = int(p.codes[i])
		}
		to, from = append(to, values[i]), place{from.row + 1, from.value + 1}
	}
	return to
}
