package nodes

import (
	"fmt"
	"reflect"
	"time"
)

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

// OpenInterruption is the first write after an event: once it is acknowledged a crash loses nothing.
type OpenInterruption struct {
	Event    InterruptionEvent
	Offering Offering // of the interrupted instance
	Now      time.Time
}

// Name returns openInterruption.
func (OpenInterruption) Name() string { return "openInterruption" }

// Apply opens the item. An item that is open already stays, so that a redelivered event resumes it and a
// rebalance followed by a warning is one interruption; a more urgent kind takes it over. A closed one is
// opened again only by a more urgent event: the instance lived on and now it does not.
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
	i.DrainFailed, i.WorkersDrained = "", false // a drain under a warning has other rules, and the time is new
	return i, nil
}

// ClaimInterruption takes an open interruption to work on it, if no other worker does. Owner must be new for
// every attempt.
//
// A claim may be taken from a worker that is slow instead of dead. This is safe because of the fence:
//
//  1. The slow worker has sent its next call, for example a launch, and hangs.
//  2. This worker takes the claim, which raises the fence, and reads what the other one has written down: its
//     intent, with the token of that launch. It repeats the request and gets the same instance.
//  3. The slow worker goes on. Its fact carries the old fence, so the store refuses it, and it stops.
type ClaimInterruption struct {
	Owner   string
	Holder  string // Config.Holder; "": none
	Process string // one run of a program; unlike Holder it never comes again
	// Silent is the revision that the item has had for claimPatience: its owner has not even renewed its claim.
	// 0: not watched. Revisions grow with every write, so an owner that has written since keeps the claim.
	Silent int64
	Now    time.Time
	TTL    time.Duration
}

// Name returns claimInterruption.
func (ClaimInterruption) Name() string { return "claimInterruption" }

// Apply sets owner and expiry and raises the item's fence.
func (t ClaimInterruption) Apply(i Interruption) (Interruption, error) {
	switch {
	case i.InstanceID == "" || i.Closed:
		return i, &RefusedError{Transition: t.Name(), Condition: errNotRecorded, Detail: "not open"}
	case i.Owner == t.Owner:
		return i, nil
	case i.Owner != "" && t.Now.Unix() <= i.UntilEpoch && !t.former(i) && !t.silent(i):
		return i, &RefusedError{
			Transition: t.Name(),
			Condition:  ErrLeaseHeld,
			Detail:     fmt.Sprintf("by %s until %d", i.Owner, i.UntilEpoch),
		}
	}
	i.Owner, i.Holder, i.Process, i.UntilEpoch = t.Owner, t.Holder, t.Process, t.Now.Add(t.TTL).Unix()
	i.Fence++
	return i, nil
}

// former reports whether the claim is one that an earlier process of the same holder has left behind: that
// process has died, or this one could not be there. Runs of one process respect each other's claims.
func (t ClaimInterruption) former(i Interruption) bool {
	return t.Holder != "" && t.Holder == i.Holder && t.Process != i.Process
}

// silent reports whether nothing has been written to the item since it was first watched.
func (t ClaimInterruption) silent(i Interruption) bool {
	return t.Silent != 0 && t.Silent == i.Revision
}

// InterruptionStep is one fact about an interruption, written by the holder of its claim.
type InterruptionStep struct {
	Step   string // name, for example intendReplacement
	Owner  string
	Fence  int64
	Change func(*Interruption) // sets facts; the same when repeated
}

// Name returns the step's name.
func (t InterruptionStep) Name() string { return t.Step }

// Apply makes the change if the claim has not passed to another worker.
func (t InterruptionStep) Apply(i Interruption) (Interruption, error) {
	if i.Fence != t.Fence || i.Owner != "" && i.Owner != t.Owner {
		return i, &RefusedError{
			Transition: t.Name(),
			Condition:  ErrStaleFence,
			Detail:     fmt.Sprintf("fence is %d, the writer's %d", i.Fence, t.Fence),
		}
	}
	t.Change(&i)
	return i, nil
}
