package partition

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A bucket with three replicas is read from any of them. One that was restarted answers
// before it has caught up: its watches and lists show what it held when it stopped, but
// for what has expired since then, which every replica removes by its own clock. The
// renewals are in the entries that it has yet to receive, and so a live worker's lease is
// not there. Writes, and reads that the bucket's leader answers, are not affected.

// simReplica is a replica of a bucket that has yet to catch up.
type simReplica struct {
	srv  *simServer
	held []*simKV // the last values of the keys when it stopped, by revision
}

// shown returns what the replica shows: no trace is left of what has expired, since
// traces are entries of the log, too.
func (r *simReplica) shown() []*simKV {
	var all []*simKV
	for _, kv := range r.held {
		if kv.expires == 0 || kv.expires > r.srv.s.now {
			all = append(all, kv)
		}
	}
	return all
}

// fallBehind has one replica of a bucket miss all that is written for a while. Some of
// the watches are with it.
func (srv *simServer) fallBehind(b *simBucket, d time.Duration) {
	if b.replica != nil || b.gone {
		return
	}
	srv.s.logf("server: a replica of %s falls behind", b.name)
	r := &simReplica{srv: srv}
	for _, kv := range b.log {
		if b.last[kv.key] == kv {
			r.held = append(r.held, kv)
		}
	}
	b.replica = r
	for _, wa := range b.watches {
		wa.place()
	}
	srv.s.after(d, func() { srv.catchUp(b, r) })
}

// catchUp delivers to the replica, and so to its watches, what it has missed.
func (srv *simServer) catchUp(b *simBucket, r *simReplica) {
	if b.replica != r {
		return // lost with the bucket
	}
	srv.s.logf("server: the replica of %s has caught up", b.name)
	b.replica = nil
	for _, wa := range b.watches {
		if wa.replica != r {
			continue
		}
		wa.replica = nil
		if !wa.open {
			continue
		}
		for _, kv := range b.log {
			wa.push(kv)
		}
	}
}

// place draws the replica that a watch is with.
func (wa *simWatch) place() {
	wa.replica = nil
	if r := wa.b.replica; r != nil && wa.w.s.chance(0.5) {
		wa.replica = r
	}
}

// laggingReplicas has replicas fall behind in some of the runs that have any, by numbers
// of its own.
func (s *sim) laggingReplicas(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0x1a6))
	if s.cfg.Replicas < 3 || rng.Float64() < 0.4 {
		return
	}
	for range 1 + rng.IntN(4) {
		name := s.srv.names[rng.IntN(len(s.srv.names))]
		long := time.Duration(rng.Int64N(int64(4 * s.cfg.LeaseTTL)))
		s.after(time.Duration(rng.Int64N(int64(end))), func() { s.srv.fallBehind(s.srv.buckets[name], long) })
	}
}

// TestLaggingReplica has the leader list the leases at a replica that shows none, since
// they have expired there and their renewals have not arrived. No worker is gone.
func TestLaggingReplica(t *testing.T) {
	t.Parallel()
	for name, relist := range map[string]func(s *sim){
		"the leader lists again": func(s *sim) { s.leader().step(connectionInput{up: true}) },
		"another worker leads":   func(s *sim) { s.leader().m.resign() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 40; seed++ {
				s := newSim(seed, testing.Verbose())
				s.cfg.Replicas = 3
				s.resize(12)
				s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
				for range 6 {
					s.startWorker()
				}
				s.run(8*time.Second, nil)
				before := s.check.current
				leases := s.srv.buckets[s.cfg.bucketLeases()]

				s.srv.fallBehind(leases, 3*s.cfg.LeaseTTL)
				s.run(s.now+s.cfg.LeaseTTL+100*time.Millisecond, nil) // what it holds has expired
				relist(s)
				s.run(s.now+4*s.cfg.LeaseTTL, nil)

				if v := s.check.violation; v != nil {
					t.Fatalf("seed %d: %s: %s\n%s", seed, v.name, v.text, s.lastSteps(simTold))
				}
				for slot := range before.Slots {
					if was, is := before.owner(slot), s.check.current.owner(slot); was != is {
						t.Fatalf("seed %d: slot %d was %v's and is %v's; no worker has gone\n%s", seed, slot, was, is, s.lastSteps(simTold))
					}
				}
			}
		})
	}
}

// TestABelievedListIsNoticed has a leader take a list's word for it that a lease is over.
func TestABelievedListIsNoticed(t *testing.T) {
	t.Parallel()
	broken := simBreakage{onInput: func(_ *simWorker, in input) input {
		if kv, ok := in.(kvInput); ok && kv.purpose == forFencing && kv.rev == 0 {
			kv.err = nil
			return kv
		}
		return in
	}}
	for seed := uint64(700); seed <= 3000; seed++ {
		s := newSim(seed, false)
		s.broken = broken
		v := s.simulate()
		if v == nil {
			continue
		}
		if !slices.Contains([]string{"one-owner", "one-handler"}, v.name) {
			t.Fatalf("seed %d: caught by %s (%s)\n%s", seed, v.name, v.text, story(seed, false, broken, simTold))
		}
		t.Logf("seed %d: %s: %s", seed, v.name, v.text)
		return
	}
	t.Error("nothing noticed")
}
