package main

import (
	"testing"

	"github.com/muster-dev/muster/defender/strategy"
)

// TestHeavyTailsKeepTheBudget compares the default strategy with one of unbounded variables on
// the same runs.
func TestHeavyTailsKeepTheBudget(t *testing.T) {
	t.Parallel()
	unbounded, err := strategy.Load("testdata/unbounded.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := sizes{chambers: 16, runs: 160, probeFrom: 1000, probeEvery: 1}
	for _, p := range processes() {
		if p.name != "t, 3 degrees of freedom" {
			continue
		}
		var rates [2]figures
		for i, set := range []*strategy.Set{unbounded, strategy.Default()} {
			tallies, err := simulate(set, p, s, 12)
			if err != nil {
				t.Fatal(err)
			}
			rates[i] = figuresOf(p, tallies)
		}
		t.Logf("unbounded %s %%, default %s %% (T² %s → %s, Q %s → %s)", rates[0].Rate, rates[1].Rate, rates[0].T2, rates[1].T2, rates[0].Q, rates[1].Q)
		if rates[1].Rate.share() > 0.03 || rates[1].Rate.share() > 0.7*rates[0].Rate.share() {
			t.Errorf("the shares of false alarms are %s and %s %%, want less than 0.7 times as many with bounds, and 3 %% at most", rates[0].Rate, rates[1].Rate)
		}
	}
}
