package report

import (
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// Metrics is what a worker knows and has counted at one moment, for a monitoring system.
// Package partitionprom makes Prometheus metrics of it.
//
// The fields up to Retry, and Handlers.InFlight, are states, which go up and down. Counters and
// the histograms only grow, and begin at zero with the worker. Reading them costs a few microseconds and
// no request.
type Metrics struct {
	Group         string // Config.Name
	State         state.State
	Leading       bool   // it leads, and its lease is valid at this moment
	StableID      int    // the number in the worker's stable ID; -1 before it has one
	MapVersion    uint64 // of the assignment map; 0 before the first
	Slots         []int  // that the worker pulls for
	ActiveWorkers int    // live workers, as the leader sees them; 0 at the others
	Standby       bool   // it is ready and waits for a stable ID
	Draining      bool   // it gives its slots away and takes none
	// WritesRefused is for how long the servers have refused all of the worker's writes
	// to the group's buckets; 0 if the last one succeeded or was not answered.
	WritesRefused time.Duration
	// Pending is what waits in the streams of messages; nil unless this worker leads and
	// has looked.
	Pending  *PendingMetrics
	Retry    RetryMetrics
	Handlers HandlerMetrics

	Counters Counters
	// HandoffPause is how long messages were kept from beginning that waited while their
	// slot was handed off to this worker.
	HandoffPause Histogram
	// Detection is the time from the last sign of life of a worker that failed, or from
	// when this leader could see again, to its being declared failed.
	Detection Histogram
}

// PendingMetrics is what a leader saw, at most 10 s ago, of the streams of messages.
type PendingMetrics struct {
	Messages   uint64        // that are not processed, including those not yet copied from the source
	Oldest     time.Duration // age of the oldest message that is not processed; 0 if there is none
	StreamFill float64       // bytes of the fullest stream over its limit; publishers are refused at 1
}

// RetryMetrics is the retry queue of the slots that the worker pulls for. All of it is 0
// with Config.Retry.Disabled.
type RetryMetrics struct {
	Messages int
	Keys     int           // that have messages in the queue
	Oldest   time.Duration // how long the oldest message has been in the queue; 0 if it is empty
}

// Counters are a worker's counters. The first five, and RebalanceDuration, are about the
// plans that this worker made as leader; FencesRaised is the leader's, too. Queued,
// Retried and DeadLettered stay 0 with Config.Retry.Disabled.
type Counters struct {
	Rebalances        uint64        // plans
	RebalanceDuration time.Duration // of the last rebalance: from plan to last handoff; the only field that can shrink
	SlotsMoved        uint64
	KeysMoved         uint64
	Emergencies       uint64 // plans that the failure of a worker made necessary

	LeaseUncertain     uint64            // times that the worker could not be sure of its lease, and paused
	HandoffsForced     uint64            // slots handed off with an unsettled message, since the handler did not end in time
	StalePinsFreed     uint64            // consumers of its slots that served no client, or had lost messages, and were freed
	StreamRollbacks    uint64            // times that it found a stream created again, or without messages that it had
	HandlerPanics      uint64            // of the handler or another callback; each failed one call
	ResourcesRecreated uint64            // missing streams and buckets of the group that it created again
	StatesMoved        uint64            // states of slots that it had from their old owners
	StateBytes         uint64            // of these
	StatesNotMoved     uint64            // states that it could not have in a planned handoff; see StateMover
	FencesRaised       uint64            // times that it raised all fences, since the handlers' store had a higher one
	RecordsRejected    map[string]uint64 // records of others that were not valid, by kind of record; every kind is there

	Queued       uint64 // messages put into the retry queue
	Retried      uint64 // attempts of messages of the retry queue
	DeadLettered uint64 // messages abandoned after too many attempts
}

// HandlerMetrics is what a worker knows of the calls of its handler, those of the retry queue
// included.
type HandlerMetrics struct {
	InFlight int    // calls that run now
	Failed   uint64 // calls that returned an error or panicked
	// Duration is how long calls took that have returned. Its Count is their number, failed
	// ones included.
	Duration Histogram
}

// Histogram counts durations by size.
type Histogram struct {
	Count   uint64
	Sum     time.Duration
	Buckets []Bucket // ascending; the last one has a bound, so Count may be more than its count
}

// Bucket is how many durations were at most Bound. The counts are cumulative.
type Bucket struct {
	Bound time.Duration
	Count uint64
}
