package partition

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// ledWithin is how long a group may be without a leader when the one that it had, and
// all candidates, die at once while other faults go on.
const ledWithin = 15 * time.Second

// ledAlone is the same when nothing else happens: a lease, the second in which servers
// let it expire, and an election.
const ledAlone = 8 * time.Second

// killTrio kills the leader and the workers that watch over it.
func (s *sim) killTrio() {
	s.logf("the leader and its candidates are killed")
	var dead []*simWorker
	for _, w := range s.live() {
		if w.m.leaderLease.held || w.m.stage == stageJoined && w.m.election.candidate() {
			dead = append(dead, w)
		}
	}
	for _, w := range dead {
		w.crash()
	}
}

// massacre kills the leader together with its candidates now and then, or everybody,
// and starts as many again. It draws numbers of its own, so that the other runs are
// what they would be without it.
func (s *sim) massacre(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0xdead))
	if rng.Float64() < 0.7 {
		return
	}
	for range 1 + rng.IntN(2) {
		all, back := rng.Float64() < 0.3, time.Duration(rng.Int64N(int64(2*s.cfg.Lease.TTL)))
		s.after(time.Duration(rng.Int64N(int64(end))), func() {
			before := len(s.live())
			if all {
				s.logf("everybody is killed")
				for _, w := range s.live() {
					w.crash()
				}
			} else {
				s.killTrio()
			}
			for range before - len(s.live()) {
				s.after(back, func() {
					if !s.quiet {
						s.startWorker()
					}
				})
			}
		})
	}
}

// loseBuckets deletes one of the buckets, once or twice, in some runs, by numbers of its
// own. Not all at once: a worker that is cut off then, and a leader that hasn't heard of
// the loss, can have another worker take its name while it still trusts its lease, for as
// long as the grace. The store's fence keeps its writes out; docs/partition.md says so.
func (s *sim) loseBuckets(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0x105e))
	// With the map and all who knew it, the number of a generation is lost, and with
	// that which consumers are of no use any more. Nothing makes up for that yet.
	if rng.Float64() < 0.7 || s.fine > s.cfg.Slots {
		return
	}
	for range 1 + rng.IntN(2) {
		which := rng.IntN(len(s.srv.names) + 1)
		s.after(time.Duration(rng.Int64N(int64(end))), func() {
			for i, name := range s.srv.names {
				if s.srv.up && i == which {
					s.srv.lose(s.srv.buckets[name])
				}
			}
		})
	}
}

// setAgain is what operators do when the bucket is there again that had their settings,
// and no worker may be left that knew them.
func (s *sim) setAgain() {
	if !s.srv.lostMap {
		return
	}
	if s.desired > 0 {
		s.expect(s.desired)
	}
	if s.wanted > 0 {
		s.setLayout(s.wanted)
	}
	if s.overrides != nil {
		s.writeOverrides(slices.Collect(maps.Values(s.overrides)))
	}
}

// led reports whether a leader may act.
func (s *sim) led() bool {
	for _, w := range s.live() {
		if w.m.mayAct() && w.m.lead.maps.ready {
			return true
		}
	}
	return false
}

// TestLeaderDiesWithCandidates kills them in one moment, with the times that are the
// default ones.
func TestLeaderDiesWithCandidates(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		kill   func(s *sim)
		within time.Duration
	}{
		"the leader and both candidates": {func(s *sim) { s.killTrio() }, ledAlone},
		"everybody, and all start again a second later": {func(s *sim) {
			for _, w := range s.live() {
				w.crash()
				s.after(time.Second, func() { s.startWorker() })
			}
		}, ledAlone},
		"the leader and both candidates, and the others reconnect when no trace is left of its lease": {func(s *sim) {
			s.killTrio()
			s.faults.reconnect = 4 * time.Second
			s.srv.stop()
			s.after(6500*time.Millisecond, s.srv.start)
		}, ledWithin},
		"the leader and both candidates, and the server never ends its lease": {func(s *sim) {
			s.killTrio()
			b := s.srv.buckets[s.cfg.bucketMap()]
			forgotten := *b.last[leaderKey] // its timer finds another value there
			forgotten.expires = 0
			b.log[slices.Index(b.log, b.last[leaderKey])] = &forgotten
			b.last[leaderKey] = &forgotten
		}, ledAlone},
	} {
		for _, replicas := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s, %d replicas", name, replicas), func(t *testing.T) {
				t.Parallel()
				for seed := uint64(1); seed <= 10; seed++ {
					s := calmSim(seed, replicas)
					s.run(8*time.Second, nil)
					if !s.led() {
						t.Fatalf("seed %d: no worker leads at the beginning", seed)
					}
					died := s.now
					tt.kill(s)
					if s.led() {
						t.Fatalf("seed %d: a worker leads yet", seed)
					}
					s.run(died+3*time.Minute, s.led)
					if took := s.now - died; took >= tt.within || !s.led() {
						t.Errorf("seed %d: led again after %v, want less than %v\n%s", seed, took, tt.within, s.lastSteps(10))
					}
					if v := s.check.violation; v != nil {
						t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
					}
				}
			})
		}
	}
}

// calmSim is a group of eight workers with the default times, of which nothing is asked
// but what a test does.
func calmSim(seed uint64, replicas int) *sim {
	s := newSim(seed, testing.Verbose())
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Retry: Retry{Disabled: true}, Identity: Identity{PoolSize: 20}, Storage: Storage{Replicas: replicas}, Delivery: Delivery{AckWait: 4 * simCalm},
		Rebalance: Rebalance{ColdWindow: 2 * time.Second, PlannedWindow: time.Second, PrepareTimeout: time.Second}}
	s.cfg = cfg.resolve()
	s.resize(12)
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond}
	for range 8 {
		s.startWorker()
	}
	return s
}

// TestFailureWithoutLeader: that a worker is gone is told once by a leader,
// also if its lease had expired before there was one.
func TestFailureWithoutLeader(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for seed := uint64(1); seed <= 10; seed++ {
		s := calmSim(seed, 1)
		s.run(8*time.Second, nil)
		told := map[record.Process]int{}
		s.observe = func(_ *simWorker, e event.Event) {
			if e.Kind == event.WorkerGone {
				told[record.Process{ID: e.Peer, Claim: e.Claim}]++
			}
		}
		var killed []record.Process
		before := map[*simWorker]bool{}
		for _, w := range s.live() {
			before[w] = true
		}
		s.killTrio()
		for _, w := range s.live() {
			delete(before, w)
		}
		for w := range before {
			killed = append(killed, w.m.self)
		}
		s.run(s.now+30*time.Second, nil)
		for _, w := range killed {
			if told[w] != 1 {
				t.Errorf("seed %d: that %s is gone was told %d times, want 1", seed, w.ID, told[w])
			}
			delete(told, w)
		}
		if len(killed) != 3 || len(told) > 0 {
			t.Errorf("seed %d: %d workers were killed; others are told to be gone: %v", seed, len(killed), told)
		}
	}
}
