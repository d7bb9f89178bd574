package partition

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file models servers that forget: their buckets go back to what they were at an
// earlier moment, or are lost and provisioned afresh, so that revisions are given again.
// The store of the handlers keeps its fences. What is judged is that alone: which writes
// it takes, in which order, and whether processing continues.

var forgetSeeds = flag.Uint64("sim.forget", 60, "number of simulated runs in which the servers forget")

// simForgets says what of the answers to a server that forgets is left out.
type simForgets struct {
	noReports bool // nobody reports a rejected fence
	noKeeper  bool // nobody compares revisions with those that were seen
}

// simCopy is what the buckets were at a moment.
type simCopy struct {
	logs map[string][]*simKV
	seqs map[string]uint64
}

func (srv *simServer) copyBuckets() simCopy {
	c := simCopy{make(map[string][]*simKV), make(map[string]uint64)}
	for _, name := range srv.names {
		c.logs[name], c.seqs[name] = slices.Clone(srv.buckets[name].log), srv.buckets[name].seq
	}
	return c
}

// restore puts an earlier state of the buckets in the place of the present one, while
// the server is away. The zero copy is that of a group that has just been provisioned.
func (srv *simServer) restore(c simCopy) {
	srv.s.logf("server: the buckets go back")
	srv.forgot = true
	srv.s.check.forgot()
	for _, name := range srv.names {
		b := srv.buckets[name]
		b.seq, b.log, b.gone = c.seqs[name], nil, false
		b.last, b.pending = make(map[string]*simKV), make(map[string]bool)
		for _, kv := range c.logs[name] {
			again := *kv // its timer is of the one before
			b.log = append(b.log, &again)
			b.last[again.key] = &again
			if again.expires > srv.s.now {
				srv.s.at(again.expires, nil, func() {
					if again.deleted {
						srv.unmark(b, &again)
					} else {
						srv.expire(b, &again)
					}
				})
			}
		}
		for _, wa := range slices.Clone(b.watches) {
			wa.open = false
			wa.gen++
			wa.remove()
		}
	}
}

// saw notes the revisions that a worker sees of a bucket.
func (w *simWorker) saw(bucket string, rev uint64) {
	if w.lastSeen == nil {
		w.lastSeen = make(map[string]uint64)
	}
	w.lastSeen[bucket] = max(w.lastSeen[bucket], rev)
}

// dropWentBack is the keeper's look at the revisions: what has gone back is lost.
func (w *simWorker) dropWentBack() {
	srv := w.s.srv
	if !srv.forgot || w.s.forgets.noKeeper {
		return
	}
	for _, name := range srv.names {
		if b := srv.buckets[name]; !b.gone && b.seq < w.lastSeen[name] {
			srv.lose(b)
			b.seq = max(w.lastSeen[name], firstSequence(w.clock(), 0))
		}
	}
}

// report passes a fence report to the leader, over both connections.
func (w *simWorker) report(r record.FenceReport) {
	s := w.s
	if s.forgets.noReports {
		return
	}
	w.link.up(func() {
		if to := s.srv.subs[r.To]; to != nil {
			to.link.down(func() { to.step(fenceReportInput{r}) })
		}
	})
}

// forgettingRun has four workers work, while the servers go back to an earlier state, or
// lose everything while every worker ends, up to three times; workers die and join
// between, so that versions and claims differ.
func forgettingRun(seed uint64, forgets simForgets, broken simBreakage) (*simViolation, *sim) {
	s := newSim(seed, testing.Verbose())
	s.resize(8)
	s.cfg.Delivery.AckWait = 4 * simCalm
	s.forgets, s.broken = forgets, broken
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond, slowWork: 0.02, failWork: 0.02, losePeer: 0.05}
	rng := rand.New(rand.NewPCG(seed, 0xf09e7))
	for range 4 {
		s.startWorker()
	}
	const end = 60 * time.Second
	s.after(3*time.Second, func() { s.publish(end) })
	for at := 8 * time.Second; at < end; at += 6 * time.Second {
		s.at(at+time.Duration(rng.Int64N(int64(3*time.Second))), nil, func() {
			switch len(s.live()) {
			case 0:
			case 1, 2, 3:
				s.startWorker()
			default:
				s.anyone().crash()
			}
		})
	}
	copies := []simCopy{{}}
	for range 3 {
		s.after(time.Duration(rng.Int64N(int64(end))), func() { copies = append(copies, s.srv.copyBuckets()) })
	}
	for range 1 + rng.IntN(3) {
		all, back := rng.Float64() < 0.5, time.Duration(rng.Int64N(int64(3*time.Second)))
		s.after(12*time.Second+time.Duration(rng.Int64N(int64(end-12*time.Second))), func() {
			if !s.srv.up {
				return
			}
			s.srv.stop()
			before := len(s.live())
			if all {
				for _, w := range s.live() {
					w.crash()
				}
			}
			s.after(back, func() {
				s.srv.restore(copies[rng.IntN(len(copies))])
				s.srv.start()
				for range before - len(s.live()) {
					s.startWorker()
				}
			})
		})
	}
	s.run(end+4*time.Second, nil)
	s.quiet = true
	s.srv.start()
	for len(s.live()) < 2 {
		s.startWorker()
	}
	s.run(s.now+2*s.cfg.Lease.TTL, nil)
	// Twice the time that a group may be without a leader: an ID of before may have to end.
	s.run(s.now+simCalm, s.check.atRest)
	if s.check.violation == nil && !s.check.atRest() {
		s.check.fail("liveness", "not at rest after the servers have forgotten: %s", s.check.whyNotAtRest())
	}
	return s.check.violation, s
}

// TestSimulatedForgetting: whatever state the buckets go back to, all is processed, in
// order, and the store takes no former owner's write after a later one's.
func TestSimulatedForgetting(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	raised, forgot := 0, 0
	for seed := uint64(1); seed <= *forgetSeeds; seed++ {
		v, s := forgettingRun(seed, simForgets{}, simBreakage{})
		if v != nil {
			t.Fatalf("seed %d: %s: %s\n%s", seed, v.name, v.text, s.lastSteps(simTold))
		}
		if s.check.total < 100 {
			t.Fatalf("seed %d: %d messages", seed, s.check.total)
		}
		raised += s.check.raised
		if s.srv.forgot {
			forgot++
		}
	}
	t.Logf("%d runs in which the servers forgot, %d raises", forgot, raised)
	if forgot < int(*forgetSeeds)/2 || raised == 0 {
		t.Errorf("the servers forgot in %d runs, fences were raised %d times: nothing is tried", forgot, raised)
	}
}

// TestSimulatedForgettingNeeds: without either answer a group stands still, and the
// simulation sees it.
func TestSimulatedForgettingNeeds(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for name, f := range map[string]simForgets{"the reports": {noReports: true}, "the comparison of revisions": {noKeeper: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 30; seed++ {
				if v, _ := forgettingRun(seed, f, simBreakage{}); v != nil {
					t.Logf("seed %d: %s: %.120s", seed, v.name, v.text)
					return
				}
			}
			t.Error("nothing goes wrong in any of the runs")
		})
	}
}

// forgot relaxes what rests on revisions that are given once: until the fences are raised
// two workers may have the same, and believe that they own a slot. Only the store's
// decisions count from here on.
func (c *simChecker) forgot() {
	c.forgotten, c.mapLost, c.current = true, true, nil
	c.audit.IgnoreFences()
	for i := range c.taken {
		c.taken[i] = make(map[Fence]bool)
	}
}
