package main

import (
	"testing"

	"github.com/muster-dev/muster/defender/strategy"
)

// TestBoundedVariablesKeepTheBudgetWithHeavyTails compares the strategy for heavy tails with the
// default one on the same runs.
func TestBoundedVariablesKeepTheBudgetWithHeavyTails(t *testing.T) {
	t.Parallel()
	heavy, err := strategy.Load("testdata/heavy-tails.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := sizes{chambers: 16, runs: 160, probeFrom: 1000, probeEvery: 1}
	for _, p := range processes() {
		if p.name != "t, 3 degrees of freedom" {
			continue
		}
		var rates [2]figures
		for i, set := range []*strategy.Set{strategy.Default(), heavy} {
			tallies, err := simulate(set, p, s, 12)
			if err != nil {
				t.Fatal(err)
			}
			rates[i] = figuresOf(p, tallies)
		}
		t.Logf("default %s %%, heavy tails %s %% (T² %s → %s, Q %s → %s)", rates[0].Rate, rates[1].Rate, rates[0].T2, rates[1].T2, rates[0].Q, rates[1].Q)
		if rates[1].Rate.share() > 0.03 || rates[0].Rate.share() < 2*rates[1].Rate.share() {
			t.Errorf("the shares of false alarms are %s and %s %%, want less than half with the strategy for heavy tails, and 3 %% at most", rates[0].Rate, rates[1].Rate)
		}
	}
}
