package uchart_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/spc"
	"github.com/muster-dev/muster/defender/uchart"
)

// shifted makes contexts whose SVID a lies off by what the function says.
func (p *process) shifted(t testing.TB, name string, by float64) uchart.Point {
	tr := p.trace()
	for i := range tr.Values[0] {
		tr.Values[0][i] += by
	}
	return uchart.Point{Context: name, Chart: chartOf(t, tr)}
}

// course judges contexts one after another as a defender does.
func course(t testing.TB, p *process, policy uchart.Policy, n int, by func(i int) float64) []uchart.Verdict {
	t.Helper()
	var history []uchart.Point
	var verdicts []uchart.Verdict
	for i := range n {
		point := p.shifted(t, fmt.Sprint("c", i), by(i))
		// As a history is: the newest 100, what lies before only referred to.
		v := uchart.Judge(history[max(0, len(history)-100):], point.Chart, policy)
		next := uchart.NewPoint(point.Context, point.Chart, v)
		if v.Limits.At != "" {
			for _, h := range history {
				if h.Context == v.Limits.At {
					next.Baseline = h.Baseline
				}
			}
		}
		history = append(history, next)
		verdicts = append(verdicts, v)
	}
	return verdicts
}

func TestFrozenLimitsFindDriftThatMovingOnesAbsorb(t *testing.T) {
	t.Parallel()
	drift := func(i int) float64 { return 0.05 * float64(max(0, i-25)) } // a twentieth of the usual variation each
	moving := course(t, newProcess(7), uchart.Policy{}, 150, drift)
	frozen := course(t, newProcess(7), uchart.Policy{Frozen: uchart.FrozenPolicy{Contexts: 25}}, 150, drift)
	alarms := func(vs []uchart.Verdict) (n int) {
		for _, v := range vs[25:] {
			if v.State == uchart.Alarm {
				n++
			}
		}
		return n
	}
	if a, b := alarms(moving), alarms(frozen); a > 3 || b < 5 {
		t.Errorf("%d alarms with moving limits and %d with frozen ones, want nearly none and some", a, b)
	}
	if last := frozen[149]; last.State != uchart.Alarm || last.Violations[0].SVID != "a" || last.Limits.At != "c25" || last.Limits.First != "c0" {
		t.Errorf("the last verdict is %+v", last)
	}
	kept := 0
	for i, v := range frozen {
		if v.Frozen != nil {
			kept++
			if i != 25 || v.Limits.At != "" || v.Limits.N != 25 {
				t.Errorf("limits are frozen with context %d: %+v", i, v.Limits)
			}
		}
		if i > 25 && v.Limits.Version != frozen[25].Limits.Version {
			t.Errorf("context %d is judged by other limits: %+v", i, v.Limits)
		}
	}
	if kept != 1 {
		t.Errorf("limits are kept in %d verdicts, want one", kept)
	}
}

func TestMaintenanceAndOtherRulesFreezeLimitsAgain(t *testing.T) {
	t.Parallel()
	p := newProcess(3)
	policy := uchart.Policy{Frozen: uchart.FrozenPolicy{Contexts: 12}}
	history := p.history(t, 30)
	first := uchart.Judge(history, p.history(t, 1)[0].Chart, policy)
	if first.Frozen == nil || first.Limits.Last != "c11" {
		t.Fatalf("the verdict is %+v, want limits of the first 12", first)
	}
	history = append(history, uchart.NewPoint("x", history[0].Chart, first))
	for name, test := range map[string]struct {
		change func(p *uchart.Policy)
		same   bool
	}{
		"the same rules":              {func(*uchart.Policy) {}, true},
		"another budget":              {func(p *uchart.Policy) { p.FalseAlarms = 0.02 }, true}, // the estimates are the same
		"a longer Phase I":            {func(p *uchart.Policy) { p.Frozen.Contexts = 13 }, false},
		"other outliers":              {func(p *uchart.Policy) { p.Frozen.Outliers = 4 }, false},
		"an EWMA of another one, too": {func(p *uchart.Policy) { p.Frozen.EWMA = ewmaOf(uchart.Max) }, false},
	} {
		changed := policy
		test.change(&changed)
		v := uchart.Judge(history, history[5].Chart, changed)
		if (v.Limits.At == "x") != test.same || (v.Frozen == nil) != test.same {
			t.Errorf("%s: limits are %+v", name, v.Limits)
		}
	}
	history = append(history, uchart.Point{Context: "pm", Reset: true})
	if v := uchart.Judge(history, history[5].Chart, policy); v.State != uchart.Learning || v.Limits.N != 0 {
		t.Errorf("after maintenance the verdict is %+v", v)
	}
	after := p.history(t, 12)
	v := uchart.Judge(append(history, after...), after[0].Chart, policy)
	if v.Frozen == nil || v.Limits.Version == first.Limits.Version {
		t.Errorf("12 contexts after maintenance the verdict is %+v", v)
	}
}

func ewmaOf(s uchart.Statistic) uchart.EWMAPolicy {
	return uchart.EWMAPolicy{Lambda: 0.2, ChartSelection: uchart.ChartSelection{Statistics: []uchart.Statistic{s}}}
}

