package event

import "encoding/json"

// eventFields are the numbers of an Event that a kind means also when they are zero:
// slot 0 is a slot, and a group that grows from 0 workers grows from a number. The
// comment on each kind's constant names its fields; a test compares the two.
type eventFields struct{ slot, before, after, count, keys, busy bool }

func (k Kind) fields() eventFields {
	switch k {
	case SlotAcquired, SlotResumed, SlotReleased, SlotTakenOver, HandoffForced, StalePinFreed, KeyFreed, Panicked, FencesRaised, StateNotMoved:
		return eventFields{slot: true}
	case SlotReleasing:
		return eventFields{slot: true, busy: true}
	case KeyQueued, DeadLettered, StateMoved:
		return eventFields{slot: true, count: true}
	case Topology, Assigned, Resharded:
		return eventFields{before: true, after: true}
	case Standby, WindowDone, Rebalance, MapPublished:
		return eventFields{after: true}
	case Rebalanced, StreamRolledBack:
		return eventFields{count: true}
	case Planned:
		return eventFields{before: true, after: true, count: true, keys: true}
	default:
		return eventFields{}
	}
}

// HasSlot reports whether events of this kind name a slot. Event.Slot means nothing
// in others.
func (k Kind) HasSlot() bool { return k.fields().slot }

// MarshalJSON writes the fields that the event's kind names, also those that are
// zero, and of the others those that are not.
func (e Event) MarshalJSON() ([]byte, error) {
	type plain Event // without this method
	named := e.Kind.fields()
	return json.Marshal(struct {
		plain
		Slot   *int    `json:"slot,omitempty"`
		Before *int    `json:"before,omitempty"`
		After  *int    `json:"after,omitempty"`
		Count  *int    `json:"count,omitempty"`
		Keys   *uint64 `json:"keys,omitempty"`
		Busy   *bool   `json:"busy,omitempty"`
	}{
		plain(e),
		written(e.Slot, named.slot),
		written(e.Before, named.before),
		written(e.After, named.after),
		written(e.Count, named.count),
		written(e.Keys, named.keys),
		written(e.Busy, named.busy),
	})
}

// written returns a pointer to a value that is written, nil for one that is not.
func written[T comparable](v T, always bool) *T {
	if zero := *new(T); v == zero && !always {
		return nil
	}
	return &v
}
