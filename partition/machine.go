package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A machine is the whole behaviour of one worker as a step function: an event
// and the time go in, effects come out. It does no I/O, has no clock and starts
// no goroutine; worker.go carries its effects out. What it believes is in its
// fields, what it may do with that in this file (membership), in
// lead.go (election and planning) and in ownership (slots).
type machine struct {
	core

	state      State
	asked      bool // a graceful leave was asked for
	leaveBy    time.Time
	yieldUntil time.Time // takes no slots until then

	// Identity. self.ID and self.Claim are set from stageJoining on.
	names      nameTable
	former     Member // who this worker was before it lost its identity
	reclaiming bool   // and may be again
	mapKnown   bool   // what was in the map's bucket at the start has been seen
	standby    bool   // waits for a name
	idRev      uint64
	leaseRev   uint64
	retryAt    time.Time // of a claim or join that failed
	idDue      time.Time
	leaseDue   time.Time
	idBusy     bool
	joinBusy   bool

	inTheWay      uint64    // revision of another's lease that this worker's can't be created for
	inTheWaySince time.Time // when it was seen first

	renewing bool

	pingDue     time.Time
	reconnected time.Time // when the connection last did

	election election
	tuning   tuning
	lead     leadership
	own      ownership
	missing  []string // streams and buckets that can't be created again
	refusals refusals
}

type stage uint8

const (
	stageInit     stage = iota
	stageClaiming       // looks for a free ID
	stageJoining        // has an ID, creates its lease
	stageMember         // joined
	stageLeaving        // joined, and asked to leave
	stageGone           // done; no more effects
)

// leaseValue is what a worker writes in its heartbeat.
type leaseValue struct {
	Schema   int     `json:"schema"`
	ID       string  `json:"id"`
	Claim    uint64  `json:"claim"`
	Instance string  `json:"instance"`
	N        uint64  `json:"n"`
	Leaving  bool    `json:"leaving,omitempty"`
	Yielding bool    `json:"yielding,omitempty"`  // takes no slots and gives its own away
	YieldEnd int64   `json:"yield_end,omitempty"` // until when, in Unix milliseconds
	Weight   float64 `json:"weight"`
	Zone     string  `json:"zone,omitempty"`
	Pod      string  `json:"pod,omitempty"`
	Node     string  `json:"node,omitempty"`
	Version  uint64  `json:"version"` // of the map it has
	State    State   `json:"state"`
	// MapSchema is the newest schema of the map that the worker reads; 0: it does not say.
	MapSchema int `json:"map_schema,omitempty"`
}

// idValue is what holds a stable ID.
type idValue struct {
	Schema   int    `json:"schema"`
	Pod      string `json:"pod"`
	PodUID   string `json:"pod_uid"`
	Version  string `json:"version,omitempty"`
	Instance string `json:"instance"`
	N        uint64 `json:"n"`
}

const valueSchema = 1

// Errors of a KV operation that decide something; every other one leaves the
// outcome unknown.
var (
	errConflict = errors.New("somebody else's write came first")
	errNotFound = errors.New("no such key")
)

// errUnderWay: the write was not carried out, since another of the same key is
// under way, maybe the worker's own that it has given up. Nothing is decided by it.
var errUnderWay = errors.New("another write of this key is under way")

// purpose tells what a KV operation is for, so that its result finds its way.
type purpose uint8

const (
	forNames purpose = iota
	forLeaseNames
	forDeadName
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

// kvVersion is one value that a key had.
type kvVersion struct {
	value   []byte
	rev     uint64
	deleted bool
}

// Effects.
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
	probeEffect struct{ to []Member }
	sendEffect  struct {
		to  Member
		msg peerMessage
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
		division
		slots []int
	}
	holdEffect struct {
		place
		fence  Fence
		handed bool          // by its old owner, which lives
		idle   time.Duration // for how long nobody has worked on it then
	}
	releaseEffect struct {
		place
		claim uint64 // with which it was held
		final bool   // its consumer will be no more
		leave Slots  // the keys that are not ours afterwards
	}
	forceEffect   struct{ place }
	dropEffect    struct{ place }
	suspendEffect struct{}
	resumeEffect  struct{}
	takeEffect    struct {
		place
		run    uint64  // comes back with its end
		retire []place // of the former division, whose consumers it replaces
	}
	listenEffect struct{ self Member } // to peer messages; the zero Member: stop
	emitEffect   struct{ event Event }
	answerEffect struct {
		to    string
		slots int
	}
	exitEffect struct{}
)

func (kvEffect) effect()          {}
func (pingEffect) effect()        {}
func (probeEffect) effect()       {}
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

