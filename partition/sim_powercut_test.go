package partition

import (
	"flag"
	"slices"
	"testing"
	"time"
)

// This file has the server lose power: whatever was published, acknowledged or delivered
// since its last sync is as if it had never been. The sequences of lost messages are
// given to others, and messages that were processed may come back.

var cutSeeds = flag.Uint64("sim.cuts", 60, "how many runs of power cuts")

// simSynced is what the server has on disk of its streams and consumers.
type simSynced struct {
	at        time.Duration
	stored    [][]simMessage
	seqs      []uint64
	spaces    []simSpace       // of the retry stream
	queued    uint64           // its last sequence
	delivered map[place]uint64 // what consumers have as settled, with replicas
}

func (srv *simServer) sync() simSynced {
	y := simSynced{at: srv.s.now, seqs: slices.Clone(srv.seqs), queued: srv.queued, delivered: make(map[place]uint64)}
	for _, stored := range srv.stored {
		y.stored = append(y.stored, slices.Clone(stored))
	}
	for _, sp := range srv.spaces {
		y.spaces = append(y.spaces, simSpace{srv: srv, queued: slices.Clone(sp.queued), tries: slices.Clone(sp.tries), claims: slices.Clone(sp.claims)})
	}
	for _, sl := range srv.slots {
		if c := sl.consumer; c != nil {
			y.delivered[sl.place] = c.asflr
		}
	}
	return y
}

// cutPower stops the server and leaves what it had synced of the streams of messages, and of
// the retry stream, which have files of their own. The buckets are synced with each write.
func (srv *simServer) cutPower(y, retry simSynced) {
	srv.stop()
	srv.s.logf("server: power cut, synced at %v, the retry stream at %v", y.at, retry.at)
	for i := range srv.stored {
		srv.stored[i] = slices.Clone(y.stored[i])
	}
	copy(srv.seqs, y.seqs)
	for i, sp := range retry.spaces {
		srv.spaces[i].queued, srv.spaces[i].tries, srv.spaces[i].claims = slices.Clone(sp.queued), slices.Clone(sp.tries), slices.Clone(sp.claims)
	}
	srv.queued = retry.queued
	for _, sl := range srv.slots {
		if sl.consumer != nil {
			sl.consumer = newSimConsumer()
			sl.consumer.sseq = y.delivered[sl.place] + 1
			sl.consumer.asflr = y.delivered[sl.place]
			sl.removeSettled()
		}
	}
	srv.s.check.powerCut(srv.left())
}

// left returns which messages the server has, by key and number, in a stream of messages or in
// the retry stream.
func (srv *simServer) left() map[[2]int]bool {
	left := make(map[[2]int]bool)
	for _, stored := range srv.stored {
		for _, m := range stored {
			left[[2]int{m.key, m.n}] = true
		}
	}
	for _, sp := range srv.spaces {
		for _, q := range sp.queued {
			left[[2]int{q.msg.key, q.msg.n}] = true
		}
	}
	return left
}

// powerCut takes the messages that the server has lost. Others that were processed may be
// processed again, those included that were in a worker's hands.
func (c *simChecker) powerCut(left map[[2]int]bool) {
	c.cuts++
	c.attempts.lost()
	for key, k := range c.keys {
		for n := 1; n <= k.Published(); n++ {
			if k.Waits(n) && !left[[2]int{key, n}] {
				k.Take(n)
			}
		}
	}
	c.audit.WentBack()
}

// powerCuts has four workers work while their server loses power, several times, with
// deaths and disconnects between. In the variant retry some keys fail, and their messages wait
// in the retry queue; in the variant several, several messages of a slot are in flight.
func powerCuts(seed uint64, variant simVariant, broken simBreakage) (*simViolation, *sim) {
	s := newSim(seed, *simSeed == seed)
	s.variant = variant
	s.resize(8)
	s.cfg.Delivery.AckWait = 4 * simCalm
	s.broken = broken
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond, slowWork: 0.02, failWork: 0.02}
	const end = 40 * time.Second
	if variant.several {
		s.severalInFlight()
	}
	if variant.retry {
		s.cfg.Retry = Retry{KeepFailing: true, Delay: 100 * time.Millisecond, MaxDelay: 2 * time.Second}.resolve()
		s.failKeys(end, s.rng)
	}
	for range 4 {
		s.startWorker()
	}
	s.after(3*time.Second, func() { s.publish(end) })
	var synced, retrySynced simSynced
	s.syncNowAndThen(&synced)
	s.syncNowAndThen(&retrySynced)
	for range 2 + s.rng.IntN(4) {
		at := s.between(5*time.Second, end)
		if s.chance(0.3) {
			s.after(at-s.between(100*time.Millisecond, 2*time.Second), s.replaceFollower)
		}
		s.after(at, func() {
			if s.srv.up {
				s.srv.cutPower(synced, retrySynced)
				s.after(s.between(50*time.Millisecond, 2*time.Second), func() {
					s.srv.start()
					s.cutOffSoon()
				})
			}
		})
	}
	if s.chance(0.5) {
		s.after(s.between(5*time.Second, end), func() { s.follower().crash() })
	}
	if s.chance(0.5) {
		s.after(s.between(5*time.Second, end), func() { s.follower().link.lose(0) })
	}
	s.run(end+3*time.Second, nil)
	s.quiet = true
	s.run(s.now+2*s.cfg.Lease.TTL, nil)
	s.run(s.now+simCalm, s.check.atRest)
	if s.check.violation == nil && !s.check.atRest() {
		s.check.fail("liveness", "not at rest after the power cuts: %s", s.check.whyNotAtRest())
	}
	return s.check.violation, s
}

