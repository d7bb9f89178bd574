package partition

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// This file has workers of the previous version in a simulated group: they write maps
// of the previous schema, can't read those of this one, and say so in their leases.

var (
	schemaOfThis = fmt.Appendf(nil, `{"schema":%d,`, record.MapSchema)
	schemaOfNext = fmt.Appendf(nil, `{"schema":%d,`, record.MapSchema+1)
)

// startPrevious starts a worker of the previous version.
func (s *sim) startPrevious() *simWorker {
	s.previous = true
	defer func() { s.previous = false }()
	return s.startWorker()
}

// writes is what a worker writes, in the format of its version.
func (w *simWorker) writes(e kvEffect) kvEffect {
	switch {
	case !w.previous:
	case e.key == record.AssignmentKey:
		if a, err := record.DecodeAssignment(e.value); err == nil {
			a.Schema = record.MapSchema - 1
			e.value = record.Encode(a)
		}
	case e.bucket == w.s.cfg.bucketLeases():
		e.value = bytes.Replace(e.value, fmt.Appendf(nil, `"map_schema":%d`, record.MapSchema), fmt.Appendf(nil, `"map_schema":%d`, record.MapSchema-1), 1)
	}
	return e
}

// reads is the value of a record as a worker of its version sees it: to one of the
// previous version, a map of this one is of a newer schema.
func (w *simWorker) reads(value []byte) []byte {
	if !w.previous {
		return value
	}
	return bytes.Replace(value, schemaOfThis, schemaOfNext, 1)
}

// readsResult is the same for the result of an operation.
func (w *simWorker) readsResult(in kvInput) kvInput {
	if !w.previous || in.bucket != w.s.cfg.bucketMap() {
		return in
	}
	in.gotValue = w.reads(in.gotValue)
	in.history = slices.Clone(in.history)
	for i := range in.history {
		in.history[i].value = w.reads(in.history[i].value)
	}
	return in
}

// readsLease is a lease as a worker of its version sees it: every worker reads the maps of the
// previous version.
func (w *simWorker) readsLease(v record.Heartbeat) record.Heartbeat {
	if w.previous {
		v.MapSchema = record.MapSchema
	}
	return v
}

// heldOnce tells what is wrong with the slots: each has to be held by one live worker.
func (s *sim) heldOnce() string {
	holders := make([][]string, s.cfg.Slots)
	for _, w := range s.live() {
		for slot, st := range w.m.own.slots {
			if st.phase == phaseHolding {
				holders[slot] = append(holders[slot], w.String())
			}
		}
	}
	for slot, by := range holders {
		if len(by) != 1 {
			return fmt.Sprintf("slot %d is held by %v", slot, by)
		}
	}
	return ""
}

// touchedOutdated reports whether a map gives a slot to a worker of the previous version,
// or takes one from such a worker that stays.
func (s *sim) touchedOutdated(before, after *record.Assignment) string {
	previous, stays := map[record.Process]bool{}, map[record.Process]bool{}
	for _, w := range s.live() {
		previous[w.m.self] = w.previous
		stays[w.m.self] = w.previous && w.m.stage == stageJoined
	}
	for slot := range after.Owner {
		was, is := before.Worker(before.Destination(slot)), after.Worker(after.Destination(slot))
		switch {
		case was == is:
		case previous[is]:
			return fmt.Sprintf("slot %d of %v goes to %v, which is outdated", slot, was, is)
		case stays[was]:
			return fmt.Sprintf("slot %d goes from %v, which is outdated and stays, to %v", slot, was, is)
		}
	}
	return ""
}

// TestRollingUpdateFromPreviousVersion replaces the workers of the previous version one
// by one, the leader first as long as it is one of them. Whichever worker leads, the slots of the
// one that leaves are soon held by others.
func TestRollingUpdateFromPreviousVersion(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	const all = 4
	ledOld := 0
	for seed := uint64(1); seed <= 20; seed++ {
		s := newSim(seed, testing.Verbose())
		cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Retry: Retry{Disabled: true}, Identity: Identity{PoolSize: 20}, Delivery: Delivery{AckWait: 4 * simCalm}, Rebalance: Rebalance{LeaveTimeout: 6 * time.Second, ColdWindow: 2 * time.Second, PlannedWindow: time.Second, PrepareTimeout: time.Second}}
		s.cfg = cfg.resolve()
		s.resize(24)
		s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond}
		var old []*simWorker
		for range all {
			old = append(old, s.startPrevious())
		}
		s.run(8*time.Second, nil)
		s.startWorker()
		s.run(s.now+8*time.Second, nil)
		if wrong := s.heldOnce(); wrong != "" || s.check.current.Version < 2 {
			t.Fatalf("seed %d: before the update, with map version %d: %s", seed, s.check.current.Version, wrong)
		}
		last := s.leader().m.cur
		s.observe = func(w *simWorker, e event.Event) {
			if e.Kind != event.MapPublished {
				return
			}
			before := last
			last = w.m.cur
			if wrong := s.touchedOutdated(before, last); wrong != "" && !w.previous {
				t.Errorf("seed %d: version %d of %v: %s", seed, e.Version, w, wrong)
			}
		}
		s.publish(s.now + 4*time.Minute)
		s.operateOverrides(s.now + 4*time.Minute)
		for len(old) > 0 {
			gone := 0
			if i := slices.Index(old, s.leader()); i >= 0 {
				gone = i
			} else if len(old) > 1 {
				ledOld++
			}
			w := old[gone]
			old = slices.Delete(old, gone, gone+1)
			s.at(s.now, w, func() { w.step(leaveInput{}) })
			s.run(s.now+15*time.Second, func() bool { return w.dead })
			s.startWorker()
			s.run(s.now+20*time.Second, func() bool { return s.heldOnce() == "" })
			if wrong := s.heldOnce(); wrong != "" {
				t.Fatalf("seed %d: 20 s after a worker of the previous version left, %d of them remain, %v leads: %s\n%s", seed, len(old), s.leader(), wrong, s.lastSteps(10))
			}
			s.run(s.now+30*time.Second, nil)
		}
		if version := s.check.current.Version; version > 60 {
			t.Errorf("seed %d: the map has version %d: the leader plans over and over", seed, version)
		}
		if v := s.finish(s.now + 10*time.Second); v != nil {
			t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
		}
	}
	if ledOld == 0 {
		t.Error("no worker of this version has led two of the previous one")
	}
	t.Logf("a worker of this version led two or more of the previous one at %d steps", ledOld)
}
