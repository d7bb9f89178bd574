package partition

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// This file holds how a group gets above the fences of a time that NATS has forgotten:
// its buckets were lost with every worker that knew what was in them, or an older copy
// of them was restored. Its versions and claims then begin again below those that the
// handlers' store has kept, and the store rejects the rightful owners permanently.
//
//  1. A handler returns an error that wraps FencedError: the fence that its store has.
//  2. The slot's owner reports that fence to the leader.
//  3. If the map names the very owner and fence that the report names, a live worker
//     follows the newest map and is rejected all the same: the store remembers what
//     NATS does not. The leader writes a map with the same owners and a version above
//     the reported one, under which every slot is owned from then on.
//
// The jump is the group's next incarnation. It needs no field of its own: fences compare
// by version first, and a version that is raised is the microseconds since record.SequenceEpoch
// (as the first sequence of a stream that is created again is), which is above every
// version that counts writes, and above the raises before.
//
// A former owner gains nothing by a report. It is in no map, so its report raises
// nothing; and a raise changes no owner: it makes the fences of the owners that the map
// names valid, and everyone else's older than before.

// FencedError is a fence rejection that names the fence which the store has. A Handler's
// error should wrap it: if the store has a fence from before a loss of NATS' state, that
// is how the group learns to give higher ones.
type FencedError struct {
	Stored Fence
}

func (e *FencedError) Error() string { return fmt.Sprintf("%v: with fence %v", ErrFenced, e.Stored) }

// Unwrap makes a FencedError match [ErrFenced].
func (e *FencedError) Unwrap() error { return ErrFenced }

// raisePause is the shortest time between two raises, so that a handler that makes its
// fences up costs no more than a map each time.
const raisePause = 2 * time.Second

// incarnation is what a leader does about reports.
type incarnation struct {
	*core
	maps *mapStore

	report  record.FenceReport // with the highest stored fence that is known; the zero one: there is none
	notSoon time.Time          // no raise before
}

// reset forgets the reports.
func (i *incarnation) reset() { *i = incarnation{core: i.core, maps: i.maps} }

// fenced notes a report until the map can be raised, and returns false if the report is
// not true.
func (i *incarnation) fenced(r record.FenceReport) bool {
	if !i.mayAct() || !i.maps.ready || r.To != i.self || !i.confirms(r) {
		return false
	}
	if most := record.MostReported(i.now); r.Stored.Version > most {
		i.refuse(recordFence, 0, fmt.Errorf("%s reports that the store has fence %v for slot %d: no group has given it, versions end at %d: correct it in the store", r.From.ID, r.Stored, r.Slot, most))
		return false
	}
	if !i.confirms(i.report) || i.report.Stored.Compare(r.Stored) < 0 {
		i.report = r
	}
	return true
}

// raise begins the group's next incarnation if the store has a fence above that of an
// owner. It waits until every slot is with its owner: what names versions on its way
// from one to the next stays true. Nothing on that way needs a handler to succeed.
func (i *incarnation) raise() bool {
	if i.report.From == (record.Process{}) || i.now.Before(i.notSoon) {
		return false
	}
	if !i.confirms(i.report) {
		i.report = record.FenceReport{}
		return false
	}
	if !i.cur.Settled() {
		return false
	}
	r := i.report
	next := i.raised(r.Stored.Version)
	i.report, i.notSoon = record.FenceReport{}, i.now.Add(raisePause)
	i.maps.write(next, []event.Event{{Kind: event.FencesRaised, Slot: r.Slot, Peer: r.From.ID, Version: next.Version,
		Reason: fmt.Sprintf("the handlers' store has fence %v, above %v of the owner", r.Stored, r.Fence)}})
	return true
}

// raised returns the map with every slot owned since a version above all others: those
// of this map, those that any earlier raise can have given, and above.
func (i *incarnation) raised(above uint64) *record.Assignment {
	next := i.cur.Clone()
	next.Epoch, next.Leader = i.leaderLease.epoch, i.self
	next.Version = max(next.Version, above, record.RaisedVersion(i.now), record.LeastRaised) + 1
	for s, owner := range next.Owner {
		if owner != record.None {
			next.Since[s] = next.Version
		}
	}
	return next
}

// wake is when a raise that had to wait is due.
func (i *incarnation) wake(sooner func(time.Time)) {
	if i.report.From != (record.Process{}) {
		sooner(i.notSoon)
	}
}
