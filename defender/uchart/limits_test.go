package uchart_test

import (
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
)

// TestLimitsAreThoseThatAVerdictRestsOn compares them with the violations of contexts whose sensors are off by more and more.
func TestLimitsAreThoseThatAVerdictRestsOn(t *testing.T) {
	p := newProcess(4)
	history := p.history(t, 25)
	type key struct {
		svid string
		step int32
		stat uchart.Statistic
	}
	violated := 0
	for off := range 12 {
		tr := p.trace()
		for i := range tr.Values[0] {
			tr.Values[0][i] += float64(off)
		}
		chart := chartOf(t, tr)
		v := uchart.Judge(history, chart, uchart.Policy{})
		limits := map[key]uchart.ControlLimits{}
		for _, l := range uchart.Limits(history, chart, uchart.Policy{}) {
			limits[key{l.SVID, l.Step, l.Statistic}] = l
		}
		if len(limits) != v.Charts {
			t.Errorf("off by %d: limits of %d charts, %d were judged", off, len(limits), v.Charts)
		}
		if v.Violated != len(v.Violations) {
			t.Fatalf("off by %d: the verdict lists %d of %d violations", off, len(v.Violations), v.Violated)
		}
		for _, x := range v.Violations {
			violated++
			k := key{x.SVID, x.Step, x.Statistic}
			if l := limits[k]; l.Lower != x.Lower || l.Center != x.Center || l.Upper != x.Upper {
				t.Errorf("off by %d: limits %+v, the verdict has %v", off, l, x)
			}
			delete(limits, k)
		}
		for k, l := range limits { // those within
			svid := map[string]int{"a": 0, "b": 1, "c": 2, "rare": 3, "never": 4}[k.svid]
			if x, ok := chart.Value(svid, int(k.step)-4, k.stat); !ok || x < l.Lower || x > l.Upper {
				t.Errorf("off by %d: %v is %v, outside %+v, and no violation", off, k, x, l)
			}
		}
	}
	if violated == 0 {
		t.Error("nothing was violated: the test shows nothing")
	}
}

func TestThereAreNoLimitsWithoutEnoughHistory(t *testing.T) {
	p := newProcess(5)
	history := p.history(t, 12)
	if n := len(uchart.Limits(history[:9], chartOf(t, p.trace()), uchart.Policy{})); n != 0 {
		t.Errorf("%d limits by 9 contexts", n)
	}
	history[5].Reset = true
	if n := len(uchart.Limits(history, chartOf(t, p.trace()), uchart.Policy{})); n != 0 {
		t.Errorf("%d limits by 6 contexts since the maintenance", n)
	}
	history[5].Reset = false
	if n := len(uchart.Limits(history, chartOf(t, p.trace()), uchart.Policy{})); n == 0 {
		t.Errorf("no limits by %d contexts", len(history))
	}
}
