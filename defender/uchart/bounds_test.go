package uchart_test

import (
	"testing"

	"github.com/muster-dev/muster/defender/uchart"
)

// TestBoundedVariablesCountLessFarOut has one sensor far out: by a bound it is less of Q, and
// the model is another one, while an undisturbed context has the same verdict.
func TestBoundedVariablesCountLessFarOut(t *testing.T) {
	t.Parallel()
	p := newProcess(61)
	history := p.history(t, 40)
	free := uchart.Policy{NoUnivariate: true, Multivariate: uchart.MultivariatePolicy{FalseAlarms: 0.01}}
	bound := free
	bound.Multivariate.Bound = 4
	tr := p.trace()
	for k := range tr.Time {
		tr.Values[1][k] += 200
	}
	chart := chartOf(t, tr)
	a, b := uchart.Judge(history, chart, free).Multivariate, uchart.Judge(history, chart, bound).Multivariate
	if a == nil || b == nil || !(b.Q < a.Q/2) || !b.Out() {
		t.Errorf("Q and T² are %v without a bound and %v with one, want less than half of Q, and still out", a, b)
	}
	if a.Model.Version == b.Model.Version {
		t.Error("the bound isn't part of the model's version")
	}
}
