package tchart

import (
	"errors"
	"fmt"
)

// Trace is the raw time series of every SVID in one context. The strings say
// which; they are at most [MaxTextBytes] long each.
type Trace struct {
	Tool    string
	Chamber string
	Context string
	Recipe  string
	Product string
	Lot     string
	Wafer   string

	SVIDs []string  // names, one for each column
	Time  []float64 // seconds from some start; intervals may differ, and anything is kept
	Step  []int32   // recipe step of each sample
	// Values holds one column for each SVID, as long as Time. Any float64 is
	// kept to the bit, NaN payloads and infinities included.
	Values [][]float64
}

// Limits of a trace, also for decoding: a blob that claims more is an error
// before any memory is taken for it.
const (
	MaxTextBytes = 1 << 10 // of a string, SVID names included
	MaxSVIDs     = 1 << 14
	MaxRows      = 1 << 22
	MaxPoints    = 1 << 24 // rows times SVIDs
)

// Points returns the number of sensor values, rows times SVIDs.
func (t *Trace) Points() int { return len(t.Time) * len(t.SVIDs) }

// Reset empties t and keeps its memory for reuse.
func (t *Trace) Reset() {
	columns := t.Values[:0]
	*t = Trace{SVIDs: t.SVIDs[:0], Time: t.Time[:0], Step: t.Step[:0], Values: columns}
}

// Validate reports every fault of t: lengths that differ or exceed a limit.
func (t *Trace) Validate() error {
	var errs []error
	for _, f := range t.texts() {
		if len(*f.text) > MaxTextBytes {
			errs = append(errs, fmt.Errorf("%s has %d bytes, at most %d are allowed", f.name, len(*f.text), MaxTextBytes))
		}
	}
	for i, name := range t.SVIDs {
		if len(name) > MaxTextBytes {
			errs = append(errs, fmt.Errorf("name of SVID %d has %d bytes, at most %d are allowed", i, len(name), MaxTextBytes))
		}
	}
	rows := len(t.Time)
	switch {
	case len(t.SVIDs) > MaxSVIDs:
		errs = append(errs, fmt.Errorf("%d SVIDs, at most %d are allowed", len(t.SVIDs), MaxSVIDs))
	case rows > MaxRows:
		errs = append(errs, fmt.Errorf("%d rows, at most %d are allowed", rows, MaxRows))
	case t.Points() > MaxPoints:
		errs = append(errs, fmt.Errorf("%d points, at most %d are allowed", t.Points(), MaxPoints))
	}
	if len(t.Step) != rows {
		errs = append(errs, fmt.Errorf("%d timestamps and %d steps", rows, len(t.Step)))
	}
	if len(t.Values) != len(t.SVIDs) {
		errs = append(errs, fmt.Errorf("%d SVID names and %d columns", len(t.SVIDs), len(t.Values)))
	}
	for i, column := range t.Values {
		if len(column) != rows {
			errs = append(errs, fmt.Errorf("%d timestamps and %d values in column %d", rows, len(column), i))
		}
	}
	return errors.Join(errs...)
}

// texts returns the strings in the order in which they are encoded.
func (t *Trace) texts() [7]struct {
	name string
	text *string
} {
	return [...]struct {
		name string
		text *string
	}{
		{"tool", &t.Tool}, {"chamber", &t.Chamber}, {"context", &t.Context}, {"recipe", &t.Recipe},
		{"product", &t.Product}, {"lot", &t.Lot}, {"wafer", &t.Wafer},
	}
}
