package partition

import (
	"maps"
	"slices"
	"time"
)

// This file holds what a worker does with slots. The rules, from which
// everything else follows:
//
//   - An owner that is alive gives a slot up itself, or keeps it. Nobody takes it.
//   - A next owner begins when the old one has said "released" for this very
//     move, or when the leader has taken the slot from a dead owner and says so:
//     by a grant, or by a map that shows the slot settled.
//   - Messages between workers only make things quicker. Each is repeated while
//     the map does not show its effect, and does nothing twice.

// phase is where one slot stands at this worker.
type phase uint8

const (
	phasePreparing phase = iota // next owner: Preparer is running
	phaseReady                  // next owner: waits for the release
	phaseAwaiting               // owner: waits for the leader's take-over
	phaseHolding                // owner: pulls
	phaseReleasing              // old owner: ends what it has
	phaseReleased               // old owner: has ended; the map does not show it yet
)

type slotState struct {
	phase    phase
	version  uint64    // of the move or take-over that phase is about
	peer     Member    // old owner while preparing and ready, new one while releasing
	deadline time.Time // of releasing
	forced   bool      // released with a message unsettled
	begun    time.Time // of this phase
	stopped  time.Time // released: when it worked last
}

type ownership struct {
	division   division // of slots
	slots      map[int]*slotState
	formerly   division           // before it; see layout.go
	former     map[int]*slotState // of that, what is not given up
	called     map[int]uint64     // of that, what the leader asks for, by which version
	grants     map[int]uint64     // by slot, the take-over that is done; may come before its map
	ready      map[int]readiness
	pacing     pacing
	resyncAt   time.Time
	abandoning bool
	leaderless time.Time // since when, while leaving
}

// readiness is a "prepared" of the next owner of a slot.
type readiness struct {
	from    Member
	version uint64
}

func (o *ownership) reset() {
	o.division, o.formerly = division{}, division{}
	o.slots = make(map[int]*slotState)
	o.former = make(map[int]*slotState)
	o.called = make(map[int]uint64)
	o.grants = make(map[int]uint64)
	o.ready = make(map[int]readiness)
	o.pacing = pacing{}
}

func (o *ownership) sorted() []int { return slices.Sorted(maps.Keys(o.slots)) }

// any tells whether this worker still works on some slot.
func (o *ownership) any() bool {
	for _, st := range o.slots {
		if st.phase == phaseHolding || st.phase == phaseReleasing {
			return true
		}
	}
	return len(o.former) > 0
}

func (o *ownership) holds() bool {
	for _, st := range o.slots {
		if st.phase == phaseHolding {
			return true
		}
	}
	return false
}

func (m *machine) ownMoves() bool {
	for _, st := range m.own.slots {
		if st.phase != phaseHolding {
			return true
		}
	}
	return len(m.own.former) > 0
}

// at is a slot as the effects name it.
func (m *machine) at(s int) place { return m.own.division.place(s) }

// inMap tells whether the map has a slot of this number.
func (m *machine) inMap(s int) bool { return m.cur != nil && s < len(m.cur.Owner) }

func (m *machine) setPhase(slot int, p phase, version uint64) *slotState {
	st := m.own.slots[slot]
	if st == nil {
		st = &slotState{}
		m.own.slots[slot] = st
	}
	*st = slotState{phase: p, version: version, begun: m.now}
	if m.own.resyncAt.IsZero() && p != phaseHolding {
		m.own.resyncAt = m.now.Add(resyncInterval)
	}
	return st
}

func (m *machine) forget(slot int) {
	delete(m.own.slots, slot)
	delete(m.own.ready, slot)
}

