package uchart_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

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

// tally counts verdicts.
type tally struct{ faults, detected, normal, falseAlarms, learning, truncated int }

func (t *tally) add(w *trace.Wafer, v uchart.Verdict) {
	switch {
	case v.State == uchart.BadData:
		t.truncated++
	case v.State == uchart.Learning:
		t.learning++
	case w.Normal():
		t.normal++
		if v.State == uchart.Alarm {
			t.falseAlarms++
		}
	default:
		t.faults++
		if v.State == uchart.Alarm {
			t.detected++
		}
	}
}

// interval is that of Clopper and Pearson (1934) at 95 %, in percent.
func interval(k, n int) string {
	low, high := 0.0, 1.0
	if k > 0 {
		low = distuv.Beta{Alpha: float64(k), Beta: float64(n - k + 1)}.Quantile(0.025)
	}
	if k < n {
		high = distuv.Beta{Alpha: float64(k + 1), Beta: float64(n - k)}.Quantile(0.975)
	}
	return fmt.Sprintf("%.1f to %.1f %%", 100*low, 100*high)
}

func (t *tally) String() string {
	return fmt.Sprintf("%2d of %2d faults (%s), %d false alarms of %2d (%s), %d learning, %d truncated",
		t.detected, t.faults, interval(t.detected, t.faults), t.falseAlarms, t.normal, interval(t.falseAlarms, t.normal), t.learning, t.truncated)
}

// strategies are set before looking at any fault: all have a budget of 1 % false
// alarms a wafer, together, and else the defaults.
var strategies = []struct {
	name   string
	policy uchart.Policy
}{
	{"univariate", uchart.Policy{FalseAlarms: 0.01}},
	{"multivariate", uchart.Policy{NoUnivariate: true, Multivariate: uchart.MultivariatePolicy{FalseAlarms: 0.01}}},
	{"both", uchart.Policy{FalseAlarms: 0.005, Multivariate: uchart.MultivariatePolicy{FalseAlarms: 0.005, Bound: 3.5}}},
}

// TestRecordedFaultsLeaveOneOut judges each recorded etch by all other normal
// etches of its experiment, and prints what each strategy finds. A wafer is never
// among those that its limits are estimated from, and neither is a faulty one.
// Truncated wafers are recognized as such and not counted as detected.
func TestRecordedFaultsLeaveOneOut(t *testing.T) {
	t.Parallel()
	experiments := etchWafers(t)
	want := map[string]tally{ // least detected, most false alarms
		"univariate":   {detected: 10, falseAlarms: 1},
		"multivariate": {detected: 14, falseAlarms: 2},
		"both":         {detected: 14, falseAlarms: 2},
		"bounded":      {detected: 14, falseAlarms: 2},
	}
	bounded := strategies[2]
	bounded.name, bounded.policy.Multivariate.Bound = "bounded", 4
	for _, s := range append(slices.Clone(strategies), bounded) {
		p := s.policy
		p.Window, p.Multivariate.Window, p.Multivariate.Refit = 100, 100, 1 // all others
		p.NoCourses, p.Multivariate.NoCourses = true, true                  // the others come after it, too
		var total tally
		var normal, faulty []float64 // how far out each wafer is, in limits
		for _, experiment := range []string{"29", "31"} {
			var one tally
			charts := chartsOf(t, experiments[experiment])
			for i, w := range experiments[experiment] {
				var others []uchart.Point
				for j, other := range experiments[experiment] {
					if j != i && other.Normal() && len(other.Trace.Time) > 90 {
						others = append(others, uchart.Point{Context: other.Trace.Context, Chart: charts[j]})
					}
				}
				v := uchart.Judge(others, charts[i], p)
				one.add(w, v)
				if far := distance(v); w.Normal() && v.State != uchart.BadData {
					normal = append(normal, far)
				} else if v.State != uchart.BadData {
					faulty = append(faulty, far)
				}
				total.add(w, v)
				if (v.State == uchart.Alarm) == w.Normal() && v.State != uchart.BadData {
					t.Logf("  %-12s %s %-9s %s: %s", s.name, w.Trace.Context, w.Fault, v.State, v.Reason())
				}
			}
			t.Logf("%-12s experiment %s: %s", s.name, experiment, &one)
		}
		t.Logf("%-12s leave one out: %s", s.name, &total)
		// The same with limits so wide that one normal wafer is outside.
		slices.Sort(normal)
		factor := normal[len(normal)-2]
		tuned := tally{faults: total.faults, normal: total.normal, truncated: total.truncated}
		for _, far := range faulty {
			if far > factor {
				tuned.detected++
			}
		}
		tuned.falseAlarms = 1
		t.Logf("%-12s limits times %.2f, for one false alarm: %s", s.name, factor, &tuned)
		if w := want[s.name]; total.detected < w.detected || total.falseAlarms > w.falseAlarms || total.truncated != 2 {
			t.Errorf("%s: %s; want at least %d faults, at most %d false alarms, 2 truncated", s.name, &total, w.detected, w.falseAlarms)
		}
	}
}

