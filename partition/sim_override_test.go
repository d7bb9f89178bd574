package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// operateOverrides sets and removes overrides now and then, in some runs, until end. What
// it draws, it draws by itself, so that runs without overrides are what they were.
func (s *sim) operateOverrides(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0x914))
	if rng.Float64() < 0.6 {
		return
	}
	var again func()
	again = func() {
		if s.now >= end {
			return
		}
		var overrides []Override
		for slot := range s.cfg.Slots {
			if rng.Float64() < 0.3 {
				overrides = append(overrides, Override{Slot: slot, Worker: fmt.Sprintf("sim-%d", rng.IntN(5))})
			}
		}
		s.writeOverrides(overrides)
		s.after(time.Duration(rng.Int64N(int64(8*time.Second))), again)
	}
	s.after(time.Duration(rng.Int64N(int64(6*time.Second))), again)
}

// swingWeights gives the slots weights, in some runs, that change now and then
// until end. It is called before any worker starts.
func (s *sim) swingWeights(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0x3e1))
	if rng.Float64() < 0.7 {
		return
	}
	s.cfg.Rebalance.Weights = func(context.Context) (map[string]uint64, error) { return nil, nil } // the simulator answers in its place
	s.cfg.Rebalance.WeightsInterval = time.Second
	var swing func()
	swing = func() {
		s.weights = make([]uint64, s.fine)
		for i := range s.weights {
			s.weights[i] = 1 + rng.Uint64N(8)
		}
		if s.now < end {
			s.after(time.Duration(rng.Int64N(int64(6*time.Second))), swing)
		}
	}
	swing()
}

// writeOverrides writes the overrides, as Group.Override and Group.RemoveOverrides do.
func (s *sim) writeOverrides(overrides []Override) {
	s.logf("overrides: %v", overrides)
	s.srv.put(s.srv.buckets[s.cfg.bucketMap()], kvEffect{key: overridesKey, value: mustJSON(overridesValue{Schema: valueSchema, Overrides: overrides})})
	s.overrides = bySlot(overrides, s.cfg.Slots)
}

// overridesKept reports whether every slot that is overridden to a worker that is there and
// takes slots is with it.
func (c *simChecker) overridesKept() bool { return c.unkeptOverride() == "" }

// unkeptOverride names one that is not kept.
func (c *simChecker) unkeptOverride() string {
	for slot, override := range c.s.overrides {
		for _, w := range c.s.workers {
			if w.dead || w.m.self.ID != override.Worker || w.m.stage != stageJoined || w.m.membership.draining() || c.current.index(w.m.self) == none {
				continue
			}
			if to := c.current.member(c.current.destination(slot)); to != w.m.self {
				return fmt.Sprintf("slot %d is overridden to %v and with %v", slot, w, to)
			}
		}
	}
	return ""
}
