package partition

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
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

// shown returns what the replica shows: what has expired leaves no delete marker, since
// markers are entries of the log, too.
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
	if s.cfg.Storage.Replicas < 3 || rng.Float64() < 0.4 {
		return
	}
	for range 1 + rng.IntN(4) {
		name := s.srv.names[rng.IntN(len(s.srv.names))]
		long := time.Duration(rng.Int64N(int64(4 * s.cfg.Lease.TTL)))
		s.after(time.Duration(rng.Int64N(int64(end))), func() { s.srv.fallBehind(s.srv.buckets[name], long) })
	}
}

// lags are ways in which a leader comes to list the leases at a replica that has yet to
// catch up.
var lags = map[string]func(s *sim, leases *simBucket){
	// Every lease has expired there. The renewals have not arrived.
	"the leader lists again": func(s *sim, leases *simBucket) {
		s.srv.fallBehind(leases, 3*s.cfg.Lease.TTL)
		s.run(s.now+s.cfg.Lease.TTL+100*time.Millisecond, nil)
		s.leader().step(connectionInput{up: true})
	},
	"another worker leads": func(s *sim, leases *simBucket) {
		s.srv.fallBehind(leases, 3*s.cfg.Lease.TTL)
		s.run(s.now+s.cfg.Lease.TTL+100*time.Millisecond, nil)
		s.leader().crash()
	},
	// Two leases are younger than what the replica holds. So few don't look like a fault
	// of the servers.
	"another worker leads, soon after two have joined": func(s *sim, leases *simBucket) {
		s.srv.fallBehind(leases, 3*s.cfg.Lease.TTL)
		s.startWorker()
		s.startWorker()
		s.run(s.now+4*time.Second, nil)
		s.leader().crash()
	},
}

// laggingRun returns what went wrong, "" for nothing: no live worker is taken for dead.
func laggingRun(seed uint64, lag func(s *sim, leases *simBucket), broken simBreakage) (s *sim, wrong string) {
	s = newSim(seed, testing.Verbose())
	s.broken = broken
	s.cfg.Storage.Replicas, s.cfg.Lease.TTL, s.cfg.Lease.IDTTL = 3, 8*time.Second, 16*time.Second
	s.resize(12)
	s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
	s.observe = func(by *simWorker, e event.Event) {
		for _, w := range s.live() {
			if e.Kind == event.WorkerGone && w.m.self == (record.Process{ID: e.Peer, Claim: e.Claim}) && wrong == "" {
				wrong = fmt.Sprintf("%v says that %v is gone (%s), which lives", by, w, e.Reason)
			}
		}
	}
	for range 4 {
		s.startWorker()
	}
	s.run(8*time.Second, nil)

	lag(s, s.srv.buckets[s.cfg.bucketLeases()])
	s.run(s.now+4*s.cfg.Lease.TTL, nil)

	if v := s.check.violation; v != nil {
		return s, v.name + ": " + v.text
	}
	return s, wrong
}

// TestLaggingReplica: no worker is taken for dead because a list lacks its lease.
func TestLaggingReplica(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for name, lag := range lags {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				if s, wrong := laggingRun(seed, lag, simBreakage{}); wrong != "" {
					t.Fatalf("seed %d: %s\n%s", seed, wrong, s.lastSteps(simTold))
				}
			}
		})
	}
}

// TestABelievedListIsNoticed has a new leader take a list's word for it that a lease is
// over.
func TestABelievedListIsNoticed(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	broken := simBreakage{onInput: func(_ *simWorker, in input) input {
		if kv, ok := in.(kvInput); ok && kv.purpose == forFencing && kv.rev == 0 {
			kv.err = nil
			return kv
		}
		return in
	}}
	for seed := uint64(1); seed <= 60; seed++ {
		if _, wrong := laggingRun(seed, lags["another worker leads, soon after two have joined"], broken); wrong != "" {
			t.Logf("seed %d: %s", seed, wrong)
			return
		}
	}
	t.Error("nothing noticed")
}
