package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// Effects are what a machine wants done.
type (
	effect interface{ effect() }

	// kvEffect is one operation on a bucket. A create or update whose reply is
	// lost is read back by its executor: the value is unique.
	kvEffect struct {
		purpose purpose
		op      op
		bucket  string
		key     string
		value   []byte
		rev     uint64 // expected by opUpdate and opDelete
		ttl     time.Duration
		start   time.Time // when the machine asked for it
	}
	pingEffect  struct{ start time.Time }
	probeEffect struct{ to []record.Process }
	// reportFenceEffect sends a report of a fence rejection to the leader.
	reportFenceEffect struct{ report record.FenceReport }
	sendEffect        struct {
		to  record.Process
		msg record.PeerMessage
	}
	watchLeasesEffect struct {
		on    bool
		watch uint64 // comes back with what is seen
	}
	watchNamesEffect struct{ on bool } // tells when a stable ID becomes free
	weightsEffect    struct{}
	planEffect       struct{ job *planJob }
	shareLoadEffect  struct{ weights, keys []uint64 }
	prepareEffect    struct {
		generation
		slots []int
	}
	holdEffect struct {
		place
		fence  Fence
		handed bool          // by its old owner, which lives
		idle   time.Duration // for how long nobody has worked on it then
		state  stateMove     // from the old owner
	}
	releaseEffect struct {
		place
		claim uint64    // with which it was held
		final bool      // its consumer will be no more
		leave Slots     // the keys that are not ours afterwards
		state stateMove // to the next owner
	}
	forceEffect   struct{ place }
	dropEffect    struct{ place }
	suspendEffect struct{}
	resumeEffect  struct{}
	takeEffect    struct {
		place
		run    uint64  // comes back with its end
		retire []place // of the old generation, whose consumers it replaces
	}
	listenEffect struct{ self record.Process } // to peer messages; the zero record.Process: stop
	emitEffect   struct{ event event.Event }
	answerEffect struct {
		to    string
		slots int
	}
	exitEffect struct{}
)

func (kvEffect) effect()          {}
func (pingEffect) effect()        {}
func (probeEffect) effect()       {}
func (reportFenceEffect) effect() {}
func (sendEffect) effect()        {}
func (watchLeasesEffect) effect() {}
func (watchNamesEffect) effect()  {}
func (weightsEffect) effect()     {}
func (planEffect) effect()        {}
func (shareLoadEffect) effect()   {}
func (prepareEffect) effect()     {}
func (holdEffect) effect()        {}
func (releaseEffect) effect()     {}
func (forceEffect) effect()       {}
func (dropEffect) effect()        {}
func (suspendEffect) effect()     {}
func (resumeEffect) effect()      {}
func (takeEffect) effect()        {}
func (listenEffect) effect()      {}
func (answerEffect) effect()      {}
func (emitEffect) effect()        {}
func (exitEffect) effect()        {}

// stateMove names the handoff by which a slot's state moves, as one of the two workers sees it. A
// slot has at most one handoff of a version. The zero value: no state moves.
type stateMove struct {
	peer    record.Process // the other worker
	version uint64         // of the map that the move came with
}

// purpose tells what a KV operation is for, so that its result finds its way.
type purpose uint8

const (
	forNames purpose = iota
	forLeaseNames
	forDeadName
	forUnseenClaim // whether a claim was carried out whose outcome is unknown
	forClaim
	forJoin
	forIDRenewal
	forLeaseRenewal
	forElection
	forLeaderRenewal
	forResignation
	forMapRead
	forMapHistory
	forMapWrite
	forFencing
	forSweep
	forSuspicion
	forFarewell
	forOperators // what they have set, written again
)

type op uint8

const (
	opList op = iota
	opGet
	opCreate
	opUpdate
	opDelete
	opHistory // what is there of a key, oldest first
)
