package uchart_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// process makes contexts of an undisturbed process: three SVIDs with white
// noise, one that rarely moves and one that never does, in two steps.
type process struct{ rng *rand.Rand }

func newProcess(seed uint64) *process { return &process{rand.New(rand.NewPCG(seed, 0))} }

func (p *process) trace() *tchart.Trace {
	const rows = 60
	tr := &tchart.Trace{SVIDs: []string{"a", "b", "c", "rare", "never"}, Values: make([][]float64, 5)}
	level := [3]float64{p.rng.NormFloat64(), p.rng.NormFloat64(), p.rng.NormFloat64()} // context to context
	for i := range rows {
		tr.Time = append(tr.Time, float64(i)+p.rng.Float64()/20)
		tr.Step = append(tr.Step, int32(4+i*2/rows))
		for s := range level {
			tr.Values[s] = append(tr.Values[s], 500+level[s]+2*p.rng.NormFloat64())
		}
		rare := 0.0
		if p.rng.IntN(300) == 0 {
			rare = 1
		}
		tr.Values[3] = append(tr.Values[3], rare)
		tr.Values[4] = append(tr.Values[4], 7)
	}
	return tr
}

func chartOf(t testing.TB, tr *tchart.Trace) *uchart.Chart {
	t.Helper()
	c, err := uchart.Compute(tr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *process) history(t testing.TB, n int) []uchart.Point {
	points := make([]uchart.Point, n)
	for i := range points {
		points[i] = uchart.Point{Context: fmt.Sprint("c", i), Chart: chartOf(t, p.trace())}
	}
	return points
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	shift := func(svid int, by float64) func(tr *tchart.Trace) {
		return func(tr *tchart.Trace) {
			for i := range tr.Values[svid] {
				tr.Values[svid][i] += by
			}
		}
	}
	cut := func(n int) func(tr *tchart.Trace) {
		return func(tr *tchart.Trace) {
			tr.Time, tr.Step = tr.Time[:n], tr.Step[:n]
			for s := range tr.Values {
				tr.Values[s] = tr.Values[s][:n]
			}
		}
	}
	for _, test := range []struct {
		behaviour string
		history   int
		change    func(tr *tchart.Trace)
		state     uchart.State
		reason    string // contained in Reason
	}{
		{"no history is learning", 0, shift(0, 50), uchart.Learning, ""},
		{"one context too few is learning", 9, shift(0, 50), uchart.Learning, ""},
		{"enough history and nothing unusual is normal", 10, nil, uchart.Normal, ""},
		{"a shift of the mean is an alarm", 10, shift(1, 50), uchart.Alarm, "worst b, step "},
		{"more noise is an alarm", 25, func(tr *tchart.Trace) {
			for i := range tr.Values[2] {
				tr.Values[2][i] += float64(40 * (i%2*2 - 1))
			}
		}, uchart.Alarm, "c, step"},
		{"a drift within the steps is an alarm", 25, func(tr *tchart.Trace) {
			for i := range tr.Values[0] {
				tr.Values[0][i] += 3 * float64(i%30-15)
			}
		}, uchart.Alarm, "worst a, step"},
		{"an SVID that never moved and stays elsewhere is an alarm", 10, shift(4, 40), uchart.Alarm, "never, step 4, mean"},
		{"an SVID that never moved and differs by less than a digit is not", 10, shift(4, 1e-6), uchart.Normal, ""},
		{"an SVID that never moved and moves for a moment is not", 10, func(tr *tchart.Trace) { tr.Values[4][3] = 8 }, uchart.Normal, ""},
		{"an SVID that rarely moves and moves is not", 25, func(tr *tchart.Trace) { tr.Values[3][3], tr.Values[3][9] = 1, 1 }, uchart.Normal, ""},
		{"an SVID that rarely moves and stays elsewhere is an alarm", 25, shift(3, 5), uchart.Alarm, "worst rare, step "},
		{"a truncated trace is bad data", 10, cut(10), uchart.BadData, "step 5 is missing"},
		{"a short step is bad data even while learning", 3, cut(40), uchart.BadData, "step 5 has 10 samples, usually 30"},
		{"a step not seen before is bad data", 10, func(tr *tchart.Trace) { tr.Step[59] = 9 }, uchart.BadData, "step 9 is usually not there"},
		{"a missing SVID is bad data", 10, func(tr *tchart.Trace) { tr.SVIDs[0] = "z" }, uchart.BadData, `SVID "a" is missing`},
		{"many missing values are bad data", 0, func(tr *tchart.Trace) {
			for i := range 50 {
				tr.Values[1][i] = math.NaN()
			}
		}, uchart.BadData, `SVID "b" lacks 50 of 60 values`},
		{"a clock that is set back is bad data", 0, func(tr *tchart.Trace) {
			for i := 20; i < 60; i++ {
				tr.Time[i] -= 100
			}
		}, uchart.BadData, "40 of 60 rows"},
		{"a long hole is bad data", 0, func(tr *tchart.Trace) {
			for i := 30; i < 60; i++ {
				tr.Time[i] += 100
			}
		}, uchart.BadData, "nothing was recorded for"},
		{"one row of the next context at the end is no matter", 10, func(tr *tchart.Trace) { tr.Time[59] = 0 }, uchart.Normal, ""},
		{"nothing at all is bad data", 10, cut(0), uchart.BadData, "no sample"},
		{"a new SVID is left out", 10, func(tr *tchart.Trace) {
			tr.SVIDs = append(tr.SVIDs, "new")
			tr.Values = append(tr.Values, tr.Values[0])
		}, uchart.Normal, ""},
		{"another order of SVIDs is no matter", 10, func(tr *tchart.Trace) {
			slices.Reverse(tr.SVIDs)
			slices.Reverse(tr.Values)
		}, uchart.Normal, ""},
	} {
		t.Run(test.behaviour, func(t *testing.T) {
			t.Parallel()
			p := newProcess(7)
			history := p.history(t, test.history)
			tr := p.trace()
			if test.change != nil {
				test.change(tr)
			}
			v := uchart.Judge(history, chartOf(t, tr), uchart.Policy{})
			if v.State != test.state {
				t.Errorf("state is %s, want %s: %+v", v.State, test.state, v)
			}
			if reason := v.Reason(); !strings.Contains(reason, test.reason) || (reason != "") != v.Flagged() {
				t.Errorf("reason is %q, want one with %q", reason, test.reason)
			}
			if _, err := json.Marshal(v); err != nil {
				t.Errorf("the verdict has no JSON: %v", err)
			}
		})
	}
}

func TestFalseAlarmsStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	for _, n := range []int{10, 25} {
		const trials = 400
		p := newProcess(uint64(n))
		alarms := 0
		for range trials {
			history := p.history(t, n)
			if uchart.Judge(history, chartOf(t, p.trace()), uchart.Policy{FalseAlarms: 0.05}).Flagged() {
				alarms++
			}
		}
		// Three standard deviations above what the budget allows.
		if limit := 0.05*trials + 3*math.Sqrt(0.05*0.95*trials); float64(alarms) > limit {
			t.Errorf("after %d contexts %d of %d raise false alarms, want at most %.0f", n, alarms, trials, limit)
		}
		t.Logf("history of %d: %d of %d undisturbed contexts raise an alarm, budget 5 %%", n, alarms, trials)
	}
}

