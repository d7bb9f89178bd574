package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// Inputs are what a machine is told.
type (
	input interface{ input() }

	startInput struct{}
	tickInput  struct{}
	leaveInput struct{} // leave gracefully
	drainInput struct {
		until  time.Time
		answer string // where to say how many slots are left; "" for nowhere
	}
	connectionInput struct{ up bool }
	badMapInput     struct { // a value at the map's key that is no map
		rev uint64
		err error
	}
	mapInput struct {
		a   *record.Assignment
		rev uint64
	}
	leaderInput struct { // the leader key; the zero record.Process: nobody
		leader record.Process
		rev    uint64
		err    error // why the value there was rejected
	}
	leaseInput struct { // a heartbeat as the leader sees it
		id      string
		value   record.Heartbeat
		rev     uint64
		at      time.Time // of the write, by the server's clock
		deleted bool
		watch   uint64
		err     error // why the value there was rejected
	}
	// leasesSyncedInput: all leases have been told that are there. The bucket was created
	// again so long ago by the server's clock; 0: it is the first.
	leasesSyncedInput struct {
		watch uint64
		age   time.Duration
	}
	// mapSyncedInput: what was in the map's bucket has all been told, and whether a
	// leader's lease was among it.
	mapSyncedInput struct{ led bool }
	nameFreedInput struct{ id string }
	// pongInput: the server that the worker is connected to has answered. In a cluster it
	// may be cut off from the others, and so from the leader and its own lease.
	pongInput struct {
		start     time.Time
		clustered bool
	}
	unreachableInput struct{ peer record.Process }
	peerInput        struct{ msg record.PeerMessage }
	weightsInput     struct {
		finest []uint64 // by slot of the largest slot count
		keys   []uint64 // by the same
		err    error
	}
	plannedInput struct {
		job *planJob
		err error
	}
	preparedInput struct {
		generation
		slots []int
		err   error
	}
	slotReleasedInput struct {
		place
		claim  uint64
		forced bool
		idle   time.Duration // since it stopped
	}
	expectedInput struct {
		n   int
		rev uint64
	}
	wantedInput struct { // slots, by Group.Reshard
		slots int
		rev   uint64
	}
	noteInput  struct{ event event.Event } // something that a runner saw
	takenInput struct {
		slot int
		run  uint64
		err  error
	}
)

func (startInput) input()        {}
func (tickInput) input()         {}
func (leaveInput) input()        {}
func (drainInput) input()        {}
func (connectionInput) input()   {}
func (mapInput) input()          {}
func (badMapInput) input()       {}
func (leaderInput) input()       {}
func (leaseInput) input()        {}
func (leasesSyncedInput) input() {}
func (mapSyncedInput) input()    {}
func (nameFreedInput) input()    {}
func (pongInput) input()         {}
func (unreachableInput) input()  {}
func (peerInput) input()         {}
func (weightsInput) input()      {}
func (plannedInput) input()      {}
func (preparedInput) input()     {}
func (slotReleasedInput) input() {}
func (takenInput) input()        {}
func (noteInput) input()         {}
func (expectedInput) input()     {}
func (wantedInput) input()       {}

type (
	// recreatedInput: a stream or bucket was created again. Nothing is left of what
	// it held.
	recreatedInput struct {
		name string
		mine bool // by this worker
	}
	// missingInput: these are not there and can't be created. None: all is there.
	missingInput struct{ names []string }
)

func (recreatedInput) input() {}
func (missingInput) input()   {}

// What a handler's store says of fences.
type (
	// fencedInput: the store has rejected the fence of a slot's owner, which is this
	// worker.
	fencedInput struct {
		place
		fence, stored Fence
	}
	// fenceReportInput: another worker, or this one, reports that.
	fenceReportInput struct{ report record.FenceReport }
)

func (fencedInput) input()      {}
func (fenceReportInput) input() {}
