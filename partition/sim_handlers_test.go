package partition

import (
	"math/rand/v2"
	"testing"
	"time"
)

// This file simulates workers with few handlers, so that slots wait for their turn.

// TestSimulationWithFewHandlers bounds the handlers of a worker so tightly that its slots
// wait for each other, with a retry queue in half of the runs. The traces of 2,000 seeds are
// frozen.
func TestSimulationWithFewHandlers(t *testing.T) {
	oneGoroutine(t)
	simulateSeeds(t, simVariant{retry: true, few: true}, "few")
}

// limitHandlers allows a worker one to three handlers. Some keys fail in runs without a
// retry queue, too: there a slot waits for its turn again and again.
func (s *sim) limitHandlers(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0x11a))
	s.cfg.Delivery.MaxHandlers = 1 + rng.IntN(3)
	if s.cfg.Retry.Disabled && rng.IntN(2) == 0 {
		s.failKeys(end, rng)
	}
}

// withinLimit: max-handlers, a worker runs no more handlers at once than it may. One that
// was interrupted and has not returned counts.
func (c *simChecker) withinLimit(w *simWorker) {
	n := 0
	for _, r := range w.runs {
		n += len(r.handlers) + len(r.services)
	}
	if most := c.s.cfg.Delivery.MaxHandlers; n > most {
		c.fail("max-handlers", "%v runs %d handlers at once, at most %d may", w, n, most)
	}
}

// TestSimulationCatchesBrokenHandlerLimit proves the checker for the limit.
func TestSimulationCatchesBrokenHandlerLimit(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken simBreakage
		by     string
	}{
		{"the limit is ignored", simBreakage{onDelivery: ignoreLimit}, "max-handlers"},
		{"a handler counts until it is interrupted only", simBreakage{onDelivered: forgetInterrupted}, "max-handlers"},
		{"turns are never given", simBreakage{onDelivery: loseTurns}, "liveness"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.broken.lonely = true
			for seed := uint64(1); seed < 1000; seed++ {
				s := newSim(seed, false)
				s.variant, s.broken = simVariant{retry: true, few: true}, tt.broken
				v := s.simulate()
				if v == nil {
					continue
				}
				if v.name != tt.by {
					t.Fatalf("seed %d: caught by %s (%s), want %s\n%s", seed, v.name, v.text, tt.by, story(seed, s.variant, tt.broken, simTold))
				}
				t.Logf("seed %d: %s: %s", seed, v.name, v.text)
				return
			}
			t.Error("nothing noticed")
		})
	}
}

func ignoreLimit(w *simWorker, in deliveryInput) deliveryInput {
	w.delivery.handlers.most = mostHandlers
	return in
}

// forgetInterrupted takes the permit of a handler back when its context ends, once for each.
func forgetInterrupted(w *simWorker, e deliveryEffect) deliveryEffect {
	if _, is := e.(interruptEffect); is {
		w.delivery.handlers.most++
	}
	return e
}

// loseTurns lets a run that waits for its turn wait without end.
func loseTurns(w *simWorker, in deliveryInput) deliveryInput {
	w.delivery.handlers.waiting = nil
	return in
}
