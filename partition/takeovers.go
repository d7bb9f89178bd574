package partition

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// takeovers is what the leader does so that slots get from one owner to the next: it
// enters finished handoffs in the map, takes slots from workers whose leases have ended,
// and asks for the slots of an old generation.
type takeovers struct {
	*core
	roster *roster
	maps   *mapStore

	table      takeoverTable
	resharding resharding
}

// reset begins with nothing under way.
func (t *takeovers) reset() { *t = takeovers{core: t.core, roster: t.roster, maps: t.maps} }

// askOldDue asks for the slots of the old generation that are next.
func (t *takeovers) askOldDue() {
	if t.cur == nil || t.cur.Former == nil {
		t.resharding.end()
		return
	}
	if !t.mayAct() || !t.maps.ready || !t.roster.synced || t.cur.Epoch != t.leaderLease.epoch {
		return
	}
	f := t.cur.Former
	t.resharding.follow(f.Version)
	units := generation{slots: min(f.Slots, t.cur.Slots)}
	latest := t.maps.latest()
	calls := make(map[record.Process][]record.SlotMark)
	under := 0
	for u := range units.slots {
		if !slices.ContainsFunc(units.place(u).overlapping(generationOf(t.cur)), func(t int) bool { return latest.Taking[t] }) {
			continue
		}
		if under++; under > reshardWindow {
			break
		}
		for _, s := range units.place(u).overlapping(oldGenerationOf(f)) {
			if t.oldReleased(s) || !t.resharding.ask(s, t.now) {
				continue
			}
			owner := t.cur.Worker(f.Owner[s])
			calls[owner] = append(calls[owner], record.SlotMark{Slot: s, Version: f.Version})
		}
	}
	t.sendAll(record.AskOld, calls)
	t.resharding.due = t.now.Add(resyncInterval)
}

// oldReleased reports whether no worker works on a slot of the old generation any more.
func (t *takeovers) oldReleased(s int) bool {
	owner := t.cur.Worker(t.cur.Former.Owner[s])
	return owner == (record.Process{}) || t.resharding.hasGiven(s, t.cur.Former.Version) || t.roster.gone(owner)
}

// takeable reports whether the keys of a slot have no owner by the old generation any more.
func (t *takeovers) takeable(s int) bool {
	if t.cur.Former == nil {
		return true
	}
	for _, o := range generationOf(t.cur).place(s).overlapping(oldGenerationOf(t.cur.Former)) {
		if !t.oldReleased(o) {
			return false
		}
	}
	return true
}

// retiring returns the places of the old generation that a slot replaces.
func (t *takeovers) retiring(s int) []place {
	if t.cur.Former == nil {
		return nil
	}
	var out []place
	d := oldGenerationOf(t.cur.Former)
	for _, o := range generationOf(t.cur).place(s).overlapping(d) {
		out = append(out, d.place(o))
	}
	return out
}

// record.OldReleased: owners have released slots of the old generation.
func (t *takeovers) peerOldReleased(msg record.PeerMessage) {
	if !t.mayAct() || !t.maps.ready || t.cur == nil || t.cur.Former == nil || t.resharding.version != t.cur.Former.Version {
		return
	}
	f := t.cur.Former
	for _, mark := range msg.Slots {
		if mark.Version == f.Version && mark.Slot < f.Slots && t.cur.Worker(f.Owner[mark.Slot]) == msg.From {
			t.resharding.given[mark.Slot] = true
		}
	}
	t.due()
}

// record.Released: an owner has given slots up.
func (t *takeovers) peerReleased(msg record.PeerMessage) {
	if !t.mayAct() || !t.maps.ready || t.cur == nil {
		return
	}
	for _, mark := range msg.Slots {
		s := mark.Slot
		a := t.maps.latest()
		if s >= len(a.Owner) {
			continue
		}
		mv, moving := a.Moves[s]
		switch {
		case a.OwnerAt(s) != msg.From || a.Taking[s]:
		case mark.Version < a.Since[s]:
			// Of a time when it had the slot before: it has it again.
		case moving && mv.Version == mark.Version && !mark.Forced:
			t.settle(s, mv)
		case moving && (mark.Forced || mark.Version < mv.Version):
			// Given up to somebody who has failed by now, or with a message
			// unsettled: take it for the one who is next.
			d := t.maps.pending()
			delete(d.Moves, s)
			d.Owner[s], d.Since[s], d.Taking[s] = mv.Next, mv.Version, true
			t.maps.writer.hurry(t.now) // it stands still until the leader has taken it
		case !moving && a.Since[s] <= mark.Version && a.Version > mark.Version:
			// Given up to somebody who died; it was to have it again.
			d := t.maps.pending()
			d.Since[s], d.Taking[s] = d.Version, true
			t.maps.writer.hurry(t.now)
		}
	}
}

