package ingest

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/defender/internal/cells"
)

// times takes the time column: timestamps, or numbers in some unit. Numbers count from the
// start of the run, or, where the request doesn't say when that was, from 1970.
type times struct {
	unit   int64 // nanoseconds that 1 stands for
	stamps bool  // else numbers
	floats []float64
	wholes []int64 // in nanoseconds; of numbers in the unit
	exact  []bool  // wholes holds the number: it is an integer
}

func (s *times) add(c cells.Cell) string {
	c = c.Typed()
	const fix = ": write numbers, as 12.5, or timestamps, as 2026-03-01T12:00:00Z"
	switch c.Kind {
	case cells.Null:
		return "is missing: every row needs a time"
	case cells.Text:
		return quoted(c.Text) + " is not a time" + fix
	case cells.Number:
		if math.IsNaN(c.Float) || math.IsInf(c.Float, 0) {
			return c.String() + " is not a time" + fix
		}
	case cells.Integer, cells.Stamp:
	}
	if isStamp := c.Kind == cells.Stamp; len(s.wholes) == 0 {
		s.stamps = isStamp
	} else if s.stamps != isStamp {
		return quoted(c.String()) + " is a number among timestamps, or the reverse: write one of both in all rows"
	}

	s.wholes = append(s.wholes, c.Whole)
	if s.stamps {
		return ""
	}
	s.exact = append(s.exact, c.Kind == cells.Integer)
	if c.Kind == cells.Integer {
		s.floats = append(s.floats, float64(c.Whole))
	} else {
		s.floats = append(s.floats, c.Float)
	}
	return ""
}

// absoluteFrom is the least number of seconds that can stand for a time since 1970: March 1973.
const absoluteFrom = 1e8

// clock is when the rows of a run were sampled.
type clock struct {
	seconds    []float64 // from the earliest row, or as they stand if the request gave the start
	start, end time.Time
}

// clock returns the times of all rows. start is the one that the request gives, zero if none. What is
// wrong is returned with the name of its parameter or column.
func (s *times) clock(column string, start time.Time) (clock, error) {
	switch {
	case len(s.wholes) == 0:
		return clock{}, problem(column, "has no row: send at least one sample")
	case s.stamps && !start.IsZero():
		return clock{}, problem("start", "is given, and column %q has timestamps: leave start out", column)
	case s.stamps:
		return absolute(s.wholes), nil
	case start.IsZero():
		return s.sinceEpoch(column)
	}
	return s.relative(column, start)
}

// relative returns times that count from a start.
func (s *times) relative(column string, start time.Time) (clock, error) {
	perSecond := float64(int64(time.Second) / s.unit)
	c := clock{seconds: make([]float64, len(s.floats))}
	low, high := math.Inf(1), math.Inf(-1)
	for i, v := range s.floats {
		c.seconds[i] = v / perSecond
		low, high = min(low, c.seconds[i]), max(high, c.seconds[i])
	}
	const most = 100 * 365 * 24 * 3600
	if high-low > most {
		return clock{}, problem(column, "goes from %v to %v seconds: a run is shorter; say which unit it is with time-unit", low, high)
	}
	c.start = start
	c.end = start.Add(time.Duration((high - low) * float64(time.Second)))
	return c, nil
}

// sinceEpoch returns times that count from 1970.
func (s *times) sinceEpoch(column string) (clock, error) {
	nanos := make([]int64, len(s.floats))
	var wrong Problems
	for i, v := range s.floats {
		seconds := v * float64(s.unit) / float64(time.Second)
		if seconds < absoluteFrom {
			return clock{}, problem("start", "is missing: times such as %v count from the start of the run, so give it as start=2026-03-01T12:00:00Z", v)
		}
		n, ok := s.nanos(i)
		if !ok && !wrong.add(column, i+1, "%v is beyond the year 2262: say which unit it is with time-unit", v) {
			break
		}
		nanos[i] = n
	}
	if err := wrong.err(); err != nil {
		return clock{}, err
	}
	return absolute(nanos), nil
}

// nanos returns the time of a row in nanoseconds since 1970. A float64 is taken for the
// shortest decimal number that it stands for, as it was written: 1767225600.1 is 100 ms after the second.
func (s *times) nanos(row int) (int64, bool) {
	if s.exact[row] {
		n := s.wholes[row]
		if n > math.MaxInt64/s.unit || n < math.MinInt64/s.unit {
			return 0, false
		}
		return n * s.unit, true
	}
	digits, fraction, _ := strings.Cut(strconv.FormatFloat(s.floats[row], 'f', -1, 64), ".")
	places := len(strconv.FormatInt(s.unit, 10)) - 1
	fraction = (fraction + strings.Repeat("0", places))[:places]
	n, err := strconv.ParseInt(digits+fraction, 10, 64)
	return n, err == nil
}

// absolute returns the times of rows that are given in nanoseconds since 1970.
func absolute(nanos []int64) clock {
	c := clock{seconds: make([]float64, len(nanos))}
	low, high := slices.Min(nanos), slices.Max(nanos)
	for i, n := range nanos {
		c.seconds[i] = time.Unix(0, n).Sub(time.Unix(0, low)).Seconds()
	}
	c.start, c.end = time.Unix(0, low).UTC(), time.Unix(0, high).UTC()
	return c
}
