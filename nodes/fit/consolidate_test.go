package fit

import (
	"slices"
	"testing"

	"github.com/muster-dev/muster/nodes"
)

func TestCheaper(t *testing.T) {
	pods := some("p", 3, 1, 1)
	full := worker("full", "eu-1a", some("rest", 8, 1, 1))
	spot := policy()
	spot.Spot = true
	ask := func(p nodes.Policy, pod nodes.Pod, fleet ...nodes.Worker) nodes.Question {
		q := question(p, fleet, pod)
		q.Room, q.Observation.Zones = 1, []string{"eu-1a"}
		return q
	}
	for name, c := range map[string]struct {
		q      nodes.Question
		below  float64
		want   string
		market nodes.Market
	}{
		"the smallest that holds what has no room":      {ask(policy(), pods, full), 0.8, "x.medium", nodes.OnDemand},
		"none at the same price":                        {ask(policy(), pods, full), 0.4, "", ""},
		"none if the pods need more than one":           {ask(policy(), some("p", 12, 1, 1), full), 0.8, "", ""},
		"none if nothing is needed":                     {ask(policy(), pods, worker("empty", "eu-1a")), 0.8, "", ""},
		"Spot in Spot alone, where On-Demand is dearer": {ask(spot, pods, full), 0.4, "x.medium", nodes.Spot},
	} {
		t.Run(name, func(t *testing.T) {
			r, ok := fit().Cheaper(c.q, c.below)
			if ok != (c.want != "") || r.Type != c.want || r.Want.Market != c.market {
				t.Fatalf("got %+v, %t; want %q in %q", r, ok, c.want, c.market)
			}
			if ok && (r.Price >= c.below || !slices.Equal(r.Want.Zones, []string{"eu-1a"})) {
				t.Errorf("got %+v, want less than %v in eu-1a", r, c.below)
			}
		})
	}
}
