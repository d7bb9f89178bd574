// Package cells holds values of tables as their formats have them, and reads those of Parquet files.
package cells

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Kind says which field of a cell holds its value.
type Kind int

const (
	Null    Kind = iota
	Number       // Float
	Integer      // Whole
	Stamp        // Whole: nanoseconds since 1970
	Text         // Text
)

// Cell is one value of a table, as its format has it.
type Cell struct {
	Kind  Kind
	Float float64
	Whole int64
	Text  string
}

// String returns the cell as people write it.
func (c Cell) String() string {
	switch c.Kind {
	case Number:
		return strconv.FormatFloat(c.Float, 'g', -1, 64)
	case Integer:
		return strconv.FormatInt(c.Whole, 10)
	case Stamp:
		return time.Unix(0, c.Whole).UTC().Format(time.RFC3339Nano)
	case Text:
		return c.Text
	case Null:
	}
	return ""
}

// AsNumber returns the cell as a sensor's value: NaN for a missing one.
func (c Cell) AsNumber() (float64, bool) {
	switch c.Kind {
	case Null:
		return math.NaN(), true
	case Number:
		return c.Float, true
	case Integer:
		return float64(c.Whole), true
	case Text:
		s := strings.TrimSpace(c.Text)
		if s == "" {
			return math.NaN(), true
		}
		v, err := strconv.ParseFloat(s, 64)
		return v, err == nil
	case Stamp:
	}
	return 0, false
}

// AsWhole returns the cell as an integer: also a number, or text, that is one.
func (c Cell) AsWhole() (int64, bool) {
	switch c.Kind {
	case Integer:
		return c.Whole, true
	case Number:
		const exact = 1 << 53
		v := int64(c.Float)
		return v, math.Abs(c.Float) < exact && float64(v) == c.Float
	case Text:
		v, err := strconv.ParseInt(strings.TrimSpace(c.Text), 10, 64)
		return v, err == nil
	case Null, Stamp:
	}
	return 0, false
}

// stamps are the forms of timestamps in text. Without a zone they are UTC.
var stamps = [...]string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00"}

// Typed returns a cell of text as what the text says: a number, an integer or a timestamp.
// Text that is none of them stays text.
func (c Cell) Typed() Cell {
	if c.Kind != Text {
		return c
	}
	s := strings.TrimSpace(c.Text)
	if s == "" {
		return Cell{}
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return Cell{Kind: Integer, Whole: v}
	}
	if v, err := strconv.ParseFloat(s, 64); err == nil {
		return Cell{Kind: Number, Float: v}
	}
	for _, form := range stamps {
		if t, err := time.Parse(form, s); err == nil {
			return StampOf(t)
		}
	}
	return c
}

// Nanoseconds in 64 bits reach from 1677 to 2262.
var earliestStamp, latestStamp = time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)

// StampOf returns the cell of a time; one that nanoseconds don't reach stays text, which is a
// time nowhere.
func StampOf(t time.Time) Cell {
	if t.Before(earliestStamp) || t.After(latestStamp) {
		return Cell{Kind: Text, Text: t.Format(time.RFC3339)}
	}
	return Cell{Kind: Stamp, Whole: t.UnixNano()}
}
