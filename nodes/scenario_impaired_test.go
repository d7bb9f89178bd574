package nodes_test

import (
	"context"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// impairedScenarios are workers whose instances fail status checks.
func impairedScenarios() []scenario {
	policy := func(p *nodes.Policy) { p.ImpairedFor, p.MaxWorkers, p.PodsPerNode = minutes(2), 4, 4 }
	impaired := func(id string, d time.Duration, pods int) func(*stage) {
		return func(s *stage) {
			s.AddPodOn(id, sim.PodSpec{Name: "stays", MilliCPU: 500, Grace: 10 * time.Second})
			s.AddPods(pods, one("old"))
			s.Impair(id, "system", 30*time.Second, d)
		}
	}
	out := []scenario{
		{name: "a worker whose instance stays impaired", workers: "aab", length: minutes(24), policy: policy, setup: impaired(w1, time.Hour, 2),
			want: atLeast(2), undone: both(alive(false, w1), alive(true, w2, w3), lostNone)},
		{name: "a worker whose instance is well again in time", workers: "aab", length: minutes(9), policy: policy, setup: impaired(w1, 100*time.Second, 2), want: both(fleet(3), alive(true, w1))},
		{name: "a worker whose instance stays impaired at MIN_WORKERS", workers: "ab", length: minutes(24), stride: 2, policy: policy, setup: impaired(w1, time.Hour, 1),
			want: both(atLeast(2), neverFewer(2)), undone: both(alive(false, w1), lostNone)},
		{name: "a worker whose instance stays impaired at MAX_WORKERS", workers: "ab", length: minutes(24), stride: 2, policy: func(p *nodes.Policy) { policy(p); p.MaxWorkers = 2 },
			setup: impaired(w1, time.Hour, 1), want: both(atLeast(2), lostNone), undone: alive(false, w1)},
		{name: "many workers whose instances are impaired", workers: "abab", length: minutes(9), policy: policy, want: both(fleet(4), alive(true, w1, w2)), setup: func(s *stage) {
			impaired(w1, time.Hour, 4)(s)
			s.Impair(w2, "instance", 30*time.Second, time.Hour)
		}},
		// The kubelet stops while the node is drained, so that the rest of its pods can't end in order.
		{name: "an impaired worker whose kubelet falls silent", workers: "aab", length: minutes(24), stride: 2, policy: policy, want: atLeast(2), undone: alive(false, w1), setup: func(s *stage) {
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 500, Grace: 80 * time.Second})
			s.AddPods(2, one("old"))
			s.Impair(w1, "system", 30*time.Second, time.Hour)
			s.Flap(w1, 190*time.Second, time.Hour)
		}},
		{name: "an impaired worker whose pods a budget holds", workers: "aab", length: minutes(24), stride: 3, policy: policy, want: both(fleet(3), alive(true, w1)), setup: func(s *stage) {
			impaired(w1, time.Hour, 2)(s)
			s.AddPodOn(w1, sim.PodSpec{Name: "stuck", MilliCPU: 100, Stuck: true})
		}},
		{name: "a worker that is well again while status checks can't be read", workers: "aab", length: minutes(9), policy: policy, want: both(fleet(3), alive(true, w1)), setup: func(s *stage) {
			impaired(w1, 80*time.Second, 2)(s)
			s.Outage(sim.StatusesPart, 100*time.Second, minutes(5))
		}},
		// The drain began by a status check that can't be read any more. The worker must not stay cordoned for that.
		{name: "status checks that can't be read during a repair", workers: "aab", length: minutes(24), stride: 3, policy: policy, want: atLeast(2), setup: func(s *stage) {
			s.AddPodOn(w1, sim.PodSpec{Name: "slow", MilliCPU: 500, Grace: 80 * time.Second})
			s.AddPods(2, one("old"))
			s.Impair(w1, "system", 30*time.Second, time.Hour)
			s.Outage(sim.StatusesPart, 190*time.Second, time.Hour)
		}},
	}
	for i := range out {
		out[i].statuses = true
	}
	return out
}

// brokenStatuses puts a mistake between the reconciler and what the cloud finds out about its instances.
type brokenStatuses struct {
	nodes.StatusReader
	s    *stage
	read func(*stage, map[string]nodes.Impairment, error) (map[string]nodes.Impairment, error)
}

func onStatuses(read func(*stage, map[string]nodes.Impairment, error) (map[string]nodes.Impairment, error)) variant {
	return func(s *stage, p ports) ports {
		p.StatusReader = brokenStatuses{p.StatusReader, s, read}
		return p
	}
}

func (b brokenStatuses) Impaired(ctx context.Context, ids []string) (map[string]nodes.Impairment, error) {
	found, err := b.StatusReader.Impaired(ctx, ids)
	return b.read(b.s, found, err)
}

// impairedForLong takes every failed check for one that failed an hour ago.
func impairedForLong(s *stage, found map[string]nodes.Impairment, err error) (map[string]nodes.Impairment, error) {
	for id, i := range found {
		i.Since = s.Clock().Now().Add(-time.Hour)
		found[id] = i
	}
	return found, err
}

// oneImpaired shows only the first of the instances that fail a check.
func oneImpaired(_ *stage, found map[string]nodes.Impairment, err error) (map[string]nodes.Impairment, error) {
	if _, ok := found[w1]; ok {
		delete(found, w2)
	}
	return found, err
}

// remembered answers by what was read last while nothing can be read.
func remembered() func(*stage, map[string]nodes.Impairment, error) (map[string]nodes.Impairment, error) {
	last := map[*stage]map[string]nodes.Impairment{}
	return func(s *stage, found map[string]nodes.Impairment, err error) (map[string]nodes.Impairment, error) {
		if err != nil {
			return last[s], nil
		}
		last[s] = found
		return found, nil
	}
}
