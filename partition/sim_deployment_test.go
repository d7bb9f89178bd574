package partition

import (
	"testing"
	"time"
)

// TestASimulatedDeploymentMovesNothing updates workers as a Deployment does. It waits for no worker that
// ends: as soon as a new one is ready, perhaps as a standby, an old one must end, the leader among
// them, and the next new one starts. So several end at once, and leaders follow each other.
func TestASimulatedDeploymentMovesNothing(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	latencies := []time.Duration{time.Millisecond, 30 * time.Millisecond, 150 * time.Millisecond}
	for _, seed := range seeds(uint64(20 * *simQuiet)) {
		surge, latency := 1+int(seed%3), latencies[seed/3%3]
		if v := updateAsDeployment(newSim(seed, false), surge, latency); v != nil {
			t.Errorf("seed %d, surge %d, latency %v: %s: %s", seed, surge, latency, v.name, v.text)
		}
	}
}

// updateAsDeployment replaces six workers as a Deployment does whose pods may be surge more than six,
// and of which none may be unavailable.
func updateAsDeployment(s *sim, surge int, latency time.Duration) *simViolation {
	s.resize(12)
	s.cfg.Delivery.AckWait = 4 * simCalm
	s.cfg.Rebalance.RestartGrace += 10 * latency // standbys that race for the same ID get one after the other
	s.faults = simFaults{latency: latency, reconnect: 600 * time.Millisecond}
	s.expect(6)
	for range 6 {
		s.startWorker()
	}
	s.after(5*time.Second, func() { s.publish(40 * time.Second) })
	s.run(6*time.Second, nil)
	before := s.check.current

	old := s.live()
	s.rng.Shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	for range surge {
		s.startWorker()
	}
	for len(old) > 0 && s.check.violation == nil {
		s.run(s.now+s.between(20*time.Millisecond, 300*time.Millisecond), nil)
		for n := s.readyWorkers(); n > 6 && len(old) > 0; n-- {
			old[0].step(leaveInput{})
			old = old[1:]
			s.after(s.between(50*time.Millisecond, 800*time.Millisecond), func() { s.startWorker() })
		}
	}

	s.run(max(s.now, 40*time.Second), nil)
	s.run(s.now+20*time.Second, s.check.atRest)
	return s.movedNothing(before, "an update by a Deployment")
}

// readyWorkers counts the workers whose pods would be ready.
func (s *sim) readyWorkers() (n int) {
	for _, w := range s.live() {
		if w.m.identity.standby || w.m.lease.valid && w.m.stage == stageJoined {
			n++
		}
	}
	return n
}
