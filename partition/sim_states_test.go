package partition

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"
)

// This file simulates handlers with state in memory that moves with the slots, and says what must
// never happen to it. Transfers fail at random; what they are like is tested with a server. One worker
// of five has no state to move, as an older version.

// simState is what a worker has in memory of a slot: how many messages of each key were processed.
type simState struct {
	counts map[int]int
	// read is when the state was read of the store, by an owner with this fence. A former owner that
	// has yet to notice its loss may write later, with a lower one.
	read time.Duration
	by   Fence
}

func (m *simState) clone() *simState {
	return &simState{maps.Clone(m.counts), m.read, m.by}
}

// simStored is what the handlers' store has of a key.
type simStored struct {
	count int
	by    Fence
	at    time.Duration
}

// simStates knows the states of all workers, and the store.
type simStates struct {
	s                   *sim
	store               map[int]simStored
	prepared, imported  int
	missed              int // imports that failed
	exported, withdrawn int
	stale               bool // broken: any state that was ever offered is taken
}

// simMover is the memory of one worker.
type simMover struct {
	memory map[place]*simState
	offers map[place]simOffer
	loads  map[uint64]bool     // by run, whether it was stopped
	given  map[uint64]bool     // runs whose state was offered
	early  map[place]*simState // broken: as it was before the last handler returned
	kept   map[place]*simState // the first that was offered
}

type simOffer struct {
	to    stateMove
	state *simState
}

// moveState has a worker's handler be a StateMover.
func (w *simWorker) moveState() {
	w.m.movesState, w.delivery.loads = true, true
	w.mover = &simMover{make(map[place]*simState), make(map[place]simOffer), make(map[uint64]bool), make(map[uint64]bool), make(map[place]*simState), make(map[place]*simState)}
}

// carryOutState is stateExchange.execute.
func (w *simWorker) carryOutState(e deliveryEffect) {
	s := w.s
	switch e := e.(type) {
	case loadEffect:
		for at := range w.mover.offers {
			if at == e.place || at.generation != e.generation && at.shares(e.place) {
				delete(w.mover.offers, at)
				s.states.withdrawn++
			}
		}
		w.mover.loads[e.run] = false
		d := s.between(0, 20*time.Millisecond)
		if s.chance(0.1) {
			d = s.between(0, s.cfg.State.Timeout+s.cfg.Rebalance.PrepareTimeout)
		}
		w.later(d, func() { w.loaded(e) })
	case stopLoadEffect:
		w.mover.loads[e.run] = true
	case exportEffect:
		run := w.runOf(e.place)
		w.mover.given[run] = true
		state := w.mover.memory[e.place].clone()
		if early := w.mover.early[e.place]; early != nil {
			state = early
		}
		w.mover.offers[e.place] = simOffer{e.state, state}
		if w.mover.kept[e.place] == nil {
			w.mover.kept[e.place] = state.clone()
		}
		s.states.exported++
	}
}

// runOf returns the latest run of a slot.
func (w *simWorker) runOf(at place) (last uint64) {
	for run, r := range w.runs {
		if r.place == at {
			last = max(last, run)
		}
	}
	return last
}

// loaded ends a load: by the old owner's state, by the store, or by nothing.
func (w *simWorker) loaded(e loadEffect) {
	s := w.s
	stopped := w.mover.loads[e.run]
	delete(w.mover.loads, e.run)
	if stopped {
		w.deliver(loadedInput{e.run, false})
		return
	}
	if w.delivery.runs[e.run] == nil {
		return // it has ended without the state, which only a broken variant does
	}
	state := s.states.handed(w, e)
	if state == nil {
		state = &simState{counts: make(map[int]int), read: s.now, by: w.delivery.runs[e.run].fence}
		for key, of := range s.states.store {
			if SlotOf(e.slots, fmt.Sprint(key)) == e.slot {
				state.counts[key] = of.count
			}
		}
		s.states.prepared++
	}
	w.mover.memory[e.place] = state
	w.deliver(loadedInput{e.run, true})
}

// handed returns what the old owner of a slot gives for a handoff, nil for nothing.
func (x *simStates) handed(w *simWorker, e loadEffect) *simState {
	if e.state == (stateMove{}) {
		return nil
	}
	for _, o := range x.s.workers {
		if o.dead || o.mover == nil || o.listening != e.state.peer || x.s.chance(0.1) {
			continue
		}
		if kept := o.mover.kept[e.place]; x.stale && kept != nil {
			return kept.clone()
		}
		if offer := o.mover.offers[e.place]; offer.to == (stateMove{w.m.self, e.state.version}) {
			delete(o.mover.offers, e.place)
			x.imported++
			return offer.state
		}
	}
	x.missed++
	return nil
}

