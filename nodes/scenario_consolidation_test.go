package nodes_test

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// twoSizes is a price list: a "big" of 4 cores costs 4, everything else has 2 cores and costs 2.
type twoSizes struct{}

func room(typ string) nodes.Resources {
	r := nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 20}
	if typ == "big" {
		r.MilliCPU = 4000
	}
	return r
}

func (twoSizes) Price(typ string, _ nodes.Market, _ string) (float64, bool) {
	return float64(room(typ).MilliCPU) / 1000, true
}

func (t twoSizes) Cheaper(q nodes.Question, below float64) (nodes.Replacement, bool) {
	if usd, _ := t.Price("m", nodes.OnDemand, ""); usd >= below {
		return nodes.Replacement{}, false
	}
	others := []*nodes.Node{{NodeRef: nodes.NodeRef{Name: "new"}, Ready: true, Allocatable: room("m")}}
	for _, w := range q.Observation.Fleet {
		if w.Available() {
			others = append(others, w.Node)
		}
	}
	fits := nodes.RequestsFit{}.Fits(q.Observation.Pending, others) == ""
	return nodes.Replacement{Want: nodes.Want{Types: []string{"m"}, Zones: q.Observation.Zones}, Type: "m", Price: 2, Room: room("m")}, fits
}

// consolidationScenarios are those of CONSOLIDATION. The load stays between CPU_DOWN and CPU_UP, so nothing else removes a worker.
func consolidationScenarios() []scenario {
	remove := func(p *nodes.Policy) { p.Consolidation, p.ConsolidatePerHour = nodes.ConsolidationRemove, 6 }
	replace := func(p *nodes.Policy) {
		p.Consolidation, p.ConsolidatePerHour, p.MaxWorkers = nodes.ConsolidationReplace, 2, 3
		p.InstanceTypes = []string{"m"}
	}
	once := func(p *nodes.Policy) { replace(p); p.ConsolidatePerHour = 1 }
	big := func(o *sim.Options) {
		o.WorkerType, o.Capacity = "big", room
		o.Price = func(typ string, m nodes.Market, _ string) (float64, bool) {
			usd, sold := twoSizes{}.Price(typ, m, "")
			if m == nodes.Spot {
				usd /= 2
			}
			return usd, sold
		}
	}
	pod := func(name string, cpu int64) sim.PodSpec {
		return sim.PodSpec{Name: name, MilliCPU: cpu, Grace: 20 * time.Second}
	}
	half := func(s *stage) { s.SetLoad(0.4) }
	// w1 has a pod for which w2 has no room, and which a node of 2 cores takes.
	wide := func(s *stage) {
		half(s)
		s.AddPodOn(w1, pod("small", 1000))
		s.AddPodOn(w2, pod("wide", 3500))
	}
	replaced := both(alive(false, w1), alive(true, w2), fleet(2))
	out := []scenario{
		{name: "a worker whose pods fit on the others", workers: "aab", policy: remove, length: minutes(8), want: atLeast(2), undone: both(fleet(2), alive(false, w1)), setup: func(s *stage) {
			half(s)
			s.AddPodOn(w1, pod("p", 500))
			s.AddPodOn(w2, pod("q", 1000))
		}},
		{name: "a worker whose pods fit nowhere else", workers: "ab", policy: func(p *nodes.Policy) { remove(p); p.MinWorkers, p.EmptyZones = 1, true }, length: minutes(6), stride: 2, setup: func(s *stage) {
			half(s)
			s.AddPods(2, pod("p", 1500))
		}, want: both(alive(true, w1, w2), noneTerminated(0, minutes(6)))},
		{name: "consolidation within its budget", workers: "aabb", policy: func(p *nodes.Policy) { remove(p); p.ConsolidatePerHour = 1 }, length: minutes(10), stride: 2, setup: func(s *stage) {
			s.SetLoad(0.31)
		}, want: atLeast(3), undone: fleet(3)},
		{name: "consolidation that would make the cluster busy", workers: "aab", policy: remove, length: minutes(6), stride: 2, setup: func(s *stage) {
			s.SetLoad(0.5)
		}, want: both(alive(true, w1, w2, w3), noneTerminated(0, minutes(6)))},
		{name: "a worker replaced by a cheaper one", workers: "ab", policy: replace, setup: wide, length: minutes(10), want: atLeast(2), undone: replaced},
		{name: "a replacement that never joins", workers: "ab", policy: once, length: minutes(14), stride: 2, want: both(alive(true, w1, w2), fleet(2)), setup: func(s *stage) {
			wide(s)
			s.SetBoots(sim.Boot{NeverJoins: true}, sim.Boot{NeverJoins: true})
		}},
		{name: "nothing to launch for a replacement", workers: "ab", policy: once, length: minutes(8), stride: 2, setup: func(s *stage) {
			wide(s)
			s.AddShortage(sim.Shortage{})
		}, want: both(alive(true, w1, w2), fleet(2), func(s *stage) string {
			if r := s.Record(); r.BackoffUntilEpoch != 0 {
				return fmt.Sprintf("a back-off until %d holds up what pods need", r.BackoffUntilEpoch)
			}
			return ""
		})},
		{name: "a replacement without room for what has come meanwhile", workers: "ab", policy: once, setup: wide, length: minutes(12), stride: 2,
			later: 130 * time.Second, arrive: func(s *stage) { s.AddPodOn(w1, pod("more", 2500)) }, want: atLeast(2), undone: both(alive(true, w1, w2), fleet(3))},
		{name: "a pause during a replacement", workers: "ab", policy: replace, setup: wide, length: minutes(8), stride: 2, paused: 130 * time.Second,
			want: alive(true, w2), undone: both(alive(true, w1, w2), fleet(3))},
		{name: "a warning during a replacement", workers: "ab", policy: replace, length: minutes(14), stride: 3, setup: func(s *stage) {
			half(s)
			s.AddPodOn(w1, pod("small", 1000))
			s.AddPodOn(w2, pod("fits beside it", 1900))
		},
			events: []delivery{{at: 150 * time.Second, kind: nodes.Warning, instance: w2}}, want: both(atLeast(2), alive(false, w2))},
	}
	read := func(s *stage) string {
		if p := s.Record().Prices; p == nil || p.OnDemand == nil || p.OnDemand.USD["m"] != 2 || p.Spot == nil || p.Spot.USD["b/m"] != 1 {
			return fmt.Sprintf("the record has the prices %+v", p)
		}
		return ""
	}
	out = append(out, scenario{name: "a worker replaced by current prices", workers: "ab", policy: replace, setup: wide, length: minutes(10),
		priced: true, want: both(atLeast(2), read), undone: replaced})
	for i := range out {
		out[i].appraiser = twoSizes{}
		if out[i].policy != nil && out[i].workers == "ab" && out[i].name != "a worker whose pods fit nowhere else" {
			out[i].region = big
		}
	}
	return out
}