// Inputs.
type (
	input interface{ input() }

	startInput struct{}
	tickInput  struct{}
	leaveInput struct{} // leave gracefully
	yieldInput struct {
		until  time.Time
		answer string // where to say how many slots are left; "" for nowhere
	}
	connectionInput struct{ up bool }
	kvInput         struct {
		kvEffect
		gotRev   uint64
		gotValue []byte
		keys     []string
		history  []kvVersion
		err      error
	}
	badMapInput struct { // a value at the map's key that is no map
		rev uint64
		err error
	}
	mapInput struct {
		a   *Assignment
		rev uint64
	}
	leaderInput struct { // the leader key; the zero Member: nobody
		leader Member
		rev    uint64
		err    error // why what is there is not believed
	}
	leaseInput struct { // a heartbeat as the leader sees it
		id      string
		value   leaseValue
		rev     uint64
		at      time.Time // of the write, by the server's clock
		deleted bool
		watch   uint64
		err     error // why what is there is not believed
	}
	// leasesSyncedInput: all leases have been told that are there. The bucket was created
	// again so long ago by the server's clock; 0: it is the first.
	leasesSyncedInput struct {
		watch uint64
		age   time.Duration
	}
	// mapSyncedInput: what was in the map's bucket has all been told, and whether a
	// leader's lease was among it.
	mapSyncedInput   struct{ led bool }
	nameFreedInput   struct{ id string }
	pongInput        struct{ start time.Time }
	unreachableInput struct{ peer Member }
	peerInput        struct{ msg peerMessage }
	weightsInput     struct {
		finest []uint64 // by slot of the finest division
		keys   []uint64 // by the same
		err    error
	}
	plannedInput struct {
		job *planJob
		err error
	}
	preparedInput struct {
		division
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
	wantedInput struct { // slots, by SetLayout
		slots int
		rev   uint64
	}
	noteInput  struct{ event Event } // something that a runner saw
	takenInput struct {
		slot int
		run  uint64
		err  error
	}
)

func (startInput) input()        {}
func (tickInput) input()         {}
func (leaveInput) input()        {}
func (yieldInput) input()        {}
func (connectionInput) input()   {}
func (kvInput) input()           {}
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

// peerMessage goes from worker to worker outside the buckets. Each is repeated
// until the map shows that it did its work, so one that is lost costs a
// resyncInterval; each names versions, so one that is late does nothing.
type peerMessage struct {
	Schema int        `json:"schema"`
	Kind   peerKind   `json:"kind"`
	From   Member     `json:"from"`
	To     Member     `json:"to"`
	Slots  []slotMark `json:"slots,omitempty"`
}

type slotMark struct {
	Slot    int    `json:"s"`
	Version uint64 `json:"v"`           // of the move, or of the take-over
	Forced  bool   `json:"f,omitempty"` // given up with a message unsettled
	Idle    int64  `json:"i,omitempty"` // released: microseconds since the old owner stopped
}

type peerKind string

const (
	peerPrepared peerKind = "prepared" // next -> owner: ready to take these
	peerReleased peerKind = "released" // owner -> next and leader: these are yours
	peerHolding  peerKind = "holding"  // next -> leader: have them
	peerGrant    peerKind = "grant"    // leader -> owner: taken from the dead
	peerWant     peerKind = "want"     // owner -> leader: waits for these
	peerAlone    peerKind = "alone"    // leader -> leaving worker: nobody can take over
	peerCede     peerKind = "cede"     // leader -> owner: give these slots of the former division up
	peerCeded    peerKind = "ceded"    // owner -> leader: given up
)

const (
	// resyncInterval is how often a worker repeats what it waits for.
	resyncInterval = 250 * time.Millisecond
	// retryInterval is the pause after an operation of unknown outcome.
	retryInterval = 200 * time.Millisecond
	// aloneAfter is how long a leaving worker waits for a leader.
	aloneAfter = 500 * time.Millisecond
)

func newMachine(cfg Config, instance string) *machine {
	m := &machine{core: core{cfg: cfg, instance: instance, lease: leaseValidity{connected: true}}, state: StateInit, names: nameTable{released: make(map[string]bool)}}
	m.own.core = &m.core
	m.election = election{core: &m.core, up: m}
	m.tuning = tuning{core: &m.core, roster: &m.lead.roster}
	m.lead.connect(&m.core, m, &m.election, &m.tuning)
	m.own.reset()
	return m
}

// step handles one input at a time, which never goes back.
func (m *machine) step(now time.Time, in input) []effect {
	m.effects = nil
	m.now = now
	if m.stage == stageGone {
		return nil
	}
	m.checkLease()
	switch in := in.(type) {
	case startInput:
		m.started = now
		m.lease.confirmed = now
		m.emit(Event{Kind: EventStarted})
		m.stage = stageClaiming
		if m.mapKnown {
			m.claim()
		}
	case tickInput:
	case leaveInput:
		m.leave()
	case yieldInput:
		m.yield(in.until)
		if in.answer != "" {
			m.do(answerEffect{in.answer, m.slotsLeft()})
		}
	case connectionInput:
		m.connection(in.up)
	case kvInput:
		m.kvResult(in)
	case mapInput:
		m.seeMap(in.a, in.rev)
	case badMapInput:
		m.lead.maps.seeMalformed(in.rev, in.err)
	case leaderInput:
		if in.err != nil {
			m.election.seeMalformed(in.rev, in.err)
		} else {
			m.election.seeLeader(in.leader, in.rev)
		}
	case leaseInput:
		m.lead.roster.seeLease(in)
	case leasesSyncedInput:
		if in.watch == m.lead.roster.watches {
			m.lead.roster.leasesSynced(in.age)
		}
	case mapSyncedInput:
		// Whether there is room for one more is known only now.
		known := m.mapKnown
		m.mapKnown = true
		if !known && m.stage == stageClaiming {
			m.claim()
		}
		if !in.led {
			m.election.leaderGone()
		}
	case nameFreedInput:
		m.names.released[in.id] = true
		m.lookAgain()
	case pongInput:
		m.lease.confirm(in.start)
	case unreachableInput:
		switch {
		case m.now.Before(m.quietUntil):
		case m.office.held:
			m.lead.roster.suspect(in.peer)
		default:
			m.election.suspectLeader(in.peer)
		}
	case peerInput:
		m.peer(in.msg)
	case weightsInput:
		m.tuning.read(in)
		m.lead.rebalance.review()
	case plannedInput:
		m.lead.rebalance.planned(in)
	case preparedInput:
		m.own.prepared(in)
	case slotReleasedInput:
		m.own.slotReleased(in)
	case expectedInput:
		if in.rev >= m.expectRev {
			m.expect, m.expectRev = in.n, in.rev
			m.lookAgain()
		}
	case wantedInput:
		if in.rev >= m.wantedRev {
			m.wanted, m.wantedRev = in.slots, in.rev
		}
	case pinsInput:
		m.seePins(in)
	case noteInput:
		m.emit(in.event)
	case takenInput:
		m.lead.takeovers.taken(in)
	case recreatedInput:
		m.recreated(in)
	case missingInput:
		m.missing = in.names
	case fencedInput:
		m.fencedOff(in)
	case fenceReportInput:
		if m.lead.incarnation.fenced(in.report) {
			m.lead.rebalance.review()
		}
	}
	if m.stage != stageGone {
		m.due()
		m.checkLease()
		m.showState()
	}
	return m.effects
}

// due does what the time asks for.
func (m *machine) due() {
	switch m.stage {
	case stageClaiming, stageJoining:
		if !m.retryAt.IsZero() && !m.now.Before(m.retryAt) {
			m.retryAt = time.Time{}
			switch {
			case m.stage == stageJoining:
				m.join()
			case m.reclaiming:
				m.reclaim()
			default:
				m.claim()
			}
		}
		m.leaveDue()
	case stageMember, stageLeaving:
		m.renewDue()
		if m.office.held {
			m.election.renew()
			m.lead.due()
		} else {
			m.election.due()
		}
		m.own.due()
		m.leaveDue()
	}
}

// wake returns when step wants its next tick.
func (m *machine) wake() time.Time {
	var at time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	switch m.stage {
	case stageInit, stageGone:
		return at
	case stageClaiming, stageJoining:
		sooner(m.retryAt)
		if m.asked {
			sooner(m.leaveBy)
		}
		return at
	case stageMember, stageLeaving:
	}
	if !m.idBusy {
		sooner(m.idDue)
	}
	if !m.renewing {
		sooner(m.leaseDue)
	}
	sooner(m.pingDue)
	sooner(m.yieldUntil)
	if m.lease.valid {
		sooner(m.leaseEnds())
	}
	m.election.wake(sooner)
	if m.office.held {
		m.lead.wake(sooner)
	}
	m.own.wake(sooner)
	if m.stage == stageLeaving {
		if m.own.abandoning {
			sooner(m.leaveBy.Add(leaveSlack))
		} else {
			sooner(m.leaveBy)
		}
	}
	return at
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("partition: plain data, yet: %v", err))
	}
	return data
}