// applied looks at a message that a handler has processed, and adds it to store and memory.
//
// state-first: a slot's handler has its state. state-exact: what it has is what the store has, unless
// a former owner that has yet to notice its loss has written since. state-last: no handler works when
// the state was given away.
func (x *simStates) applied(w *simWorker, h *simHandler) {
	if x == nil {
		return
	}
	key, c, stored := h.msg.key, x.s.check, x.store[h.msg.key]
	x.store[key] = simStored{stored.count + 1, h.fence, x.s.now}
	if w.mover == nil || c.forgotten {
		return
	}
	state := w.mover.memory[h.r.place]
	if state == nil {
		c.fail("state-first", "%v: slot %d, key %d is processed without the state of the slot", w, h.r.slot, key)
		return
	}
	if w.mover.given[h.r.number] {
		c.fail("state-last", "%v: slot %d, key %d is processed after the state of the slot was given away", w, h.r.slot, key)
	}
	if have := state.counts[key]; have != stored.count && (stored.at <= state.read || stored.by.Compare(state.by) >= 0) {
		c.fail("state-exact", "%v: slot %d, key %d has %d messages in memory, and %d in the store by %v", w, h.r.slot, key, have, stored.count, stored.by)
	}
	state.counts[key] = stored.count + 1
}

// simulateStates runs a seed with states.
func simulateStates(seed uint64, broken simBreakage, stale bool) (*sim, *simViolation) {
	s := newSim(seed, false)
	s.variant, s.broken = simVariant{retry: true, states: true, several: seed%2 == 0, calls: seed%3 == 0}, broken
	s.states = &simStates{s: s, store: make(map[int]simStored), stale: stale}
	return s, s.simulate()
}

// TestSimulatedStates has the states of slots move while workers join, leave, crash and freeze.
func TestSimulatedStates(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	var total simStates
	// 1128: a worker drains no longer while a plan that is not worth its moves is made.
	for _, seed := range append(seeds(200), 1128) {
		s, v := simulateStates(seed, simBreakage{}, false)
		if v != nil {
			t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
		}
		total.prepared += s.states.prepared
		total.imported += s.states.imported
		total.missed += s.states.missed
		total.exported += s.states.exported
		total.withdrawn += s.states.withdrawn
	}
	t.Logf("%d states exported, %d imported, %d not, %d withdrawn; %d slots prepared", total.exported, total.imported, total.missed, total.withdrawn, total.prepared)
	if total.imported == 0 || total.missed == 0 || total.withdrawn == 0 || total.prepared == 0 {
		t.Error("one of these never happens")
	}
}

// TestSimulationCatchesBrokenStates proves the checker for the rules of states.
func TestSimulationCatchesBrokenStates(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken simBreakage
		stale  bool
		by     []string
	}{
		{"a slot begins before its state is there", simBreakage{onDelivered: beginUnloaded}, false, []string{"state-first", "state-exact"}},
		{"a state is offered before the last handler has returned", simBreakage{onDelivery: exportAtOnce}, false, []string{"state-exact"}},
		{"a state of an earlier handoff is taken", simBreakage{}, true, []string{"state-exact"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed < 1000; seed++ {
				_, v := simulateStates(seed, tt.broken, tt.stale)
				if v == nil {
					continue
				}
				if !slices.Contains(tt.by, v.name) {
					t.Fatalf("seed %d: caught by %s (%s), want %s", seed, v.name, v.text, tt.by)
				}
				t.Logf("seed %d: %s: %s", seed, v.name, v.text)
				return
			}
			t.Error("nothing noticed")
		})
	}
}

// beginUnloaded lets a slot begin while its state is loaded.
func beginUnloaded(w *simWorker, e deliveryEffect) deliveryEffect {
	if load, is := e.(loadEffect); is {
		w.later(0, func() { w.deliver(loadedInput{load.run, true}) })
	}
	return e
}

// exportAtOnce takes the state that is offered from the time when the slot was to be handed off.
func exportAtOnce(w *simWorker, in deliveryInput) deliveryInput {
	handOff, is := in.(handOffInput)
	if !is || w.mover == nil || w.mover.memory[handOff.place] == nil {
		return in
	}
	w.mover.early[handOff.place] = w.mover.memory[handOff.place].clone()
	return in
}

// seeds returns the numbers from 1 to n.
func seeds(n uint64) []uint64 {
	var all []uint64
	for seed := uint64(1); seed <= n; seed++ {
		all = append(all, seed)
	}
	return all
}
