package nodes

import (
	"fmt"
	"reflect"
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
	StateChange InterruptionKind = "state-change" // the instance stops or ends; journaled, never an item
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

// Interruption is the durable item of one interrupted instance. It says what has been done about it in facts that do not depend on
// each other's order, so that whoever finds the item open can go on.
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

	Node          NodeRef     `json:"node,omitzero"`
	Offering      Offering    `json:"offering,omitzero"`       // of the interrupted instance; counts as exhausted
	Replace       Replace     `json:"replace,omitempty"`       // "" until decided
	Intent        *Intent     `json:"intent,omitempty"`        // the launch that may be in flight, or was resolved
	ReplacementID string      `json:"replacementId,omitempty"` // launched
	LaunchFailed  string      `json:"launchFailed,omitempty"`  // why no replacement can be had
	Verified      bool        `json:"verified,omitempty"`      // the replacement's node is Ready
	Exhausted     []Exhausted `json:"exhausted,omitempty"`     // offerings found out of stock on the way
	DrainSince    int64       `json:"drainSince,omitempty"`    // start of the drain
	Drained       bool        `json:"drained,omitempty"`       // nothing is left on the node
	DrainFailed   string      `json:"drainFailed,omitempty"`   // why it can't be drained
	Marked        bool        `json:"terminating,omitempty"`   // the mark: about to be terminated by us
	Closed        bool        `json:"closed,omitempty"`        // nothing more to do
	Outcome       string      `json:"outcome,omitempty"`       // of a closed one
	ExpiresEpoch  int64       `json:"expiresEpoch,omitempty"`  // a closed item may be deleted after this
	Revision      int64       `json:"revision,omitempty"`      // grows with every write
	HandedOver    bool        `json:"handedOver,omitempty"`    // the workers on the node were told
}

// Replace says whether an interrupted worker gets a replacement.
type Replace string

// The answers.
const (
	ReplaceYes Replace = "yes"
	ReplaceNo  Replace = "no"
)

// replacing tells whether a replacement is, or may still be, on its way. While that is undecided it is assumed.
func (i Interruption) replacing() bool {
	return i.Replace != ReplaceNo && i.LaunchFailed == ""
}

// claim is the name under which an interruption cordons a node and tags its replacement.
func (i Interruption) claim() string { return "int-" + i.InstanceID }

// AppliedInterruption is Applied for interruptions.
func AppliedInterruption(i Interruption, t InterruptionTransition) (next Interruption, changed bool, err error) {
	next, err = t.Apply(i.clone())
	if err != nil {
		return i, false, err
	}
	if reflect.DeepEqual(i, next) {
		return i, false, nil
	}
	next.Revision = i.Revision + 1
	return next, true, nil
}

func (i Interruption) clone() Interruption {
	if i.Intent != nil {
		c := *i.Intent
		i.Intent = &c
	}
	i.Exhausted = slices.Clone(i.Exhausted)
	return i
}

// OpenInterruption is the first write after an event: once it is acknowledged a crash loses nothing.
type OpenInterruption struct {
	Event    InterruptionEvent
	Offering Offering // of the interrupted instance
	Now      time.Time
}

// Name returns openInterruption.
func (OpenInterruption) Name() string { return "openInterruption" }

// Apply opens the item. An item that is open already stays, so that a redelivered event resumes it and a rebalance followed by a
// warning is one interruption; a more urgent kind takes it over. A closed one is opened again only by a more urgent event: the
// instance lived on and now it does not.
func (t OpenInterruption) Apply(i Interruption) (Interruption, error) {
	e := t.Event
	if i.InstanceID != "" && e.Kind.urgency() <= i.Kind.urgency() {
		return i, nil
	}
	if i.InstanceID == "" {
		i = Interruption{InstanceID: e.InstanceID, OpenedEpoch: t.Now.Unix(), Offering: t.Offering}
	}
	i.Kind, i.EventID, i.DeadlineEpoch = e.Kind, e.ID, e.deadline()
	if i.Closed {
		i.Closed, i.Outcome, i.ExpiresEpoch = false, "", 0
		if i.ReplacementID == "" { // it was given up: try again, as a new attempt
			i.LaunchFailed, i.Replace = "", ""
		}
	}
	i.DrainFailed, i.HandedOver = "", false // a drain under a warning has other rules, and the time is new
	return i, nil
}

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

// ClaimInterruption takes an open interruption to work on it, if no other worker does. Owner must be new for every attempt.
type ClaimInterruption struct {
	Owner   string
	Holder  string // Config.Holder; "": none
	Process string // one run of a program; unlike Holder it never comes again
	Now     time.Time
	TTL     time.Duration
}

// Name returns claimInterruption.
func (ClaimInterruption) Name() string { return "claimInterruption" }

// Apply sets owner and expiry and raises the item's fence.
func (t ClaimInterruption) Apply(i Interruption) (Interruption, error) {
	switch {
	case i.InstanceID == "" || i.Closed:
		return i, &RefusedError{Transition: t.Name(), Condition: ErrNotRecorded, Detail: "not open"}
	case i.Owner == t.Owner:
		return i, nil
	case i.Owner != "" && t.Now.Unix() <= i.UntilEpoch && !t.former(i):
		return i, &RefusedError{Transition: t.Name(), Condition: ErrLeaseHeld, Detail: fmt.Sprintf("by %s until %d", i.Owner, i.UntilEpoch)}
	}
	i.Owner, i.Holder, i.Process, i.UntilEpoch = t.Owner, t.Holder, t.Process, t.Now.Add(t.TTL).Unix()
	i.Fence++
	return i, nil
}

// former reports whether the claim is one that an earlier process of the same holder has left behind: that process has died, or this
// one could not be there. Runs of one process respect each other's claims.
func (t ClaimInterruption) former(i Interruption) bool {
	return t.Holder != "" && t.Holder == i.Holder && t.Process != i.Process
}

// InterruptionStep is one fact about an interruption, written by whoever holds its claim.
type InterruptionStep struct {
	Step   string // name, for example intendReplacement
	Owner  string
	Fence  int64
	Change func(*Interruption) // sets facts; the same when repeated
}

// Name returns the step's name.
func (t InterruptionStep) Name() string { return t.Step }

// Apply makes the change if the claim has not passed to somebody else.
func (t InterruptionStep) Apply(i Interruption) (Interruption, error) {
	if i.Fence != t.Fence || i.Owner != "" && i.Owner != t.Owner {
		return i, &RefusedError{Transition: t.Name(), Condition: ErrStaleFence, Detail: fmt.Sprintf("fence is %d, the writer's %d", i.Fence, t.Fence)}
	}
	t.Change(&i)
	return i, nil
}