// Claiming a stable ID: list the names that are taken, then create the lowest
// that is free, or the one that this worker had before, or one whose slots wait for
// a successor; a conflict means that somebody was faster, so try the next. When as many have names as there should
// be workers, this one is a standby until a name is free: a pod that a rolling
// update adds before it ends another takes that other's place, and nothing moves.

func (m *machine) claim() {
	m.stage = stageClaiming
	m.names.taken = nil
	m.retryAt = time.Time{}
	m.kv(kvEffect{purpose: forNames, op: opList, bucket: m.cfg.bucketIDs()})
}

// expected is how many workers there should be, 0 for unknown.
func (c *core) expected() int {
	if c.cfg.Expected != nil {
		return c.cfg.Expected()
	}
	return c.expect
}

// room tells whether one more worker is wanted beside those that have names. A
// name that nobody has a lease for is a dead one's, who has yet to expire.
func (m *machine) room() bool {
	want := m.expected()
	return want == 0 || m.names.live(m.now, m.staleAfter) < want
}

// staleAfter is how long a name must be seen without a lease to be a dead one's.
// Who has just claimed a name has no lease yet, either. When its slots wait for who
// has it, because it restarts, or may have lost its lease by the same outage as this
// worker its connection, that may take as long as they wait.
func (m *machine) staleAfter(id string) time.Duration {
	if m.cur == nil {
		return staleName
	}
	i := slices.IndexFunc(m.cur.Workers, func(w Member) bool { return w.ID == id })
	switch {
	case i < 0 || !slices.Contains(m.cur.Owner, int32(i)):
		return staleName
	case m.now.Before(m.reconnected.Add(m.cfg.RestartGrace)):
		return m.cfg.RestartGrace
	case m.cur.Restarting[i] && m.leader == (Member{}): // nobody ends the wait
		return leaderlessName
	case m.cur.Restarting[i]:
		return m.cfg.RestartGrace
	}
	return staleName
}