// seeMap takes a newer map in. Revisions of the bucket order all maps that were
// ever written, so an older one never wins.
func (m *machine) seeMap(a *Assignment, rev uint64) {
	if rev <= m.curRev {
		return
	}
	if err := a.checkOrder(rev, m.cur, m.now); err != nil {
		m.seeBadMap(rev, err)
		return
	}
	newer := m.cur == nil || a.Version > m.cur.Version
	before := m.cur
	m.cur, m.curRev = a, rev
	if m.leading() && a.Epoch > m.lead.epoch {
		m.stepDown()
	}
	if m.stage != stageMember && m.stage != stageLeaving {
		return
	}
	if newer {
		m.emit(Event{Kind: EventMapReceived, Version: a.Version})
		m.lossVersion = max(m.lossVersion, a.firstAfterLoss())
		if m.own.division.slots == 0 || m.own.division == a.division() {
			m.tellAssigned(m.destined(before), m.destined(a))
		}
	}
	m.applyMap()
	m.leadMapSeen()
}

// destined returns the slots that a map gives to this worker.
func (m *machine) destined(a *Assignment) []int {
	var mine []int
	if a == nil {
		return nil
	}
	i := a.index(m.self)
	if i == none {
		return nil
	}
	for s := range a.Owner {
		if a.destination(s) == i {
			mine = append(mine, s)
		}
	}
	return mine
}

func (m *machine) tellAssigned(before, after []int) {
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
		m.emit(Event{Kind: EventAssigned, Version: m.cur.Version, Of: m.cur.Slots, Before: len(before), After: len(after), Slots: come, Lost: gone})
	}
}

// applyMap brings every slot in line with the map.
func (m *machine) applyMap() {
	if m.own.abandoning {
		return
	}
	me := m.cur.index(m.self)
	if m.stage == stageLeaving && me != none && m.cur.Restarting[int(me)] {
		// What is here waits for a successor of the same name.
		m.abandon()
		return
	}
	if m.own.division != m.cur.division() {
		m.redivide()
	}
	var prepare []int
	for s := range m.cur.Owner {
		st := m.own.slots[s]
		mv, moving := m.cur.Moves[s]
		switch {
		case me != none && m.cur.Owner[s] == me:
			m.applyOwner(s, st)
		case me != none && moving && mv.Next == me:
			if m.applyNext(s, st, mv) {
				prepare = append(prepare, s)
			}
		case st != nil:
			m.applyForeign(s, st)
		}
	}
	for s, v := range m.own.grants {
		if v <= m.cur.Version && (!m.inMap(s) || v < m.cur.Since[s]) {
			delete(m.own.grants, s)
		}
	}
	if len(prepare) > 0 {
		m.do(prepareEffect{m.own.division, prepare})
	}
	m.cedeCalled()
}

func (m *machine) applyOwner(s int, st *slotState) {
	since, taking := m.cur.Since[s], m.cur.Taking[s]
	switch {
	case !taking && st != nil && (st.phase == phasePreparing || st.phase == phaseReady):
		// The map was faster than the old owner's word, which alone tells for how
		// long nobody had worked on it by then.
		m.holdHanded(s, since, 0)
	case st == nil, st.phase == phasePreparing, st.phase == phaseReady, st.phase == phaseAwaiting:
		m.holdOrAwait(s, since, taking)
	case st.phase == phaseHolding && st.version != since:
		// Taken over to where it already is: the old owner died after its
		// release. Only the fence changes.
		m.hold(s, since, "")
	case st.phase == phaseReleased && since > st.version:
		m.holdOrAwait(s, since, taking)
	}
	m.tryRelease(s)
}

func (m *machine) holdOrAwait(s int, since uint64, taking bool) {
	switch {
	case !taking:
		m.hold(s, since, "assigned")
	case m.own.grants[s] == since && since > 0:
		m.hold(s, since, "take-over")
	default:
		m.setPhase(s, phaseAwaiting, since)
	}
}

// applyNext reports whether the slot must be prepared.
func (m *machine) applyNext(s int, st *slotState, mv Move) bool {
	owner := m.cur.owner(s)
	switch {
	case st != nil && st.phase == phaseReleasing:
		return false // seen again when it is released
	case st != nil && st.phase == phaseHolding && st.version == mv.Version:
		return false // released to us; the map will show it
	case st != nil && st.phase == phaseReady:
		if st.version != mv.Version || st.peer != owner {
			m.setPhase(s, phaseReady, mv.Version).peer = owner
			m.tellPrepared([]int{s})
		}
		return false
	case st != nil && st.phase == phasePreparing:
		st.version, st.peer = mv.Version, owner
		return false
	case st != nil && st.phase == phaseHolding:
		m.do(dropEffect{m.at(s)})
	}
	m.setPhase(s, phasePreparing, mv.Version).peer = owner
	return true
}