// distance is how far out a wafer is, as a multiple of the limit that it exceeds
// most, or comes nearest to.
func distance(v uchart.Verdict) float64 {
	far := 0.0
	if v.ScoreLimit > 0 {
		far = v.Score / v.ScoreLimit
	}
	if m := v.Multivariate; m != nil {
		far = max(far, m.T2/m.T2Limit, m.Q/m.QLimit)
	}
	return far
}

func chartsOf(t *testing.T, wafers []*trace.Wafer) []*uchart.Chart {
	t.Helper()
	var calc uchart.Calculator
	var charts []*uchart.Chart
	for _, w := range wafers {
		c, err := calc.Compute(&w.Trace)
		if err != nil {
			t.Fatal(err)
		}
		charts = append(charts, c)
	}
	return charts
}

// TestRecordedFaultsAsTheyCame runs the recorded etches as the stream that they
// were: each experiment a chamber, each wafer judged by the ones before it, what
// was flagged kept out of the limits of later ones. Nobody tells which wafers are
// normal.
func TestRecordedFaultsAsTheyCame(t *testing.T) {
	t.Parallel()
	experiments := etchWafers(t)
	want := map[string]tally{
		"univariate":   {detected: 11, falseAlarms: 1},
		"multivariate": {detected: 2, falseAlarms: 0}, // learns until 20 wafers are there, and then has few
		"both":         {detected: 11, falseAlarms: 0},
	}
	for _, s := range strategies {
		var total tally
		for _, experiment := range []string{"29", "31"} {
			var history uchart.History
			judge := uchart.Judger{Policy: s.policy}
			charts := chartsOf(t, experiments[experiment])
			for i, w := range experiments[experiment] {
				v := history.Add(w.Trace.Context, charts[i], judge.Judge(history.Points(), charts[i]))
				total.add(w, v)
				if (v.State == uchart.Alarm) == w.Normal() && v.State != uchart.BadData {
					t.Logf("  %-12s %s %-9s %s: %s", s.name, w.Trace.Context, w.Fault, v.State, v.Reason())
				}
			}
		}
		t.Logf("%-12s as they came: %s", s.name, &total)
		if w := want[s.name]; total.detected < w.detected || total.falseAlarms > w.falseAlarms || total.truncated != 2 {
			t.Errorf("%s: %s; want at least %d faults, at most %d false alarms, 2 truncated", s.name, &total, w.detected, w.falseAlarms)
		}
	}
}

// TestRecordedFaultsByFrozenLimits judges the recorded etches by limits that stay as
// the first 25 unflagged wafers of an experiment gave them, as many as moving limits
// rest on. The chamber drifts between wafers, so that there are more false alarms.
func TestRecordedFaultsByFrozenLimits(t *testing.T) {
	t.Parallel()
	experiments := etchWafers(t)
	frozen := uchart.FrozenPolicy{Contexts: 25}
	for _, s := range []struct {
		name        string
		policy      uchart.Policy
		came, after tally // as they came, and normal wafers first
	}{
		{"univariate", uchart.Policy{FalseAlarms: 0.01, Frozen: frozen}, tally{detected: 11, falseAlarms: 0}, tally{detected: 8, falseAlarms: 0}},
		{"both", uchart.Policy{FalseAlarms: 0.005, Frozen: frozen, Multivariate: uchart.MultivariatePolicy{FalseAlarms: 0.005, Bound: 3.5}}, tally{detected: 12, falseAlarms: 0}, tally{detected: 14, falseAlarms: 0}},
	} {
		for _, order := range []struct {
			name string
			of   func(w *trace.Wafer) int
			want tally
		}{{"as they came", func(*trace.Wafer) int { return 0 }, s.came}, {"normal wafers first", func(w *trace.Wafer) int {
			if w.Normal() {
				return 0
			}
			return 1
		}, s.after}} {
			var total tally
			for _, experiment := range []string{"29", "31"} {
				wafers := slices.Clone(experiments[experiment])
				slices.SortStableFunc(wafers, func(a, b *trace.Wafer) int { return cmp.Compare(order.of(a), order.of(b)) })
				var history uchart.History
				judge := uchart.Judger{Policy: s.policy}
				charts := chartsOf(t, wafers)
				for i, w := range wafers {
					v := history.Add(w.Trace.Context, charts[i], judge.Judge(history.Points(), charts[i]))
					total.add(w, v)
				}
			}
			t.Logf("%-12s frozen, %s: %s", s.name, order.name, &total)
			if w := order.want; total.detected < w.detected || total.falseAlarms > w.falseAlarms || total.truncated != 2 {
				t.Errorf("%s, %s: %s; want at least %d faults, at most %d false alarms, 2 truncated", s.name, order.name, &total, w.detected, w.falseAlarms)
			}
		}
	}
}