const (
	staleName = 1200 * time.Millisecond // where nothing is waited for
	// leaderlessName is for who restarts while there is no leader: its successor may be
	// slow, and the next leader soon there.
	leaderlessName = 3 * time.Second
)

// standbyPoll is how often a standby looks, beside being told.
const standbyPoll = 600 * time.Millisecond

func (m *machine) stay() {
	if !m.standby {
		m.standby = true
		m.do(watchNamesEffect{true})
		m.emit(Event{Kind: EventStandby, After: m.expected()})
	}
	m.retryAt = m.now.Add(standbyPoll)
}

// lookAgain has a standby look whether there is a name for it now.
func (m *machine) lookAgain() {
	if m.stage == stageClaiming && m.standby && !m.retryAt.IsZero() {
		m.claim()
	}
}

func (m *machine) stableID(n int) string { return fmt.Sprintf("%s-%d", m.cfg.Name, n) }

func (m *machine) claimNext() {
	if !m.room() {
		m.stay()
		return
	}
	id := m.former.ID
	if id == "" || m.names.taken[id] {
		id = m.names.vacancy(m.cur)
	}
	for n := 0; id == "" || m.names.taken[id]; n++ {
		if n == m.cfg.PoolSize {
			m.stay()
			return
		}
		id = m.stableID(n)
	}
	m.attempt++
	m.kv(kvEffect{purpose: forClaim, op: opCreate, bucket: m.cfg.bucketIDs(), key: id, value: m.idValue(), ttl: m.cfg.IDTTL})
}

func (m *machine) idValue() []byte {
	return mustJSON(idValue{Schema: valueSchema, Pod: m.cfg.Pod, PodUID: m.cfg.PodUID, Version: m.cfg.WorkerVersion, Instance: m.instance, N: m.attempt})
}

// join creates the lease. A lease that is still there belongs to an earlier
// holder of the name, whose expiry must be awaited.
func (m *machine) join() {
	m.attempt++
	m.joinBusy = true
	m.kv(kvEffect{purpose: forJoin, op: opCreate, bucket: m.cfg.bucketLeases(), key: m.self.ID, value: m.leaseValue(), ttl: m.cfg.LeaseTTL})
}

// joinOver creates the lease where something lies that is none.
func (m *machine) joinOver(rev uint64) {
	m.attempt++
	m.joinBusy = true
	m.kv(kvEffect{purpose: forJoin, op: opUpdate, bucket: m.cfg.bucketLeases(), key: m.self.ID, value: m.leaseValue(), rev: rev, ttl: m.cfg.LeaseTTL})
}

func (m *machine) leaseValue() []byte {
	v := leaseValue{Schema: valueSchema, ID: m.self.ID, Claim: m.self.Claim, Instance: m.instance, N: m.attempt,
		Leaving: m.stage == stageLeaving, Yielding: m.yielding(), Weight: m.cfg.Weight, Zone: m.cfg.Zone, Pod: m.cfg.Pod, Node: m.cfg.Node, State: m.state, MapSchema: mapSchema}
	if v.Yielding {
		v.YieldEnd = m.yieldUntil.UnixMilli()
	}
	if m.cur != nil {
		v.Version = m.cur.Version
	}
	return mustJSON(v)
}

func (m *machine) joined(rev uint64, start time.Time) {
	m.stage = stageMember
	m.leaseRev = rev
	m.lease.begin(start)
	m.leaseDue = m.now.Add(m.cfg.HeartbeatInterval)
	m.idDue = m.now.Add(m.cfg.IDTTL / 6)
	m.pingDue = m.now
	if !start.After(m.lease.ended) {
		// Disconnected while joining: the lease may be suspected already.
		m.leaseDue = m.now
	}
	m.checkLease()
	if !m.lease.valid {
		m.leaseDue = m.now // creating it took too long: renew it
	}
	if m.cur != nil {
		m.own.applyMap()
	}
	if m.asked {
		m.asked = false
		m.leave()
	}
}

