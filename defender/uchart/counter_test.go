package uchart_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/tchart"
)

// countUp replaces S5 by a counter.
func countUp(at func(run, i int) float64) func(run int, tr *tchart.Trace) {
	return func(run int, tr *tchart.Trace) {
		for i := range tr.Values[5] {
			tr.Values[5][i] = at(run, i)
		}
	}
}

// TestCounters has a sensor that counts. It mustn't raise an alarm, and mustn't hide those
// of the others.
func TestCounters(t *testing.T) {
	t.Parallel()
	for kind, at := range map[string]func(run, i int) float64{
		"RF-hours":                func(run, _ int) float64 { return 1000 + 0.05*float64(run) },
		"rising-within-a-run":     func(run, i int) float64 { return 1000 + 0.05*float64(run) + 0.001*float64(i) },
		"left-of-a-target":        func(run, _ int) float64 { return 900 - float64(run) },
		"wafers":                  func(run, _ int) float64 { return float64(run) },
		"coarse":                  func(run, _ int) float64 { return float64(run * 2 / 3) },
		"set-back-after-90-runs":  func(run, _ int) float64 { return float64(run % 90) },
		"standing-still-at-times": func(run, _ int) float64 { return float64(min(run%100, 80)) },
	} {
		for name, policy := range fabPolicies() {
			t.Run(kind+"/"+strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				f := newFab(policy)
				for range 200 {
					v := f.next(t, countUp(at))
					accused := slices.ContainsFunc(v.Violations, func(x uchart.Violation) bool { return x.SVID == "S5" })
					if v.Multivariate != nil && v.Multivariate.Out() {
						accused = accused || slices.ContainsFunc(v.Multivariate.By, func(c uchart.Contribution) bool { return c.SVID == "S5" })
					}
					if accused {
						t.Fatalf("run %d: the counter raises an alarm: %s", f.run, v.Reason())
					}
					if v.State != uchart.Learning && !slices.Equal(v.Counters, []string{"S5"}) {
						t.Fatalf("run %d: counters are %q, want S5 alone", f.run, v.Counters)
					}
				}
				v := f.next(t, func(run int, tr *tchart.Trace) {
					countUp(at)(run, tr)
					add(tr, 2, 50)
				})
				if v.State != uchart.Alarm {
					t.Errorf("50 sigma of another sensor are %s", v.State)
				}
			})
		}
	}
}

// TestStandingAlarmOfACounter: an alarm that a counter raised before counters were known
// is cleared, also where limits of the counter are frozen.
func TestStandingAlarmOfACounter(t *testing.T) {
	t.Parallel()
	f := newFab(uchart.Policy{FalseAlarms: 0.005})
	for range 30 {
		f.next(t, countUp(func(run, _ int) float64 { return float64(run) }))
	}
	opened := f.history.Points()[len(f.history.Points())-1]
	f.history.Add("old", opened.Chart, uchart.Verdict{State: uchart.Alarm, Run: 31})
	for range 3 {
		if v := f.next(t, countUp(func(run, _ int) float64 { return float64(run) })); v.State != uchart.Normal {
			t.Fatalf("run %d is %s: %s", f.run, v.State, v.Reason())
		}
	}
	if p := f.history.Points(); p[len(p)-1].Standing {
		t.Error("the alarm stands after three normal runs")
	}
}

// TestNoCounters has sensors that rise and aren't counters: what they do is an alarm.
func TestNoCounters(t *testing.T) {
	t.Parallel()
	for behaviour, at := range map[string]func(run, i int) float64{
		"rests-and-steps-up": func(run, _ int) float64 { return 40 * float64(run/31) },
		"drifts-in-its-noise": func(run, i int) float64 {
			return 500 + 0.05*float64(run) + float64(i%7) + 30*float64(run/31)
		},
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			f := newFab(uchart.Policy{FalseAlarms: 0.005})
			var v uchart.Verdict
			for range 31 {
				v = f.next(t, countUp(at))
			}
			if v.State != uchart.Alarm || len(v.Counters) > 0 || v.Violations[0].SVID != "S5" {
				t.Errorf("it is %s with counters %q: %s", v.State, v.Counters, v.Reason())
			}
		})
	}
}

// TestExcludedSVIDs: a strategy leaves sensors out of all charts and of data quality.
func TestExcludedSVIDs(t *testing.T) {
	t.Parallel()
	fault := func(_ int, tr *tchart.Trace) { add(tr, 2, 50) }
	dead := func(_ int, tr *tchart.Trace) {
		for i := range tr.Values[2] {
			tr.Values[2][i] = math.NaN()
		}
	}
	for name, policy := range fabPolicies() {
		for _, exclude := range []struct {
			behaviour   string
			patterns    []string
			fault, dead uchart.State
		}{
			{"none", nil, uchart.Alarm, uchart.BadData},
			{"another", []string{"S1"}, uchart.Alarm, uchart.BadData},
			{"by-name", []string{"S2"}, uchart.Normal, uchart.Normal},
			{"by-pattern", []string{"X", "?2*"}, uchart.Normal, uchart.Normal},
		} {
			t.Run(exclude.behaviour+"/"+strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
				t.Parallel()
				excluding := policy // which the other subtests have, too
				excluding.Exclude = exclude.patterns
				f := newFab(excluding)
				for range 60 {
					f.next(t, func(int, *tchart.Trace) {})
				}
				if v := f.next(t, fault); v.State != exclude.fault {
					t.Errorf("50 sigma are %s: %s", v.State, v.Reason())
				}
				if v := f.next(t, dead); v.State != exclude.dead {
					t.Errorf("no values are %s: %s", v.State, v.Reason())
				}
			})
		}
	}
}
