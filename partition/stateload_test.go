package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

var (
	stateFrom = stateMove{record.Process{ID: "w-7", Claim: 3}, 9}
	stateTo   = stateMove{record.Process{ID: "w-8", Claim: 4}, 10}
)

// holdState has the slot held, as one whose state comes from another worker.
func (r *deliveryRig) holdState(from stateMove) {
	r.step(heldInput{place: rigSlot, fence: Fence{9, 1}, handed: from != stateMove{}, state: from})
}

func (r *deliveryRig) handOffState(to stateMove) {
	r.step(handOffInput{releaseEffect{place: rigSlot, leave: rigSlot.only(), state: to}})
}

// TestStateLoad has the owner of a slot get its state, and give it away.
func TestStateLoad(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(r *deliveryRig){
		"nothing begins before the state is there": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.come(1) // by an earlier pull
			r.callsFor(Fence{9, 1}, "a")
			r.expect(`load 1 from "w-7" version 9`, "expires in 1s")
			r.step(loadedInput{1, true})
			r.expect(`fetch 1 ""`, "serve a fence 9.1", "handle 1.1 attempt 1 fence 9.1")
		},
		"a slot that was taken over is prepared first": func(r *deliveryRig) {
			r.holdState(stateMove{})
			r.expect(`load 1 from "" version 0`)
			r.step(loadedInput{1, true})
			r.expect(`fetch 1 ""`)
		},
		"a later fence loads nothing again": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.step(loadedInput{1, true})
			r.told = nil
			r.step(heldInput{place: rigSlot, fence: Fence{11, 1}})
			r.expect()
		},
		"the state is offered after the last handler and before the release": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.step(loadedInput{1, true})
			r.come(1)
			r.told = nil
			r.handOffState(stateTo)
			r.expect() // the handler is at work
			r.returns(1, nil)
			r.expect("ack 1", "askUnpin")
			r.answer(1, answer{})
			r.expect("export to w-8 version 10", "report released, forced false", "ended 1")
		},
		"a next owner that can't have the state gets none": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.step(loadedInput{1, true})
			r.handOffState(stateMove{})
			r.told = nil
			r.answer(1, answer{})
			r.expect("released [3]", "report released, forced false", "ended 1")
		},
		"a state that is not complete is not offered": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.step(loadedInput{1, false})
			r.handOffState(stateTo)
			r.told = nil
			r.answer(1, answer{})
			r.expect("released [3]", "report released, forced false", "ended 1")
		},
		"a slot that goes elsewhere meanwhile is released when the load has ended": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.told = nil
			r.handOffState(stateTo)
			r.expect("stop load 1")
			r.step(loadedInput{1, false})
			r.expect("askUnpin")
			r.answer(1, answer{})
			r.expect("released [3]", "report released, forced false", "ended 1")
		},
		"a dropped slot ends after its load, and comes again after that": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.told = nil
			r.step(droppedInput{rigSlot})
			r.expect("stop load 1")
			r.holdState(stateMove{})
			r.expect()
			r.step(loadedInput{1, true})
			r.expect("released [3]", "ended 1", `load 2 from "" version 0`)
		},
		"a slot that is forced is stopped, too": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.handOffState(stateTo)
			r.told = nil
			r.step(forcedInput{rigSlot})
			r.expect("unpin and report forced")
			r.step(loadedInput{1, false})
			r.expect("ended 1")
		},
		"a slot that is handed off before it may begin loads nothing": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.step(droppedInput{rigSlot})
			r.holdState(stateMove{})
			r.told = nil
			r.handOffState(stateTo)
			r.expect()
			r.step(loadedInput{1, false})
			r.expect("released [3]", "ended 1", "askUnpin")
		},
		"an invalid lease keeps the load": func(r *deliveryRig) {
			r.holdState(stateFrom)
			r.told = nil
			r.step(validityInput{false})
			r.expect()
			r.step(loadedInput{1, true})
			r.come(1)
			r.expect(`fetch 1 ""`)
			r.step(validityInput{true})
			r.pass(time.Second)
			r.expect("look", "handle 1.1 attempt 1 fence 9.1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDeliveryRig(t, nil)
			r.d.loads = true
			test(r)
		})
	}
	t.Run("a handler without state loads nothing", func(t *testing.T) {
		t.Parallel()
		r := newDeliveryRig(t, nil)
		r.holdState(stateFrom)
		r.expect(`fetch 1 ""`)
		r.handOffState(stateMove{})
		r.told = nil
		r.answer(1, answer{})
		r.expect("released [3]", "report released, forced false", "ended 1")
	})
}

