package partition

import (
	"slices"
	"testing"
	"time"
)

// Two scenarios in which no repair helps: the look at a silent slot is off, and AckWait
// is longer than the run. So each message must find its way by the rules alone, and soon.

// withoutRepairs returns a run of eight slots whose delivery fixes nothing by itself.
func withoutRepairs(seed uint64, broken simBreakage) *sim {
	s := newSim(seed, false)
	s.resize(8)
	s.cfg.Delivery.AckWait = 4 * simCalm
	s.cfg.stalePinCheck = time.Hour
	s.broken = broken
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond}
	return s
}

// promptly: late, each message is processed within a time of its publication.
func (s *sim) promptly(within, end time.Duration) {
	for _, stored := range s.srv.stored {
		for _, m := range stored {
			if waited := s.now - m.published; waited > within && s.check.waits(m) {
				s.check.fail("late", "message %d (key %d, %d) of slot %d waits since %v: %s", m.seq, m.key, m.n, m.fine%s.cfg.Slots, waited, s.check.whyNotAtRest())
				return
			}
		}
	}
	if s.now < end {
		s.after(100*time.Millisecond, func() { s.promptly(within, end) })
	}
}

// handoffWithin is what a handoff may add to the way of a message in the simulator.
const handoffWithin = 2 * time.Second

// handoffs has workers join, give their slots away and get slots again under load, and
// nothing else happens. No process ends: the pulls of one that has ended wait at the
// server for a while, and one of them may get the pin.
func handoffs(seed uint64, broken simBreakage) *simViolation {
	s := withoutRepairs(seed, broken)
	s.faults.failWork = 0.05
	const end = 40 * time.Second
	for range 3 {
		s.startWorker()
	}
	s.after(5*time.Second, func() { s.publish(end) })
	var change func()
	change = func() {
		if s.now >= end {
			return
		}
		switch staying := s.staying(); {
		case len(staying) > 2 && (len(s.live()) > 5 || s.chance(0.5)):
			w := staying[s.rng.IntN(len(staying))]
			d := s.between(time.Second, 6*time.Second)
			s.logf("%s: asked to yield for %v", w, d)
			s.at(s.now, w, func() { w.step(drainInput{until: w.clock().Add(d)}) })
		case len(s.live()) < 6:
			s.startWorker()
		}
		s.after(s.between(time.Second, 5*time.Second), change)
	}
	s.after(s.between(5*time.Second, 8*time.Second), change)
	s.after(5*time.Second, func() { s.promptly(handoffWithin, end+simCalm) })
	return s.finish(end)
}

func (s *sim) staying() []*simWorker {
	return slices.DeleteFunc(s.live(), func(w *simWorker) bool { return w.m.stage != stageJoined || w.m.membership.draining() })
}

// finish runs until all is processed after the last fault.
func (s *sim) finish(end time.Duration) *simViolation {
	s.run(end, nil)
	s.calm()
	s.run(end+2*s.cfg.Lease.TTL, nil)
	s.run(end+simCalm, s.check.atRest)
	if s.check.violation == nil && !s.check.atRest() {
		s.check.fail("liveness", "not at rest %v after the last fault: %s", simCalm, s.check.whyNotAtRest())
	}
	return s.check.violation
}

// takeoverWithin is how long a message may wait when the worker of its slot does not
// answer any more: the lease, the leader's grace, a handler that does not heed its
// context where the slot comes back to its worker, and what has piled up meanwhile.
const takeoverWithin = 40 * time.Second

// simTakeovers has workers stopped and cut off for longer than their leases, and their
// slots taken, while they live on. Nothing that is sent is lost. Some handlers are
// slow, and some do not heed their context for long.
func simTakeovers(seed uint64, broken simBreakage) *simViolation {
	return takeoversAt(seed, broken, 1)
}

// idleTakeovers are takeovers of slots that have a message now and then. So the first
// that the earlier worker finds, when it continues, is often one that the server
// delivered after the takeover.
func idleTakeovers(seed uint64, broken simBreakage) *simViolation {
	return takeoversAt(seed, broken, 20)
}

