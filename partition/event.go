package partition

import "time"

// State is what a worker is doing, by the names that operators see.
type State string

// The states of a worker.
const (
	StateInit        State = "INIT"        // connecting
	StateClaimingID  State = "CLAIMING_ID" // looking for a free stable ID
	StateElection    State = "ELECTION"    // joined; who leads is not known, or no sign of the leader has come for longer than its lease
	StateFollower    State = "FOLLOWER"    // waits for its first slots
	StateLeader      State = "LEADER"      // leads, waits for its first slots
	StateStable      State = "STABLE"      // has what the map gives it
	StateScaling     State = "SCALING"     // leads, and a window is open
	StateRebalancing State = "REBALANCING" // slots are moving to or from it, or it leads while any are
	StateEmergency   State = "EMERGENCY"   // leads, and takes slots from the dead
	StateDegraded    State = "DEGRADED"    // can't be sure of its lease: starts nothing; or a stream or bucket of the group is missing
	StateShutdown    State = "SHUTDOWN"    // hands over and leaves
)

// States lists every state, for metrics that show one of them as 1.
var States = []State{StateInit, StateClaimingID, StateElection, StateFollower, StateLeader, StateStable,
	StateScaling, StateRebalancing, StateEmergency, StateDegraded, StateShutdown}

// EventKind names what happened.
type EventKind string

// The kinds of event. The fields of Event that each one sets stand behind it.
const (
	EventStarted        EventKind = "started"          // a worker begins to join
	EventIDClaimed      EventKind = "id-claimed"       // Claim; Duration since it started
	EventElected        EventKind = "elected"          // Peer: the leader; Epoch
	EventState          EventKind = "state"            // From, To
	EventWorkerJoined   EventKind = "worker-joined"    // Peer (leader's view)
	EventWorkerLeaving  EventKind = "worker-leaving"   // Peer
	EventWorkerGone     EventKind = "worker-gone"      // Peer, Reason; Duration: since its last sign of life, if it died and the leader was looking
	EventStandby        EventKind = "standby"          // After: workers that are wanted; all have their names
	EventRestarting     EventKind = "worker-restarts"  // Peer: its slots wait for a successor of its name
	EventReserved       EventKind = "worker-awaited"   // Peer: it was lost with the connection to the broker; Duration: how long it is waited for
	EventSucceeded      EventKind = "worker-succeeded" // Peer, Claim; Duration: since its predecessor went, if that was seen
	EventSuspected      EventKind = "worker-suspected" // Peer
	EventTopology       EventKind = "topology"         // Before, After: live workers
	EventWindowStarted  EventKind = "window-started"   // Reason, Duration
	EventWindowDone     EventKind = "window-complete"  // Reason, After: live workers, Duration
	EventRebalance      EventKind = "rebalance"        // Reason, After: workers that the plan is for; Of
	EventPlanned        EventKind = "planned"          // Before: slots, After: workers, Count: slots that move, Keys: weight that moves, Duration
	EventMapPublished   EventKind = "map-published"    // Version, After: workers
	EventRebalanced     EventKind = "rebalanced"       // Version, Count, Duration: since planned
	EventMapReceived    EventKind = "map-received"     // Version
	EventAssigned       EventKind = "assigned"         // Version, Before, After: own slots; Slots: those that come; Lost: those that go; Of
	EventSlotAcquired   EventKind = "slot-acquired"    // Slot, Version, Reason: hand-over, take-over or assigned
	EventSlotResumed    EventKind = "slot-resumed"     // Slot; Duration: how long a waiting message was kept from beginning by the hand-over
	EventReleasing      EventKind = "slot-releasing"   // Slot, Peer: to whom; Busy: a handler is running
	EventSlotReleased   EventKind = "slot-released"    // Slot, Duration
	EventTakenOver      EventKind = "slot-taken-over"  // Slot, Peer: new owner (leader)
	EventTrustLost      EventKind = "trust-lost"       // Reason
	EventTrustRegained  EventKind = "trust-regained"   // Duration
	EventIdentityLost   EventKind = "identity-lost"    // Reason
	EventHandoverForced EventKind = "handover-forced"  // Slot: its handler did not end in time
	EventPrepareFailed  EventKind = "prepare-failed"   // Err
	EventGhostHealed    EventKind = "ghost-pin-healed" // Slot: its consumer served nobody
	EventYielding       EventKind = "yielding"         // Duration: for how long it takes no slots; 0: it takes some again
	EventWorkerYields   EventKind = "worker-yields"    // Peer (leader's view)
	EventLayout         EventKind = "layout-changed"   // Version, Before, After: slots that the keys are divided in
	EventPlanNote       EventKind = "plan-note"        // Reason: a setting that the plan could not honour
	EventRefused        EventKind = "refused"          // Reason: which record; Err: why it is not believed
	EventKeyParked      EventKind = "key-parked"       // Slot, Reason: the key, Count: attempts; its messages wait in the retry stream
	EventKeyFreed       EventKind = "key-freed"        // Slot, Reason: the key; none of its messages is parked any more
	EventLeft           EventKind = "left"             // Duration
	// EventStreamRolledBack: a stream is not what it was. Reason: its name; Err: what
	// was seen of it; Count: slots whose settled messages are forgotten for it.
	EventStreamRolledBack EventKind = "stream-rolled-back"
	// EventPanicked: the handler, or another callback, has panicked. Reason: which;
	// Err: with what; Slot: the message's.
	EventPanicked EventKind = "handler-panicked"
	// EventResourceRecreated: a stream or bucket of the group was missing and has been
	// created again, or its revisions had gone back, and it has been created again above
	// them. Reason: its name; Err: how far it had gone back, if it had.
	EventResourceRecreated EventKind = "resource-recreated"
	// EventFencesRaised: a leader has raised the fences of all slots, since the handlers'
	// store had a higher one than a rightful owner. Slot and Peer: whose; Version: of the
	// map; Reason: both fences.
	EventFencesRaised EventKind = "fences-raised"
)

// Event is one thing that happened in a worker. Only the fields that its kind
// names are set, beside Time, Kind and Worker.
type Event struct {
	Time     time.Time     `json:"time"`
	Kind     EventKind     `json:"kind"`
	Worker   string        `json:"worker,omitempty"` // whose event: its stable ID, "" before it has one
	Peer     string        `json:"peer,omitempty"`
	Claim    uint64        `json:"claim,omitempty"`
	Epoch    uint64        `json:"epoch,omitempty"`
	Version  uint64        `json:"version,omitempty"`
	From     State         `json:"from,omitempty"`
	To       State         `json:"to,omitempty"`
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
