package partition

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/state"
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

func newMachine(cfg Config, instance string) *machine {
	m := &machine{core: core{cfg: cfg, instance: instance, state: state.Init, lease: leaseValidity{connected: true}}}
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
	m.route(in)
	if m.stage != stageGone {
		m.due()
		m.membership.checkLease()
		m.showState()
	}
	return m.effects
}

// route gives an input to the part that it is for. What concerns several parts is done
// here, by a method of its own.
func (m *machine) route(in input) {
	switch in := in.(type) {
	case tickInput:
	case leaveInput, drainInput, pongInput:
		m.membership.take(in)
	case nameFreedInput:
		m.identity.nameFreed(in.id)
	case leaderInput:
		m.election.take(in)
	case leaseInput, leasesSyncedInput, badMapInput, weightsInput, plannedInput, takenInput, fenceReportInput:
		m.lead.take(in)
	case preparedInput, slotReleasedInput, fencedInput:
		m.own.take(in)
	case expectedInput, wantedInput, overridesInput:
		m.operatorsAsk(in)

	case startInput:
		m.start()
	case connectionInput:
		m.connection(in.up)
	case kvInput:
		m.kvResult(in)
	case mapInput:
		m.seeMap(in.a, in.rev)
	case mapSyncedInput:
		m.mapSynced(in.led)
	case unreachableInput:
		m.unreachable(in.peer)
	case peerInput:
		m.peer(in.msg)
	case recreatedInput:
		m.recreated(in)
	case missingInput:
		m.missing = in.names
	case noteInput:
		m.emit(in.event)
	}
}

func (m *machine) start() {
	m.started = m.now
	m.lease.confirmed = m.now
	m.emit(event.Event{Kind: event.Started})
	m.stage = stageClaiming
	if m.identity.mapKnown {
		m.identity.claim()
	}
}

// mapSynced: all that was in the map's bucket has been seen. Whether there is room for one
// more worker is known only now.
func (m *machine) mapSynced(led bool) {
	known := m.identity.mapKnown
	m.identity.mapKnown = true
	if !known && m.stage == stageClaiming {
		m.identity.claim()
	}
	if !led {
		m.election.leaderGone()
	}
}

// unreachable: the server says that another worker is not subscribed to its subjects.
func (m *machine) unreachable(peer record.Process) {
	switch {
	case m.now.Before(m.quietUntil):
	case m.leaderLease.held:
		m.lead.suspect(peer)
	default:
		m.election.suspectLeader(peer)
	}
}

