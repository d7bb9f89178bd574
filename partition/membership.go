package partition

import (
	"errors"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// membership is the worker's lease: it joins with it, renews it, and gives it back when it
// leaves. In it the worker says whether it leaves or drains. A worker that leaves
// hands its slots off first, and only then deletes its lease and its stable ID. Otherwise
// the leader could take a slot over, or another worker join by the same ID, while a handler
// still runs here.
type membership struct {
	*core
	up       membershipUser
	identity *identity
	own      *ownership
	election *election

	rev      uint64    // of the lease
	due      time.Time // when to renew it next
	renewing bool
	pingDue  time.Time // when to measure a round trip next
	// clustered: the server that answered last is one of several, so that its answer
	// doesn't confirm the lease.
	clustered bool

	// inTheWay is the revision of another's lease, over which this worker's can't be
	// created, and inTheWaySince when it was seen first.
	inTheWay      uint64
	inTheWaySince time.Time

	asked      bool // to leave, before the worker has joined
	leaveBy    time.Time
	drainUntil time.Time // takes no slots until then
}

// membershipUser is told what becomes of the lease.
type membershipUser interface {
	// loseIdentity: somebody else may have the worker's place, by the outcome of a renewal.
	loseIdentity(in kvInput)
}

// leaveSlack is how long a worker whose time to leave is up waits for what it has
// to end, and for the server to hear of it. Then it goes without.
const leaveSlack = 2 * time.Second

// join creates the lease. A lease that is still there belongs to an earlier
// holder of the name, whose expiry must be awaited.
func (s *membership) join() {
	s.attempt++
	s.kv(kvEffect{purpose: forJoin, op: opCreate, bucket: s.cfg.bucketLeases(), key: s.self.ID, value: s.value(), ttl: s.cfg.Lease.TTL})
}

// joinOver creates the lease where something lies that is none.
func (s *membership) joinOver(rev uint64) {
	s.attempt++
	s.kv(kvEffect{purpose: forJoin, op: opUpdate, bucket: s.cfg.bucketLeases(), key: s.self.ID, value: s.value(), rev: rev, ttl: s.cfg.Lease.TTL})
}

// value is what the worker writes as its lease.
func (s *membership) value() []byte {
	v := record.Heartbeat{Schema: record.Schema, ID: s.self.ID, Claim: s.self.Claim, Instance: s.instance, N: s.attempt,
		Leaving: s.stage == stageLeaving, Draining: s.draining(), Weight: s.cfg.Identity.Capacity, Zone: s.cfg.Identity.Zone, Pod: s.cfg.Identity.Pod, Node: s.cfg.Identity.Node, State: s.state, MapSchema: record.MapSchema}
	if v.Draining {
		v.DrainEnd = s.drainUntil.UnixMilli()
	}
	if s.cur != nil {
		v.Version = s.cur.Version
	}
	return record.Encode(v)
}

// joined begins as a member of the group.
func (s *membership) joined(in kvInput) {
	s.stage = stageJoined
	s.rev = in.gotRev
	s.lease.begin(in.start)
	if in.op == opUpdate {
		// What lay there may have run out, and its marker be on its way: see ranOut.
		s.lease.discount(s.now)
	}
	s.due = s.now.Add(s.renewEvery())
	s.identity.due = s.now.Add(s.cfg.Lease.IDTTL / 6)
	s.pingDue = s.now
	s.checkLease()
	if !s.lease.valid {
		// Creating it took too long, or it may be suspected already since the worker was
		// disconnected meanwhile.
		s.due = s.lease.provable(s.now)
	}
	if s.cur != nil {
		s.own.applyMap()
	}
	if s.asked {
		s.asked = false
		s.leave()
	}
}

// renewDue renews the lease, and checks the connection, when it is time to.
func (s *membership) renewDue() {
	if !s.renewing && !s.now.Before(s.due) {
		s.renew()
	}
	if !s.now.Before(s.pingDue) {
		s.pingDue = s.now.Add(s.cfg.Lease.checkEvery())
		if s.cfg.Storage.Replicas == 1 {
			s.do(pingEffect{s.now})
		}
	}
}

// answered takes the answer of the server that this worker is connected to.
//
// A server on its own has the lease: as long as it answers, nobody else can have ended the
// lease at another server. One of a cluster, or a leaf node, says nothing by an answer. Cut
// off from the others, it still answers, while the leader finds this worker unreachable,
// ends the lease after Lease.SuspicionGrace and Lease.SuspicionMargin, and gives the slots to others.
// There only a renewal confirms the lease, and so it is renewed often enough.
func (s *membership) answered(in pongInput) {
	s.clustered = in.clustered
	if !in.clustered {
		s.lease.confirm(in.start)
		return
	}
	if next := s.lease.renewed.Add(s.renewEvery()); next.Before(s.due) {
		s.due = next // it was due as on a server on its own
	}
}

// renewEvery returns how often the lease is renewed: three times within the grace where
// only a renewal confirms it. With replicas resolve has set Lease.Heartbeat so.
func (s *membership) renewEvery() time.Duration {
	if s.clustered {
		return min(s.cfg.Lease.Heartbeat, s.cfg.Lease.SuspicionGrace/3)
	}
	return s.cfg.Lease.Heartbeat
}

// renew renews the lease.
func (s *membership) renew() {
	s.renewing = true
	s.attempt++
	s.kv(kvEffect{purpose: forLeaseRenewal, op: opUpdate, bucket: s.cfg.bucketLeases(), key: s.self.ID, value: s.value(), rev: s.rev, ttl: s.cfg.Lease.TTL})
}

// joinResult takes the outcome of creating the lease.
func (s *membership) joinResult(in kvInput) {
	if s.stage != stageJoining || in.key != s.self.ID {
		return
	}
	switch {
	case in.err == nil:
		s.joined(in)
	case errors.Is(in.err, errConflict) && (s.nobodys(recordHeartbeat, in) || s.outlived(in.gotRev)):
		s.joinOver(in.gotRev)
	case errors.Is(in.err, errConflict):
		s.identity.retryAt = s.now.Add(retryInterval)
	default:
		s.claimAgain()
	}
}

// outlived reports whether a lease that is in the way has been there unchanged for so
// long that it has ended, although the server has not let it expire: after a restart
// servers have been seen to forget it. The leader sees to such leases, if there is one.
func (s *membership) outlived(rev uint64) bool {
	if rev == 0 {
		return false
	}
	if rev != s.inTheWay {
		s.inTheWay, s.inTheWaySince = rev, s.now
	}
	return !s.now.Before(s.inTheWaySince.Add(s.cfg.Lease.TTL + time.Second))
}

// claimAgain has the worker join under the name that it has with a new claim, since its lease
// may have been there for a while. Others may have seen it, given it slots, and seen it
// expire: a second lease with the same claim would make an old map that names this worker
// look true. The name is kept: its slots may wait for it.
func (s *membership) claimAgain() {
	s.do(listenEffect{})
	former := s.identity.lose()
	if s.asked {
		s.kv(kvEffect{purpose: forFarewell, op: opDelete, bucket: s.cfg.bucketIDs(), key: former.ID, rev: s.identity.rev})
		s.exit()
		return
	}
	s.stage = stageClaiming
	s.identity.retryAt = s.now.Add(retryInterval)
}

// leaseRenewed takes the outcome of a renewal.
func (s *membership) leaseRenewed(in kvInput) {
	s.renewing = false
	if s.stage != stageJoined && s.stage != stageLeaving || in.key != s.self.ID {
		return
	}
	switch s.renewal(in) {
	case renewalDone:
		s.rev, s.due = in.gotRev, in.start.Add(s.renewEvery())
		if s.lease.ranOut(s.now, &s.cfg) {
			// The servers may be about to remove it, with the lease that ran out.
			s.lease.discount(s.now)
		}
		s.lease.renewed = in.start
		s.lease.confirm(in.start)
		if s.lease.doubts(in.start) {
			// Nothing begins here before a renewal that proves more, so it can't wait for
			// a whole Heartbeat.
			s.due = s.lease.provable(s.now)
		}
		if every := s.cfg.Lease.checkEvery(); every == rareCheck {
			s.pingDue = later(s.pingDue, in.start.Add(every)) // it was a round trip as well
		}
		if s.stage == stageLeaving && in.start.Before(s.leaveBy.Add(-s.cfg.Rebalance.LeaveTimeout)) {
			s.due = s.now // that one did not tell the leader yet
		}
	case renewalLate, renewalHidden:
		s.rev, s.due = in.gotRev, s.now
	case renewalEnded:
		s.up.loseIdentity(in)
	case renewalUnknown:
		s.due = s.now.Add(retryInterval)
	}
}

// leaseEnds is when this worker may not rely on its lease any more.
func (s *membership) leaseEnds() time.Time { return s.lease.end(&s.cfg) }

// checkLease begins or ends to act as an owner, as the validity of the lease says.
func (s *membership) checkLease() {
	if s.stage != stageJoined && s.stage != stageLeaving {
		return
	}
	ended := s.lease.ended
	switch s.lease.check(s.now, &s.cfg) {
	case validityLost:
		s.do(suspendEffect{})
		s.emit(event.Event{Kind: event.LeaseUncertain, Reason: s.lease.why(s.now, &s.cfg)})
		s.due = s.lease.provable(s.now)
	case validityGained:
		s.do(resumeEffect{})
		if !ended.IsZero() {
			s.emit(event.Event{Kind: event.LeaseConfirmed, Duration: s.now.Sub(ended)})
		}
		s.election.campaign()
	case validityUnchanged:
	}
}

// leave begins to leave.
func (s *membership) leave() {
	switch s.stage {
	case stageInit, stageClaiming:
		s.exit()
	case stageJoining:
		s.asked = true // it has a name to give back: join first
		s.leaveBy = s.now.Add(s.cfg.Rebalance.LeaveTimeout)
	case stageJoined:
		s.stage = stageLeaving
		s.leaveBy = s.now.Add(s.cfg.Rebalance.LeaveTimeout)
		s.leaderless = s.now
		s.due = s.now // tells the leader
		s.election.resign()
	case stageLeaving, stageGone:
	}
}

// leaveDue leaves when nothing is owned any more, when nobody is there to take
// over, or when time is up. In the last two cases the map still names this
// worker; what it had is taken over as from a failed one, which is safe since it
// has stopped.
func (s *membership) leaveDue() {
	if s.stage == stageJoining && s.asked && !s.now.Before(s.leaveBy) {
		s.exit() // the name expires
	}
	if s.stage != stageLeaving {
		return
	}
	// What is given back must be as this worker knows it. A renewal that is under way would make it
	// newer, and then the stable ID stays taken, and the slots wait for it in vain.
	renewing := s.renewing || s.identity.renewing
	switch {
	case !s.now.Before(s.leaveBy.Add(leaveSlack)):
		s.own.dropAll()
		s.election.stepDown()
		s.exit()
	case s.own.abandoning:
		if len(s.own.slots) == 0 && len(s.own.old.slots) == 0 && !renewing {
			s.farewell()
		}
	case !s.own.any() && !renewing && s.mapLetsGo():
		s.farewell()
	case !s.now.Before(s.leaveBy), s.leader == (record.Process{}) && s.now.Sub(s.leaderless) >= aloneAfter:
		s.own.abandon()
	}
}

// mapLetsGo reports whether the newest map wants nothing of this worker.
func (s *membership) mapLetsGo() bool {
	i := s.place()
	if i == record.None {
		return true
	}
	for slot, owner := range s.cur.Owner {
		if owner == i || s.cur.Destination(slot) == i {
			return false
		}
	}
	return true
}

// farewell gives the lease and the stable ID back, and exits.
func (s *membership) farewell() {
	s.kv(kvEffect{purpose: forFarewell, op: opDelete, bucket: s.cfg.bucketLeases(), key: s.self.ID, rev: s.rev})
	s.kv(kvEffect{purpose: forFarewell, op: opDelete, bucket: s.cfg.bucketIDs(), key: s.self.ID, rev: s.identity.rev})
	s.emit(event.Event{Kind: event.Left, Duration: s.now.Sub(s.leaveBy.Add(-s.cfg.Rebalance.LeaveTimeout))})
	s.exit()
}

// exit ends the worker.
func (s *membership) exit() {
	s.stage = stageGone
	if s.identity.standby {
		s.do(watchNamesEffect{false})
	}
	s.do(listenEffect{})
	s.do(exitEffect{})
}

// drain begins or, with the zero time or one that has passed, ends draining.
func (s *membership) drain(until time.Time) {
	before := s.draining()
	s.drainUntil = until
	if s.draining() != before {
		s.tellDraining()
	}
}

func (s *membership) draining() bool { return s.now.Before(s.drainUntil) }

// drainEnds notices that the time is over.
func (s *membership) drainEnds() {
	if !s.drainUntil.IsZero() && !s.draining() {
		s.drainUntil = time.Time{}
		s.tellDraining()
	}
}

// tellDraining has the lease say whether the worker drains.
func (s *membership) tellDraining() {
	if !s.draining() {
		s.drainUntil = time.Time{}
	}
	if s.stage == stageJoined || s.stage == stageLeaving {
		s.emit(event.Event{Kind: event.Draining, Duration: max(s.drainUntil.Sub(s.now), 0)})
		s.due = s.now // tells the leader
	}
}

// wake tells when there is something to do.
func (s *membership) wake(sooner func(time.Time)) {
	switch s.stage {
	case stageClaiming, stageJoining:
		if s.asked {
			sooner(s.leaveBy)
		}
	case stageJoined, stageLeaving:
		if !s.renewing {
			sooner(s.due)
		}
		sooner(s.pingDue)
		sooner(s.drainUntil)
		if s.lease.valid {
			sooner(s.leaseEnds())
		}
		s.wakeLeaving(sooner)
	case stageInit, stageGone:
	}
}

func (s *membership) wakeLeaving(sooner func(time.Time)) {
	switch {
	case s.stage != stageLeaving:
	case s.own.abandoning:
		sooner(s.leaveBy.Add(leaveSlack))
	default:
		sooner(s.leaveBy)
	}
}

// take takes an input that is about the lease, or about leaving.
func (s *membership) take(in input) {
	switch in := in.(type) {
	case leaveInput:
		s.leave()
	case drainInput:
		s.drain(in.until)
		if in.answer != "" {
			s.do(answerEffect{in.answer, s.own.slotsLeft()})
		}
	case pongInput:
		s.answered(in)
	}
}
