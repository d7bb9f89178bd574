// Package event describes what happens in the workers of a group: the events that they
// give to an Observer, publish and keep.
package event

import (
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// Kind names what happened.
type Kind string

// The kinds of event. The fields of Event that each one sets stand behind it.
const (
	Started          Kind = "started"           // a worker begins to join
	IDClaimed        Kind = "id-claimed"        // Claim; Duration since it started
	Elected          Kind = "elected"           // Peer: the leader; Epoch
	StateChanged     Kind = "state"             // From, To
	WorkerJoined     Kind = "worker-joined"     // Peer (leader's view)
	WorkerLeaving    Kind = "worker-leaving"    // Peer
	WorkerGone       Kind = "worker-gone"       // Peer, Reason; Duration: since its last sign of life, if it died and the leader was looking
	Standby          Kind = "standby"           // After: workers that are wanted; all have their names
	WorkerRestarting Kind = "worker-restarting" // Peer: its slots wait for a successor of its name
	WorkerAwaited    Kind = "worker-awaited"    // Peer: it was lost with the connection to the broker; Duration: how long it is waited for
	WorkerRejoined   Kind = "worker-rejoined"   // Peer, Claim; Duration: since its predecessor went, if that was seen
	WorkerSuspected  Kind = "worker-suspected"  // Peer
	Topology         Kind = "topology"          // Before, After: live workers
	WindowStarted    Kind = "window-started"    // Reason, Duration
	WindowDone       Kind = "window-complete"   // Reason, After: live workers, Duration
	Rebalance        Kind = "rebalance"         // Reason, After: workers that the plan is for; Of
	Planned          Kind = "planned"           // Before: slots, After: workers, Count: slots that move, Keys: weight that moves, Duration
	MapPublished     Kind = "map-published"     // Version, After: workers
	Rebalanced       Kind = "rebalanced"        // Version, Count, Duration: since planned
	MapReceived      Kind = "map-received"      // Version
	Assigned         Kind = "assigned"          // Version, Before, After: own slots; Slots: those that come; Lost: those that go; Of
	SlotAcquired     Kind = "slot-acquired"     // Slot, Version, Reason: handoff, takeover or assigned
	SlotResumed      Kind = "slot-resumed"      // Slot; Duration: how long a waiting message was kept from beginning by the handoff
	SlotReleasing    Kind = "slot-releasing"    // Slot, Peer: to whom; Busy: a handler is running
	SlotReleased     Kind = "slot-released"     // Slot, Duration
	SlotTakenOver    Kind = "slot-taken-over"   // Slot, Peer: new owner (leader)
	LeaseUncertain   Kind = "lease-uncertain"   // Reason
	LeaseConfirmed   Kind = "lease-confirmed"   // Duration
	IdentityLost     Kind = "identity-lost"     // Reason
	HandoffForced    Kind = "handoff-forced"    // Slot: its handler did not end in time
	PrepareFailed    Kind = "prepare-failed"    // Err
	StalePinFreed    Kind = "stale-pin-freed"   // Slot: its consumer served nobody
	Draining         Kind = "draining"          // Duration: for how long it takes no slots; 0: it takes some again
	WorkerDraining   Kind = "worker-draining"   // Peer (leader's view)
	Resharded        Kind = "resharded"         // Version, Before, After: slots that the keys are divided in
	PlanNote         Kind = "plan-note"         // Reason: a setting that the plan could not honour
	RecordRejected   Kind = "record-rejected"   // Reason: which record; Err: why
	KeyQueued        Kind = "key-queued"        // Slot, Reason: the key, Count: attempts; its messages wait in the retry stream
	KeyFreed         Kind = "key-freed"         // Slot, Reason: the key; none of its messages is queued any more
	DeadLettered     Kind = "dead-lettered"     // Slot, Reason: the key, Count: attempts, Err: of the last one; a message was given up
	Left             Kind = "left"              // Duration
	// StreamRolledBack: a stream is not what it was. Reason: its name; Err: what
	// was seen of it; Count: slots whose settled messages are forgotten for it.
	StreamRolledBack Kind = "stream-rolled-back"
	// Panicked: the handler, or another callback, has panicked. Reason: which;
	// Err: with what; Slot: the message's.
	Panicked Kind = "handler-panicked"
	// ResourceRecreated: a stream or bucket of the group was missing and has been
	// created again, or its revisions had gone back, and it has been created again above
	// them. Reason: its name; Err: how far it had gone back, if it had.
	ResourceRecreated Kind = "resource-recreated"
	// FencesRaised: a leader has raised the fences of all slots, since the handlers'
	// store had a higher one than a rightful owner. Slot and Peer: whose; Version: of the
	// map; Reason: both fences.
	FencesRaised Kind = "fences-raised"
	// StateMoved: the state of a slot has come from its old owner. Slot, Peer: the old owner; Version:
	// of the handoff; Count: bytes; Duration.
	StateMoved Kind = "state-moved"
	// StateNotMoved: it has not, in a planned handoff, so the handler prepared instead. Slot, Peer: the
	// old owner; Version: of the handoff; Err: why; Duration: how long it was waited for.
	StateNotMoved Kind = "state-not-moved"
)

// Event is one thing that happened in a worker. Only the fields that its kind
// names are set, beside Time, Kind and Worker.
//
// Peer is another worker's stable ID and Claim that worker's, or this one's, claim of its ID;
// Epoch is the leader's. Version is that of a map. Slot is one slot of Of; Slots and Lost are
// lists of them. Before and After count workers, Count what the kind says, and Keys keys.
// Times are by the worker's own clock, and a Duration is measured with it.
type Event struct {
	Time     time.Time     `json:"time"`
	Kind     Kind          `json:"kind"`
	Worker   string        `json:"worker,omitempty"` // whose event: its stable ID, "" before it has one
	Peer     string        `json:"peer,omitempty"`
	Claim    uint64        `json:"claim,omitempty"`
	Epoch    uint64        `json:"epoch,omitempty"`
	Version  uint64        `json:"version,omitempty"`
	From     state.State   `json:"from,omitempty"`
	To       state.State   `json:"to,omitempty"`
	Slot     int           `json:"slot,omitempty"`
	Of       int           `json:"of,omitempty"` // number of slots of the group
	Slots    []int         `json:"slots,omitempty"`
	Lost     []int         `json:"lost,omitempty"`
	Before   int           `json:"before,omitempty"`
	After    int           `json:"after,omitempty"`
	Count    int           `json:"count,omitempty"`
	Keys     uint64        `json:"keys,omitempty"`
	Busy     bool          `json:"busy,omitempty"`
	Duration time.Duration `json:"duration,omitempty"`
	Reason   string        `json:"reason,omitempty"`
	Err      string        `json:"err,omitempty"`
}

// Kinds lists every kind of event, in the order in which they are declared.
var Kinds = []Kind{Started, IDClaimed, Elected, StateChanged, WorkerJoined, WorkerLeaving,
	WorkerGone, Standby, WorkerRestarting, WorkerAwaited, WorkerRejoined, WorkerSuspected, Topology,
	WindowStarted, WindowDone, Rebalance, Planned, MapPublished, Rebalanced, MapReceived,
	Assigned, SlotAcquired, SlotResumed, SlotReleasing, SlotReleased, SlotTakenOver, LeaseUncertain, LeaseConfirmed,
	IdentityLost, HandoffForced, PrepareFailed, StalePinFreed, Draining, WorkerDraining, Resharded,
	PlanNote, RecordRejected, KeyQueued, KeyFreed, DeadLettered, Left, StreamRolledBack, Panicked, ResourceRecreated, FencesRaised,
	StateMoved, StateNotMoved}

// OfSlot reports whether events of this kind are about the ownership of one slot.
// There are a few of them for each slot that moves. Events that are not may name a
// slot as well; see HasSlot.
func (k Kind) OfSlot() bool {
	switch k {
	case SlotAcquired, SlotResumed, SlotReleasing, SlotReleased, SlotTakenOver, HandoffForced, StalePinFreed, StateMoved:
		return true
	default:
		return false
	}
}
