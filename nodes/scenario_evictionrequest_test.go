package nodes_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// responder is a pod that gives its work away when its eviction is requested.
func responder(name string, work time.Duration) sim.PodSpec {
	return sim.PodSpec{Name: name, MilliCPU: 1000, Work: work, Responds: true}
}

// requested wants the evictions of a worker's pods to have been requested, and the requests to have been taken back if the worker was kept.
func requested(id string, withdrawn bool) func(*stage) string {
	return func(s *stage) string {
		var kinds []sim.Kind
		for _, e := range s.Ledger() {
			if e.Instance == id && (e.Kind == sim.EvictionsRequested || e.Kind == sim.EvictionsWithdrawn) {
				kinds = append(kinds, e.Kind)
			}
		}
		if len(kinds) == 0 || slices.Contains(kinds, sim.EvictionsWithdrawn) != withdrawn {
			return fmt.Sprintf("of %s there are %v, want that requests were taken back: %t", id, kinds, withdrawn)
		}
		return ""
	}
}

// evictionRequestScenarios are drains of a cluster with EvictionRequests, each on workers with a pod that responds to them.
func evictionRequestScenarios() []scenario {
	on := func(work time.Duration) func(*stage) {
		return func(s *stage) { idle(s); s.AddPodOn(w1, responder("responder", work)) }
	}
	out := []scenario{
		{name: "scale-down of a node whose pods respond", workers: "aab", length: minutes(9), setup: on(4 * time.Second), want: fleet(2),
			undone: both(alive(false, w1), requested(w1, false))},
		{name: "a drain that fails, of a node whose pods respond", workers: "aab", length: minutes(12), want: both(fleet(2), alive(true, w1)), undone: requested(w1, true), setup: func(s *stage) {
			on(4 * time.Second)(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
		}},
		{name: "a responder that never answers", deaf: true, workers: "aab", length: minutes(11), setup: on(time.Hour), want: atLeast(2), undone: both(fleet(2), alive(false, w1))},
		{name: "pods that come while responders answer", workers: "aab", length: minutes(12), later: 125 * time.Second, want: atLeast(2),
			setup: on(20 * time.Second), arrive: func(s *stage) { s.SetLoad(0.5); s.AddPods(6, one("new")) }},
		{name: "requests for evictions refused", deaf: true, workers: "aab", length: minutes(9), setup: func(s *stage) {
			on(4 * time.Second)(s)
			s.Outage(sim.RequestsPart, 0, time.Hour)
		}, want: fleet(2), undone: alive(false, w1)},
		{name: "warning of a node whose pods respond", workers: "ab", length: minutes(8), want: both(atLeast(2), alive(false, w1)), undone: both(fleet(2), requested(w1, false)), setup: func(s *stage) {
			s.AddPodOn(w1, responder("responder", 4*time.Second))
		}, events: []delivery{{at: 90 * time.Second, kind: nodes.Warning, instance: w1}}},
		{name: "an expired worker whose pods respond", workers: "ab", length: minutes(14), stride: 2, want: both(atLeast(2), neverFewer(2)), undone: both(alive(false, w1), requested(w1, false)), policy: func(p *nodes.Policy) {
			p.ExpireAfter, p.ConsolidatePerHour, p.MaxWorkers = 24*time.Hour, 1, 3
		}, setup: func(s *stage) { s.SetLoad(0.4); s.AddPodOn(w1, responder("responder", 4*time.Second)) }},
		{name: "a worker whose disk stays full and whose pods respond", workers: "aab", length: minutes(24), stride: 2, want: atLeast(2), undone: both(alive(false, w1), requested(w1, false)), policy: func(p *nodes.Policy) {
			p.DiskPressureFor, p.MaxWorkers, p.PodsPerNode = minutes(2), 4, 4
		}, setup: func(s *stage) {
			s.AddPodOn(w1, responder("responder", 4*time.Second))
			s.FillDisk(w1, 30*time.Second, time.Hour)
		}},
	}
	for i := range out {
		out[i].responders = true
	}
	return out
}

// hastyRequester takes the first answer to a request for the last.
type hastyRequester struct{ nodes.EvictionRequester }

func (h hastyRequester) RequestEvictions(ctx context.Context, n nodes.NodeRef) (int, error) {
	_, err := h.EvictionRequester.RequestEvictions(ctx, n)
	return 0, err
}

func respondersUnwaited(_ *stage, p ports) ports {
	p.EvictionRequester = hastyRequester{p.EvictionRequester}
	return p
}

// noRequester requests nothing.
type noRequester struct{ nodes.EvictionRequester }

func (noRequester) RequestEvictions(context.Context, nodes.NodeRef) (int, error) { return 0, nil }

func respondersUnasked(_ *stage, p ports) ports {
	p.EvictionRequester = noRequester{p.EvictionRequester}
	return p
}

// forgetfulRequester takes no request back.
type forgetfulRequester struct{ nodes.EvictionRequester }

func (forgetfulRequester) WithdrawEvictions(context.Context, nodes.NodeRef) error { return nil }

func requestsLeft(_ *stage, p ports) ports {
	p.EvictionRequester = forgetfulRequester{p.EvictionRequester}
	return p
}
