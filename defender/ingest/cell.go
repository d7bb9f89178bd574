package ingest

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// kind says which field of a cell holds its value.
type kind int

const (
	null    kind = iota
	number       // float
	integer      // whole
	stamp        // whole: nanoseconds since 1970
	text         // text
)

// cell is one value of a table, as its format has it.
type cell struct {
	kind  kind
	float float64
	whole int64
	text  string
}

// String returns the cell as people write it.
func (c cell) String() string {
	switch c.kind {
	case number:
		return strconv.FormatFloat(c.float, 'g', -1, 64)
	case integer:
		return strconv.FormatInt(c.whole, 10)
	case stamp:
		return time.Unix(0, c.whole).UTC().Format(time.RFC3339Nano)
	case text:
		return c.text
	case null:
	}
	return ""
}

// asNumber returns the cell as a sensor's value: NaN for a missing one.
func (c cell) asNumber() (float64, bool) {
	switch c.kind {
	case null:
		return math.NaN(), true
	case number:
		return c.float, true
	case integer:
		return float64(c.whole), true
	case text:
		s := strings.TrimSpace(c.text)
		if s == "" {
			return math.NaN(), true
		}
		v, err := strconv.ParseFloat(s, 64)
		return v, err == nil
	case stamp:
	}
	return 0, false
}

// asWhole returns the cell as an integer: also a number, or text, that is one.
func (c cell) asWhole() (int64, bool) {
	switch c.kind {
	case integer:
		return c.whole, true
	case number:
		const exact = 1 << 53
		v := int64(c.float)
		return v, math.Abs(c.float) < exact && float64(v) == c.float
	case text:
		v, err := strconv.ParseInt(strings.TrimSpace(c.text), 10, 64)
		return v, err == nil
	case null, stamp:
	}
	return 0, false
}

// stamps are the forms of timestamps in text. Without a zone they are UTC.
var stamps = [...]string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00"}

// typed returns a cell of text as what the text says: a number, an integer or a timestamp.
// Text that is none of them stays text.
func (c cell) typed() cell {
	if c.kind != text {
		return c
	}
	s := strings.TrimSpace(c.text)
	if s == "" {
		return cell{}
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return cell{kind: integer, whole: v}
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return cell{kind: number, float: v}
	}
	for _, form := range stamps {
		if t, err := time.Parse(form, s); err == nil {
			return stampOf(t)
		}
	}
	return c
}

// Nanoseconds in 64 bits reach from 1677 to 2262.
var earliestStamp, latestStamp = time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)

// stampOf returns the cell of a time; one that nanoseconds don't reach stays text, which is a
// time nowhere.
func stampOf(t time.Time) cell {
	if t.Before(earliestStamp) || t.After(latestStamp) {
		return cell{kind: text, text: t.Format(time.RFC3339)}
	}
	return cell{kind: stamp, whole: t.UnixNano()}
}
