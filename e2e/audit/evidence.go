package audit

import (
	"cmp"
	"fmt"
	"time"
)

// Published is a message that the broker acknowledged to its publisher.
type Published struct {
	Sequence uint64 // of all streams, as partition.Message has it
	Key      string
	Context  string
	Poison   bool      // it kills its handler
	Acked    time.Time // when the publisher had the acknowledgement; for LossAuditor
}

// Freeze is a time in which a process was stopped and could do nothing.
type Freeze struct {
	Record           string // file of the process
	Claim            uint64 // the revision of its name's claim when it was stopped
	Stopped, Resumed time.Time
	Replaced         bool // it was declared dead meanwhile
}

// evidence is everything that is known of a run.
type evidence struct {
	published []Published
	captured  []Published
	last      []uint64               // by stream, the sequence that it gave out last
	left      uint64                 // messages that are still in them
	dead      map[uint64][]time.Time // by sequence, when dead letters of a message were stored
	effects   []effect               // in the order in which they happened
	runs      []run
	calls     []Call
	served    []run // of calls
	deaths    map[string]time.Time
	freezes   []Freeze
}

// effect is one change of a result.
type effect struct {
	kind           string // stored, changed or deleted
	at             time.Time
	key, context   string
	version, claim uint64 // of the writer's fence
}

// under reports whether x was stored under a lower fence than b.
func (x effect) under(b effect) bool {
	return cmp.Or(cmp.Compare(x.version, b.version), cmp.Compare(x.claim, b.claim)) < 0
}

// run is one processing of one message, or of one call.
type run struct {
	record         string
	seq            uint64 // of the message
	call           uint64 // number of the call; 0 for a message
	key            string
	slot           int
	version, claim uint64    // of the owner's fence
	context        string    // of the message
	stored         int64     // ns, when the server stored the message
	start, end     time.Time // end is zero while it is open
	ok             bool
}

// under reports whether another worker's fence is higher than that of r.
func (r run) under(b run) bool {
	return r.claim != b.claim && cmp.Or(cmp.Compare(r.version, b.version), cmp.Compare(r.claim, b.claim)) < 0
}

// what names r for a person.
func (r run) what() string {
	if r.call != 0 {
		return fmt.Sprintf("call %d", r.call)
	}
	return fmt.Sprintf("message %d", r.seq)
}