func TestFlaggedAndOldContextsDontCount(t *testing.T) {
	t.Parallel()
	p := newProcess(3)
	history := p.history(t, 20)
	chart := chartOf(t, p.trace())
	want := uchart.Judge(history, chart, uchart.Policy{Window: 20})

	wild := p.trace()
	for i := range wild.Values[0] {
		wild.Values[0][i] *= 100
	}
	flagged := slices.Insert(slices.Clone(history), 10, uchart.Point{Context: "wild", Chart: chartOf(t, wild), Flagged: true})
	old := slices.Insert(slices.Clone(history), 0, uchart.Point{Context: "old", Chart: chartOf(t, wild)})
	for name, history := range map[string][]uchart.Point{"flagged": flagged, "old": old} {
		got := uchart.Judge(history, chart, uchart.Policy{Window: 20})
		got.Run = want.Run // one more counts, far back
		if !sameVerdict(t, got, want) {
			t.Errorf("a %s context changes the verdict from %+v to %+v", name, want, got)
		}
	}
	if want.Limits.N != 20 || want.Limits.First != "c0" || want.Limits.Last != "c19" {
		t.Errorf("limits are %+v, want those of c0 to c19", want.Limits)
	}
	for name, other := range map[string]uchart.Verdict{
		"history": uchart.Judge(history[1:], chart, uchart.Policy{Window: 20}),
		"budget":  uchart.Judge(history, chart, uchart.Policy{Window: 20, FalseAlarms: 0.02}),
	} {
		if other.Limits.Version == want.Limits.Version {
			t.Errorf("limits of another %s have the same version", name)
		}
	}
}