// Renewing.

func (m *machine) renewDue() {
	m.yieldEnds()
	if !m.idBusy && !m.now.Before(m.idDue) {
		m.idBusy = true
		m.attempt++
		m.kv(kvEffect{purpose: forIDRenewal, op: opUpdate, bucket: m.cfg.bucketIDs(), key: m.self.ID, value: m.idValue(), rev: m.idRev, ttl: m.cfg.IDTTL})
	}
	if !m.renewing && !m.now.Before(m.leaseDue) {
		m.renewLease()
	}
	if !m.now.Before(m.pingDue) {
		m.pingDue = m.now.Add(m.cfg.SuspicionGrace / 4)
		if m.cfg.Replicas == 1 {
			m.do(pingEffect{m.now})
		}
	}
}

func (m *machine) renewLease() {
	m.renewing = true
	m.attempt++
	m.kv(kvEffect{purpose: forLeaseRenewal, op: opUpdate, bucket: m.cfg.bucketLeases(), key: m.self.ID, value: m.leaseValue(), rev: m.leaseRev, ttl: m.cfg.LeaseTTL})
}

// kvResult routes the outcome of an operation.
func (m *machine) kvResult(in kvInput) {
	m.refusals.note(in, m.now)
	switch in.purpose {
	case forNames:
		m.namesListed(in)
	case forLeaseNames:
		m.leasesListed(in)
	case forDeadName:
		m.deadNameRead(in)
	case forClaim:
		m.claimed(in)
	case forJoin:
		m.joinResult(in)
	case forIDRenewal:
		m.idBusy = false
		m.renewed(in, &m.idRev, &m.idDue, m.cfg.IDTTL/6)
	case forLeaseRenewal:
		m.renewing = false
		m.leaseRenewed(in)
	case forElection, forLeaderRenewal, forSuspicion:
		m.election.result(in)
	case forMapRead, forMapHistory, forMapWrite, forFencing:
		m.lead.result(in)
	case forFarewell, forResignation, forSweep, forOperators:
	}
}

func (m *machine) namesListed(in kvInput) {
	if m.stage != stageClaiming {
		return
	}
	if in.err != nil {
		m.retryAt = m.now.Add(retryInterval)
		return
	}
	m.names.list(in.keys)
	if want := m.expected(); want > 0 && len(m.names.taken) >= want {
		m.kv(kvEffect{purpose: forLeaseNames, op: opList, bucket: m.cfg.bucketLeases()})
		return
	}
	m.lookAtDead()
}

// leasesListed notes which names have no lease.
func (m *machine) leasesListed(in kvInput) {
	if m.stage != stageClaiming {
		return
	}
	if in.err != nil {
		m.retryAt = m.now.Add(retryInterval)
		return
	}
	m.names.listLeases(in.keys, m.now)
	m.lookAtDead()
}

// lookAtDead reads the names that seem to be of the dead, or were told to be free, one
// after the other, before the list is believed of them: it may come from a replica
// that is behind, and then a name that was given back is on it.
func (m *machine) lookAtDead() {
	if name := m.names.unsure(m.now, m.staleAfter); name != "" {
		m.kv(kvEffect{purpose: forDeadName, op: opGet, bucket: m.cfg.bucketIDs(), key: name})
		return
	}
	m.claimNext()
}

func (m *machine) deadNameRead(in kvInput) {
	if m.stage != stageClaiming {
		return
	}
	switch {
	case in.err == nil:
		m.names.read(in.key, true)
	case errors.Is(in.err, errNotFound):
		m.names.read(in.key, false)
	default:
		m.retryAt = m.now.Add(retryInterval)
		return
	}
	m.lookAtDead()
}

func (m *machine) claimed(in kvInput) {
	if m.stage != stageClaiming {
		return
	}
	switch {
	case in.err == nil:
		m.self = Member{ID: in.key, Claim: in.gotRev}
		m.idRev = in.gotRev
		m.stage = stageJoining
		m.former, m.reclaiming = Member{}, false
		m.names.claimed()
		if m.standby {
			m.standby = false
			m.do(watchNamesEffect{false})
		}
		m.emit(Event{Kind: EventIDClaimed, Claim: in.gotRev, Duration: m.now.Sub(m.started)})
		// Before the lease: a leader that sees the lease probes at once, and
		// what nobody listens to looks dead.
		m.do(listenEffect{m.self})
		m.join()
	case errors.Is(in.err, errConflict) && in.op == opUpdate && m.ownValue(in.gotValue):
		m.idRev = in.gotRev // a renewal that was given up was carried out after all
		m.reclaim()
	case errors.Is(in.err, errConflict) && in.op == opUpdate:
		m.reclaiming = false
		m.claim() // not ours any more; maybe it is free
	case errors.Is(in.err, errConflict):
		m.names.taken[in.key] = true
		m.claimNext()
	default:
		m.retryAt = m.now.Add(retryInterval)
	}
}

