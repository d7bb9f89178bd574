package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// Servers with replicas that were away for longer than a lease lives find it expired, and
// propose its delete marker. A renewal that was proposed a moment before is not in their
// store yet. It is carried out, acknowledged, and then removed by the marker, which removes
// every earlier value of its key. servertest's TestAMarkerRemovesARenewal shows it on a
// real cluster.

// markerRun has all servers of a cluster go away for about as long as a lease lives, again and
// again, and returns what went wrong, nil for nothing.
func markerRun(seed uint64, broken simBreakage) (*sim, *simViolation) {
	s := newSim(seed, testing.Verbose())
	s.broken = broken
	s.cfg.Storage.Replicas = 3
	s.cfg.Lease = Lease{Heartbeat: 500 * time.Millisecond, TTL: 6 * time.Second, Margin: 1500 * time.Millisecond, IDTTL: 30 * time.Second,
		SuspicionGrace: 1500 * time.Millisecond, SuspicionMargin: 300 * time.Millisecond, ProbeInterval: 100 * time.Millisecond}
	s.cfg.Rebalance.RestartGrace = 100 * time.Millisecond // what a lease that ended by mistake must not rely on
	s.resize(12)
	s.faults = simFaults{latency: time.Millisecond, reconnect: 300 * time.Millisecond}
	for range 5 {
		s.startWorker()
	}
	s.run(8*time.Second, nil)
	end := s.now + 90*time.Second
	s.publish(end)

	for s.now < end && s.check.violation == nil {
		s.faults.linger, s.faults.lingerFor, s.faults.lateClock = 0.4, 400*time.Millisecond, 600*time.Millisecond
		s.srv.stop()
		s.run(s.now+s.cfg.Lease.TTL+s.between(-s.cfg.Lease.Heartbeat, s.cfg.Lease.Heartbeat/2), nil)
		s.srv.start()
		s.run(s.now+2*time.Second, nil)
		s.faults.linger = 0
		s.run(s.now+s.between(time.Second, 3*s.cfg.Lease.TTL), nil)
	}
	s.run(s.now+30*time.Second, nil)
	if s.check.violation == nil {
		s.allProcessed()
	}
	return s, s.check.violation
}

// TestMarkerOverARenewal: a worker doesn't rely on a renewal that the marker of the lease before
// it may remove. The leader, which sees the marker alone, gives the worker's slots away.
func TestMarkerOverARenewal(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, seed := range seeds(uint64(5 * *simQuiet)) {
		if s, v := markerRun(seed, simBreakage{}); v != nil {
			t.Fatalf("seed %d: %s: %s\n%s", seed, v.name, v.text, s.lastSteps(simTold))
		}
	}
}

// goneWhileValid: no leader takes a worker for gone that relies on its lease.
func (s *sim) goneWhileValid(by *simWorker, e event.Event) {
	if e.Kind != event.WorkerGone || s.stolen {
		return
	}
	gone := record.Process{ID: e.Peer, Claim: e.Claim}
	for _, w := range s.live() {
		relies := w.m.stage != stageGone && w.m.lease.valid && w.clock().Before(w.m.membership.leaseEnds())
		if w.m.self == gone && relies {
			s.check.fail("gone-while-valid", "%v says that %v is gone (%s), which relies on its lease", by, w, e.Reason)
		}
	}
}
