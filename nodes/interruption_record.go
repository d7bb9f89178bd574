package nodes

import (
	"slices"
	"time"
)

// InterruptionKind is the kind of an announced interruption.
type InterruptionKind string

// The kinds of interruption events.
const (
	Rebalance   InterruptionKind = "rebalance"    // EC2 Instance Rebalance Recommendation
	Health      InterruptionKind = "health"       // AWS Health scheduled change
	Warning     InterruptionKind = "warning"      // EC2 Spot Instance Interruption Warning
	StateChange InterruptionKind = "state-change" // the instance stops or ends; logged, never an item
)

// urgency orders kinds: a more urgent event takes over the item that a less urgent one opened.
func (k InterruptionKind) urgency() int {
	return slices.Index([]InterruptionKind{Rebalance, Health, Warning}, k)
}

// The times of a Spot interruption.
const (
	warningNotice  = 120 * time.Second // from the event's time to the instance's end
	warningReserve = 10 * time.Second  // kept back for the way there
	warningLinger  = 10 * time.Minute  // past the deadline, after which an instance that still lives is a worker again
)

// InterruptionEvent is an event of the cloud about one instance.
type InterruptionEvent struct {
	ID         string // the event's own ID
	Kind       InterruptionKind
	InstanceID string
	At         time.Time     // when the cloud sent it
	Start      time.Time     // Health: when the change is scheduled
	State      InstanceState // StateChange: the new state
}

// deadline returns the epoch by which the work on an event should be done, 0 if there is none.
func (e InterruptionEvent) deadline() int64 {
	switch e.Kind {
	case Warning:
		return e.At.Add(warningNotice - warningReserve).Unix()
	case Health:
		if !e.Start.IsZero() {
			return e.Start.Unix()
		}
	}
	return 0
}

// Interruption is the durable item of one interrupted instance. It says what has been done about it in facts
// that do not depend on each other's order, so that any process that finds the item open can continue.
type Interruption struct {
	InstanceID    string           `json:"instanceId,omitempty"`
	Kind          InterruptionKind `json:"kind,omitempty"`
	EventID       string           `json:"eventId,omitempty"`
	OpenedEpoch   int64            `json:"openedEpoch,omitempty"`
	DeadlineEpoch int64            `json:"deadlineEpoch,omitempty"` // be done by then; 0: none

	Owner      string `json:"owner,omitempty"`   // who works on it
	Holder     string `json:"holder,omitempty"`  // Config.Holder of the owner's process
	Process    string `json:"process,omitempty"` // which of the processes of that name
	UntilEpoch int64  `json:"untilEpoch,omitempty"`
	Fence      int64  `json:"fence,omitempty"`

	Node           NodeRef     `json:"node,omitzero"`
	Offering       Offering    `json:"offering,omitzero"`        // of the interrupted instance; counts as exhausted
	Replace        Replace     `json:"replace,omitempty"`        // "" until decided
	Intent         *Intent     `json:"intent,omitempty"`         // the launch that may be in flight, or was resolved
	ReplacementID  string      `json:"replacementId,omitempty"`  // launched
	LaunchFailed   string      `json:"launchFailed,omitempty"`   // why no replacement can be had
	Verified       bool        `json:"verified,omitempty"`       // the replacement's node is Ready
	Exhausted      []Exhausted `json:"exhausted,omitempty"`      // offerings found out of stock on the way
	DrainSince     int64       `json:"drainSince,omitempty"`     // start of the drain
	Drained        bool        `json:"drained,omitempty"`        // nothing is left on the node
	DrainFailed    string      `json:"drainFailed,omitempty"`    // why it can't be drained
	Marked         bool        `json:"terminating,omitempty"`    // the mark: about to be terminated by us
	Closed         bool        `json:"closed,omitempty"`         // nothing more to do
	Outcome        string      `json:"outcome,omitempty"`        // of a closed one
	ExpiresEpoch   int64       `json:"expiresEpoch,omitempty"`   // a closed item may be deleted after this
	Revision       int64       `json:"revision,omitempty"`       // grows with every write
	WorkersDrained bool        `json:"workersDrained,omitempty"` // the workers on the node were asked to hand off
}

// Replace says whether an interrupted worker gets a replacement.
type Replace string

// The answers.
const (
	ReplaceYes Replace = "yes"
	ReplaceNo  Replace = "no"
)

// replacing reports whether a replacement is, or may still be, on its way. While that is undecided it is assumed.
func (i Interruption) replacing() bool {
	return i.Replace != ReplaceNo && i.LaunchFailed == ""
}

// claim is the name under which an interruption cordons a node and tags its replacement.
func (i Interruption) claim() string { return "int-" + i.InstanceID }

func (i Interruption) clone() Interruption {
	if i.Intent != nil {
		c := *i.Intent
		i.Intent = &c
	}
	i.Exhausted = slices.Clone(i.Exhausted)
	return i
}
