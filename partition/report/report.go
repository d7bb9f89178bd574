// Package report holds what people and machines are shown of a group: who has what, what
// moves, and what the leader would do. Durations are in seconds.
package report

import (
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// Group is what a partition.View means: which worker has which slots, what moves, and what
// an operator asked for. Loads are in the unit of the keys' weights, or in slots where the
// leader has none.
type Group struct {
	At            time.Time   `json:"at"`
	Group         string      `json:"group"`
	Stream        string      `json:"stream"`
	Shards        int         `json:"shards,omitempty"`   // streams "<stream>-0" and so on; 0: the one stream
	State         state.State `json:"state"`              // of the group as a whole, see View.State
	Why           string      `json:"why,omitempty"`      // what is wrong with the leases, and why
	Leader        string      `json:"leader,omitempty"`   // that was elected last; State says whether it leads
	LeaderAge     float64     `json:"leader_age_seconds"` // since the last renewal of its lease; -1 without one
	Version       uint64      `json:"version"`            // of the assignment map, 0 before the first
	Epoch         uint64      `json:"epoch"`
	Layout        int         `json:"layout"`
	Slots         int         `json:"slots"`
	Keys          int         `json:"keys,omitempty"`     // 0: not known
	Expected      int         `json:"expected,omitempty"` // 0: not known
	FirstAssigned time.Time   `json:"first_assigned,omitzero"`
	Planned       time.Time   `json:"planned,omitzero"`
	WorstOverMean float64     `json:"worst_over_mean"` // load skew (max/mean); 0: no worker has any
	Pending       uint64      `json:"pending_messages"`
	OldestPending float64     `json:"oldest_pending_seconds"`
	Source        string      `json:"source,omitempty"`              // the stream that messages are copied from
	NotCopied     uint64      `json:"not_copied_messages,omitempty"` // of those that are pending
	SourceFault   string      `json:"source_fault,omitempty"`        // why none are copied
	Fill          float64     `json:"fill"`                          // of the fullest stream of messages, 0 to 1 of its limit; at 1 publishers are refused
	RetryQueue    RetryQueue  `json:"retry_queue"`
	Workers       []Worker    `json:"workers"`
	Moves         []Move      `json:"moves"`
	Standbys      []Standby   `json:"standbys"`
	Drains        []Drain     `json:"drains"`
	Overrides     []Override  `json:"overrides"`
}

// Worker tells of one worker that has a lease, or is in the map. Slots counts what it owns by
// the map, of which Outgoing are on their way to others; Incoming ones are still another's.
// Keys and Load are of the weights that the leader was given last, 0 where it has none.
type Worker struct {
	ID         string      `json:"id"`
	Claim      uint64      `json:"claim"`
	State      state.State `json:"state"` // GONE if it is in the map and has no lease, DEGRADED if its lease has ended and is still there
	Leading    bool        `json:"leading,omitempty"`
	Slots      int         `json:"slots"`     // that it owns now
	Incoming   int         `json:"incoming"`  // that are on their way to it
	Outgoing   int         `json:"outgoing"`  // of its own, on their way to another
	Keys       int         `json:"keys"`      // in the slots that it owns; 0 if not known
	Load       uint64      `json:"load"`      // of the slots that it owns
	OverMean   float64     `json:"over_mean"` // its load over the mean of all that own any
	Capacity   float64     `json:"capacity"`
	Node       string      `json:"node,omitempty"`
	Zone       string      `json:"zone,omitempty"`
	Pod        string      `json:"pod,omitempty"`
	LeaseAge   float64     `json:"lease_age_seconds"` // since its last renewal; -1 without a lease
	Version    uint64      `json:"version"`           // of the map that it has
	Leaving    bool        `json:"leaving,omitempty"`
	Draining   bool        `json:"draining,omitempty"`
	Restarting bool        `json:"restarting,omitempty"` // its slots wait for it to rejoin
	New        bool        `json:"new,omitempty"`        // not in the map yet
	Outdated   bool        `json:"outdated,omitempty"`   // of an earlier version, see Lease: replace it
}

// Move tells of one slot that is changing hands.
type Move struct {
	Slot    int    `json:"slot"`
	From    string `json:"from,omitempty"` // "" if its owner failed
	To      string `json:"to"`
	Version uint64 `json:"version"` // of the map that asked for it
}

// RetryQueue tells of the messages in the retry queue; see partition.Retry.
type RetryQueue struct {
	Messages int        `json:"messages"`
	Oldest   float64    `json:"oldest_seconds"` // since the first of them was queued; 0: there is none
	Keys     []RetryKey `json:"keys"`           // by descending messages, then by key
}

// RetryKey tells of one key that has messages in the retry queue.
type RetryKey struct {
	Key      string `json:"key"`
	Messages int    `json:"messages"`
	Slot     int    `json:"slot"`
	Owner    string `json:"owner,omitempty"` // of the slot, "" for none
}

// Drain tells of a worker that was asked to hand off all its slots.
type Drain struct {
	Worker string    `json:"worker"`
	Until  time.Time `json:"until,omitzero"` // then it takes slots again
	Slots  int       `json:"slots"`          // that it has yet
}

// Override tells of an override and of what came of it.
type Override struct {
	Slot   int       `json:"slot"`
	Key    string    `json:"key,omitempty"`
	Worker string    `json:"worker"`          // stable ID
	At     time.Time `json:"at"`              // when it was set
	Owner  string    `json:"owner,omitempty"` // who has the slot, or will when its move is done
	Kept   bool      `json:"kept"`
	Why    string    `json:"why,omitempty"` // why it is not kept
}

// Key tells where a key is.
type Key struct {
	Key   string `json:"key"`
	Slot  int    `json:"slot"`
	Owner string `json:"owner,omitempty"` // "" for none
	Next  string `json:"next,omitempty"`  // who will have it when its move is done
}

// Forecast is what the leader would do if it planned now, with what View.Forecast was told to
// assume. It is made by the same code as the leader's plan and from the same records, but for
// the strategy: it is the one that is given, and workers may run with another.
type Forecast struct {
	// Reasons are what makes the leader plan, most urgent first; none: it
	// would not. It may deal with them one after the other, where the forecast
	// does at once: a failure immediately, joining workers when their window is over.
	Reasons []string         `json:"reasons"`
	Version uint64           `json:"version"` // that the map would have
	Slots   int              `json:"slots"`
	Moves   []ForecastMove   `json:"moves"`
	Workers []ForecastWorker `json:"workers"`
	Notes   []string         `json:"notes,omitempty"` // of settings that the plan could not honour
	// MovedLoad is the load of the slots that move, LowerBound a number of
	// moves that no balanced plan can beat; see plan.Stats.
	MovedLoad           uint64  `json:"moved_load"`
	LowerBound          int     `json:"lower_bound"`
	WorstOverMeanBefore float64 `json:"worst_over_mean_before"`
	WorstOverMean       float64 `json:"worst_over_mean"`
	// InMotion counts the slots that are changing hands already. They arrive
	// first and are left out of Moves.
	InMotion int `json:"in_motion"`
}

// ForecastMove is one slot that would move, and why.
type ForecastMove struct {
	Slot   int    `json:"slot"`
	From   string `json:"from,omitempty"` // "" if its owner is gone
	To     string `json:"to"`
	Load   uint64 `json:"load"`
	Reason string `json:"reason"` // as plan.Reason names it
	Why    string `json:"why"`    // in a sentence
}

// ForecastWorker tells what one worker would have.
type ForecastWorker struct {
	ID         string `json:"id"`
	What       string `json:"what,omitempty"` // new, draining, outdated or gone; "" for as before
	Before     int    `json:"slots_before"`
	After      int    `json:"slots"`
	LoadBefore uint64 `json:"load_before"`
	Load       uint64 `json:"load"`
	Zone       string `json:"zone,omitempty"`
}

// Standby is a worker that is ready and waits for a stable ID.
type Standby struct {
	Pod   string    `json:"pod"`
	Node  string    `json:"node,omitempty"` // "" if it did not say
	Zone  string    `json:"zone,omitempty"`
	Since time.Time `json:"since"` // by its own clock
}
