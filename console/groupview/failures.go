package groupview

import (
	"slices"
	"sync"
	"time"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// How long the console shows a failed worker whose ID no other worker has claimed. A person may acknowledge it before.
const (
	replacedFailed = 5 * time.Minute // where as many as there should be are there again
	unknownFailed  = time.Hour       // where it isn't known how many there should be
)

// leaseGone is the reason for a worker whose lease is gone while no leader was there to report it.
const leaseGone = "lease expired"

// Failures knows the workers that failed: that ended without handing off their slots. A failure lasts until a worker claims the ID again.
type Failures struct {
	mu      sync.Mutex
	claims  map[string]uint64 // by stable ID: its newest claim
	left    map[string]uint64 // by stable ID: the claim whose holder left in good order
	joined  map[string]time.Time
	byID    map[string]console.Failure
	claimed map[string]time.Time // by stable ID: when its newest claim was made
	// acknowledged says, by stable ID, when a person acknowledged a failure: a later one of the same ID is shown again.
	acknowledged map[string]time.Time
}

// NewFailures returns one that knows of no worker.
func NewFailures() *Failures {
	return &Failures{claims: map[string]uint64{}, left: map[string]uint64{}, joined: map[string]time.Time{}, byID: map[string]console.Failure{},
		claimed: map[string]time.Time{}, acknowledged: map[string]time.Time{}}
}

// Follow takes in an event. at is our own time.
func (f *Failures) Follow(e event.Event, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Kind {
	case event.IDClaimed:
		f.claims[e.Worker] = max(f.claims[e.Worker], e.Claim)
		f.joined[e.Worker], f.claimed[e.Worker] = at, e.Time
		delete(f.byID, e.Worker)
	case event.Left:
		f.left[e.Worker] = f.claims[e.Worker]
		delete(f.byID, e.Worker) // the leader may have reported a lost connection before this came
		delete(f.joined, e.Worker)
	case event.WorkerGone:
		// Events of two workers come in any order. The leader may report a worker as gone when the ID's next holder is at work, or
		// after the worker itself said that it left.
		if !endedBadly(e.Reason) || e.Claim < f.claims[e.Peer] || f.left[e.Peer] == e.Claim && e.Claim > 0 {
			return
		}
		if _, known := f.byID[e.Peer]; !known { // the time of a missing lease is nearer to the failure
			f.byID[e.Peer] = console.Failure{At: e.Time.Add(-e.Duration).UTC(), Reason: e.Reason}
		}
		delete(f.joined, e.Peer)
	default:
	}
}

// endedBadly reports whether the leader's reason for a worker's end is a failure. A lease that is deleted, or has a new holder, is not: the
// worker ended in good order, or its ID is in use again.
func endedBadly(reason string) bool {
	return slices.Contains([]string{"crash", "connection gone", leaseGone}, reason)
}

// Leases compares the workers that have a lease with those that joined before the leases were asked for. Without a leader no event
// reports a failed worker, as when all failed at once.
func (f *Failures) Leases(asked time.Time, held map[string]report.Lease, states map[string]state.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, joined := range f.joined {
		_, has := held[id]
		if _, failed := f.byID[id]; has || failed || !joined.Before(asked) || states[id] == state.Shutdown {
			continue
		}
		f.byID[id] = console.Failure{At: asked.UTC(), Reason: leaseGone}
	}
	for id, failure := range f.byID { // a worker that renewed its lease since did not fail
		if m, has := held[id]; has && m.Claim == f.claims[id] && m.Renewed.After(failure.At.Add(renewedSince)) {
			delete(f.byID, id)
		}
	}
}

// renewedSince is by how much a renewal has to be later than a failure to disprove it: the server's clock is not ours.
const renewedSince = 5 * time.Second

// Now returns the failed workers to show, by stable ID, and removes all failed ones from the states that workers last reported.
func (f *Failures) Now(at time.Time, states map[string]state.State, expected int) map[string]console.Failure {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.byID {
		delete(states, id)
	}
	replaced := expected > 0 && len(states) >= expected
	out := map[string]console.Failure{}
	for id, failure := range f.byID {
		age := at.Sub(failure.At)
		over := replaced && age >= replacedFailed || expected == 0 && age >= unknownFailed
		if over || f.isAcknowledged(id, failure) {
			continue
		}
		failure.Replaced = replaced
		out[id] = failure
	}
	return out
}

// Acknowledge has a failed worker no longer shown. It reports whether there is one of that ID.
func (f *Failures) Acknowledge(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	failure, failed := f.byID[id]
	if !failed || f.isAcknowledged(id, failure) {
		return false
	}
	f.acknowledged[id] = failure.At
	return true
}

// AcknowledgeAt is Acknowledge at a time before, of a failure that may not be known yet.
func (f *Failures) AcknowledgeAt(id string, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acknowledged[id] = at
}

// isAcknowledged reports whether a person acknowledged a failure, and not an earlier one of the same ID. A missing lease is noticed
// again, later, by a console that was restarted: it is another failure only if the ID was claimed since. The caller has the lock.
func (f *Failures) isAcknowledged(id string, failure console.Failure) bool {
	at, ok := f.acknowledged[id]
	return ok && (!failure.At.After(at) || failure.Reason == leaseGone && !f.claimed[id].After(at))
}
