package partition

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// A change of the number of slots, twice as many, four times, and back, with the
// leader or an owner killed in its middle, or stopped beyond its lease.

// layoutFault strikes while slots are being exchanged.
type layoutFault func(*sim)

var layoutFaults = map[string]layoutFault{
	"none":             func(*sim) {},
	"leader killed":    func(s *sim) { s.leader().crash() },
	"owner killed":     func(s *sim) { s.follower().crash() },
	"owner stopped":    func(s *sim) { w := s.follower(); w.stop(); s.after(4*s.cfg.Lease.TTL, w.goOn) },
	"leader stopped":   func(s *sim) { w := s.leader(); w.stop(); s.after(4*s.cfg.Lease.TTL, w.goOn) },
	"connections lost": func(s *sim) { s.leader().link.lose(0); s.follower().link.lose(20 * time.Millisecond) },
	"server restarted": func(s *sim) { s.srv.stop(); s.after(time.Second, s.srv.start) },
	"owner leaves":     func(s *sim) { w := s.follower(); w.leaving = true; w.step(leaveInput{}) },
	"worker joins":     func(s *sim) { s.startWorker() },
}

// follower returns a worker that does not lead.
func (s *sim) follower() *simWorker {
	ws := slices.DeleteFunc(s.live(), func(w *simWorker) bool { return w.m.leaderLease.held })
	return ws[s.rng.IntN(len(ws))]
}

// changeLayout has five workers change from one number of slots to another under
// load, with a fault a moment after the change has begun.
func changeLayout(seed uint64, from, to int, fault layoutFault, broken simBreakage) (*simViolation, *sim) {
	s := newSim(seed, false)
	s.resize(8)
	s.refine(32)
	s.cfg.Delivery.AckWait = 4 * simCalm
	s.broken = broken
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond, losePeer: 0.1, dupePeer: 0.2, latePeer: 0.1, slowWork: 0.02}
	for range 5 {
		s.startWorker()
	}
	s.after(3*time.Second, func() { s.publish(40 * time.Second) })
	if from != 8 {
		s.setLayout(from)
	}
	s.run(20*time.Second, func() bool { return s.now > 8*time.Second && s.atSlots(from) })
	s.setLayout(to)
	s.run(s.now+20*time.Second, func() bool { return s.check.current.Former != nil })
	s.run(s.now+s.between(0, 60*time.Millisecond), nil)
	s.struck = s.check.current.Former != nil
	fault(s)
	s.run(max(s.now, 41*time.Second), nil)
	s.quiet = true
	s.run(s.now+2*s.cfg.Lease.TTL, nil)
	s.run(s.now+simCalm, s.check.atRest)
	if s.check.violation == nil && !s.check.atRest() {
		s.check.fail("liveness", "not at rest after a change of the layout: %s", s.check.whyNotAtRest())
	}
	return s.check.violation, s
}

// atSlots reports whether the keys are divided in n slots.
func (s *sim) atSlots(n int) bool {
	return s.check.current != nil && s.check.current.Slots == n && s.check.current.Settled()
}

func TestASimulatedChangeOfTheLayout(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for name, fault := range layoutFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs, struck := 0, 0
			for _, n := range [][2]int{{8, 16}, {8, 32}, {16, 8}, {32, 16}} {
				for seed := uint64(1); seed <= 5; seed++ {
					v, s := changeLayout(seed, n[0], n[1], fault, simBreakage{})
					if v != nil {
						t.Fatalf("seed %d, %d to %d slots: %s: %s", seed, n[0], n[1], v.name, v.text)
					}
					if s.check.relaid == 0 || s.check.total < 100 {
						t.Fatalf("seed %d: %d changes, %d messages", seed, s.check.relaid, s.check.total)
					}
					runs++
					if s.struck {
						struck++
					}
				}
			}
			if struck < runs/2 {
				t.Errorf("the fault struck in the middle of %d of %d changes", struck, runs)
			}
		})
	}
}

// TestBrokenChangesOfTheLayoutAreNoticed: each rule of the change, left out, is
// missed by an invariant.
func TestBrokenChangesOfTheLayoutAreNoticed(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken simBreakage
		by     []string
	}{
		{"the leader does not wait for the owners of the old generation", simBreakage{onInput: pretendReleased}, []string{"one-owner", "one-handler"}},
		{"an owner says that it has given up what it works on", simBreakage{onEffect: releaseOldAtOnce}, []string{"one-owner", "one-handler"}},
		{"the new owner does not wait for the exchange of consumers", simBreakage{onInput: pretendTaken}, []string{"reset-before-hold", "one-owner"}},
		{"a map of another generation leaves out whose it was", simBreakage{onEffect: forgetFormer}, []string{"layout"}},
		{"the former consumers stay", simBreakage{onEffect: keepConsumers}, []string{"liveness"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= 60; seed++ {
				v, _ := changeLayout(seed, 8, 16, layoutFaults["none"], tt.broken)
				if v == nil {
					continue
				}
				if !slices.Contains(tt.by, v.name) {
					t.Fatalf("seed %d: caught by %s (%s), want one of %v", seed, v.name, v.text, tt.by)
				}
				t.Logf("seed %d: %s: %s", seed, v.name, v.text)
				return
			}
			t.Error("nothing noticed")
		})
	}
}

// pretendReleased lets the leader believe that every owner has given up at once.
func pretendReleased(w *simWorker, in input) input {
	if m := w.m; m.cur != nil && m.cur.Former != nil && m.lead.takeovers.resharding.given != nil {
		for s := range m.cur.Former.Owner {
			m.lead.takeovers.resharding.given[s] = true
		}
	}
	return in
}

// releaseOldAtOnce answers for a slot of the old generation when its release begins.
func releaseOldAtOnce(w *simWorker, e effect) effect {
	if r, ok := e.(releaseEffect); ok && r.final {
		w.later(0, func() { w.step(slotReleasedInput{place: r.place, claim: r.claim}) })
		return nil
	}
	return e
}

func forgetFormer(_ *simWorker, e effect) effect {
	kv, ok := e.(kvEffect)
	if !ok || kv.purpose != forMapWrite {
		return e
	}
	a, err := record.DecodeAssignment(kv.value)
	if err != nil || a.Former == nil {
		return e
	}
	a.Former = nil
	kv.value = a.Encode()
	return kv
}

func keepConsumers(_ *simWorker, e effect) effect {
	if t, ok := e.(takeEffect); ok {
		t.retire = nil
		return t
	}
	return e
}
