package partition

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/state"
)

type stage uint8

const (
	stageInit     stage = iota
	stageClaiming       // looks for a free ID
	stageJoining        // has an ID, creates its lease
	stageJoined         // joined
	stageLeaving        // joined, and asked to leave
	stageGone           // done; no more effects
)

const (
	// resyncInterval is how often a worker repeats what it waits for.
	resyncInterval = 250 * time.Millisecond
	// retryInterval is the pause after an operation of unknown outcome.
	retryInterval = 200 * time.Millisecond
	// aloneAfter is how long a leaving worker waits for a leader.
	aloneAfter = 500 * time.Millisecond
)

// core is what all parts of a worker share: who the worker is, what it knows of the group,
// the time, and the effects of the present step. Parts read it and add effects. Only the
// machine's step sets the time and clears the effects, so all that a step decides rests on
// one moment.
type core struct {
	cfg      Config
	instance string // differs from every other worker's, ever
	// movesState: the worker's handler is a StateMover.
	movesState bool
	started    time.Time
	now        time.Time
	effects    []effect

	stage   stage
	state   state.State
	self    record.Process // the stable ID and its claim, from stageJoining on
	attempt uint64         // makes every value written unique

	lease       leaseValidity
	leaderLease leaderLease
	leader      record.Process // as the bucket shows; zero: none
	// leaderless is since when there is no leader, or since when this worker leaves.
	leaderless time.Time
	// quietUntil is until when nobody is suspected: after a reconnect of this worker the
	// others look gone for a while.
	quietUntil time.Time

	cur      *record.Assignment // the newest map seen; nil before the first
	curRev   uint64
	ownPlace ownPlace
	bad      badMap // what was seen in its place
	// lossVersion is the version of the first map after a lost one, until this worker, as
	// leader, has seen that every live worker has that map; 0: none.
	lossVersion uint64
	// leasesLost is when the bucket of leases, or that of stable IDs, was last found
	// deleted: workers whose keys were in it may still rely on their leases.
	leasesLost time.Time

	// What operators have asked for, with the revisions of the records.
	expect    int // workers, by Group.Expect; 0: unknown
	expectRev uint64
	wanted    int // slots, by Group.Reshard; 0: nobody has asked
	wantedRev uint64
	overrides overridden
}

// leaderLease is the leader's lease, as far as this worker has it: only one worker does. Its
// epoch is its first revision, so a later leader's is always higher.
type leaderLease struct {
	held     bool
	epoch    uint64
	rev      uint64    // of the leader's lease
	start    time.Time // when the last renewal that succeeded was sent
	due      time.Time // when to renew next
	renewing bool
}

func (c *core) do(e effect) { c.effects = append(c.effects, e) }

func (c *core) emit(e event.Event) {
	e.Time, e.Worker = c.now, c.self.ID
	c.do(emitEffect{e})
}

func (c *core) kv(e kvEffect) {
	e.start, e.ttl = c.now, ttlOf(e.ttl)
	c.do(e)
}

func (c *core) send(to record.Process, kind record.PeerKind, slots []record.SlotMark) {
	if to == (record.Process{}) {
		return
	}
	msg := record.PeerMessage{Schema: record.Schema, Kind: kind, From: c.self, To: to, Slots: slots}
	msg.Imports = kind == record.Prepared && c.movesState
	c.do(sendEffect{to: to, msg: msg})
}

func (c *core) sendAll(kind record.PeerKind, to map[record.Process][]record.SlotMark) {
	workers := slices.SortedFunc(maps.Keys(to), func(a, b record.Process) int { return compareIDs(a.ID, b.ID) })
	for _, w := range workers {
		c.send(w, kind, to[w])
	}
}

// inMap reports whether the map has a slot of this number.
func (c *core) inMap(s int) bool { return c.cur != nil && s < len(c.cur.Owner) }

// leading reports whether this worker is the leader, as far as it knows.
func (c *core) leading() bool { return c.leaderLease.held }

// mayAct reports whether this worker leads, and both its leases are valid.
func (c *core) mayAct() bool {
	return c.leaderLease.held && c.lease.valid && c.now.Before(c.leaderLease.start.Add(c.cfg.Lease.TTL-c.cfg.Lease.Margin))
}

// suspicionTime is how long a worker is suspected before its lease is ended.
func (c *core) suspicionTime() time.Duration {
	return c.cfg.Lease.SuspicionGrace + c.cfg.Lease.SuspicionMargin
}

