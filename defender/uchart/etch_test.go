package uchart_test

import (
	"cmp"
	"os"
	"slices"
	"testing"

	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/internal/realdata"
)

// etchWafers returns the recorded wafers by experiment, in the order in which
// they were run, which their names tell.
func etchWafers(t testing.TB) map[string][]*trace.Wafer {
	t.Helper()
	f, err := os.Open(realdata.Path(t, "etch/lam9600_machine.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := trace.NewReader(f, "lam9600_machine.csv")
	if err != nil {
		t.Fatal(err)
	}
	wafers := map[string][]*trace.Wafer{}
	for w, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		wafers[w.Experiment] = append(wafers[w.Experiment], w)
	}
	for _, list := range wafers {
		slices.SortFunc(list, func(a, b *trace.Wafer) int { return cmp.Compare(a.Trace.Context, b.Trace.Context) })
	}
	return wafers
}

// TestRecordedFaults runs the recorded etches as the stream that they were:
// each experiment a chamber, each wafer judged by the ones before it with the
// default policy, what was flagged kept out of the limits of later ones. Nobody
// tells which wafers are normal.
func TestRecordedFaults(t *testing.T) {
	t.Parallel()
	var calc uchart.Calculator
	detected, missed, falseAlarms, judged, badData := 0, 0, 0, 0, 0
	experiments := etchWafers(t)
	for _, experiment := range []string{"29", "31"} {
		var history []uchart.Point
		for _, w := range experiments[experiment] {
			chart, err := calc.Compute(&w.Trace)
			if err != nil {
				t.Fatal(err)
			}
			v := uchart.Judge(history, chart, uchart.Policy{})
			history = append(history, uchart.Point{Context: w.Trace.Context, Chart: chart, Flagged: v.Flagged()})
			line := "-"
			if v.Flagged() {
				line = v.Reason()
			}
			switch {
			case v.State == uchart.BadData:
				badData++
			case v.State == uchart.Learning:
			case w.Normal() && v.State == uchart.Alarm:
				judged++
				falseAlarms++
				line = "FALSE ALARM: " + line
			case w.Normal():
				judged++
			case v.State == uchart.Alarm:
				detected++
			default:
				missed++
				line = "MISSED"
			}
			if !w.Normal() || v.Flagged() {
				t.Logf("%s %-9s %-8s score %6.2f limit %5.2f (n=%d)  %s", w.Trace.Context, w.Fault, v.State, v.Score, v.ScoreLimit, v.Limits.N, line)
			}
		}
	}
	t.Logf("faults: %d detected, %d missed; normal wafers judged: %d, false alarms: %d; truncated wafers recognized: %d", detected, missed, judged, falseAlarms, badData)
	if badData != 2 {
		t.Errorf("%d wafers are bad data, want the 2 that are truncated in the source", badData)
	}
	if detected < 11 || falseAlarms > 2 {
		t.Errorf("%d of 14 faults detected with %d false alarms, want at least 11 with at most 2", detected, falseAlarms)
	}
}