func TestPhaseIWithstandsUnnoticedOutliers(t *testing.T) {
	t.Parallel()
	p := newProcess(9)
	history := p.history(t, 25)
	clean := uchart.Judge(history, history[3].Chart, uchart.Policy{Frozen: uchart.FrozenPolicy{Contexts: 25}})
	for _, i := range []int{4, 13} {
		history[i] = p.shifted(t, history[i].Context, 60)
	}
	with := uchart.Judge(history, history[3].Chart, uchart.Policy{Frozen: uchart.FrozenPolicy{Contexts: 25}})
	a, _ := clean.Frozen.Estimate(0, 0, 0)
	b, _ := with.Frozen.Estimate(0, 0, 0)
	if b.N != a.N-2 || math.Abs(b.Center-a.Center) > a.Sigma/2 || b.Sigma > 1.5*a.Sigma {
		t.Errorf("with two outliers the estimate is %+v, without %+v", b, a)
	}
}

func TestCoursesAreWatched(t *testing.T) {
	t.Parallel()
	step := func(by float64) func(int) float64 {
		return func(i int) float64 {
			if i < 60 {
				return 0
			}
			return by
		}
	}
	means := uchart.ChartSelection{Statistics: []uchart.Statistic{uchart.Mean}, SVIDs: []string{"a"}}
	for _, test := range []struct {
		name   string
		frozen uchart.FrozenPolicy
		by     string
	}{
		{"EWMA", uchart.FrozenPolicy{Contexts: 50, EWMA: uchart.EWMAPolicy{ChartSelection: means, Lambda: 0.1}}, uchart.SignalEWMA},
		{"CUSUM", uchart.FrozenPolicy{Contexts: 50, CUSUM: uchart.CUSUMPolicy{ChartSelection: means, K: 0.5}}, uchart.SignalCUSUM},
		{"textbook CUSUM", uchart.FrozenPolicy{Contexts: 50, CUSUM: uchart.CUSUMPolicy{ChartSelection: means, K: 0.5, H: 8}}, uchart.SignalCUSUM},
		{"run rules", uchart.FrozenPolicy{Contexts: 50, Rules: uchart.RulesPolicy{ChartSelection: means, Rules: spc.Nelson2}}, "nelson-2"},
	} {
		// Two sigmas, far inside the limits of single values.
		policy := uchart.Policy{FalseAlarms: 0.005, Statistics: []uchart.Statistic{uchart.Mean}, Frozen: test.frozen}
		verdicts := course(t, newProcess(21), policy, 90, step(2.5))
		found := ""
		for i, v := range verdicts {
			if v.State != uchart.Alarm {
				continue
			}
			for _, s := range v.Signals {
				if i < 60 && test.by != "nelson-2" || s.By != test.by || s.SVID != "a" {
					t.Errorf("%s: context %d has the signal %s", test.name, i, s)
				}
				if i >= 60 && found == "" {
					found = s.String()
					if !strings.Contains(v.Reason(), found) {
						t.Errorf("%s: the reason is %q, want it to tell %q", test.name, v.Reason(), found)
					}
				}
			}
			if _, err := json.Marshal(v); err != nil {
				t.Error(err)
			}
		}
		if found == "" {
			t.Errorf("%s: a lasting shift isn't found", test.name)
		}
	}
}

// TestWatchedCoursesStayWithinTheBudget counts alarms of an undisturbed process
// against the budget, with limits from few contexts, whose error stays.
func TestWatchedCoursesStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	const budget, chambers, contexts = 0.05, 12, 80
	all := uchart.ChartSelection{Statistics: []uchart.Statistic{uchart.Mean}}
	for name, frozen := range map[string]uchart.FrozenPolicy{
		"single values": {Contexts: 20},
		"EWMA":          {Contexts: 20, EWMA: uchart.EWMAPolicy{ChartSelection: all, Lambda: 0.2}},
		"CUSUM":         {Contexts: 20, CUSUM: uchart.CUSUMPolicy{ChartSelection: all, K: 0.5}},
	} {
		alarms, judged := 0, 0
		for seed := range uint64(chambers) {
			for _, v := range course(t, newProcess(500+seed), uchart.Policy{FalseAlarms: budget, Frozen: frozen}, contexts, func(int) float64 { return 0 })[20:] {
				judged++
				if v.State == uchart.Alarm {
					alarms++
				}
			}
		}
		t.Logf("%s: %d of %d undisturbed contexts raise an alarm, budget %.0f %%", name, alarms, judged, 100*budget)
		if float64(alarms) > 1.5*budget*float64(judged) {
			t.Errorf("%s: %d of %d raise false alarms", name, alarms, judged)
		}
	}
}

func TestBaselinesSurviveJSON(t *testing.T) {
	t.Parallel()
	history := newProcess(5).history(t, 20)
	v := uchart.Judge(history, history[0].Chart, uchart.Policy{Frozen: uchart.FrozenPolicy{Contexts: 15}})
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var back uchart.Verdict
	if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(v, back) {
		t.Errorf("the verdict comes back as %+v, %v", back, err)
	}
	// One that was damaged isn't used, as if there were none.
	back.Frozen.Estimates = back.Frozen.Estimates[:8]
	again := uchart.Judge(append(history, uchart.NewPoint("x", history[0].Chart, back)), history[0].Chart, uchart.Policy{Frozen: uchart.FrozenPolicy{Contexts: 15}})
	if again.Frozen == nil {
		t.Error("damaged limits are used")
	}
}
