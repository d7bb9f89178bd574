package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// settleDelay is how long finished handoffs are collected for one write of the map, in a group
// of up to settleWorkers workers. Each write is sent to every worker, and has an entry for each
// worker and slot, so what one costs grows with the square of the group: larger groups write
// less often, up to mostSettleDelay. No message waits for that, since the old owner tells the
// next one itself.
const (
	settleDelay     = 100 * time.Millisecond
	settleWorkers   = 250
	mostSettleDelay = 500 * time.Millisecond
)

// settleDelayOf is how long changes are collected in a group with this number of workers.
func settleDelayOf(workers int) time.Duration {
	times := (workers + settleWorkers - 1) / settleWorkers
	return min(settleDelay*time.Duration(max(1, times)), mostSettleDelay)
}

// mapWriter orders what a leader writes of the map. One write is under way at a time, and
// each expects the revision of the one before. What finished handoffs and takeovers
// change is pending for a moment, so that many are written at once.
type mapWriter struct {
	// writing is under way; nil: nothing is.
	writing *mapWrite
	// pending is the map with the changes that wait to be written; nil: there are none.
	pending *record.Assignment
	// basis is the revision of the map that pending changes; 0: that is the one being
	// written, whose revision is not known yet.
	basis uint64
	// due is when the pending changes are to be written; zero: there are none.
	due time.Time
}

func (w *mapWriter) busy() bool { return w.writing != nil }

// change returns the map that a change is to be entered in, and whether it is the first
// one pending: then the map is a copy of the newest, of revision rev.
func (w *mapWriter) change(newest *record.Assignment, rev uint64, now time.Time) (pending *record.Assignment, first bool) {
	if w.pending != nil {
		return w.pending, false
	}
	w.basis = rev
	if w.writing != nil {
		newest, w.basis = w.writing.next, 0
	}
	w.pending, w.due = newest.Clone(), now.Add(settleDelayOf(len(newest.Workers)))
	return w.pending, true
}

// hurry has the pending changes written now, because something waits for them.
func (w *mapWriter) hurry(now time.Time) { w.due = now }

// isDue reports whether the pending changes are to be written.
func (w *mapWriter) isDue(now time.Time) bool { return !w.due.IsZero() && !now.Before(w.due) }

// latest returns the map as it will be when everything is written, newest if nothing is
// on its way.
func (w *mapWriter) latest(newest *record.Assignment) *record.Assignment {
	switch {
	case w.pending != nil:
		return w.pending
	case w.writing != nil:
		return w.writing.next
	default:
		return newest
	}
}

// take returns the pending changes, which are about to be written.
func (w *mapWriter) take() *record.Assignment {
	next := w.pending
	w.drop()
	return next
}

// drop forgets the pending changes. The workers report again what was in them.
func (w *mapWriter) drop() { w.pending, w.due = nil, time.Time{} }

// failed ends a write that was refused or has no known outcome, and drops what rested on it.
func (w *mapWriter) failed() {
	w.writing = nil
	w.drop()
}

// done ends a write that succeeded with this revision.
func (w *mapWriter) done(rev uint64) {
	w.writing = nil
	if w.pending != nil && w.basis == 0 {
		w.basis = rev
	}
}

// dropStale drops pending changes when the newest map has a revision that they do not rest
// on: a write that the leader had given up waiting for was carried out after all.
func (w *mapWriter) dropStale(rev uint64) {
	if w.pending != nil && w.basis != 0 && w.basis != rev {
		w.drop()
	}
}

// mapWrite is a map on its way to the bucket, and what to tell when it is there.
type mapWrite struct {
	next   *record.Assignment
	events []event.Event
}
