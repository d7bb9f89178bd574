package event

import (
	"slices"
	"time"
)

// Query selects events. The zero query selects all that are kept.
type Query struct {
	Since  time.Time // the server had it then or later; zero: from the oldest
	Kinds  []Kind    // one of these; none: any
	Worker string    // of or about this worker; "": any
	Slot   int       // of this slot, if BySlot
	BySlot bool
	Follow bool // continue with what happens until the context ends
}

// Matches reports whether an event is of the kinds, worker and slot that are asked
// for.
func (q Query) Matches(e Event) bool {
	if q.Worker != "" && e.Worker != q.Worker && e.Peer != q.Worker {
		return false
	}
	if q.BySlot && (!e.Kind.HasSlot() || e.Slot != q.Slot) {
		return false
	}
	return len(q.Kinds) == 0 || slices.Contains(q.Kinds, e.Kind)
}
