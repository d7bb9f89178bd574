package nodes_test

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// kubernetesSignalsScenarios are those of SIGNALS=kubernetes: there is no Prometheus at any time.
func kubernetesSignalsScenarios() []scenario {
	byAPI := func(p *nodes.Policy) {
		p.Signals, p.PendingUpFor, p.CooldownUp = nodes.SignalsKubernetes, 0, 0
		p.Consolidation, p.ConsolidatePerHour = nodes.ConsolidationRemove, 6
	}
	without := func(setup func(*stage)) func(*stage) {
		return func(s *stage) {
			s.Outage(sim.SignalsPart, 0, 24*time.Hour)
			setup(s)
		}
	}
	return []scenario{
		{name: "scale-up without Prometheus", workers: "ab", policy: byAPI, length: minutes(6), stride: 2, setup: without(full(4)), want: fleet(4)},
		// The load would forbid it: it is not read.
		{name: "a worker whose pods fit on the others, without Prometheus", workers: "aab", policy: byAPI, length: minutes(8), stride: 2, setup: without(func(s *stage) {
			s.SetLoad(0.95)
			s.AddPodOn(w1, sim.PodSpec{Name: "p", MilliCPU: 500, Grace: 20 * time.Second})
			s.AddPodOn(w2, sim.PodSpec{Name: "q", MilliCPU: 1000, Grace: 20 * time.Second})
		}), want: atLeast(2), undone: both(fleet(2), alive(false, w1))},
		{name: "pods that are gone before PENDING_UP_SEC, without Prometheus", workers: "ab", length: minutes(6), stride: 4,
			policy: func(p *nodes.Policy) { byAPI(p); p.PendingUpFor = 150 * time.Second },
			setup: without(func(s *stage) {
				s.AddPods(4, one("old"))
				s.AddPodLater(10*time.Second, one("brief"), 120*time.Second)
			}), want: both(fleet(2), neverLaunched)},
		// No pod waits: the node is for the pods of a buffer, which run on nodes of one pool only.
		{name: "headroom in a pool, without Prometheus", workers: "ab", region: joining, length: minutes(8), stride: 3,
			policy: func(p *nodes.Policy) { generalAndBatch(p); byAPI(p) },
			setup: without(func(s *stage) {
				s.AddPods(4, one("old"))
				s.SetBuffers(sim.Buffer{Name: "default/batch", Replicas: 2, Pod: batchPod("batch")})
			}), want: both(inPool("batch", 1, 2), inPool("general", 0, 0)), undone: inPool("batch", 1, 1)},
	}
}

// neverLaunched wants that no instance was launched.
func neverLaunched(s *stage) string {
	if n := s.count(sim.Launched, nil); n > 0 {
		return fmt.Sprintf("%d instances were launched", n)
	}
	return ""
}

// waitedLong makes every pod one that has been unschedulable for an hour.
func waitedLong(s *stage, v nodes.View, err error) (nodes.View, error) {
	for i := range v.Pending {
		v.Pending[i].Since = v.Pending[i].Since.Add(-time.Hour)
	}
	return v, err
}
