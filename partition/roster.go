package partition

import (
	"maps"
	"slices"
	"time"
)

// roster has the workers with a lease, by stable ID, as a leader sees them.
type roster map[string]*peerView

// peerView is one of them.
type peerView struct {
	Member
	lease leaseValue // as last seen
	rev   uint64     // of that
	at    time.Time  // when it was written, by the server's clock

	joined    time.Time
	seenAt    time.Time // when a renewal was last seen
	leavingAt time.Time // when the worker said that it leaves, or yields; zero: it has not
	suspectAt time.Time // since when its connection seems gone; zero: it doesn't

	// fencing: its lease is being deleted.
	fencing bool
	// overdue: that is because it was not renewed, not because the worker can't be reached.
	overdue bool
	// unproven: its lease was never seen, and is being proven to be over.
	unproven bool
}

// going reports whether a worker leaves or yields.
func (p *peerView) going() bool { return p.lease.Leaving || p.lease.Yielding }

// takesSlots reports whether a worker can be given slots.
func (p *peerView) takesSlots() bool { return !p.going() && !p.outdated() }

// live returns a worker if it is there under this claim, nil if not.
func (r roster) live(m Member) *peerView {
	if p := r[m.ID]; p != nil && p.Member == m {
		return p
	}
	return nil
}

// allLive reports whether all of these are there.
func (r roster) allLive(members []Member) bool {
	return !slices.ContainsFunc(members, func(m Member) bool { return r.live(m) == nil })
}

// sorted returns the workers by ascending ID.
func (r roster) sorted() []*peerView {
	out := make([]*peerView, 0, len(r))
	for _, id := range slices.SortedFunc(maps.Keys(r), compareIDs) {
		out = append(out, r[id])
	}
	return out
}

// count counts the workers of which something is so.
func (r roster) count(is func(*peerView) bool) int {
	n := 0
	for _, p := range r {
		if is(p) {
			n++
		}
	}
	return n
}

// staying counts the workers that neither leave nor yield.
func (r roster) staying() int { return r.count(func(p *peerView) bool { return !p.going() }) }

// takers counts the workers that can be given slots.
func (r roster) takers() int { return r.count((*peerView).takesSlots) }

// suspects counts the workers whose connection seems gone.
func (r roster) suspects() int {
	return r.count(func(p *peerView) bool { return !p.suspectAt.IsZero() })
}
