package nodes_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// several lets actions be in flight at the same time, on top of what a scenario sets.
func several(sc scenario) scenario {
	set := sc.policy
	sc.name += ", several actions"
	sc.policy = func(p *nodes.Policy) {
		p.MaxActions = 4
		if set != nil {
			set(p)
		}
	}
	return sc
}

// parallelScenarios are those of which several actions at a time are the point.
func parallelScenarios() []scenario {
	launchedBy := func(n int, end time.Duration) func(*stage) string {
		return func(s *stage) string {
			got := s.count(sim.Launched, func(e sim.Entry) bool { return e.At.Sub(start) < end })
			if got != n {
				return fmt.Sprintf("%d instances were launched within %s, want %d", got, end, n)
			}
			return ""
		}
	}
	terminatedBy := func(n int, end time.Duration) func(*stage) string {
		return func(s *stage) string {
			got := s.count(sim.Terminated, func(e sim.Entry) bool { return e.At.Sub(start) < end })
			if got != n {
				return fmt.Sprintf("%d instances were terminated within %s, want %d", got, end, n)
			}
			return ""
		}
	}
	slow := func(name string) sim.PodSpec { return sim.PodSpec{Name: name, MilliCPU: 500, Grace: 80 * time.Second} }
	list := []scenario{
		{name: "growth in one round", workers: "ab", length: minutes(8), stride: 2, setup: full(8), policy: func(p *nodes.Policy) { p.MaxBatchUp = 2 },
			want: fleet(6), undone: launchedBy(4, minutes(3))},
		{name: "growth up to MAX_WORKERS", workers: "ab", length: minutes(8), stride: 2, setup: full(20), policy: func(p *nodes.Policy) { p.MaxBatchUp, p.MaxWorkers = 1, 5 },
			undone: launchedBy(3, minutes(3))},
		{name: "a node that never joins, and more pods", workers: "ab", length: minutes(12), stride: 2, want: atLeast(4), setup: func(s *stage) {
			full(2)(s)
			s.SetBoots(sim.Boot{NeverJoins: true})
		}, later: 150 * time.Second, arrive: func(s *stage) { s.AddPods(2, one("more")) }, undone: launchedBy(2, minutes(4))},
		{name: "a node that never joins, and others that do", workers: "ab", length: minutes(12), stride: 2, want: atLeast(4), setup: func(s *stage) {
			full(4)(s)
			s.SetBoots(sim.Boot{}, sim.Boot{NeverJoins: true})
		}, undone: launchedBy(3, minutes(8))},
		{name: "several drains", workers: "aabbab", length: minutes(10), stride: 2, want: atLeast(2), policy: func(p *nodes.Policy) { p.MaxBatchDown, p.ScaleDownStuck, p.MinWorkers = 3, minutes(7), 3 },
			undone: both(fleet(3), terminatedBy(3, minutes(5))), setup: func(s *stage) {
				idle(s)
				s.AddPodOn(w1, slow("p1"))
				s.AddPodOn(w2, slow("p2"))
				s.AddPodOn(w3, slow("p3"))
			}},
		{name: "one of several drains fails", workers: "aabba", length: minutes(12), stride: 2, want: atLeast(3), policy: func(p *nodes.Policy) { p.MaxBatchDown, p.MinWorkers = 2, 3 },
			undone: alive(true, w1), setup: func(s *stage) {
				idle(s)
				s.AddPodOn(w1, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
				s.AddPodOn(w2, slow("p2"))
			}},
		{name: "pods that come during a drain", workers: "aab", length: minutes(10), stride: 2, want: atLeast(3), policy: func(p *nodes.Policy) { p.PendingUpFor = 15 * time.Second },
			undone: both(alive(true, w1, w2, w3), launchedBy(0, minutes(10))), setup: func(s *stage) {
				idle(s)
				s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 100, Grace: 100 * time.Second})
				s.AddPods(2, one("old"))
			}, later: 130 * time.Second, arrive: func(s *stage) { s.AddPods(3, one("new")) }},
		{name: "more pods come during a drain than its node takes", workers: "aab", length: minutes(12), stride: 2, want: atLeast(4), policy: func(p *nodes.Policy) { p.PendingUpFor = 15 * time.Second },
			undone: both(alive(true, w1, w2, w3), launchedBy(2, minutes(12))), setup: func(s *stage) {
				idle(s)
				s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 100, Grace: 100 * time.Second})
				s.AddPods(3, one("old"))
			}, later: 130 * time.Second, arrive: func(s *stage) { s.AddPods(5, one("new")) }},
		{name: "a warning while nodes join", workers: "ab", length: minutes(14), stride: 3, want: both(atLeast(4), alive(false, w1)), policy: func(p *nodes.Policy) { p.MaxBatchUp = 1 }, setup: full(4),
			events: []delivery{{at: 150 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "a worker is lost during several drains", workers: "aabb", length: minutes(14), stride: 3, want: atLeast(2), policy: func(p *nodes.Policy) { p.MaxBatchDown = 2 }, setup: func(s *stage) {
			idle(s)
			s.AddPodOn(w1, slow("p1"))
			s.AddPodOn(w3, slow("p3"))
		}, events: []delivery{{at: 150 * time.Second, kind: reclaim, instance: w2}}},
	}
	for i := range list {
		list[i] = several(list[i])
	}
	return list
}

// everyScenario is every scenario with one action at a time, those of several actions, and the former again with
// several allowed, tried at fewer calls.
func everyScenario() []scenario {
	single := slices.Concat(scenarios(), consolidationScenarios(), driftScenarios(), evictionRequestScenarios(), impairedScenarios(), kubernetesSignalsScenarios())
	out := slices.Concat(single, parallelScenarios(), poolScenarios())
	for _, sc := range single {
		sc = several(sc)
		sc.stride = 8 * max(sc.stride, 1)
		out = append(out, sc)
	}
	return out
}
