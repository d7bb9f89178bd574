package partition

import (
	"testing"
	"time"
)

// remadeStreams has four workers work while their streams are deleted and made again,
// several times, with deaths, cuts and restarts of the server between.
func remadeStreams(seed uint64, broken simBreakage) (*simViolation, *sim) {
	s := newSim(seed, false)
	s.resize(8)
	s.cfg.Delivery.AckWait = 4 * simCalm
	s.broken = broken
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond, slowWork: 0.02, failWork: 0.02}
	for range 4 {
		s.startWorker()
	}
	const end = 40 * time.Second
	s.after(3*time.Second, func() { s.publish(end) })
	for range 2 + s.rng.IntN(3) {
		provisioned := s.chance(0.5)
		s.after(s.between(5*time.Second, end), func() { s.srv.remake(provisioned) })
	}
	if s.chance(0.5) {
		s.after(s.between(5*time.Second, end), func() { s.srv.stop(); s.after(time.Second, s.srv.start) })
	}
	if s.chance(0.5) {
		s.after(s.between(5*time.Second, end), func() { s.follower().crash() })
	}
	if s.chance(0.5) {
		s.after(s.between(5*time.Second, end), func() { s.follower().link.lose(0) })
	}
	s.run(end+time.Second, nil)
	s.quiet = true
	s.run(s.now+2*s.cfg.Lease.TTL, nil)
	s.run(s.now+simCalm, s.check.atRest)
	if s.check.violation == nil && !s.check.atRest() {
		s.check.fail("liveness", "not at rest after the streams were made again: %s", s.check.whyNotAtRest())
	}
	return s.check.violation, s
}

// TestSimulatedStreamMadeAgain: whatever is published after it is processed.
func TestSimulatedStreamMadeAgain(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for seed := uint64(1); seed <= 60; seed++ {
		v, s := remadeStreams(seed, simBreakage{})
		if v != nil {
			t.Fatalf("seed %d: %s: %s\n%s", seed, v.name, v.text, s.lastSteps(simTold))
		}
		if s.check.total < 100 {
			t.Fatalf("seed %d: %d messages", seed, s.check.total)
		}
	}
}

// TestSimulatedStreamMadeAgainNeedsMoreThanSequences: a worker that goes by sequences
// loses messages, and the simulation sees it.
func TestSimulatedStreamMadeAgainNeedsMoreThanSequences(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for seed := uint64(1); seed <= 20; seed++ {
		if v, _ := remadeStreams(seed, simBreakage{bareSequences: true}); v != nil {
			if v.name != "lost" {
				t.Errorf("seed %d: %s: %s", seed, v.name, v.text)
			}
			return
		}
	}
	t.Error("nothing is lost in any of the runs")
}
