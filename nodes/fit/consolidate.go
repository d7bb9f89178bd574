package fit

import (
	"slices"

	"github.com/muster-dev/muster/nodes"
)

var _ nodes.Appraiser = (*Fit)(nil)

// Cheaper packs the pending pods onto the fleet and one node of the types that cost less. Spot and On-Demand are tried apart: a node for
// which only the Spot price is low enough must not be launched On-Demand.
func (f *Fit) Cheaper(q nodes.Question, below float64) (nodes.Replacement, bool) {
	markets := []nodes.Market{nodes.OnDemand}
	if q.Policy.Spot {
		markets = []nodes.Market{nodes.Spot, nodes.OnDemand}
	}
	for _, m := range markets {
		if r, ok := f.cheaperIn(m, q, below); ok {
			return r, true
		}
	}
	return nodes.Replacement{}, false
}

func (f *Fit) cheaperIn(m nodes.Market, q nodes.Question, below float64) (nodes.Replacement, bool) {
	zone := ""
	if len(q.Observation.Zones) == 1 {
		zone = q.Observation.Zones[0]
	}
	var types []string
	for _, name := range q.Policy.InstanceTypes {
		if usd, known := f.Price(name, m, zone); known && usd < below {
			types = append(types, name)
		}
	}
	if len(types) == 0 {
		return nodes.Replacement{}, false
	}
	q.Policy.InstanceTypes, q.Policy.Spot = types, m == nodes.Spot
	if m == nodes.Spot { // without this, what is out of stock as Spot would be offered On-Demand
		q.Exhausted = append(slices.Clone(q.Exhausted), nodes.Exhausted{Market: nodes.OnDemand, UntilEpoch: q.Now.Unix() + 1})
	}
	p := f.Pack(q)
	if len(p.Unplaced) > 0 || len(p.New) != 1 || p.New[0].Count != 1 {
		return nodes.Replacement{}, false
	}
	g := p.New[0]
	usd, _ := f.Price(g.Types[0], m, zone)
	want := nodes.Want{Types: g.Types, Zones: q.Observation.Zones, Market: m}
	return nodes.Replacement{Want: want, Type: g.Types[0], Price: usd, Room: f.Allocatable(f.c.Catalog[g.Types[0]])}, true
}