// TestStateMoveNamesTheHandoff: both workers of a handoff name the other one and the version of the
// map, and only if both have handlers whose state can move.
func TestStateMoveNamesTheHandoff(t *testing.T) {
	t.Parallel()
	peer := record.Process{ID: "sim-1", Claim: 8}
	prepared := func(m *machine, imports bool) stateMove {
		in := peerSays(peer, m.self, record.Prepared, record.SlotMark{Slot: 0, Version: 3})
		in.msg.Imports = imports
		for _, e := range m.step(m.now, in) {
			if r, is := e.(releaseEffect); is {
				return r.state
			}
		}
		t.Fatal("the slot is not released")
		return stateMove{}
	}
	released := func(m *machine) stateMove {
		for _, e := range m.step(m.now, peerSays(peer, m.self, record.Released, record.SlotMark{Slot: 2, Version: 3})) {
			if h, is := e.(holdEffect); is {
				return h.state
			}
		}
		t.Fatal("the slot is not held")
		return stateMove{}
	}
	want := stateMove{peer, 3}
	for name, tt := range map[string]struct {
		moves, imports bool
		of             func(*machine, bool) stateMove
		want           stateMove
	}{
		"old owner, both can":                {true, true, prepared, want},
		"old owner, the next one can't":      {true, false, prepared, stateMove{}},
		"old owner that can't":               {false, true, prepared, stateMove{}},
		"new owner by the release":           {true, false, func(m *machine, _ bool) stateMove { return released(m) }, want},
		"new owner that can't":               {false, false, func(m *machine, _ bool) stateMove { return released(m) }, stateMove{}},
		"new owner by the map":               {true, false, settledByTheMap, want},
		"new owner by the map that can't":    {false, false, settledByTheMap, stateMove{}},
		"new owner after the old one failed": {true, false, takenOver, stateMove{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, _ := joinedMachine(t)
			m.movesState = tt.moves
			if got := tt.of(m, tt.imports); got != tt.want {
				t.Errorf("it is %+v, want %+v", got, tt.want)
			}
		})
	}
}

// settledByTheMap has the map show the end of a handoff before the old owner's word comes.
func settledByTheMap(m *machine, _ bool) stateMove {
	next := m.cur.Clone()
	delete(next.Moves, 2)
	next.Owner[2], next.Since[2] = 0, 3
	return heldFrom(m.step(m.now, mapInput{next, 6}))
}

// takenOver has the old owner fail.
func takenOver(m *machine, _ bool) stateMove {
	next := m.cur.Clone()
	next.Version, next.Moves = 4, nil
	next.Owner[2], next.Since[2], next.Taking = 0, 4, map[int]bool{2: true}
	m.step(m.now, mapInput{next, 6})
	return heldFrom(m.step(m.now, peerSays(m.leader, m.self, record.Grant, record.SlotMark{Slot: 2, Version: 4})))
}

func heldFrom(effects []effect) stateMove {
	for _, e := range effects {
		if h, is := e.(holdEffect); is && h.slot == 2 {
			return h.state
		}
	}
	return stateMove{record.Process{ID: "none"}, 0}
}

// TestPreparedSaysWhetherStateCanCome: the old owner exports nothing for a worker that can't import.
func TestPreparedSaysWhetherStateCanCome(t *testing.T) {
	t.Parallel()
	for _, moves := range []bool{false, true} {
		m, _ := joinedMachine(t)
		m.movesState = moves
		said := false
		for _, e := range m.step(m.now, preparedInput{generation: m.own.generation, slots: []int{2}}) {
			if s, is := e.(sendEffect); is && s.msg.Kind == record.Prepared {
				said = s.msg.Imports
			}
		}
		if said != moves {
			t.Errorf("it says %t, want %t", said, moves)
		}
	}
}