func consolidationsUncounted(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		b, ok := t.(nodes.BeginScaleDown)
		if !ok {
			return nil
		}
		b.Consolidates = false
		return b
	}}
}

func budgetUnseen(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		b, ok := t.(nodes.BeginScaleDown)
		if !ok {
			return nil
		}
		b.PerHour = 1000
		return b
	}, load: func(r *nodes.Record) { r.ConsolidatedEpochs = nil }}
}

// pauseIgnored opens the scale-down of a replaced worker also while scaling is paused.
func pauseIgnored(*stage) brokenStore {
	return brokenStore{hook: func(t nodes.Transition) nodes.Transition {
		c, ok := t.(nodes.CompleteReplacement)
		if !ok {
			return nil
		}
		return loose{t, func(r nodes.Record) (nodes.Record, error) {
			since := r.PausedSinceEpoch
			r.PausedSinceEpoch = 0
			next, err := c.Apply(r)
			next.PausedSinceEpoch = since
			return next, err
		}}
	}}
}

// newNodesHaveRoom shows nodes that Muster launched larger than they are.
func newNodesHaveRoom(s *stage, p ports) ports {
	p.Cluster = brokenCluster{p.Cluster, s, clusterHooks{view: func(_ *stage, v nodes.View, err error) (nodes.View, error) {
		for i := range v.Nodes {
			if v.Nodes[i].Allocatable.MilliCPU == 2000 {
				v.Nodes[i].Allocatable.MilliCPU = 20000
			}
		}
		return v, err
	}}}
	return p
}
