package partition

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// oldSlots are the slots of the old generation that this worker still works on while the
// group is resharded. The map names the old generation's owners beside the new map. An
// owner works on until the leader asks for a slot, which it does a few at a time. Then
// the owner ends what it has of the slot, and reports that it is released. It never takes
// such a slot again, so nothing here goes back to an earlier phase.
type oldSlots struct {
	*core

	generation generation
	slots      map[int]*slotState // what is not released
	asked      map[int]uint64     // what the leader asks for, by which version
}

func (o *oldSlots) reset() {
	o.generation = generation{}
	o.slots = make(map[int]*slotState)
	o.asked = make(map[int]uint64)
}

// begin follows a map of another generation than was: what is held of that stays held
// until it is asked for.
func (o *oldSlots) begin(was generation, held map[int]*slotState) {
	o.dropAll() // of a generation that is over for long
	o.generation, o.slots = was, make(map[int]*slotState)
	for _, s := range slices.Sorted(maps.Keys(held)) {
		st := held[s]
		switch {
		case st.phase != phaseHolding && st.phase != phaseReleasing:
		case o.waitedFor(was, s):
			o.slots[s] = st
		default:
			// Only a worker that had failed, to the leader, gets here.
			o.do(dropEffect{was.place(s)})
		}
	}
}

// waitedFor reports whether the map waits for this worker to give a slot up.
func (o *oldSlots) waitedFor(d generation, s int) bool {
	f := o.cur.Former
	return f != nil && oldGenerationOf(f) == d && o.cur.Worker(f.Owner[s]) == o.self
}

// peerAsks: the leader asks for slots of the old generation. A worker that has seen no map
// of the new one yet answers when it has.
func (o *oldSlots) peerAsks(msg record.PeerMessage) {
	for _, mark := range msg.Slots {
		o.asked[mark.Slot] = mark.Version
	}
}

// releaseAsked releases what the leader has asked for. What is not held is released at
// once. is is the new generation.
func (o *oldSlots) releaseAsked(is generation) {
	if o.cur == nil {
		return
	}
	f := o.cur.Former
	var released []record.SlotMark
	for _, s := range slices.Sorted(maps.Keys(o.asked)) {
		version := o.asked[s]
		if version > o.cur.Version {
			continue // of a map that is on its way
		}
		delete(o.asked, s)
		if f == nil || f.Version != version || s >= f.Slots {
			continue
		}
		switch st := o.slots[s]; {
		case st == nil:
			released = append(released, record.SlotMark{Slot: s, Version: version})
		case st.phase == phaseHolding:
			*st = slotState{phase: phaseReleasing, version: st.version, begun: o.now, deadline: o.now.Add(o.cfg.Rebalance.HandoffTimeout)}
			o.do(releaseEffect{place: o.generation.place(s), claim: o.self.Claim, final: true, leave: o.leaving(s, is)})
		}
	}
	o.tellReleased(released)
}

func (o *oldSlots) tellReleased(marks []record.SlotMark) {
	if marks != nil {
		o.send(o.leader, record.OldReleased, marks)
	}
}

// leaving returns the keys of a slot of the old generation that are this worker's no more.
func (o *oldSlots) leaving(s int, is generation) Slots {
	was := o.generation
	if is.slots < was.slots {
		if o.cur.Worker(o.cur.Destination(s%is.slots)) != o.self {
			return Slots{Of: was.slots, Slots: []int{s}}
		}
		return Slots{}
	}
	out := Slots{Of: is.slots}
	for _, t := range was.place(s).overlapping(is) {
		if o.cur.Worker(o.cur.Destination(t)) != o.self {
			out.Slots = append(out.Slots, t)
		}
	}
	return out
}

// released: nothing of a slot of the old generation runs here any more.
func (o *oldSlots) released(in slotReleasedInput) {
	st := o.slots[in.slot]
	if in.generation != o.generation || st == nil || st.phase != phaseReleasing || in.claim != o.self.Claim {
		return
	}
	o.emit(event.Event{Kind: event.SlotReleased, Slot: in.slot, Duration: o.now.Sub(st.begun)})
	delete(o.slots, in.slot)
	if f := o.cur.Former; f != nil && oldGenerationOf(f) == in.generation {
		o.tellReleased([]record.SlotMark{{Slot: in.slot, Version: f.Version}})
	}
}

// due forces the releases that take too long.
func (o *oldSlots) due() {
	for _, s := range slices.Sorted(maps.Keys(o.slots)) {
		if st := o.slots[s]; !st.deadline.IsZero() && !o.now.Before(st.deadline) {
			st.deadline = time.Time{}
			o.emit(event.Event{Kind: event.HandoffForced, Slot: s})
			o.do(forceEffect{o.generation.place(s)})
		}
	}
}

// abandon releases all without being asked: no leader is there to ask.
func (o *oldSlots) abandon() {
	for _, s := range slices.Sorted(maps.Keys(o.slots)) {
		if st := o.slots[s]; st.phase == phaseHolding {
			st.phase, st.begun, st.deadline = phaseReleasing, o.now, o.now.Add(o.cfg.Rebalance.HandoffTimeout)
			o.do(releaseEffect{place: o.generation.place(s), claim: o.self.Claim, final: true, leave: Slots{o.generation.slots, []int{s}}})
		}
	}
}

// dropAll ends the work on all of them at once.
func (o *oldSlots) dropAll() {
	for _, s := range slices.Sorted(maps.Keys(o.slots)) {
		o.do(dropEffect{o.generation.place(s)})
	}
}