func (m *machine) applyForeign(s int, st *slotState) {
	switch st.phase {
	case phaseReleasing:
		return // it ends by itself
	case phaseHolding:
		// Only a worker that was dead to the leader gets here.
		m.do(dropEffect{m.at(s)})
	case phasePreparing, phaseReady, phaseAwaiting, phaseReleased:
	}
	m.forget(s)
}

func (m *machine) hold(s int, version uint64, reason string) {
	m.begin(s, version, reason, holdEffect{})
}

// holdHanded holds a slot that its old owner gave up after it had stopped for
// idle.
func (m *machine) holdHanded(s int, version uint64, idle time.Duration) {
	m.begin(s, version, "hand-over", holdEffect{handed: true, idle: idle})
}

func (m *machine) begin(s int, version uint64, reason string, e holdEffect) {
	m.setPhase(s, phaseHolding, version)
	delete(m.own.grants, s)
	e.place, e.fence = m.at(s), Fence{Version: version, Claim: m.self.Claim}
	m.do(e)
	if reason != "" {
		m.emit(Event{Kind: EventSlotAcquired, Slot: s, Version: version, Reason: reason})
	}
}

// prepared follows the end of Preparer.Prepare.
func (m *machine) prepared(in preparedInput) {
	if in.err != nil {
		m.emit(Event{Kind: EventPrepareFailed, Err: in.err.Error()})
	}
	if in.division != m.own.division {
		return
	}
	var ready []int
	for _, s := range in.slots {
		if st := m.own.slots[s]; st != nil && st.phase == phasePreparing {
			st.phase = phaseReady
			ready = append(ready, s)
		}
	}
	m.tellPrepared(ready)
}

func (m *machine) tellPrepared(slots []int) {
	to := make(map[Member][]slotMark)
	for _, s := range slots {
		st := m.own.slots[s]
		to[st.peer] = append(to[st.peer], slotMark{Slot: s, Version: st.version})
	}
	m.sendAll(peerPrepared, to)
}

func (m *machine) sendAll(kind peerKind, to map[Member][]slotMark) {
	members := slices.SortedFunc(maps.Keys(to), func(a, b Member) int { return compareIDs(a.ID, b.ID) })
	for _, w := range members {
		m.send(w, kind, to[w])
	}
}

func (m *machine) send(to Member, kind peerKind, slots []slotMark) {
	if to == (Member{}) {
		return
	}
	m.do(sendEffect{to: to, msg: peerMessage{Schema: valueSchema, Kind: kind, From: m.self, To: to, Slots: slots}})
}

// peerPrepared: the next owner is ready. Its map may be newer than ours, so what
// it says is kept until our map shows the move.
func (m *machine) peerPrepared(msg peerMessage) {
	for _, mark := range msg.Slots {
		if r, ok := m.own.ready[mark.Slot]; ok && r.version > mark.Version {
			continue
		}
		m.own.ready[mark.Slot] = readiness{from: msg.From, version: mark.Version}
		if m.inMap(mark.Slot) {
			m.tryRelease(mark.Slot)
		}
	}
}

