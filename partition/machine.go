package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A machine is the whole behaviour of one worker as a step function: an input and the time
// go in, effects come out. It does no I/O, has no clock and starts no goroutine; worker.go
// carries its effects out. It routes the inputs to its parts; each part has what it believes
// in its own fields.
type machine struct {
	core

	identity   identity   // the stable ID
	membership membership // the lease, and leaving
	own        ownership  // the slots of this worker
	election   election   // who leads
	tuning     tuning     // the weights of the keys
	lead       leadership // what the leader does

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
	m := &machine{core: core{cfg: cfg, instance: instance, state: StateInit, lease: leaseValidity{connected: true}}}
	m.identity = identity{core: &m.core, up: m, names: nameTable{released: make(map[string]bool)}}
	m.membership = membership{core: &m.core, up: m, identity: &m.identity, own: &m.own, election: &m.election}
	m.own.core = &m.core
	m.own.reset()
	m.election = election{core: &m.core, up: m}
	m.tuning = tuning{core: &m.core, roster: &m.lead.roster}
	m.lead.connect(&m.core, m, &m.election, &m.tuning)
	return m
}

// step handles one input at a time, which never goes back.
func (m *machine) step(now time.Time, in input) []effect {
	m.effects = nil
	m.now = now
	if m.stage == stageGone {
		return nil
	}
	m.membership.checkLease()
	switch in := in.(type) {
	case startInput:
		m.started = now
		m.lease.confirmed = now
		m.emit(Event{Kind: EventStarted})
		m.stage = stageClaiming
		if m.identity.mapKnown {
			m.identity.claim()
		}
	case tickInput:
	case leaveInput:
		m.membership.leave()
	case yieldInput:
		m.membership.yield(in.until)
		if in.answer != "" {
			m.do(answerEffect{in.answer, m.own.slotsLeft()})
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
		known := m.identity.mapKnown
		m.identity.mapKnown = true
		if !known && m.stage == stageClaiming {
			m.identity.claim()
		}
		if !in.led {
			m.election.leaderGone()
		}
	case nameFreedInput:
		m.identity.names.released[in.id] = true
		m.identity.lookAgain()
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
			m.identity.lookAgain()
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
		m.membership.checkLease()
		m.showState()
	}
	return m.effects
}

// due does what the time asks for.
func (m *machine) due() {
	switch m.stage {
	case stageClaiming, stageJoining:
		if m.identity.retryNow() {
			if m.stage == stageJoining {
				m.membership.join()
			} else {
				m.identity.begin()
			}
		}
		m.membership.leaveDue()
	case stageMember, stageLeaving:
		m.membership.yieldEnds()
		m.identity.renewDue()
		m.membership.renewDue()
		if m.office.held {
			m.election.renew()
			m.lead.due()
		} else {
			m.election.due()
		}
		m.own.due()
		m.membership.leaveDue()
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
	m.identity.wake(sooner)
	m.membership.wake(sooner)
	if m.stage != stageMember && m.stage != stageLeaving {
		return at
	}
	m.election.wake(sooner)
	if m.office.held {
		m.lead.wake(sooner)
	}
	m.own.wake(sooner)
	return at
}

func mustJSON(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("partition: plain data, yet: %v", err))
	}
	return data
}

// kvResult routes the outcome of an operation.
func (m *machine) kvResult(in kvInput) {
	m.refusals.note(in, m.now)
	switch in.purpose {
	case forNames:
		m.identity.namesListed(in)
	case forLeaseNames:
		m.identity.leasesListed(in)
	case forDeadName:
		m.identity.deadNameRead(in)
	case forClaim:
		m.identity.claimed(in)
	case forJoin:
		m.membership.joinResult(in)
	case forIDRenewal:
		m.identity.renewed(in)
	case forLeaseRenewal:
		m.membership.leaseRenewed(in)
	case forElection, forLeaderRenewal, forSuspicion:
		m.election.result(in)
	case forMapRead, forMapHistory, forMapWrite, forFencing:
		m.lead.result(in)
	case forFarewell, forResignation, forSweep, forOperators:
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
func (m *machine) ownLease() []byte { return m.membership.value() }

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

// join is next once the worker has a stable ID.
func (m *machine) join() { m.membership.join() }

// loseIdentity ends everything that rested on the claim and begins anew, after a renewal
// of the stable ID or the lease has failed for good: another worker may have been given
// the slots already.
func (m *machine) loseIdentity(in kvInput) {
	m.emit(Event{Kind: EventIdentityLost, Reason: fmt.Sprintf("renewing %s in %s: %v", in.key, in.bucket, in.err)})
	leaving := m.stage == stageLeaving
	m.do(listenEffect{})
	m.do(suspendEffect{})
	m.own.dropAll()
	m.election.stepDown()
	m.lease.valid, m.membership.renewing = false, false
	former := m.identity.lose()
	if leaving {
		m.kv(kvEffect{purpose: forFarewell, op: opDelete, bucket: m.cfg.bucketIDs(), key: former.ID, rev: m.identity.rev})
		m.membership.exit()
		return
	}
	// The name may still be ours, with the old claim: renew it with a new one.
	// If nobody has been given the slots meanwhile, they wait for this name.
	m.stage = stageClaiming
	m.identity.begin()
}

func (m *machine) connection(up bool) {
	m.lease.connected = up
	if m.stage == stageJoining || !up && !m.lease.valid {
		m.lease.discount(m.now)
	}
	if up {
		m.identity.reconnected = m.now
		m.election.seenAt = m.now
		if m.office.held && m.lead.maps.ready {
			m.lead.roster.watchLeases()
		}
		m.membership.due, m.membership.pingDue = m.now, m.now
		m.quietUntil = m.now.Add(m.cfg.SuspicionGrace + m.cfg.SuspicionMargin)
	}
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