// syncNowAndThen keeps what the server has synced.
func (s *sim) syncNowAndThen(synced *simSynced) {
	if s.srv.up {
		*synced = s.srv.sync()
	}
	s.after(s.between(100*time.Millisecond, 6*time.Second), func() { s.syncNowAndThen(synced) })
}

// replaceFollower has a worker hand off its slots and leave, and another one start: what the
// new owners know of the slots begins with that.
func (s *sim) replaceFollower() {
	w := s.follower()
	s.startWorker()
	s.logf("%s: asked to leave", w)
	w.leave()
}

// cutOffSoon cuts some workers off after half of the power cuts, while they look at what the
// server has left, and often for longer than a lease: what they find out before they have a
// valid lease again must not be lost.
func (s *sim) cutOffSoon() {
	if !s.chance(0.5) {
		return
	}
	for _, w := range s.live() {
		if s.chance(0.5) {
			s.after(s.between(0, 4*time.Second), w.link.holdTraffic)
			s.after(s.between(4*time.Second, 4*time.Second+2*s.cfg.Lease.TTL), func() { w.link.lose(0) })
		}
	}
}

// failedOnce has seeds beyond the usual ones that have found a fault, by variant.
var failedOnce = map[string][]uint64{
	// A message of a former owner was handled again, and those behind it were taken for this
	// owner's.
	"failing messages are queued": {1725},
}

// TestSimulatedPowerCut: what the server did not lose is processed, in order, and so is
// whatever is published afterwards.
func TestSimulatedPowerCut(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for name, variant := range map[string]simVariant{
		"failing messages hold their slots up": {}, "failing messages are queued": {retry: true},
		"several in flight, failing messages hold their keys up": {several: true}, "several in flight, failing messages are queued": {several: true, retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, seed := range append(seeds(*cutSeeds), failedOnce[name]...) {
				v, s := powerCuts(seed, variant, simBreakage{})
				if v != nil {
					t.Fatalf("seed %d: %s: %s\n%s", seed, v.name, v.text, s.lastSteps(100*simTold))
				}
				if s.check.total < 100 || s.check.cuts == 0 {
					t.Fatalf("seed %d: %d messages, %d cuts", seed, s.check.total, s.check.cuts)
				}
			}
		})
	}
}

// TestSimulatedPowerCutCatchesBrokenVariants: rules by which workers find out what the server
// has lost are needed. What a former owner had queued matters in one of many thousands of
// seeds; TestWatermarksOfOwners and a mutant have that rule.
func TestSimulatedPowerCutCatchesBrokenVariants(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		retry  bool
		broken simBreakage
		by     string
	}{
		{"what was settled is known by its sequence alone", false, simBreakage{bareSequences: true}, "lost"},
		{"what was put into the retry queue counts as settled for good", true, simBreakage{onDelivery: func(w *simWorker, in deliveryInput) deliveryInput {
			for i := range w.delivery.memory.shards {
				w.delivery.memory.shards[i].queued = nil
			}
			return in
		}}, "lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 1000; seed++ {
				v, _ := powerCuts(seed, simVariant{retry: tt.retry}, tt.broken)
				if v == nil {
					continue
				}
				if v.name != tt.by {
					t.Fatalf("seed %d: caught by %s (%s), want %s", seed, v.name, v.text, tt.by)
				}
				t.Logf("seed %d: %s: %s", seed, v.name, v.text)
				return
			}
			t.Error("nothing noticed")
		})
	}
}