func TestJudgingAgainGivesTheSameBits(t *testing.T) {
	t.Parallel()
	p := newProcess(5)
	history := p.history(t, 30)
	tr := p.trace()
	for i := range tr.Values[0] {
		tr.Values[0][i] += 30
		tr.Values[2][i] += 20
	}
	first := uchart.Judge(history, chartOf(t, tr), uchart.Policy{})
	again := uchart.Judge(history, chartOf(t, tr), uchart.Policy{})
	if !sameVerdict(t, first, again) {
		t.Errorf("verdicts differ:\n%+v\n%+v", first, again)
	}
	var back uchart.Verdict
	data, err := json.Marshal(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &back); err != nil || !sameVerdict(t, first, back) {
		t.Errorf("verdict comes back as %+v, %v", back, err)
	}
}

func sameVerdict(t *testing.T, a, b uchart.Verdict) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Equal(x, y)
}

// TestLimitsApproachTheTextbook checks the constant: with one chart, the
// textbook's probability and a long history the limits are 2.66 mean moving
// ranges away.
func TestLimitsApproachTheTextbook(t *testing.T) {
	t.Parallel()
	const n = 20_000
	points := make([]uchart.Point, n)
	mean, moving := 0.0, 0.0
	for i := range points {
		x := float64(i*7919%1000) + float64(i%3)
		points[i] = uchart.Point{Context: "c", Chart: chartOf(t, oneSVID([]float64{0, 1}, []int32{4, 4}, []float64{x, x}))}
		mean += x / n
		if i > 0 {
			before, _ := points[i-1].Chart.Value(0, 0, uchart.Mean)
			moving += math.Abs(x-before) / (n - 1)
		}
	}
	chart := chartOf(t, oneSVID([]float64{0, 1}, []int32{4, 4}, []float64{1e5, 1e5}))
	v := uchart.Judge(points, chart, uchart.Policy{FalseAlarms: 0.0027, Window: n, Statistics: []uchart.Statistic{uchart.Mean}})
	if len(v.Violations) != 1 {
		t.Fatalf("verdict is %+v, want one violation", v)
	}
	got := v.Violations[0]
	if math.Abs(got.Center-mean) > 1e-6 || math.Abs((got.Upper-got.Center)/moving-2.66) > 0.005 || math.Abs((got.Center-got.Lower)/moving-2.66) > 0.005 {
		t.Errorf("limits are %v ± %v mean moving ranges, want %v ± 2.66", got.Center, (got.Upper-got.Center)/moving, mean)
	}
}

func BenchmarkJudge(b *testing.B) {
	var history []uchart.Point
	for i := range 25 {
		c := chartOf(b, randomTrace(100, 19, 2))
		history = append(history, uchart.Point{Context: fmt.Sprint(i), Chart: c, Content: c.Content()}) // as verdicts have it
	}
	b.ReportAllocs()
	for b.Loop() {
		uchart.Judge(history, history[0].Chart, uchart.Policy{})
	}
}