func (m *machine) tryRelease(s int) {
	r, ok := m.own.ready[s]
	mv, moving := m.cur.Moves[s]
	if !ok || !moving || r.version != mv.Version || m.cur.owner(s) != m.self || m.cur.member(mv.Next) != r.from {
		return
	}
	st := m.own.slots[s]
	switch {
	case st == nil && m.own.abandoning:
		// Nothing is held any more; the end of the lease says so to all.
	case st == nil:
		// Named as owner, but it holds nothing. Whether everything was settled
		// is not known, so the leader resets.
		m.setPhase(s, phaseReleased, mv.Version).forced = true
		m.tellReleased(s)
	case st.phase == phaseHolding && m.paced(s, mv.Version):
		// It is worked on until its turn comes.
	case st.phase == phaseHolding:
		st = m.setPhase(s, phaseReleasing, mv.Version)
		st.peer = r.from
		st.deadline = m.now.Add(m.cfg.HandoverTimeout)
		m.do(releaseEffect{place: m.at(s), claim: m.self.Claim, leave: Slots{m.own.division.slots, []int{s}}})
	case st.phase == phaseReleased:
		m.tellReleased(s)
	}
}

// slotReleased: nothing of the slot is running here any more, and the server
// will not give us more of it. One of an earlier name may come late, when the
// server was away; the slot may be ours again by then, and its handler at work.
func (m *machine) slotReleased(in slotReleasedInput) {
	if in.division != m.own.division {
		m.formerReleased(in)
		return
	}
	s := in.slot
	st := m.own.slots[s]
	if st == nil || st.phase != phaseReleasing || in.claim != m.self.Claim {
		return
	}
	m.emit(Event{Kind: EventSlotReleased, Slot: s, Peer: st.peer.ID, Duration: m.now.Sub(st.begun)})
	if m.own.abandoning {
		m.forget(s)
		return
	}
	peer := st.peer
	st = m.setPhase(s, phaseReleased, st.version)
	st.peer, st.forced, st.stopped = peer, in.forced, m.now.Add(-in.idle)
	if m.cur.owner(s) != m.self {
		m.forget(s)
		m.applyMap()
		return
	}
	m.tellReleased(s)
}

// tellReleased tells the next owner and the leader. A slot that was given up
// with a message unsettled, or to somebody who is dead by now, is the leader's:
// it must be reset before anybody pulls.
func (m *machine) tellReleased(s int) {
	st := m.own.slots[s]
	mark := []slotMark{{Slot: s, Version: st.version, Forced: st.forced}}
	if !st.stopped.IsZero() {
		mark[0].Idle = m.now.Sub(st.stopped).Microseconds()
	}
	mv, moving := m.cur.Moves[s]
	if !st.forced && moving && mv.Version == st.version {
		m.send(m.cur.member(mv.Next), peerReleased, mark)
	}
	m.send(m.election.leader, peerReleased, mark)
}

// peerReleased: the old owner has ended; if the move is still the one it speaks
// of, the slot is ours.
func (m *machine) peerReleased(msg peerMessage) {
	if m.cur == nil || m.own.abandoning {
		return
	}
	for _, mark := range msg.Slots {
		if !m.inMap(mark.Slot) {
			continue
		}
		mv, moving := m.cur.Moves[mark.Slot]
		st := m.own.slots[mark.Slot]
		if !moving || mark.Forced || mv.Version != mark.Version || m.cur.member(mv.Next) != m.self ||
			m.cur.owner(mark.Slot) != msg.From || st == nil || (st.phase != phasePreparing && st.phase != phaseReady) {
			continue
		}
		m.holdHanded(mark.Slot, mv.Version, time.Duration(mark.Idle)*time.Microsecond)
		m.send(m.election.leader, peerHolding, []slotMark{{Slot: mark.Slot, Version: mv.Version}})
	}
}

func (m *machine) peerGrant(msg peerMessage) {
	for _, mark := range msg.Slots {
		s := mark.Slot
		if m.cur != nil && mark.Version <= m.cur.Version && (!m.inMap(s) || mark.Version < m.cur.Since[s]) {
			continue
		}
		m.own.grants[s] = mark.Version
		if st := m.own.slots[s]; st != nil && st.phase == phaseAwaiting && st.version == mark.Version {
			m.hold(s, mark.Version, "take-over")
		}
	}
}