func takeoversAt(seed uint64, broken simBreakage, slower int) *simViolation {
	s := withoutRepairs(seed, broken)
	s.slower = slower
	s.faults.stubborn, s.faults.slowWork = 0.3, 0.05
	const end = 60 * time.Second
	for range 4 {
		s.startWorker()
	}
	s.after(5*time.Second, func() { s.publish(end) })
	var disturb func()
	disturb = func() {
		if s.now >= end {
			return
		}
		w, d := s.anyone(), s.between(s.cfg.Lease.TTL/2, 3*s.cfg.Lease.TTL)
		switch {
		case w == nil:
		case s.chance(0.5) && !w.stopped:
			w.stop()
			s.after(d, w.goOn)
		case !w.link.cut:
			w.link.holdTraffic()
			s.after(d, w.link.release)
		}
		s.after(d+s.between(time.Second, 6*time.Second), disturb)
	}
	s.after(s.between(6*time.Second, 8*time.Second), disturb)
	s.after(5*time.Second, func() { s.promptly(takeoverWithin, end+simCalm) })
	return s.finish(end)
}

// wholeRun is a run of TestSimulation.
func wholeRun(seed uint64, broken simBreakage) *simViolation {
	s := newSim(seed, false)
	s.broken = broken
	return s.simulate()
}

func TestSimulatedDelivery(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for name, scenario := range map[string]func(uint64, simBreakage) *simViolation{
		"a handoff is prompt": handoffs, "a takeover is complete": simTakeovers, "a takeover of idle slots is complete": idleTakeovers,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				if v := scenario(seed, simBreakage{}); v != nil {
					t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
				}
			}
		})
	}
}

// TestSimulationCatchesBrokenDelivery proves the checker for the rules of delivery. None
// of the variants may hide behind a repair.
func TestSimulationCatchesBrokenDelivery(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		in     func(uint64, simBreakage) *simViolation
		broken simBreakage
		by     []string
		from   uint64 // the seed to begin with, where it is rare; 0: the first
	}{
		{"a message begins whether or not the lease is valid", simTakeovers, simBreakage{onDelivery: alwaysValid}, []string{"lease"}, 0},
		{"handlers are not interrupted when the lease becomes invalid", simTakeovers, simBreakage{onDelivered: interruptNone}, []string{"interrupt"}, 0},
		{"a new holding does not wait for the handler of the one before", simTakeovers, simBreakage{onDelivery: waitForNone}, []string{"one-handler"}, 50},
		{"the pin stays on at a handoff", handoffs, simBreakage{onDelivered: keepPin}, []string{"late", "liveness"}, 0},
		{"a takeover does not reset", simTakeovers, simBreakage{leftOut: map[takeoverStep]bool{stepReset: true}}, []string{"reset-before-hold", "late", "liveness"}, 0},
		{"a takeover does not take the pin off", simTakeovers, simBreakage{leftOut: map[takeoverStep]bool{stepUnpin: true}}, []string{"late", "liveness"}, 0},
		{"what comes for a slot that is not held is dropped", simTakeovers, simBreakage{onDelivered: returnNothing}, []string{"late", "liveness"}, 0},
		{"what comes after a handoff is dropped", handoffs, simBreakage{onDelivered: returnNothing}, []string{"late", "liveness"}, 0},
		{"what a dropped slot has not begun is not returned", simTakeovers, simBreakage{onDelivery: forgetMail}, []string{"late", "liveness"}, 0},
		{"what a dropped slot has in hand and has not begun is not returned", idleTakeovers, simBreakage{onDelivery: forgetHand}, []string{"late", "liveness"}, 0},
		{"a message in hand that is not settled is not returned at a handoff", handoffs, simBreakage{onDelivered: keepAtHandoff}, []string{"late", "liveness"}, 0},
		{"the handler of a slot that is handed off is not waited for", handoffs, simBreakage{onDelivery: leaveHandler}, []string{"one-handler", "one-owner", "order"}, 0},
		{"what was settled is handled again", wholeRun, simBreakage{onDelivery: forgetSettled}, []string{"again"}, 0},
		{"a message is acknowledged before it is processed", simTakeovers, simBreakage{ackFirst: true}, []string{"lost"}, 0},
		{"what failed is acknowledged", simTakeovers, simBreakage{onDelivery: neverFails}, []string{"lost"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := max(1, tt.from); seed <= 300; seed++ {
				v := tt.in(seed, tt.broken)
				if v == nil {
					continue
				}
				if !slices.Contains(tt.by, v.name) {
					t.Fatalf("seed %d: caught by %s (%s), want one of %v", seed, v.name, v.text, tt.by)
				}
				t.Logf("seed %d: %s: %.200s", seed, v.name, v.text)
				return
			}
			t.Error("nothing noticed")
		})
	}
}

