package partition

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// core is what all parts of a worker share: who the worker is, what it knows of the group,
// the time, and the effects of the present step.
type core struct {
	cfg      Config
	instance string // differs from every other worker's, ever
	started  time.Time
	now      time.Time
	effects  []effect

	stage   stage
	state   State
	self    Member // the stable ID and its claim, from stageJoining on
	attempt uint64 // makes every value written unique

	lease  leaseValidity
	office office
	leader Member // as the bucket shows; zero: none
	// leaderless is since when there is no leader, or since when this worker leaves.
	leaderless time.Time
	// quietUntil is until when nobody is suspected: after a reconnect of this worker the
	// others look gone for a while.
	quietUntil time.Time

	cur    *Assignment // the newest map seen; nil before the first
	curRev uint64
	bad    badMap // what was seen in its place
	// lossVersion is the version of the first map after a lost one, until this worker, as
	// leader, has seen that every live worker has that map; 0: none.
	lossVersion uint64
	// leasesLost is when the bucket of leases, or that of stable IDs, was last found
	// deleted: workers whose keys were in it may still rely on their leases.
	leasesLost time.Time

	// What operators have asked for, with the revisions of the records.
	expect    int // workers, by SetExpected; 0: unknown
	expectRev uint64
	wanted    int // slots, by SetLayout; 0: nobody has asked
	wantedRev uint64
	pins      pinned
}

// office is this worker's leadership: the leader's lease, which only one worker has. Its
// epoch is the lease's first revision, so a later leader's is always higher.
type office struct {
	held     bool
	epoch    uint64
	rev      uint64    // of the leader's lease
	start    time.Time // when the last renewal that succeeded was sent
	due      time.Time // when to renew next
	renewing bool
}

func (c *core) do(e effect) { c.effects = append(c.effects, e) }

func (c *core) emit(e Event) {
	e.Time, e.Worker = c.now, c.self.ID
	c.do(emitEffect{e})
}

func (c *core) kv(e kvEffect) {
	e.start, e.ttl = c.now, ttlOf(e.ttl)
	c.do(e)
}

func (c *core) send(to Member, kind peerKind, slots []slotMark) {
	if to == (Member{}) {
		return
	}
	c.do(sendEffect{to: to, msg: peerMessage{Schema: valueSchema, Kind: kind, From: c.self, To: to, Slots: slots}})
}

func (c *core) sendAll(kind peerKind, to map[Member][]slotMark) {
	members := slices.SortedFunc(maps.Keys(to), func(a, b Member) int { return compareIDs(a.ID, b.ID) })
	for _, w := range members {
		c.send(w, kind, to[w])
	}
}

// inMap tells whether the map has a slot of this number.
func (c *core) inMap(s int) bool { return c.cur != nil && s < len(c.cur.Owner) }

// leading reports whether this worker is the leader, as far as it knows.
func (c *core) leading() bool { return c.office.held }

// mayAct tells whether the office can be trusted right now.
func (c *core) mayAct() bool {
	return c.office.held && c.lease.valid && c.now.Before(c.office.start.Add(c.cfg.LeaseTTL-c.cfg.LeaseMargin))
}

// suspicionTime is how long a worker is suspected before its lease is ended.
func (c *core) suspicionTime() time.Duration { return c.cfg.SuspicionGrace + c.cfg.SuspicionMargin }

// overdue is when a lease that is not renewed has ended although the server has
// not let it expire: after a restart servers have been seen to forget it. Its
// holder's trust ended before.
func (c *core) overdue(seen time.Time) time.Time {
	return notBefore(seen, c.lease.regained).Add(c.cfg.LeaseTTL + time.Second)
}

func (c *core) workersInMap() int {
	if c.cur == nil {
		return 0
	}
	return len(c.cur.Workers)
}

func notBefore(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// expected is how many workers there should be, 0 for unknown.
func (c *core) expected() int {
	if c.cfg.Expected != nil {
		return c.cfg.Expected()
	}
	return c.expect
}

// ownValue tells whether a lease or a name was last written by this worker, as
// who it is now.
func (c *core) ownValue(value []byte) bool {
	var v struct { // what leaseValue and idValue share, and the claim
		Instance string `json:"instance"`
		Claim    uint64 `json:"claim"`
	}
	if len(value) == 0 || json.Unmarshal(value, &v) != nil {
		return false
	}
	return v.Instance == c.instance && (v.Claim == 0 || v.Claim == c.self.Claim)
}
