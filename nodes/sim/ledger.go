package sim

import (
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Kind is what an Entry reports.
type Kind string

// The kinds of entries.
const (
	Launched           Kind = "launched"            // a new instance
	LaunchedAgain      Kind = "launched-again"      // a token returned the instance that it had started before
	LaunchRefused      Kind = "launch-refused"      // Refusal says why
	TokenMismatch      Kind = "token-mismatch"      // a token came with another request than its first
	Terminated         Kind = "terminated"          // by a client; Facts are those of the moment before
	TakenAway          Kind = "taken-away"          // by the cloud or a person
	Stopped            Kind = "stopped"             // by a person; its machine is off, and it is still there
	Warned             Kind = "warned"              // a Spot warning, a rebalance recommendation or a scheduled change
	Joined             Kind = "joined"              // a Node object was registered
	BecameReady        Kind = "ready"               //
	BecameNotReady     Kind = "not-ready"           //
	Cordoned           Kind = "cordoned"            // by a client
	Uncordoned         Kind = "uncordoned"          // by a client
	Evicted            Kind = "evicted"             // a pod, by a client
	Drained            Kind = "drained"             // nothing was left that a drain moves
	NodeRemoved        Kind = "node-removed"        // a Node object, by a client; Alive reports whether its instance was
	WorkersDrained     Kind = "workers-drained"     // the workers on a node were told to give their work away
	EvictionsRequested Kind = "evictions-requested" // of the pods on a node that respond
	EvictionsWithdrawn Kind = "evictions-withdrawn" // those requests
	Written            Kind = "written"             // a transition changed the record: Before and After
	DiskFull           Kind = "disk-full"           // a node came under disk pressure
	DiskFree           Kind = "disk-free"           // and no longer is
	Impaired           Kind = "impaired"            // an instance fails a status check, which Detail names
	Unimpaired         Kind = "unimpaired"          // and no longer does
	WrittenItem        Kind = "written-item"        // a transition changed an interruption: Item
	RefusedWrite       Kind = "refused-write"       // a transition's condition did not hold
	Lost               Kind = "pods-lost"           // pods that ran on an instance when it ended
	Placed             Kind = "placed"              // a pod, on a node; only for Options.Watch
	Finished           Kind = "finished"            // a pod that had run as long as it does; only for Options.Watch
	Withdrawn          Kind = "withdrawn"           // a pod that its owner took away; only for Options.Watch
	Expired            Kind = "deadline-passed"     // a call came after its own deadline and had no effect
)

// Entry is one thing that happened. Seq, At, Kind are set in all of them, the other fields where the kind has such a thing. Before and
// After are the state record around a write of it, Item the interruption that was written, and Facts what the invariants need to
// know of an instance at the moment of the call: later it can't be told any more.
type Entry struct {
	Seq      int
	At       time.Time
	Actor    string // the client that did it; "" for the simulator itself
	Kind     Kind
	Instance string
	Node     nodes.NodeRef
	Zone     string
	Request  nodes.LaunchRequest
	Refusal  nodes.LaunchFailure
	Detail   string // a pod's or a transition's name, a claim
	Facts    Facts
	Holding  bool // the pod evicted was a worker that still had its work
	Late     bool // it took effect after its sender's deadline
	Before   *nodes.Record
	After    *nodes.Record
	Item     *nodes.Interruption
}

// Facts is what was true of an instance at a moment that matters: of itself, and how many workers there were besides it.
type Facts struct {
	Alive      bool      // pending or running
	Joined     bool      // its Node object exists
	EverReady  bool      // it has been Ready
	ReadySince time.Time // zero unless it is Ready
	Cordoned   bool      // its node is unschedulable and marked as to be deleted
	Pods       int       // pods on it that a drain would move
	Control    bool      // a server of the control plane
	HandMade   bool      // launched by a person
	Available  int       // Ready, uncordoned workers besides it
	InZone     int       // those in its zone
	Elsewhere  int       // those in other zones
	AliveAll   int       // pending and running workers in all
}

// ledger keeps what has happened, or hands it on.
type ledger struct {
	time    *timeline
	watch   func(Entry) // nil: the entries are kept
	entries []Entry
	written int // entries so far, whether they are kept or not
}

// record enters what has happened now.
func (l *ledger) record(e Entry) {
	e.Seq, e.At = l.written, l.time.now
	l.written++
	if l.watch != nil {
		l.watch(e)
		return
	}
	l.entries = append(l.entries, e)
}

// follow enters what only a watcher is told, because there is too much of it to be kept.
func (l *ledger) follow(e Entry) {
	if l.watch != nil {
		l.record(e)
	}
}
