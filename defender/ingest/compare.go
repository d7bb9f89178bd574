package ingest

import (
	"fmt"
	"math"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// moved says how the time of a run differs, and nothing if it doesn't.
func moved(before, now defender.ContextRef) string {
	if before.Start.Equal(now.Start) && before.End.Equal(now.End) {
		return ""
	}
	return fmt.Sprintf("it ran from %s to %s, and now from %s to %s", before.Start.Format(time.RFC3339Nano), before.End.Format(time.RFC3339Nano),
		now.Start.Format(time.RFC3339Nano), now.End.Format(time.RFC3339Nano))
}

// unlike says in what a run differs from a result, and nothing if it doesn't.
func unlike(u *defender.UChart, run *Run) string {
	before, now := u.Context, run.Ref
	if why := changed([]attribute{
		{"recipe", before.Recipe, now.Recipe}, {"product", before.Product, now.Product}, {"lot", before.Lot, now.Lot}, {"wafer", before.Wafer, now.Wafer},
	}); why != "" {
		return why
	}
	chart, err := uchart.Compute(&run.Trace)
	if err != nil {
		return fmt.Sprintf("its statistics can't be computed (%v)", err)
	}
	if chart.Content() != u.Chart.Content() {
		return "its statistics were others, and its T-chart has expired"
	}
	return ""
}

// attribute is a text that belongs to a run, as it was sent before and now.
type attribute struct{ name, before, now string }

// changed says which of them differs first, and nothing if none does.
func changed(attributes []attribute) string {
	for _, a := range attributes {
		if a.before != a.now {
			return fmt.Sprintf("the %s was %s and is %s", a.name, quoted(a.before), quoted(a.now))
		}
	}
	return ""
}

// difference says in what two traces differ, and nothing if they don't, to the bit.
func difference(a, b *tchart.Trace) string {
	if why := changed([]attribute{
		{"recipe", a.Recipe, b.Recipe}, {"product", a.Product, b.Product}, {"lot", a.Lot, b.Lot}, {"wafer", a.Wafer, b.Wafer},
	}); why != "" {
		return why
	}
	if len(a.Time) != len(b.Time) || len(a.SVIDs) != len(b.SVIDs) {
		return fmt.Sprintf("it had %d rows of %d sensors and has %d of %d", len(a.Time), len(a.SVIDs), len(b.Time), len(b.SVIDs))
	}
	for row := range a.Time {
		if !same(a.Time[row], b.Time[row]) {
			return fmt.Sprintf("the time of row %d was %v and is %v", row+1, a.Time[row], b.Time[row])
		}
		if a.Step[row] != b.Step[row] {
			return fmt.Sprintf("the step of row %d was %d and is %d", row+1, a.Step[row], b.Step[row])
		}
	}
	for i, name := range a.SVIDs {
		if name != b.SVIDs[i] {
			return fmt.Sprintf("sensor %d was %s and is %s", i+1, quoted(name), quoted(b.SVIDs[i]))
		}
		for row, v := range a.Values[i] {
			if !same(v, b.Values[i][row]) {
				return fmt.Sprintf("%s of row %d was %v and is %v", quoted(name), row+1, v, b.Values[i][row])
			}
		}
	}
	return ""
}

// same reports whether two samples are. Any two NaN are a missing one: NumPy, and so Parquet and
// Arrow, write other bits than a null or CSV gives.
func same(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}
