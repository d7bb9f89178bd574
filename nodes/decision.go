package nodes

import "time"

// Action is what a decision asks for.
type Action string

// The actions.
const (
	Noop      Action = "NOOP"
	ScaleUp   Action = "SCALE_UP"
	ScaleDown Action = "SCALE_DOWN"
)

// Reason is why a decision is what it is. Every cause of a NOOP has its own.
type Reason string

// The reasons. The first six are those of actions, the others block one.
const (
	ReasonTriggered    Reason = "TRIGGERED"          // a scale-up's trigger holds
	ReasonRepair       Reason = "MIN_REPAIR"         // fewer workers than MIN_WORKERS
	ReasonIdle         Reason = "IDLE"               // a scale-down's conditions hold
	ReasonConsolidates Reason = "CONSOLIDATES"       // the pods of a worker fit elsewhere, for less
	ReasonDrift        Reason = "DRIFT"              // a worker is not as it would be launched now
	ReasonHeadroom     Reason = "CAPACITY_BUFFER"    // the pods of a capacity buffer have no room
	ReasonSteady       Reason = "STEADY"             // nothing asks for a change
	ReasonInProgress   Reason = "IN_PROGRESS"        // an open action has to end first
	ReasonCancels      Reason = "CANCELS_SCALE_DOWN" // the nodes of an open scale-down are needed again

	ReasonMetricsMissing Reason = "METRICS_UNAVAILABLE" // a reading is missing, stale, partial or not a number
	ReasonFleetUnknown   Reason = "FLEET_UNAVAILABLE"   // the cloud or the Kubernetes API can't be read completely
	ReasonPaused         Reason = "PAUSED"              // a person has paused scaling

	ReasonCPUTooShort     Reason = "CPU_HIGH_TOO_SHORT" // CPU is high, but not for CPU_UP_SEC
	ReasonPendingTooShort Reason = "PENDING_TOO_SHORT"  // pods are pending, but not for PENDING_UP_SEC
	ReasonTriggerPartial  Reason = "TRIGGER_PARTIAL"    // SCALE_UP_TRIGGER=all and only one of the two holds
	ReasonNeverFit        Reason = "PODS_NEVER_FIT"     // the only pending pods are of a kind that no new node could run
	ReasonRoomExists      Reason = "ROOM_EXISTS"        // every pending pod fits a node that is there or coming
	ReasonNoNodeHelps     Reason = "NO_NODE_HELPS"      // a new node could not run the pending pods either, because of other pods
	ReasonCooldownUp      Reason = "COOLDOWN_UP"
	ReasonBackoff         Reason = "FAILURE_BACKOFF"
	ReasonMaxWorkers      Reason = "MAX_WORKERS"
	ReasonPoolLimit       Reason = "POOL_LIMIT" // no pool whose nodes would run the pods may launch one

	ReasonIdleTooShort Reason = "IDLE_TOO_SHORT" // idle, but not for IDLE_DOWN_SEC
	ReasonPodsPending  Reason = "PODS_PENDING"   // CPU is low, but pods are pending
	ReasonCooldownDown Reason = "COOLDOWN_DOWN"
	ReasonInterruption Reason = "INTERRUPTION_OPEN"
	ReasonWindow       Reason = "CONSOLIDATION_WINDOW" // none of CONSOLIDATE_WINDOWS is open
	ReasonBudget       Reason = "CONSOLIDATION_BUDGET" // consolidation and drift have removed as many workers within the hour as CONSOLIDATE_PER_HOUR allows
	ReasonMinWorkers   Reason = "MIN_WORKERS"
	ReasonNoTarget     Reason = "NO_TARGET"     // no worker may be taken away
	ReasonPodsDontFit  Reason = "PODS_DONT_FIT" // the remaining workers can't take a target's pods
)

// Decision is what to do and why. A NOOP's Reason is its blocker: the first gate that kept the nearest action
// from being taken.
type Decision struct {
	Action  Action   `json:"action"`
	Reason  Reason   `json:"reason"`
	Detail  string   `json:"detail,omitempty"`
	Nodes   int      `json:"nodes,omitempty"`   // to launch
	Pool    string   `json:"pool,omitempty"`    // in which they are launched; "" without pools
	More    bool     `json:"more,omitempty"`    // more are needed than one scale-up may launch
	Wanted  []Want   `json:"wanted,omitempty"`  // of which kinds, one each; nil: of any
	Targets []Target `json:"targets,omitempty"` // to remove, in this order
	// Replaces are the workers that go once what a scale-up launches is Ready.
	Replaces []string `json:"replaces,omitempty"`
	Passed   []Passed `json:"passed,omitempty"` // workers not chosen for removal
	// Cancel are the open scale-downs whose nodes are needed again.
	Cancel []string `json:"cancel,omitempty"`
	// Unhealthy are the workers that are not Ready, or whose instances or disks are not well. They are removed by the sweep, whatever the decision.
	Unhealthy []Unhealthy `json:"unhealthy,omitempty"`
	// Headroom is how each capacity buffer stands.
	Headroom []Headroom `json:"headroom,omitempty"`
	Gates    []Gate     `json:"gates"`
}

// Snapshot is what a decision was made from and what it was, complete enough to make it again with the same
// or other settings.
type Snapshot struct {
	Now         time.Time   `json:"now"`
	Policy      Policy      `json:"policy"`
	Observation Observation `json:"observation"`
	Record      Record      `json:"record"`
	Decision    Decision    `json:"decision"`
}