// ownDue repeats what is waited for and ends hand-overs that take too long.
func (m *machine) ownDue() {
	m.giveNext()
	var late []int
	for s, st := range m.own.slots {
		if st.phase == phaseReleasing && !st.deadline.IsZero() && !m.now.Before(st.deadline) {
			st.deadline = time.Time{}
			late = append(late, s)
		}
	}
	slices.Sort(late)
	for _, s := range late {
		m.emit(Event{Kind: EventHandoverForced, Slot: s})
		m.do(forceEffect{m.at(s)})
	}
	for _, s := range slices.Sorted(maps.Keys(m.own.former)) {
		if st := m.own.former[s]; !st.deadline.IsZero() && !m.now.Before(st.deadline) {
			st.deadline = time.Time{}
			m.emit(Event{Kind: EventHandoverForced, Slot: s})
			m.do(forceEffect{m.own.formerly.place(s)})
		}
	}
	if m.own.resyncAt.IsZero() || m.now.Before(m.own.resyncAt) {
		return
	}
	m.own.resyncAt = time.Time{}
	if !m.ownMoves() && !m.heldAhead() {
		return
	}
	m.own.resyncAt = m.now.Add(resyncInterval)
	if m.cur != nil {
		m.resync()
	}
}

// heldAhead tells whether a slot is held that the map does not show as ours yet.
func (m *machine) heldAhead() bool {
	if m.cur == nil {
		return false
	}
	for s, st := range m.own.slots {
		if st.phase == phaseHolding && m.inMap(s) && m.cur.owner(s) != m.self {
			return true
		}
	}
	return false
}

func (m *machine) resync() {
	var ready []int
	var want, holding []slotMark
	for _, s := range m.own.sorted() {
		st := m.own.slots[s]
		if m.now.Sub(st.begun) < resyncInterval/2 {
			continue
		}
		mark := slotMark{Slot: s, Version: st.version}
		switch st.phase {
		case phaseReady:
			ready = append(ready, s)
		case phaseAwaiting:
			want = append(want, mark)
		case phaseReleased:
			m.tellReleased(s)
		case phaseHolding:
			if m.cur.owner(s) != m.self {
				holding = append(holding, mark)
			}
		case phasePreparing, phaseReleasing:
		}
	}
	if len(ready) > 0 {
		m.tellPrepared(ready)
	}
	if len(want) > 0 {
		m.send(m.election.leader, peerWant, want)
	}
	if len(holding) > 0 {
		m.send(m.election.leader, peerHolding, holding)
	}
}

func (m *machine) ownWake(sooner func(time.Time)) {
	sooner(m.own.resyncAt)
	if len(m.own.pacing.queue) > 0 {
		sooner(m.own.pacing.next)
	}
	for _, slots := range []map[int]*slotState{m.own.slots, m.own.former} {
		for _, st := range slots {
			if st.phase == phaseReleasing {
				sooner(st.deadline)
			}
		}
	}
	if m.stage == stageLeaving && m.election.leader == (Member{}) {
		sooner(m.own.leaderless.Add(aloneAfter))
	}
}

// abandonSlot gives a slot up with nobody to take it.
func (m *machine) abandonSlot(s int) {
	switch st := m.own.slots[s]; st.phase {
	case phaseHolding:
		st = m.setPhase(s, phaseReleasing, st.version)
		st.deadline = m.now.Add(m.cfg.HandoverTimeout)
		m.do(releaseEffect{place: m.at(s), claim: m.self.Claim, leave: Slots{m.own.division.slots, []int{s}}})
	case phaseReleasing:
	case phasePreparing, phaseReady, phaseAwaiting, phaseReleased:
		m.forget(s)
	}
}

// dropAll forgets every slot at once, without asking anybody.
func (m *machine) dropAll() {
	for _, s := range m.own.sorted() {
		switch m.own.slots[s].phase {
		case phaseHolding, phaseReleasing:
			m.do(dropEffect{m.at(s)})
		case phasePreparing, phaseReady, phaseAwaiting, phaseReleased:
		}
	}
	for _, s := range slices.Sorted(maps.Keys(m.own.former)) {
		m.do(dropEffect{m.own.formerly.place(s)})
	}
	m.own.reset()
}
