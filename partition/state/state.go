// Package state names what a worker, or a group as a whole, is doing.
package state

// State is what a worker is doing, by the names that operators see.
type State string

// The states of a worker.
const (
	Init        State = "INIT"        // connecting
	ClaimingID  State = "CLAIMING_ID" // looking for a free stable ID
	Election    State = "ELECTION"    // joined; who leads is not known, or no sign of the leader has come for longer than its lease
	Follower    State = "FOLLOWER"    // waits for its first slots
	Leader      State = "LEADER"      // leads, waits for its first slots
	Stable      State = "STABLE"      // has what the map gives it
	Scaling     State = "SCALING"     // leads, and a window is open
	Rebalancing State = "REBALANCING" // slots are moving to or from it, or it leads while any are
	Emergency   State = "EMERGENCY"   // leads, and takes slots from the dead
	Degraded    State = "DEGRADED"    // can't be sure of its lease: starts nothing; or a stream or bucket of the group is missing
	Shutdown    State = "SHUTDOWN"    // hands off and leaves
)

// All lists every state, for metrics that show one of them as 1.
var All = []State{Init, ClaimingID, Election, Follower, Leader, Stable,
	Scaling, Rebalancing, Emergency, Degraded, Shutdown}

// Gone is the state of a worker that the map names and that has no lease.
// No worker is in it: only others see it.
const Gone State = "GONE"
