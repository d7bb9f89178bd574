package partition

import (
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// This file holds what a worker does with slots. The rules, from which
// everything else follows:
//
//   - A live owner hands a slot off itself, or keeps it. No other worker takes it.
//   - A next owner begins when the old one has sent "released" for exactly this
//     move, or when the leader has taken the slot over from a failed owner: it
//     sends a grant, or writes a map that shows the slot settled.
//   - Messages between workers only save time. Each is repeated until the map
//     shows its effect, and a duplicate does nothing.

// ownership is the phase of each slot of this worker. The machine calls it with every newer map
// and with the messages of other workers. A message may arrive before the map that it refers to,
// so grants and ready keep it until that map is here.
type ownership struct {
	*core

	generation generation // of slots
	slots      map[int]*slotState
	old        oldSlots       // of the old generation, while resharding
	grants     map[int]uint64 // by slot, the version of a finished takeover; may come before its map
	ready      map[int]readiness
	pacing     pacing
	resyncAt   time.Time
	abandoning bool
}

// readiness is the message "prepared" from the next owner of a slot.
type readiness struct {
	from    record.Process
	version uint64
	imports bool // it can have the slot's state
}

func (o *ownership) reset() {
	o.generation = generation{}
	o.old.core = o.core
	o.old.reset()
	o.slots = make(map[int]*slotState)
	o.grants = make(map[int]uint64)
	o.ready = make(map[int]readiness)
	o.pacing = pacing{}
}

func (o *ownership) sorted() []int { return slices.Sorted(maps.Keys(o.slots)) }

// any reports whether this worker still works on a slot.
func (o *ownership) any() bool {
	for _, st := range o.slots {
		if st.phase == phaseHolding || st.phase == phaseReleasing {
			return true
		}
	}
	return len(o.old.slots) > 0
}

func (o *ownership) holds() bool {
	for _, st := range o.slots {
		if st.phase == phaseHolding {
			return true
		}
	}
	return false
}

func (o *ownership) moving() bool {
	for _, st := range o.slots {
		if st.phase != phaseHolding {
			return true
		}
	}
	return len(o.old.slots) > 0
}

// at is a slot as the effects name it.
func (o *ownership) at(s int) place { return o.generation.place(s) }

func (o *ownership) setPhase(slot int, p phase, version uint64) *slotState {
	st := o.slots[slot]
	if st == nil {
		st = &slotState{}
		o.slots[slot] = st
	}
	*st = slotState{phase: p, version: version, begun: o.now}
	if o.resyncAt.IsZero() && p != phaseHolding {
		o.resyncAt = o.now.Add(resyncInterval)
	}
	return st
}

func (o *ownership) forget(slot int) {
	delete(o.slots, slot)
	delete(o.ready, slot)
}

// destined returns the slots that a map gives to this worker.
func (o *ownership) destined(a *record.Assignment) []int {
	var mine []int
	if a == nil {
		return nil
	}
	i := a.Index(o.self)
	if i == record.None {
		return nil
	}
	for s, owner := range a.Owner {
		if owner == i && a.Destination(s) == i {
			mine = append(mine, s)
		}
	}
	for s, mv := range a.Moves {
		if mv.Next == i && a.Owner[s] != i {
			mine = append(mine, s)
		}
	}
	slices.Sort(mine)
	return mine
}

// concerned returns the slots that the newest map gives to this worker, whose index there is me,
// and the slots that it already has, by ascending number. Every worker reads every map, so the
// work per slot of a large map must be small.
func (o *ownership) concerned(me int32) []int {
	slots := slices.Collect(maps.Keys(o.slots))
	if me != record.None {
		for s, owner := range o.cur.Owner {
			if owner == me {
				slots = append(slots, s)
			}
		}
		for s, mv := range o.cur.Moves {
			if mv.Next == me {
				slots = append(slots, s)
			}
		}
	}
	slices.Sort(slots)
	return slices.Compact(slots)
}

func (o *ownership) tellAssigned(before, after []int) {
	var come, gone []int
	for i, j := 0, 0; i < len(before) || j < len(after); {
		switch {
		case j == len(after) || (i < len(before) && before[i] < after[j]):
			gone = append(gone, before[i])
			i++
		case i == len(before) || after[j] < before[i]:
			come = append(come, after[j])
			j++
		default:
			i++
			j++
		}
	}
	if come != nil || gone != nil {
		o.emit(event.Event{Kind: event.Assigned, Version: o.cur.Version, Of: o.cur.Slots, Before: len(before), After: len(after), Slots: come, Lost: gone})
	}
}

// applyMap brings every slot in line with the map.
func (o *ownership) applyMap() {
	if o.abandoning {
		return
	}
	me := o.cur.Index(o.self)
	if o.stage == stageLeaving && me != record.None && o.cur.Restarting[int(me)] {
		// The slots wait for a process that rejoins under this stable ID.
		o.abandon()
		return
	}
	if o.generation != generationOf(o.cur) {
		o.reshard()
	}
	var prepare []int
	for _, s := range o.concerned(me) {
		st := o.slots[s]
		mv, moving := o.cur.Moves[s]
		switch {
		case me != record.None && o.cur.Owner[s] == me:
			o.applyOwner(s, st)
		case me != record.None && moving && mv.Next == me:
			if o.applyNext(s, st, mv) {
				prepare = append(prepare, s)
			}
		case st != nil:
			o.applyForeign(s, st)
		}
	}
	for s, v := range o.grants {
		if v <= o.cur.Version && (!o.inMap(s) || v < o.cur.Since[s]) {
			delete(o.grants, s)
		}
	}
	if len(prepare) > 0 {
		o.do(prepareEffect{o.generation, prepare})
	}
	o.old.releaseAsked(o.generation)
}

func (o *ownership) applyOwner(s int, st *slotState) {
	since, taking := o.cur.Since[s], o.cur.Taking[s]
	switch {
	case !taking && st != nil && (st.phase == phasePreparing || st.phase == phaseReady):
		// The map came before the old owner's "released", which alone says for how
		// long the slot was idle.
		o.holdHanded(s, since, 0)
	case st == nil, st.phase == phasePreparing, st.phase == phaseReady, st.phase == phaseAwaiting:
		o.holdOrAwait(s, since, taking)
	case st.phase == phaseHolding && st.version != since:
		// The slot was taken over for the worker that already has it, because the old
		// owner failed after its release. Only the fence changes.
		o.hold(s, since, "")
	case st.phase == phaseReleased && since > st.version:
		o.holdOrAwait(s, since, taking)
	}
	o.tryRelease(s)
}

func (o *ownership) holdOrAwait(s int, since uint64, taking bool) {
	switch {
	case !taking:
		o.hold(s, since, "assigned")
	case o.grants[s] == since && since > 0:
		o.hold(s, since, "takeover")
	default:
		o.setPhase(s, phaseAwaiting, since)
	}
}

// applyNext reports whether the slot must be prepared.
func (o *ownership) applyNext(s int, st *slotState, mv record.Move) bool {
	owner := o.cur.OwnerAt(s)
	switch {
	case st != nil && st.phase == phaseReleasing:
		return false // seen again when it is released
	case st != nil && st.phase == phaseHolding && st.version == mv.Version:
		return false // released to us; the map will show it
	case st != nil && st.phase == phaseReady:
		if st.version != mv.Version || st.peer != owner {
			o.setPhase(s, phaseReady, mv.Version).peer = owner
			o.tellPrepared([]int{s})
		}
		return false
	case st != nil && st.phase == phasePreparing:
		st.version, st.peer = mv.Version, owner
		return false
	case st != nil && st.phase == phaseHolding:
		o.do(dropEffect{o.at(s)})
	}
	o.setPhase(s, phasePreparing, mv.Version).peer = owner
	return true
}

func (o *ownership) applyForeign(s int, st *slotState) {
	switch st.phase {
	case phaseReleasing:
		return // slotReleased ends it
	case phaseHolding:
		// Only a worker that had failed, to the leader, gets here.
		o.do(dropEffect{o.at(s)})
	case phasePreparing, phaseReady, phaseAwaiting, phaseReleased:
	}
	o.forget(s)
}

func (o *ownership) hold(s int, version uint64, reason string) {
	o.begin(s, version, reason, holdEffect{})
}

// holdHanded holds a slot that its old owner has handed off, idle after it had stopped.
func (o *ownership) holdHanded(s int, version uint64, idle time.Duration) {
	e := holdEffect{handed: true, idle: idle}
	if o.movesState {
		e.state = stateMove{o.slots[s].peer, version}
	}
	o.begin(s, version, "handoff", e)
}

func (o *ownership) begin(s int, version uint64, reason string, e holdEffect) {
	o.setPhase(s, phaseHolding, version)
	delete(o.grants, s)
	e.place, e.fence = o.at(s), Fence{Version: version, Claim: o.self.Claim}
	o.do(e)
	if reason != "" {
		o.emit(event.Event{Kind: event.SlotAcquired, Slot: s, Version: version, Reason: reason})
	}
}

// prepared follows the end of Preparer.Prepare.
func (o *ownership) prepared(in preparedInput) {
	if in.err != nil {
		o.emit(event.Event{Kind: event.PrepareFailed, Err: in.err.Error()})
	}
	if in.generation != o.generation {
		return
	}
	var ready []int
	for _, s := range in.slots {
		if st := o.slots[s]; st != nil && st.phase == phasePreparing {
			st.phase = phaseReady
			ready = append(ready, s)
		}
	}
	o.tellPrepared(ready)
}

func (o *ownership) tellPrepared(slots []int) {
	to := make(map[record.Process][]record.SlotMark)
	for _, s := range slots {
		st := o.slots[s]
		to[st.peer] = append(to[st.peer], record.SlotMark{Slot: s, Version: st.version})
	}
	o.sendAll(record.Prepared, to)
}

// peerPrepared handles "prepared" from the next owner of slots. Its map may be newer than ours,
// so the message is kept until our map shows the move.
func (o *ownership) peerPrepared(msg record.PeerMessage) {
	for _, mark := range msg.Slots {
		if r, ok := o.ready[mark.Slot]; ok && r.version > mark.Version {
			continue
		}
		o.ready[mark.Slot] = readiness{from: msg.From, version: mark.Version, imports: msg.Imports}
		if o.inMap(mark.Slot) {
			o.tryRelease(mark.Slot)
		}
	}
}

func (o *ownership) tryRelease(s int) {
	r, ok := o.ready[s]
	mv, moving := o.cur.Moves[s]
	if !ok || !moving || r.version != mv.Version || o.cur.OwnerAt(s) != o.self || o.cur.Worker(mv.Next) != r.from {
		return
	}
	st := o.slots[s]
	switch {
	case st == nil && o.abandoning:
		// The slot is no longer held, and the end of the lease will show that.
	case st == nil:
		// The map names this worker, but it does not hold the slot, so it can't say
		// whether every message was settled. A forced release makes the leader reset.
		o.setPhase(s, phaseReleased, mv.Version).forced = true
		o.tellReleased(s)
	case st.phase == phaseHolding && o.pacing.waits(s, mv.Version, o.core):
		// The slot is worked on until its turn comes.
	case st.phase == phaseHolding:
		st = o.setPhase(s, phaseReleasing, mv.Version)
		st.peer = r.from
		st.deadline = o.now.Add(o.cfg.Rebalance.HandoffTimeout)
		e := releaseEffect{place: o.at(s), claim: o.self.Claim, leave: Slots{o.generation.slots, []int{s}}}
		if o.movesState && r.imports {
			e.state = stateMove{r.from, mv.Version}
		}
		o.do(e)
	case st.phase == phaseReleased:
		o.tellReleased(s)
	}
}

// slotReleased handles the end of a release: no handler of the slot runs here, and the server
// delivers no more of it. After an outage, the release of an earlier claim may arrive late, when
// this worker holds the slot again and handles its messages. The claim tells them apart.
func (o *ownership) slotReleased(in slotReleasedInput) {
	if in.generation != o.generation {
		o.old.released(in)
		return
	}
	s := in.slot
	st := o.slots[s]
	if st == nil || st.phase != phaseReleasing || in.claim != o.self.Claim {
		return
	}
	o.emit(event.Event{Kind: event.SlotReleased, Slot: s, Peer: st.peer.ID, Duration: o.now.Sub(st.begun)})
	if o.abandoning {
		o.forget(s)
		return
	}
	peer := st.peer
	st = o.setPhase(s, phaseReleased, st.version)
	st.peer, st.forced, st.stopped = peer, in.forced, o.now.Add(-in.idle)
	// The map may have given the slot to another worker meanwhile, or to this one again: after the
	// loss of the map a leader takes each slot for its owner. Then nobody waits for this release.
	if givenAgain := o.cur.Since[s] > st.version; givenAgain || o.cur.OwnerAt(s) != o.self {
		o.forget(s)
		o.applyMap()
		return
	}
	o.tellReleased(s)
}

// tellReleased tells the next owner and the leader. If a message was left unsettled, or the next
// owner has failed meanwhile, only the leader learns of it: the consumer must be reset before
// another worker pulls.
func (o *ownership) tellReleased(s int) {
	st := o.slots[s]
	mark := []record.SlotMark{{Slot: s, Version: st.version, Forced: st.forced}}
	if !st.stopped.IsZero() {
		mark[0].Idle = o.now.Sub(st.stopped).Microseconds()
	}
	mv, moving := o.cur.Moves[s]
	if !st.forced && moving && mv.Version == st.version {
		o.send(o.cur.Worker(mv.Next), record.Released, mark)
	}
	o.send(o.leader, record.Released, mark)
}

// peerReleased handles "released" from the old owner of slots. If the map still has the move of
// that version, this worker owns the slot.
func (o *ownership) peerReleased(msg record.PeerMessage) {
	if o.cur == nil || o.abandoning {
		return
	}
	for _, mark := range msg.Slots {
		if !o.inMap(mark.Slot) {
			continue
		}
		mv, moving := o.cur.Moves[mark.Slot]
		st := o.slots[mark.Slot]
		if !moving || mark.Forced || mv.Version != mark.Version || o.cur.Worker(mv.Next) != o.self ||
			o.cur.OwnerAt(mark.Slot) != msg.From || st == nil || (st.phase != phasePreparing && st.phase != phaseReady) {
			continue
		}
		o.holdHanded(mark.Slot, mv.Version, time.Duration(mark.Idle)*time.Microsecond)
		o.send(o.leader, record.Holding, []record.SlotMark{{Slot: mark.Slot, Version: mv.Version}})
	}
}

func (o *ownership) peerGrant(msg record.PeerMessage) {
	for _, mark := range msg.Slots {
		s := mark.Slot
		if o.cur != nil && mark.Version <= o.cur.Version && (!o.inMap(s) || mark.Version < o.cur.Since[s]) {
			continue
		}
		o.grants[s] = mark.Version
		if st := o.slots[s]; st != nil && st.phase == phaseAwaiting && st.version == mark.Version {
			o.hold(s, mark.Version, "takeover")
		}
	}
}

// due repeats messages whose effect the map doesn't show yet, and forces handoffs that take too
// long.
func (o *ownership) due() {
	for s, is := o.pacing.turn(o.now); is; s, is = o.pacing.turn(o.now) {
		if o.inMap(s) {
			o.tryRelease(s)
		}
	}
	var late []int
	for s, st := range o.slots {
		if st.phase == phaseReleasing && !st.deadline.IsZero() && !o.now.Before(st.deadline) {
			st.deadline = time.Time{}
			late = append(late, s)
		}
	}
	slices.Sort(late)
	for _, s := range late {
		o.emit(event.Event{Kind: event.HandoffForced, Slot: s})
		o.do(forceEffect{o.at(s)})
	}
	o.old.due()
	if o.resyncAt.IsZero() || o.now.Before(o.resyncAt) {
		return
	}
	o.resyncAt = time.Time{}
	if !o.moving() && !o.heldAhead() {
		return
	}
	o.resyncAt = o.now.Add(resyncInterval)
	if o.cur != nil {
		o.resync()
	}
}

// heldAhead reports whether this worker holds a slot that the map still gives to another.
func (o *ownership) heldAhead() bool {
	if o.cur == nil {
		return false
	}
	for s, st := range o.slots {
		if st.phase == phaseHolding && o.inMap(s) && o.cur.OwnerAt(s) != o.self {
			return true
		}
	}
	return false
}

func (o *ownership) resync() {
	var ready []int
	var want, holding []record.SlotMark
	for _, s := range o.sorted() {
		st := o.slots[s]
		if o.now.Sub(st.begun) < resyncInterval/2 {
			continue
		}
		mark := record.SlotMark{Slot: s, Version: st.version}
		switch st.phase {
		case phaseReady:
			ready = append(ready, s)
		case phaseAwaiting:
			want = append(want, mark)
		case phaseReleased:
			o.tellReleased(s)
		case phaseHolding:
			if o.cur.OwnerAt(s) != o.self {
				holding = append(holding, mark)
			}
		case phasePreparing, phaseReleasing:
		}
	}
	if len(ready) > 0 {
		o.tellPrepared(ready)
	}
	if len(want) > 0 {
		o.send(o.leader, record.Want, want)
	}
	if len(holding) > 0 {
		o.send(o.leader, record.Holding, holding)
	}
}

func (o *ownership) wake(sooner func(time.Time)) {
	sooner(o.resyncAt)
	o.pacing.wake(sooner)
	for _, slots := range []map[int]*slotState{o.slots, o.old.slots} {
		for _, st := range slots {
			if st.phase == phaseReleasing {
				sooner(st.deadline)
			}
		}
	}
	if o.stage == stageLeaving && o.leader == (record.Process{}) {
		sooner(o.leaderless.Add(aloneAfter))
	}
}

func (o *ownership) abandon() {
	if o.abandoning {
		return
	}
	o.abandoning = true
	for _, s := range o.sorted() {
		o.abandonSlot(s)
	}
	o.old.abandon()
}

// abandonSlot releases a slot without a next owner.
func (o *ownership) abandonSlot(s int) {
	switch st := o.slots[s]; st.phase {
	case phaseHolding:
		st = o.setPhase(s, phaseReleasing, st.version)
		st.deadline = o.now.Add(o.cfg.Rebalance.HandoffTimeout)
		o.do(releaseEffect{place: o.at(s), claim: o.self.Claim, leave: Slots{o.generation.slots, []int{s}}})
	case phaseReleasing:
	case phasePreparing, phaseReady, phaseAwaiting, phaseReleased:
		o.forget(s)
	}
}

// dropAll drops every slot at once, without a handoff.
func (o *ownership) dropAll() {
	for _, s := range o.sorted() {
		switch o.slots[s].phase {
		case phaseHolding, phaseReleasing:
			o.do(dropEffect{o.at(s)})
		case phasePreparing, phaseReady, phaseAwaiting, phaseReleased:
		}
	}
	o.old.dropAll()
	o.reset()
}

// reportAgain soon repeats the reports to the leader, because a new leader may not have them.
func (o *ownership) reportAgain() {
	if o.resyncAt.IsZero() {
		o.resyncAt = o.now.Add(resyncInterval / 2)
	}
}

// slotsLeft counts the slots that the worker holds or that the map gives it.
func (o *ownership) slotsLeft() int {
	n := len(o.slots) + len(o.old.slots)
	if o.cur == nil {
		return n
	}
	for _, s := range o.destined(o.cur) {
		if _, held := o.slots[s]; !held {
			n++
		}
	}
	return n
}

// reshard follows a map with another slot count.
func (o *ownership) reshard() {
	was := o.generation
	o.generation = generationOf(o.cur)
	if was.slots == 0 {
		return
	}
	o.emit(event.Event{Kind: event.Resharded, Version: o.cur.Version, Before: was.slots, After: o.generation.slots})
	o.old.begin(was, o.slots)
	o.slots = make(map[int]*slotState)
	o.ready = make(map[int]readiness)
}

// peerAsksOld handles the leader's request for slots of the old generation.
func (o *ownership) peerAsksOld(msg record.PeerMessage) {
	o.old.peerAsks(msg)
	if !o.abandoning {
		o.old.releaseAsked(o.generation)
	}
}

// take handles an input about the slots of this worker.
func (o *ownership) take(in input) {
	switch in := in.(type) {
	case preparedInput:
		o.prepared(in)
	case slotReleasedInput:
		o.slotReleased(in)
	case fencedInput:
		o.fencedOff(in)
	}
}

// fencedOff reports to the leader which fence the store has, if this worker owns the slot by its
// own map. Each attempt on the message calls it again, so a report that is lost, or that the
// leader can't use yet, is repeated.
func (o *ownership) fencedOff(in fencedInput) {
	st := o.slots[in.slot]
	r := record.FenceReport{Schema: record.Schema, From: o.self, To: o.leader, Layout: in.number, Slots: in.slots, Slot: in.slot, Fence: record.Fence(in.fence), Stored: record.Fence(in.stored)}
	if o.lease.valid && o.generation == in.generation && st != nil && st.phase == phaseHolding && o.confirms(r) && r.To != (record.Process{}) {
		o.do(reportFenceEffect{r})
	}
}