// overdue is when a lease that is not renewed has ended although the server has
// not let it expire: after a restart servers have been seen to forget it. Its
// holder's trust ended before.
func (c *core) overdue(seen time.Time) time.Time {
	return later(seen, c.lease.regained).Add(c.cfg.Lease.TTL + time.Second)
}

func (c *core) workersInMap() int {
	if c.cur == nil {
		return 0
	}
	return len(c.cur.Workers)
}

// expected is how many workers there should be, 0 for unknown.
func (c *core) expected() int {
	if c.cfg.Rebalance.Expected != nil {
		return c.cfg.Rebalance.Expected()
	}
	return c.expect
}

// ownValue reports whether a lease or a name was last written by this worker, as
// who it is now.
func (c *core) ownValue(value []byte) bool {
	var v struct { // what record.Heartbeat and record.Claim share, and the claim
		Instance string `json:"instance"`
		Claim    uint64 `json:"claim"`
	}
	if len(value) == 0 || json.Unmarshal(value, &v) != nil {
		return false
	}
	return v.Instance == c.instance && (v.Claim == 0 || v.Claim == c.self.Claim)
}

// place is where this worker is in the newest map, record.None if it is not, or there is none.
func (c *core) place() int32 {
	if c.cur == nil {
		return record.None
	}
	return c.ownPlace.find(c.cur, c.self)
}

// renewal reads the outcome of one.
func (c *core) renewal(in kvInput) renewal {
	conflict := errors.Is(in.err, errConflict)
	switch {
	case in.err == nil:
		return renewalDone
	case conflict && c.ownValue(in.gotValue):
		return renewalLate
	case conflict && c.nobodys(recordOf(in.purpose), in) && c.lease.valid:
		// While the lease is valid it has neither ended nor been ended, so what
		// lies there hides nothing but our own renewal.
		return renewalHidden
	case conflict, errors.Is(in.err, errNotFound):
		return renewalEnded
	default:
		return renewalUnknown
	}
}

// confirms reports whether the newest map names the owner and the fence of a report, and
// they are below the stored one. It does not while the slot moves: the next owner may
// have begun already, and then the rejection is rightful.
func (c *core) confirms(r record.FenceReport) bool {
	if c.cur == nil || generationOf(c.cur) != (generation{r.Layout, r.Slots}) || !c.inMap(r.Slot) {
		return false
	}
	_, moving := c.cur.Moves[r.Slot]
	return !moving && !c.cur.Taking[r.Slot] && c.cur.OwnerAt(r.Slot) == r.From && fenceOf(c.cur, r.Slot) == Fence(r.Fence) && r.Fence.Compare(r.Stored) < 0
}

// leasesLostLately reports whether a worker without a lease may be live, and still rely on
// the lease that was in a lost bucket. A live worker finds out when it renews: it claims its
// stable ID again and joins with a new lease. Until the last lost lease must have ended, a
// missing lease, or a new claim of a stable ID, says nothing about the worker before.
func (c *core) leasesLostLately() bool {
	return !c.leasesLost.IsZero() && c.now.Before(c.overdue(c.leasesLost))
}

// refuse tells of a record that the machine rejects.
func (c *core) refuse(kind string, rev uint64, err error) {
	e := refused(kind, err)
	c.cfg.Logger.Warn("A record is rejected.", "record", kind, "revision", rev, "err", e.Err)
	c.emit(e)
}

// nobodys reports whether a write of our own met a value that nobody can have
// written who may, so that it can be written over.
func (c *core) nobodys(kind string, in kvInput) bool {
	if in.gotRev == 0 {
		return false
	}
	var err error
	switch kind {
	case recordHeartbeat:
		_, err = record.DecodeHeartbeat(in.key, in.gotValue)
	case recordClaim:
		_, err = record.DecodeClaim(in.gotValue)
	case recordLeader:
		_, err = record.DecodeLeader(in.gotValue)
	}
	if err != nil {
		c.refuse(kind, in.gotRev, err)
	}
	return overwritable(err)
}

// mapHidden reports whether something lies over the map that is none. Until it is
// put back, no other can be written.
func (c *core) mapHidden() bool { return c.bad.rev > c.curRev }

// renewal is what the outcome of a renewal says of this worker's stable ID or lease.
type renewal uint8

const (
	renewalDone    renewal = iota
	renewalLate            // one that was given up was carried out after all, with nobody in between
	renewalHidden          // a value that is no record lies over it, and can be overwritten
	renewalEnded           // it has ended, or another worker has it
	renewalUnknown         // the operation failed, or its outcome is not known
)
