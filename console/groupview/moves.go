package groupview

import (
	"sync"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/partition/event"
)

// Moves follows slots from one owner to the next, by the workers' events: handoffs and takeovers. No worker serves a slot from its
// release, or from the failed owner's last sign of life, until it is acquired.
type Moves struct {
	mu     sync.Mutex
	holder map[int]holding // by slot: the worker that acquired it last
	vacant map[int]vacancy // by slot: released, or of a failed worker
}

// holding is a slot with its owner.
type holding struct {
	worker string
	since  time.Time
}

// vacancy is a slot between two owners.
type vacancy struct {
	from     string
	since    time.Time
	takeover bool
}

// takenOver is the reason of a slot-acquired event that ends a takeover.
const takenOver = "takeover"

// NewMoves returns one that knows of no slot.
func NewMoves() *Moves {
	return &Moves{holder: map[int]holding{}, vacant: map[int]vacancy{}}
}

// Follow takes in an event and returns the move that it ends, if it ends one.
func (m *Moves) Follow(e event.Event) (console.SlotMove, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e.Kind {
	case event.SlotReleased:
		// The events of two workers come in any order: the new owner's may be here already.
		if h := m.holder[e.Slot]; h.worker != "" && h.worker != e.Worker && !h.since.Before(e.Time) {
			return console.SlotMove{Slot: e.Slot, From: e.Worker, To: h.worker, At: h.since, Pause: h.since.Sub(e.Time)}, true
		}
		m.vacant[e.Slot] = vacancy{e.Worker, e.Time, false}
	case event.WorkerGone:
		if !endedBadly(e.Reason) {
			break
		}
		for slot, h := range m.holder {
			// A slot that it had released before it failed is a handoff: its new owner begins when it learns of the release.
			if _, released := m.vacant[slot]; h.worker == e.Peer && !released {
				m.vacant[slot] = vacancy{e.Peer, e.Time.Add(-e.Duration), true}
			}
		}
	case event.SlotAcquired:
		v, was := m.vacant[e.Slot]
		from := m.holder[e.Slot].worker
		delete(m.vacant, e.Slot)
		m.holder[e.Slot] = holding{e.Worker, e.Time}
		switch {
		case was:
			return console.SlotMove{Slot: e.Slot, From: v.from, To: e.Worker, At: e.Time, Takeover: v.takeover || e.Reason == takenOver, Pause: max(e.Time.Sub(v.since), 0)}, true
		case e.Reason == takenOver: // the leader's word that the owner failed may come behind the takeover, or not at all
			return console.SlotMove{Slot: e.Slot, From: from, To: e.Worker, At: e.Time, Takeover: true, Pause: -1}, true
		}
	case event.Resharded:
		clear(m.holder) // slots of these numbers are others now
		clear(m.vacant)
	default:
	}
	return console.SlotMove{}, false
}
