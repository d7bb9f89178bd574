package partition

import (
	"math/rand/v2"
	"testing"
)

// This file simulates slots with several messages in flight.

// TestSimulationWithSeveralInFlight has two to eight messages of a slot in flight, with a
// retry queue in half of the runs, and few handlers in a quarter.
func TestSimulationWithSeveralInFlight(t *testing.T) {
	oneGoroutine(t)
	simulateSeeds(t, simVariant{retry: true, several: true}, "several")
}

// severalInFlight draws how many messages of a slot are in flight. The auditor, which began
// before the run's variant was known, begins again.
func (s *sim) severalInFlight() {
	rng := rand.New(rand.NewPCG(s.seed, 0x5e7))
	s.cfg.Delivery.InFlight = 2 + rng.IntN(7)
	if rng.IntN(4) == 0 {
		s.cfg.Delivery.MaxHandlers = 1 + rng.IntN(3)
	}
	for _, slot := range s.check.slots {
		slot.Parallel = true
	}
}
