package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// peerView is a worker with a lease: that lease as it was last seen, when it was renewed, and what the
// leader concludes. A worker has failed for the leader once its lease has expired, or
// once the leader has deleted the lease of a worker that was suspected for long enough.
// Between the two, fencing and overdue say which deletion is under way.
type peerView struct {
	record.Process
	lease record.Heartbeat // as last seen
	rev   uint64           // of that
	at    time.Time        // when it was written, by the server's clock

	joined    time.Time
	seenAt    time.Time // when a renewal was last seen
	leavingAt time.Time // when the worker said that it leaves, or drains; zero: it has not
	suspectAt time.Time // since when its connection seems gone; zero: it doesn't

	// fencing: its lease is being deleted.
	fencing bool
	// overdue: that is because it was not renewed, not because the worker can't be reached.
	overdue bool
	// unproven: its lease was never seen, and is being proven to be over.
	unproven bool
	// self: it is the leader, which needs no watch to know that it lives.
	self bool

	// queuedAt and place are the silenceQueue's: what its order in the heap is by, and where
	// it is in it, from 1; 0: it isn't.
	queuedAt time.Time
	place    int
}

// going reports whether a worker leaves or drains.
func (p *peerView) going() bool { return p.lease.Leaving || p.lease.Draining }

// takesSlots reports whether a worker can be given slots.
func (p *peerView) takesSlots() bool { return !p.going() && !p.outdated() }

// outdated reports whether a worker can't read the maps that this one writes. Of a worker
// whose lease was not seen, nothing is known.
func (p *peerView) outdated() bool {
	return p.lease.ID != "" && p.lease.MapSchemaRead() < record.MapSchema
}