// settle enters a handoff that is finished in the pending changes.
func (t *takeovers) settle(s int, mv record.Move) {
	d := t.maps.pending()
	delete(d.Moves, s)
	d.Owner[s], d.Since[s] = mv.Next, mv.Version
	if d.Settled() {
		t.maps.writer.hurry(t.now) // the last one
	}
}

// record.Holding: next owners have begun with slots.
func (t *takeovers) peerHolding(msg record.PeerMessage) {
	if !t.mayAct() || !t.maps.ready || t.cur == nil {
		return
	}
	for _, mark := range msg.Slots {
		a := t.maps.latest()
		if mv, moving := a.Moves[mark.Slot]; moving && mv.Version == mark.Version && a.Worker(mv.Next) == msg.From {
			t.settle(mark.Slot, mv)
		}
	}
}

// record.Want: owners wait for slots to be taken for them.
func (t *takeovers) peerWant(msg record.PeerMessage) {
	if !t.mayAct() || !t.maps.ready || t.cur == nil {
		return
	}
	var grant []record.SlotMark
	for _, mark := range msg.Slots {
		s := mark.Slot
		owns := t.inMap(s) && t.cur.OwnerAt(s) == msg.From && t.cur.Since[s] == mark.Version
		if owns && (!t.cur.Taking[s] || t.table.isDone(s, fenceOf(t.cur, s))) {
			grant = append(grant, mark)
		}
	}
	if grant != nil {
		t.send(msg.From, record.Grant, grant)
	}
}

// due begins the takeovers that can begin: only after the map says so, only by a leader
// with a valid lease, one at a time for a slot.
func (t *takeovers) due() {
	if !t.mayAct() || !t.maps.ready || t.cur == nil || t.cur.Epoch != t.leaderLease.epoch {
		return
	}
	t.askOldDue()
	if t.roster.lostMapUnseen() {
		return
	}
	for _, s := range slices.Sorted(maps.Keys(t.cur.Taking)) {
		if !t.takeable(s) {
			continue
		}
		f := fenceOf(t.cur, s)
		if t.table.isDone(s, f) {
			t.settleTaken(s, f)
		}
		if t.table.isDue(s, f, t.now) {
			run := t.table.begin(s, f)
			t.do(takeEffect{place: generationOf(t.cur).place(s), run: run, retire: t.retiring(s)})
		}
	}
}

// taken takes the outcome of a takeover.
func (t *takeovers) taken(in takenInput) {
	s := in.slot
	run := t.table.running(s, in.run)
	if !t.leaderLease.held || run == nil || t.cur == nil || !t.cur.Taking[s] {
		return
	}
	if in.err != nil {
		run.retryAt = t.now.Add(retryInterval)
		return
	}
	if run.Fence != fenceOf(t.cur, s) {
		t.table.forget(s)
		t.due()
		return
	}
	run.done = true
	owner := t.cur.OwnerAt(s)
	t.send(owner, record.Grant, []record.SlotMark{{Slot: s, Version: run.Version}})
	t.emit(event.Event{Kind: event.SlotTakenOver, Slot: s, Peer: owner.ID, Version: run.Version})
	t.settleTaken(s, run.Fence)
	t.askOldDue()
}

// settleTaken enters a takeover that is done in the pending changes; again, if those
// that had it were dropped.
func (t *takeovers) settleTaken(s int, f Fence) {
	if a := t.maps.latest(); a.Taking[s] && fenceOf(a, s) == f {
		d := t.maps.pending()
		delete(d.Taking, s)
		parted(d)
		if d.Settled() {
			t.maps.writer.hurry(t.now) // the last one
		}
	}
}
