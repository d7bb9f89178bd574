package nodes

import (
	"cmp"
	"slices"
	"time"
)

// exhaustedIn is how long an offering that could not be had is not tried again.
const exhaustedIn = 5 * time.Minute

// Exhausted is an offering, or with empty fields a whole class of offerings, that could not be had a moment ago.
type Exhausted struct {
	Zone       string `json:"zone,omitempty"`
	Subnet     string `json:"subnet,omitempty"`
	Type       string `json:"type,omitempty"`
	Market     Market `json:"market,omitempty"`
	Pool       string `json:"pool,omitempty"` // "": of every pool
	UntilEpoch int64  `json:"untilEpoch"`
}

// Covers reports whether o is among the offerings that e stands for.
func (e Exhausted) Covers(o Offering) bool {
	return (e.Zone == "" || e.Zone == o.Zone) && (e.Subnet == "" || e.Subnet == o.Subnet) &&
		(e.Type == "" || e.Type == o.Type) && (e.Market == "" || e.Market == o.Market) &&
		(e.Pool == "" || e.Pool == o.Pool)
}

// Want is one node to launch. The zero Want is a node of any offered type in any zone.
type Want struct {
	Types []string `json:"types,omitempty"` // that would do, most wanted first; nil: INSTANCE_TYPES
	Zones []string `json:"zones,omitempty"` // in one of which it has to be; nil: any
	// Market is the only one that will do, because of its price; "": any.
	Market Market `json:"market,omitempty"`
}

// any reports whether every node that is offered would do.
func (w Want) any() bool { return len(w.Types) == 0 && len(w.Zones) == 0 && w.Market == "" }

// launchOrder returns the offerings to try for one instance, best first: the zone with the fewest workers
// first; within a zone Spot across all types, then On-Demand across all types; only then the next zone. So an
// On-Demand node in the emptier zone is preferred to a Spot node that would unbalance the zones. Zones of
// equal count and subnets of equal zone come in the order of their names. Offerings that are exhausted at now
// are left out. prices put the types of Spot in the order of their price in the zone; nil leaves them as the policy lists them.
func launchOrder(p Policy, subnets []Subnet, perZone map[string]int, exhausted []Exhausted, prices *Prices, now time.Time) []Offering {
	subnets = slices.Clone(subnets)
	slices.SortStableFunc(subnets, func(a, b Subnet) int {
		return cmp.Or(cmp.Compare(perZone[a.Zone], perZone[b.Zone]), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.ID, b.ID))
	})
	markets := []Market{OnDemand}
	if p.Spot {
		markets = []Market{Spot, OnDemand}
	}
	var out []Offering
	for len(subnets) > 0 {
		zone := subnets[0].Zone
		n := slices.IndexFunc(subnets, func(s Subnet) bool { return s.Zone != zone })
		if n < 0 {
			n = len(subnets)
		}
		for _, market := range markets {
			types := p.InstanceTypes
			if market == Spot {
				types = prices.cheapestFirst(types, zone)
			}
			for _, typ := range types {
				for _, s := range subnets[:n] {
					o := Offering{Zone: zone, Subnet: s.ID, Type: typ, Market: market, Pool: p.Pool}
					if !isExhausted(o, exhausted, now) {
						out = append(out, o)
					}
				}
			}
		}
		subnets = subnets[n:]
	}
	return out
}

func isExhausted(o Offering, es []Exhausted, now time.Time) bool {
	return slices.ContainsFunc(es, func(e Exhausted) bool { return now.Unix() < e.UntilEpoch && e.Covers(o) })
}

// exhaustedBy tells which offerings a refusal rules out for a while; none for a refusal that says nothing
// about offerings.
func exhaustedBy(kind LaunchFailure, o Offering, now time.Time) []Exhausted {
	e := Exhausted{UntilEpoch: now.Add(exhaustedIn).Unix()}
	switch kind {
	case FailCapacity:
		e.Zone, e.Type, e.Market = o.Zone, o.Type, o.Market
	case FailQuota:
		e.Type, e.Market = o.Type, o.Market
	case FailAddresses:
		e.Subnet = o.Subnet
	case FailSpotRole, FailSpot:
		e.Market = Spot
	default:
		return nil
	}
	return []Exhausted{e}
}