func (m *machine) joinResult(in kvInput) {
	m.joinBusy = false
	if m.stage != stageJoining || in.key != m.self.ID {
		return
	}
	switch {
	case in.err == nil:
		m.joined(in.gotRev, in.start)
	case errors.Is(in.err, errConflict) && (m.nobodys(recordHeartbeat, in) || m.outlived(in.gotRev)):
		m.joinOver(in.gotRev)
	case errors.Is(in.err, errConflict):
		m.retryAt = m.now.Add(retryInterval)
	default:
		m.claimAnew()
	}
}

// outlived tells whether a lease that is in the way has been there unchanged for so
// long that it has ended, although the server has not let it expire: after a restart
// servers have been seen to forget it. The leader sees to such leases, if there is one.
func (m *machine) outlived(rev uint64) bool {
	if rev == 0 {
		return false
	}
	if rev != m.inTheWay {
		m.inTheWay, m.inTheWaySince = rev, m.now
	}
	return !m.now.Before(m.inTheWaySince.Add(m.cfg.LeaseTTL + time.Second))
}

// claimAnew gives up a name whose lease may have been there for a while. Others
// may have seen it, given it slots, and seen it expire: a second lease with the
// same claim would make an old map that names this worker look true.
func (m *machine) claimAnew() {
	m.do(listenEffect{})
	m.kv(kvEffect{purpose: forFarewell, op: opDelete, bucket: m.cfg.bucketIDs(), key: m.self.ID, rev: m.idRev})
	m.self = Member{}
	if m.asked {
		m.exit()
		return
	}
	m.stage = stageClaiming
	m.retryAt = m.now.Add(retryInterval)
}

// renewed books a renewal; a conflict means that the key is not ours any more.
func (m *machine) renewed(in kvInput, rev *uint64, due *time.Time, every time.Duration) bool {
	if m.stage != stageMember && m.stage != stageLeaving || in.key != m.self.ID {
		return false
	}
	switch {
	case in.err == nil:
		*rev = in.gotRev
		*due = in.start.Add(every)
		return true
	case errors.Is(in.err, errConflict) && m.ownValue(in.gotValue):
		// A renewal that was given up was carried out after all, when the
		// connection was back. Nobody else came in between; go on from it.
		*rev = in.gotRev
		*due = m.now
	case errors.Is(in.err, errConflict) && in.purpose == forIDRenewal && in.op == opUpdate && in.gotRev == 0 && m.lease.valid:
		// The name has ended, with its bucket or because its renewals took too long.
		// There is one lease for a name, and it is this worker's, so nobody can have
		// joined under the name: this worker has it again if it is the first to create
		// it, under the claim that it has.
		m.idBusy = true
		m.attempt++
		m.kv(kvEffect{purpose: forIDRenewal, op: opCreate, bucket: m.cfg.bucketIDs(), key: m.self.ID, value: m.idValue(), ttl: m.cfg.IDTTL})
	case errors.Is(in.err, errConflict) && m.nobodys(recordOf(in.purpose), in) && m.lease.valid:
		// While the lease is valid it has neither ended nor been ended, so what
		// lies there hides nothing but our own renewal.
		*rev = in.gotRev
		*due = m.now
	case errors.Is(in.err, errConflict), errors.Is(in.err, errNotFound):
		m.loseIdentity(fmt.Sprintf("renewing %s in %s: %v", in.key, in.bucket, in.err))
	default:
		*due = m.now.Add(retryInterval)
	}
	return false
}

// ownValue tells whether a lease or a name was last written by this worker, as
// who it is now.
func (m *machine) ownValue(value []byte) bool {
	var v struct { // what leaseValue and idValue share, and the claim
		Instance string `json:"instance"`
		Claim    uint64 `json:"claim"`
	}
	if len(value) == 0 || json.Unmarshal(value, &v) != nil {
		return false
	}
	return v.Instance == m.instance && (v.Claim == 0 || v.Claim == m.self.Claim)
}

func (m *machine) leaseRenewed(in kvInput) {
	if m.renewed(in, &m.leaseRev, &m.leaseDue, m.cfg.HeartbeatInterval) {
		m.lease.renewed = in.start
		m.lease.confirm(in.start)
		if m.stage == stageLeaving && in.start.Before(m.leaveBy.Add(-m.cfg.LeaveTimeout)) {
			m.leaseDue = m.now // that one did not tell the leader yet
		}
	}
}

