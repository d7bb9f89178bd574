package uchart_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
)

func TestFaultsThatNoSingleChartShowsAreFound(t *testing.T) {
	t.Parallel()
	// a, b and c go together: their levels are equal but for noise.
	history := newProcess(31).together(t, 40, 0)
	p := uchart.Policy{NoUnivariate: true, Multivariate: uchart.MultivariatePolicy{FalseAlarms: 0.01, Variance: 0.5, Statistics: []uchart.Statistic{uchart.Mean}}}
	for name, test := range map[string]struct {
		apart float64
		state uchart.State
	}{"together": {0, uchart.Normal}, "apart": {45, uchart.Alarm}} {
		chart := newProcess(77).together(t, 1, test.apart)[0].Chart
		v := uchart.Judge(history, chart, p)
		if v.State != test.state || v.Multivariate == nil {
			t.Fatalf("%s: verdict is %+v, want %s", name, v, test.state)
		}
		if (v.Reason() != "") != (test.state == uchart.Alarm) {
			t.Errorf("%s: reason is %q", name, v.Reason())
		}
		if single := uchart.Judge(history, chart, uchart.Policy{Statistics: []uchart.Statistic{uchart.Mean}}); single.State != uchart.Normal {
			t.Errorf("%s: a single chart shows it, too: %s", name, single.Reason())
		}
		if test.apart > 0 && !strings.Contains("ab", v.Multivariate.By[0].SVID) {
			t.Errorf("the largest contribution is that of %s", v.Multivariate.By[0].SVID)
		}
		if _, err := json.Marshal(v); err != nil {
			t.Error(err)
		}
	}
	if v := uchart.Judge(history[:15], history[15].Chart, p); v.State != uchart.Learning {
		t.Errorf("with 15 contexts the state is %s", v.State)
	}
}

// together makes contexts whose SVIDs a and b and c have one level, large against noise;
// b is apart from it by so much.
func (p *process) together(t *testing.T, n int, apart float64) []uchart.Point {
	points := make([]uchart.Point, n)
	for i := range points {
		tr := p.trace()
		level := 15 * p.rng.NormFloat64()
		for k := range tr.Time {
			tr.Values[0][k] = 500 + level + p.rng.NormFloat64()
			tr.Values[2][k] = 900 + level + p.rng.NormFloat64()
			tr.Values[1][k] = 300 + level + p.rng.NormFloat64() + apart
		}
		points[i] = uchart.Point{Context: string(rune('A' + i)), Chart: chartOf(t, tr)}
	}
	return points
}

func TestJudgersRememberModelsAndConcludeTheSame(t *testing.T) {
	t.Parallel()
	p := newProcess(41)
	history := p.history(t, 100)
	for _, m := range []uchart.MultivariatePolicy{{FalseAlarms: 0.01}, {FalseAlarms: 0.01, Reference: 4}} {
		j := uchart.Judger{Policy: uchart.Policy{Multivariate: m}}
		models := map[uint64]bool{}
		for i := 50; i < len(history); i++ {
			got, want := j.Judge(history[:i], history[i].Chart), uchart.Judge(history[:i], history[i].Chart, j.Policy)
			if !sameVerdict(t, got, want) {
				t.Fatalf("context %d: verdicts differ:\n%+v\n%+v", i, got, want)
			}
			models[got.Multivariate.Model.Version] = true
		}
		if len(models) < 1 || len(models) > 15 {
			t.Errorf("%d models serve 50 contexts, want about one in 16", len(models))
		}
	}
}

func TestMultivariateFalseAlarmsStayNearTheBudget(t *testing.T) {
	t.Parallel()
	const trials, budget = 300, 0.05
	alarms := 0
	for seed := range uint64(6) {
		p := newProcess(100 + seed)
		history := p.history(t, 50)
		j := uchart.Judger{Policy: uchart.Policy{NoUnivariate: true, Multivariate: uchart.MultivariatePolicy{FalseAlarms: budget}}}
		for range trials / 6 {
			if j.Judge(history, chartOf(t, p.trace())).Flagged() {
				alarms++
			}
		}
	}
	t.Logf("%d of %d undisturbed contexts raise an alarm, budget %.0f %%", alarms, trials, 100*budget)
	if limit := budget*trials + 4*math.Sqrt(budget*trials); float64(alarms) > limit {
		t.Errorf("%d of %d raise false alarms, want at most %.0f", alarms, trials, limit)
	}
}

func TestAnAlarmHasTheSignatureOfItsFault(t *testing.T) {
	t.Parallel()
	p := newProcess(53)
	history := p.history(t, 40)
	policy := uchart.Policy{Multivariate: uchart.MultivariatePolicy{FalseAlarms: 0.005}, FalseAlarms: 0.005}
	if v := uchart.Judge(history, chartOf(t, p.trace()), policy); v.State != uchart.Normal || v.Multivariate == nil || v.Multivariate.Signature != nil {
		t.Fatalf("an undisturbed context is %s and has %+v, want no signature", v.State, v.Multivariate)
	}
	for _, shift := range []float64{60, -60} {
		tr := p.trace()
		for k := range tr.Time {
			tr.Values[1][k] += shift
		}
		v := uchart.Judge(history, chartOf(t, tr), policy)
		if v.State != uchart.Alarm || len(v.Multivariate.Signature) == 0 {
			t.Fatalf("shifted by %g: %s with %+v", shift, v.State, v.Multivariate)
		}
		first := v.Multivariate.Signature[0]
		if first.SVID != tr.SVIDs[1] || math.Signbit(first.Sigmas) != (shift < 0) {
			t.Errorf("shifted by %g: the signature begins with %+v, want SVID %s", shift, first, tr.SVIDs[1])
		}
	}
}