// alwaysValid lets a delivery believe in its lease.
func alwaysValid(w *simWorker, in deliveryInput) deliveryInput {
	w.delivery.suspended = false
	w.delivery.until = w.clock().Add(time.Hour)
	return in
}

func interruptNone(w *simWorker, e deliveryEffect) deliveryEffect {
	if _, is := e.(interruptEffect); is && w.suspended {
		return nil
	}
	return e
}

// waitForNone lets a delivery forget what it has dropped.
func waitForNone(w *simWorker, in deliveryInput) deliveryInput {
	if _, is := in.(heldInput); is {
		for n, r := range w.delivery.runs {
			if r.stage == runDropped {
				delete(w.delivery.runs, n)
			}
		}
	}
	return in
}

func keepPin(w *simWorker, e deliveryEffect) deliveryEffect {
	if q, is := e.(askEffect); is {
		if _, is := q.question.(askUnpin); is {
			w.later(0, func() { w.deliver(answerInput{run: q.run, question: q.number}) })
			return nil
		}
	}
	return e
}

func returnNothing(_ *simWorker, e deliveryEffect) deliveryEffect {
	if _, is := e.(returnEffect); is {
		return nil
	}
	return e
}

func keepAtHandoff(_ *simWorker, e deliveryEffect) deliveryEffect {
	if s, is := e.(settleEffect); is && s.how == settleNak {
		return nil
	}
	return e
}

// forgetMail lets a slot that is dropped forget what it has not begun.
func forgetMail(w *simWorker, in deliveryInput) deliveryInput {
	var at place
	switch in := in.(type) {
	case droppedInput:
		at = in.place
	case forcedInput:
		at = in.place
	default:
		return in
	}
	if r := w.delivery.slots[at]; r != nil {
		r.pull.box = nil
		if len(r.calls) == 0 {
			r.lanes.clear(nil)
		}
	}
	return in
}

// forgetHand lets a slot that is dropped forget the message that waits for the lease.
func forgetHand(w *simWorker, in deliveryInput) deliveryInput {
	if off, is := in.(droppedInput); is {
		if r := w.delivery.slots[off.place]; r != nil && len(r.calls) == 0 {
			r.lanes.clear(nil)
		}
	}
	return in
}

// leaveHandler lets a slot be handed off as if no handler was running.
func leaveHandler(w *simWorker, in deliveryInput) deliveryInput {
	if off, is := in.(handOffInput); is {
		if r := w.delivery.slots[off.place]; r != nil {
			r.calls = nil
		}
	}
	return in
}

func forgetSettled(w *simWorker, in deliveryInput) deliveryInput {
	if _, is := in.(mailInput); is {
		for shard := range w.s.cfg.Shards {
			w.delivery.memory.shards[shard].slots = nil
		}
	}
	return in
}

func neverFails(_ *simWorker, in deliveryInput) deliveryInput {
	if h, is := in.(handledInput); is {
		h.err = nil
		return h
	}
	return in
}