// elected begins the leader's work.
func (m *machine) elected(basis suspicion) {
	m.lead.begin(basis)
	m.tuning.refresh()
	m.tuning.shareLoad()
	m.lead.maps.read()
}

// deposed ends it.
func (m *machine) deposed() {
	m.lead.reset()
	m.tuning.weights.forget() // another leader may tell others
	m.do(watchLeasesEffect{})
}

// led has what was reported to the leader before reported to this one.
func (m *machine) led() { m.own.reportAgain() }

// prepare reads what a leader needs at once.
func (m *machine) prepare() { m.tuning.refresh() }

// ownLease returns what this worker writes as its lease.
func (m *machine) ownLease() []byte { return m.leaseValue() }

// seeMap takes a newer map in. Revisions of the bucket order all maps that were
// ever written, so an older one never wins.
func (m *machine) seeMap(a *Assignment, rev uint64) {
	if rev <= m.curRev {
		return
	}
	if err := a.checkOrder(rev, m.cur, m.now); err != nil {
		m.lead.maps.seeMalformed(rev, err)
		return
	}
	newer := m.cur == nil || a.Version > m.cur.Version
	before := m.cur
	m.cur, m.curRev = a, rev
	if m.leading() && a.Epoch > m.office.epoch {
		m.election.stepDown()
	}
	if m.stage != stageMember && m.stage != stageLeaving {
		return
	}
	if newer {
		m.emit(Event{Kind: EventMapReceived, Version: a.Version})
		m.lossVersion = max(m.lossVersion, a.firstAfterLoss())
		if m.own.division.slots == 0 || m.own.division == a.division() {
			m.own.tellAssigned(m.own.destined(before), m.own.destined(a))
		}
	}
	m.own.applyMap()
	m.lead.maps.seen()
}

// loseIdentity ends everything that rested on the claim and begins anew: another
// worker may have been given the slots already.
func (m *machine) loseIdentity(reason string) {
	m.emit(Event{Kind: EventIdentityLost, Reason: reason})
	leaving := m.stage == stageLeaving
	m.do(listenEffect{})
	m.do(suspendEffect{})
	m.own.dropAll()
	m.election.stepDown()
	former := m.self
	m.self = Member{}
	m.lease.valid = false
	m.idBusy, m.renewing = false, false
	if leaving {
		m.kv(kvEffect{purpose: forFarewell, op: opDelete, bucket: m.cfg.bucketIDs(), key: former.ID, rev: m.idRev})
		m.exit()
		return
	}
	// The name may still be ours, with the old claim: renew it with a new one.
	// If nobody has been given the slots meanwhile, they wait for this name.
	m.stage = stageClaiming
	m.former, m.reclaiming = former, true
	m.reclaim()
}

// reclaim renews the former name with a new claim.
func (m *machine) reclaim() {
	m.attempt++
	m.kv(kvEffect{purpose: forClaim, op: opUpdate, bucket: m.cfg.bucketIDs(), key: m.former.ID, value: m.idValue(), rev: m.idRev, ttl: m.cfg.IDTTL})
}

// leaseEnds is when this worker may not rely on its lease any more.
func (m *machine) leaseEnds() time.Time { return m.lease.end(&m.cfg) }

// checkLease begins or ends to act as an owner, as the validity of the lease says.
func (m *machine) checkLease() {
	if m.stage != stageMember && m.stage != stageLeaving {
		return
	}
	ended := m.lease.ended
	switch m.lease.check(m.now, &m.cfg) {
	case validityLost:
		m.do(suspendEffect{})
		m.emit(Event{Kind: EventTrustLost, Reason: m.lease.why(m.now, &m.cfg)})
		m.leaseDue = m.now
	case validityGained:
		m.do(resumeEffect{})
		if !ended.IsZero() {
			m.emit(Event{Kind: EventTrustRegained, Duration: m.now.Sub(ended)})
		}
		m.election.campaign()
	case validityUnchanged:
	}
}

func (m *machine) connection(up bool) {
	m.lease.connected = up
	if m.stage == stageJoining || !up && !m.lease.valid {
		m.lease.discount(m.now)
	}
	if up {
		m.reconnected = m.now
		m.election.seenAt = m.now
		if m.office.held && m.lead.maps.ready {
			m.lead.roster.watchLeases()
		}
		m.leaseDue, m.pingDue = m.now, m.now
		m.quietUntil = m.now.Add(m.cfg.SuspicionGrace + m.cfg.SuspicionMargin)
	}
}

// Leaving.

func (m *machine) leave() {
	switch m.stage {
	case stageInit, stageClaiming:
		m.exit()
	case stageJoining:
		m.asked = true // it has a name to give back: join first
		m.leaveBy = m.now.Add(m.cfg.LeaveTimeout)
	case stageMember:
		m.stage = stageLeaving
		m.leaveBy = m.now.Add(m.cfg.LeaveTimeout)
		m.leaderless = m.now
		m.leaseDue = m.now // tells the leader
		m.election.resign()
	case stageLeaving, stageGone:
	}
}

