package fit

import (
	"testing"

	"github.com/muster-dev/muster/nodes"
)

func TestWithPrices(t *testing.T) {
	p := &nodes.Prices{
		OnDemand: &nodes.PriceList{USD: map[string]float64{"x.medium": 0.9}},
		Spot:     &nodes.PriceList{USD: map[string]float64{"eu-1a/x.small": 0.3, "eu-1b/x.small": 0.1, "eu-1c/x.small": 0.2}},
	}
	f := fit().WithPrices(p)
	for _, c := range []struct {
		name, zone string
		m          nodes.Market
		want       float64
	}{
		{"x.medium", "eu-1a", nodes.OnDemand, 0.9},
		{"x.small", "eu-1a", nodes.OnDemand, 0.2}, // by the table
		{"x.small", "eu-1b", nodes.Spot, 0.1},
		{"x.small", "", nodes.Spot, 0.2},           // the mean
		{"x.medium", "eu-1b", nodes.Spot, 0.2},     // by the table
		{"x.small", "elsewhere", nodes.Spot, 0.1},  // by the table
		{"none.large", "eu-1a", nodes.OnDemand, 0}, // not in it
	} {
		got, known := f.Price(c.name, c.m, c.zone)
		if diff := got - c.want; diff > 1e-9 || diff < -1e-9 || known != (c.want > 0) {
			t.Errorf("%s in %q, %s: %v, %v, want %v", c.name, c.zone, c.m, got, known, c.want)
		}
	}

	t.Run("the_cheapest_now_is_planned", func(t *testing.T) {
		q := question(policy("x.small", "x.medium"), nil, some("p", 4, 1.9, 1))
		if got := fit().Plan(q); len(got.Nodes) == 0 {
			t.Fatalf("planned %+v", got)
		}
		dear := &nodes.Prices{OnDemand: &nodes.PriceList{USD: map[string]float64{"x.small": 5}}}
		for _, w := range fit().WithPrices(dear).Plan(q).Nodes {
			if w.Types[0] != "x.medium" {
				t.Errorf("planned %v although x.small costs 5", w.Types)
			}
		}
	})
	t.Run("a_replacement_goes_by_its_zone", func(t *testing.T) {
		spot := policy("x.small")
		spot.Spot = true
		for zone, want := range map[string]bool{"eu-1a": false, "eu-1b": true} {
			q := question(spot, []nodes.Worker{worker("full", zone, some("rest", 8, 1, 1))}, some("p", 1, 1, 1))
			q.Room, q.Observation.Zones = 1, []string{zone}
			r, ok := f.Cheaper(q, 0.15)
			if ok != want || ok && r.Price != 0.1 {
				t.Errorf("in %s: %+v, %v", zone, r, ok)
			}
		}
	})
}