// operatorsAsk takes in what operators have set. An older record never wins.
func (m *machine) operatorsAsk(in input) {
	switch in := in.(type) {
	case expectedInput:
		if in.rev >= m.expectRev {
			m.expect, m.expectRev = in.n, in.rev
			m.identity.lookAgain()
		}
	case wantedInput:
		if in.rev >= m.wantedRev {
			m.wanted, m.wantedRev = in.slots, in.rev
		}
	case overridesInput:
		m.seeOverrides(in)
	}
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
	case stageJoined, stageLeaving:
		m.membership.drainEnds()
		m.identity.renewDue()
		m.membership.renewDue()
		if m.leaderLease.held {
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
	if m.stage != stageJoined && m.stage != stageLeaving {
		return at
	}
	m.election.wake(sooner)
	if m.leaderLease.held {
		m.lead.wake(sooner)
	}
	m.own.wake(sooner)
	return at
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
	case forUnseenClaim:
		m.identity.unseenClaimRead(in)
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

// leadershipLost ends it.
func (m *machine) leadershipLost() {
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
func (m *machine) seeMap(a *record.Assignment, rev uint64) {
	if rev <= m.curRev {
		return
	}
	if err := a.CheckOrder(rev, m.cur, m.now); err != nil {
		m.lead.maps.seeMalformed(rev, err)
		return
	}
	newer := m.cur == nil || a.Version > m.cur.Version
	before := m.cur
	m.cur, m.curRev = a, rev
	if m.leading() && a.Epoch > m.leaderLease.epoch {
		m.election.stepDown()
	}
	if m.stage != stageJoined && m.stage != stageLeaving {
		return
	}
	if newer {
		m.emit(event.Event{Kind: event.MapReceived, Version: a.Version})
		m.lossVersion = max(m.lossVersion, firstAfterLoss(a))
		if m.own.generation.slots == 0 || m.own.generation == generationOf(a) {
			m.own.tellAssigned(m.own.destined(before), m.own.destined(a))
		}
	}
	m.own.applyMap()
	m.lead.maps.seen()
}

func (m *machine) unledSince() time.Time { return m.election.unledSince() }

// join is next once the worker has a stable ID.
func (m *machine) join() { m.membership.join() }

// loseIdentity ends everything that rested on the claim and begins again, after a renewal
// of the stable ID or the lease has failed for good: another worker may have been given
// the slots already.
func (m *machine) loseIdentity(in kvInput) {
	m.emit(event.Event{Kind: event.IdentityLost, Reason: fmt.Sprintf("renewing %s in %s: %v", in.key, in.bucket, in.err)})
	leaving := m.stage == stageLeaving
	m.do(listenEffect{})
	m.do(suspendEffect{})
	m.own.dropAll()
	m.election.stepDown()
	m.lease.lose(m.now)
	m.membership.renewing = false
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
		if m.leaderLease.held && m.lead.maps.ready {
			m.lead.roster.watchLeases()
		}
		m.membership.due, m.membership.pingDue = m.now, m.now
		m.quietUntil = m.now.Add(m.cfg.Lease.SuspicionGrace + m.cfg.Lease.SuspicionMargin)
	}
}

// showState derives the state from what is, and tells when it has changed.
func (m *machine) showState() {
	s := m.deriveState()
	if s == m.state {
		return
	}
	m.emit(event.Event{Kind: event.StateChanged, From: m.state, To: s})
	m.state = s
}

func (m *machine) deriveState() state.State {
	switch {
	case m.stage == stageInit:
		return state.Init
	case m.stage == stageClaiming, m.stage == stageJoining:
		return state.ClaimingID
	case m.stage == stageLeaving, m.stage == stageGone:
		return state.Shutdown
	case !m.lease.valid, len(m.missing) > 0:
		return state.Degraded
	default:
		return m.joinedState()
	}
}

// joinedState is the state of a worker with a valid lease.
func (m *machine) joinedState() state.State {
	leading, hasMap := m.leading(), m.cur != nil
	// With more workers than slots some have nothing to hold.
	settled := hasMap && m.place() != record.None && m.cur.Settled()
	switch {
	case m.election.silent():
		return state.Election
	case leading && hasMap && len(m.cur.Taking) > 0:
		return state.Emergency
	case leading && m.lead.rebalance.window.open():
		return state.Scaling
	case m.own.moving(), leading && hasMap && !m.cur.Settled():
		return state.Rebalancing
	case m.own.holds():
		return state.Stable
	case leading && !settled:
		return state.Leader
	case !leading && m.leader == (record.Process{}):
		return state.Election
	case settled:
		return state.Stable
	default:
		return state.Follower
	}
}

// peer handles a message of another worker.
func (m *machine) peer(msg record.PeerMessage) {
	// A worker that lost its identity has a new one, and what was sent to the
	// old may still come.
	if msg.Schema != record.Schema || msg.To != m.self || (m.stage != stageJoined && m.stage != stageLeaving) {
		return
	}
	msg.Slots = slices.DeleteFunc(msg.Slots, func(s record.SlotMark) bool { return s.Slot < 0 || s.Slot >= record.MaxSlots })
	switch msg.Kind {
	case record.Prepared:
		m.own.peerPrepared(msg)
	case record.Grant:
		m.own.peerGrant(msg)
	case record.Released:
		m.own.peerReleased(msg)
		m.lead.takeovers.peerReleased(msg)
	case record.Holding:
		m.lead.takeovers.peerHolding(msg)
	case record.Want:
		m.lead.takeovers.peerWant(msg)
	case record.AskOld:
		m.own.peerAsksOld(msg)
	case record.OldReleased:
		m.lead.takeovers.peerOldReleased(msg)
	case record.Alone:
		if m.stage == stageLeaving && msg.From == m.leader {
			m.own.abandon()
		}
	}
}

// seeOverrides takes in what operators have overridden.
func (m *machine) seeOverrides(in overridesInput) {
	if in.rev > m.overrides.rev {
		m.overrides = overridden(in)
		if m.leading() {
			m.lead.rebalance.review()
		}
	}
}

// recreated finds out at once what was lost with a bucket, and writes again what only
// the workers know.
func (m *machine) recreated(in recreatedInput) {
	if in.mine {
		m.emit(event.Event{Kind: event.ResourceRecreated, Reason: in.name})
	}
	switch in.name {
	case "bucket " + m.cfg.bucketLeases():
		m.membership.due, m.leasesLost = m.now, m.now
		if m.leaderLease.held && m.lead.maps.ready {
			m.lead.roster.watchLeases()
		}
	case "bucket " + m.cfg.bucketIDs():
		m.identity.due, m.leasesLost = m.now, m.now
	case "bucket " + m.cfg.bucketMap():
		m.leaderLease.due = m.now
		if in.mine {
			m.writeAgain()
		}
	}
}

// writeAgain writes what operators have set into a map's bucket that was lost. The map
// itself is the leader's.
func (m *machine) writeAgain() {
	create := func(key string, value any) {
		m.kv(kvEffect{purpose: forOperators, op: opCreate, bucket: m.cfg.bucketMap(), key: key, value: record.Encode(value)})
	}
	if m.expectRev > 0 {
		create(expectedKey, record.Expected{Schema: record.Schema, N: m.expect})
	}
	if m.wantedRev > 0 {
		create(wantedKey, record.Wanted{Schema: record.Schema, Slots: m.wanted})
	}
	if m.overrides.rev > 0 {
		create(overridesKey, encodeOverrides(m.overrides.overrides))
	}
}