// leaveSlack is how long a worker whose time to leave is up waits for what it has
// to end, and for the server to hear of it. Then it goes without.
const leaveSlack = 2 * time.Second

// leaveDue leaves when nothing is owned any more, when nobody is there to take
// over, or when time is up. In the last two cases the map still names this
// worker; what it had is taken over as from a dead one, which is safe since it
// has stopped.
func (m *machine) leaveDue() {
	if m.stage == stageJoining && m.asked && !m.now.Before(m.leaveBy) {
		m.exit() // the name expires
	}
	if m.stage != stageLeaving {
		return
	}
	switch {
	case !m.now.Before(m.leaveBy.Add(leaveSlack)):
		m.own.dropAll()
		m.election.stepDown()
		m.exit()
	case m.own.abandoning:
		if len(m.own.slots) == 0 && len(m.own.former) == 0 && !m.renewing {
			m.farewell()
		}
	case !m.own.any() && !m.renewing && m.mapLetsGo():
		m.farewell()
	case !m.now.Before(m.leaveBy), m.leader == (Member{}) && m.now.Sub(m.leaderless) >= aloneAfter:
		m.own.abandon()
	}
}

// mapLetsGo tells whether the newest map wants nothing of this worker.
func (m *machine) mapLetsGo() bool {
	if m.cur == nil {
		return true
	}
	i := m.cur.index(m.self)
	if i == none {
		return true
	}
	for s := range m.cur.Owner {
		if m.cur.Owner[s] == i || m.cur.destination(s) == i {
			return false
		}
	}
	return true
}

func (m *machine) farewell() {
	m.kv(kvEffect{purpose: forFarewell, op: opDelete, bucket: m.cfg.bucketLeases(), key: m.self.ID, rev: m.leaseRev})
	m.kv(kvEffect{purpose: forFarewell, op: opDelete, bucket: m.cfg.bucketIDs(), key: m.self.ID, rev: m.idRev})
	m.emit(Event{Kind: EventLeft, Duration: m.now.Sub(m.leaveBy.Add(-m.cfg.LeaveTimeout))})
	m.exit()
}

func (m *machine) exit() {
	m.stage = stageGone
	if m.standby {
		m.do(watchNamesEffect{false})
	}
	m.do(listenEffect{})
	m.do(exitEffect{})
}

// showState derives the state from what is, and tells when it has changed.
func (m *machine) showState() {
	s := m.deriveState()
	if s == m.state {
		return
	}
	m.emit(Event{Kind: EventState, From: m.state, To: s})
	m.state = s
}

func (m *machine) deriveState() State {
	// With more workers than slots some have nothing to hold.
	settled := m.cur != nil && m.cur.index(m.self) != none && m.cur.Settled()
	switch {
	case m.stage == stageInit:
		return StateInit
	case m.stage == stageClaiming, m.stage == stageJoining:
		return StateClaimingID
	case m.stage == stageLeaving, m.stage == stageGone:
		return StateShutdown
	case !m.lease.valid, len(m.missing) > 0:
		return StateDegraded
	case m.election.silent():
		return StateElection
	case m.leading() && m.cur != nil && len(m.cur.Taking) > 0:
		return StateEmergency
	case m.leading() && m.lead.rebalance.window.open():
		return StateScaling
	case m.own.moving(), m.leading() && m.cur != nil && !m.cur.Settled():
		return StateRebalancing
	case m.own.holds():
		return StateStable
	case m.leading() && !settled:
		return StateLeader
	case !m.leading() && m.leader == (Member{}):
		return StateElection
	case settled:
		return StateStable
	default:
		return StateFollower
	}
}

// peer handles a message of another worker.
func (m *machine) peer(msg peerMessage) {
	// A worker that lost its identity has a new one, and what was sent to the
	// old may still come.
	if msg.Schema != valueSchema || msg.To != m.self || (m.stage != stageMember && m.stage != stageLeaving) {
		return
	}
	msg.Slots = slices.DeleteFunc(msg.Slots, func(s slotMark) bool { return s.Slot < 0 || s.Slot >= maxSlots })
	switch msg.Kind {
	case peerPrepared:
		m.own.peerPrepared(msg)
	case peerGrant:
		m.own.peerGrant(msg)
	case peerReleased:
		m.own.peerReleased(msg)
		m.lead.takeovers.peerReleased(msg)
	case peerHolding:
		m.lead.takeovers.peerHolding(msg)
	case peerWant:
		m.lead.takeovers.peerWant(msg)
	case peerCede:
		m.own.peerCede(msg)
	case peerCeded:
		m.lead.takeovers.peerCeded(msg)
	case peerAlone:
		if m.stage == stageLeaving && msg.From == m.leader {
			m.own.abandon()
		}
	}
}
