package partition

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// This file holds the election: what every worker knows of the leader, and how one
// becomes the leader. What a leader then does is in lead.go and the parts of leadership.

// candidates is how many followers probe the leader: those with the lowest stable IDs. The
// others wait for its lease to expire.
const candidates = 2

// election follows the leader's lease and campaigns for it. It runs on every worker, and the
// machine gives it every input about the leader's key. Two workers may campaign at once: both
// write the key expecting the same revision, and the server accepts one of the writes.
type election struct {
	*core
	up electionUser

	revision uint64    // of the leader's record
	seenAt   time.Time // when the leader's last renewal was seen

	// campaigning is set while a write of this worker to the leader's key is unanswered.
	campaigning bool
	// basis is the suspicion that the campaign rests on.
	basis suspicion
	// retryAt is when to campaign again after a write that failed.
	retryAt time.Time
	// overwriteAt is when a malformed leader record may be overwritten; zero if the record is
	// valid or absent.
	overwriteAt time.Time

	// suspect is a candidate's suspicion against the leader.
	suspect suspicion
	// probeDue is when to probe next: the leader, or as the leader the others.
	probeDue time.Time

	ranked ranking // this worker's rank, cached by rank
}

// electionUser learns about changes of leadership.
type electionUser interface {
	// elected is called when this worker becomes the leader. The basis is its suspicion
	// against the former leader, zero if it had none.
	elected(basis suspicion)
	// leadershipLost is called when this worker stops leading.
	leadershipLost()
	// led is called when another worker has become the leader.
	led()
	// prepare is called on a candidate, which loads what a leader needs, so that it can
	// begin at once.
	prepare()
}

// suspicion is a candidate's evidence against the leader: since when its connection has been
// gone, and the revision of its worker lease from before that. If the lease still has this
// revision later, the leader has not renewed it meanwhile.
type suspicion struct {
	who   record.Process
	since time.Time
	rev   uint64 // 0 if there was no lease
	read  bool   // rev is known
}

// won resets the state for a leader whose record has this revision.
func (e *election) won(self record.Process, rev uint64) {
	*e = election{core: e.core, up: e.up, revision: rev}
	e.leader = self
}

// renewed notes the revision of a renewal by this worker as the leader.
func (e *election) renewed(rev uint64) { e.revision = max(e.revision, rev) }

// lost resets the state for a worker that has stopped leading.
func (e *election) lost(now time.Time) {
	*e = election{core: e.core, up: e.up, revision: e.revision, overwriteAt: e.overwriteAt, seenAt: now}
}

// see notes a revision of the leader's record, and reports whether it is newer than any seen
// before. A re-created watch delivers the known revision again. That is no sign of life:
// only a renewal is.
func (e *election) see(rev uint64, now time.Time) bool {
	if rev <= e.revision {
		return false
	}
	e.revision, e.seenAt = rev, now
	e.overwriteAt, e.suspect = time.Time{}, suspicion{}
	return true
}

// campaign tries to create the leader's lease, if none is known.
func (e *election) campaign() {
	if e.stage != stageJoined || !e.lease.valid || e.leaderLease.held || e.campaigning || e.leader != (record.Process{}) {
		return
	}
	if e.now.Before(e.overwriteAt) {
		return
	}
	e.campaigning, e.basis = true, suspicion{}
	if !e.overwriteAt.IsZero() {
		e.replaceLeader()
		return
	}
	e.kv(kvEffect{purpose: forElection, op: opCreate, bucket: e.cfg.bucketMap(), key: leaderKey, value: e.leaderValue(), ttl: e.cfg.Lease.TTL})
}

// replaceLeader overwrites the lease of a failed leader in one write. A delete followed by a
// create would leave a gap in which a slower worker could win.
func (e *election) replaceLeader() {
	e.campaigning = true
	e.kv(kvEffect{purpose: forElection, op: opUpdate, bucket: e.cfg.bucketMap(), key: leaderKey, value: e.leaderValue(), rev: e.revision, ttl: e.cfg.Lease.TTL})
}

func (e *election) leaderValue() []byte {
	e.attempt++
	return record.Encode(record.Leader{Schema: record.Schema, ID: e.self.ID, Claim: e.self.Claim, N: e.attempt})
}

// ownLeadership reports whether the leader's lease was last written by this worker under its
// current claim.
func (e *election) ownLeadership(value []byte) bool {
	var v record.Leader
	return len(value) > 0 && json.Unmarshal(value, &v) == nil && v.ID == e.self.ID && v.Claim == e.self.Claim
}

// seeLeader handles a newer record of the leader; the zero record.Process means that the lease
// was deleted or has expired.
func (e *election) seeLeader(leader record.Process, rev uint64) {
	if !e.see(rev, e.now) {
		return
	}
	changed := leader != e.leader
	if e.leaderLease.held && leader != e.self {
		e.stepDown()
	}
	e.leader = leader
	if leader == (record.Process{}) {
		e.leaderless = e.now
		e.campaign()
		return
	}
	if changed && !e.leaderLease.held {
		// The watch may deliver this worker's own write before the write is answered. The answer
		// makes it the leader and emits the event: emitted here too, the event would come twice.
		if leader != e.self {
			e.emit(event.Event{Kind: event.Elected, Peer: leader.ID, Epoch: rev})
		}
		// What was reported to the old leader may be unknown to the new one.
		e.up.led()
	}
}

func (e *election) elected(in kvInput) {
	e.campaigning = false
	switch {
	case in.err == nil && (e.stage == stageJoined || e.stage == stageLeaving):
		e.leaderLease = leaderLease{held: true, epoch: in.gotRev, rev: in.gotRev, start: in.start, due: in.start.Add(e.cfg.Lease.Heartbeat)}
		basis := e.basis
		e.won(e.self, in.gotRev)
		e.emit(event.Event{Kind: event.Elected, Peer: e.self.ID, Epoch: e.leaderLease.epoch})
		if e.stage == stageLeaving {
			e.resign()
			return
		}
		e.up.elected(basis)
	case in.err != nil && !errors.Is(in.err, errConflict):
		e.retryAt = e.now.Add(retryInterval)
	case in.err != nil && in.op == opUpdate && in.gotRev == 0:
		// The lease that was to be replaced is gone.
		e.overwriteAt = time.Time{}
		e.leaderGone()
	case in.err != nil && in.op == opCreate:
		// A leader's lease exists that the watch has not delivered yet.
		e.retryAt = e.now.Add(retryInterval)
	}
}

// leaderGone handles a leader's lease that is missing although the watch has not delivered its
// end. The server keeps the delete marker of an expired key for a moment only, so a worker
// that was disconnected then, or watches a lagging replica, never sees it.
func (e *election) leaderGone() {
	switch {
	case e.leaderLease.held:
		e.leaderLease.due = e.now // the renewal will tell
	case e.leader != (record.Process{}):
		e.leader, e.suspect = record.Process{}, suspicion{}
		e.leaderless = e.now
		e.campaign()
	}
}

// due does what has become due on a worker that does not lead.
func (e *election) due() {
	if !e.retryAt.IsZero() && !e.now.Before(e.retryAt) {
		e.retryAt = time.Time{}
		e.campaign()
	}
	if e.leader == (record.Process{}) {
		if e.retryAt.IsZero() {
			e.campaign()
		}
		return
	}
	if e.stage != stageJoined || !e.lease.valid {
		return
	}
	if !e.campaigning && !e.now.Before(e.vacant()) {
		e.seenAt = e.now
		e.basis = suspicion{}
		e.replaceLeader()
		return
	}
	if !e.candidate() {
		return
	}
	e.up.prepare()
	if !e.now.Before(e.probeDue) && !e.now.Before(e.quietUntil) {
		e.probeDue = e.now.Add(e.cfg.Lease.ProbeInterval)
		e.do(probeEffect{[]record.Process{e.leader}})
	}
	if s := e.suspect; !s.since.IsZero() && !e.campaigning && !e.now.Before(s.since.Add(e.suspicionTime())) {
		e.suspect = suspicion{}
		e.basis = s
		e.replaceLeader()
	}
}

// fallbackSpread is how long after the candidates the last of the other workers campaigns.
// It is safe for any of them, since the leader's lease has ended by then and the write is
// conditional. The spread keeps a thousand workers from writing at once when only the first
// write can succeed.
const fallbackSpread = 500 * time.Millisecond

// vacant returns when this worker may replace a leader that has not renewed its lease,
// although the server still shows the lease. Candidates come first. If none of them is alive,
// the other workers follow by their rank in the map. A worker that has the leader's stable ID
// under a new claim need not wait for the TTL: an ID has one lease, so the leader's has ended.
func (e *election) vacant() time.Time {
	at := e.overdue(e.seenAt)
	if e.leader.ID == e.self.ID {
		return at.Add(-e.cfg.Lease.TTL)
	}
	rank, of := e.rank()
	switch {
	case rank == record.None:
		return at.Add(fallbackSpread)
	case rank < candidates:
		return at
	}
	return at.Add(fallbackSpread * time.Duration(rank) / time.Duration(of))
}

// candidate reports whether this worker is one of those that probe the leader.
func (e *election) candidate() bool {
	rank, _ := e.rank()
	return rank != record.None && rank < candidates
}

// rank returns this worker's rank among the workers of the map without the leader, and their
// number. The rank is record.None if the worker is not in the map.
func (e *election) rank() (rank, of int32) {
	if e.cur == nil {
		return record.None, 0
	}
	if r := &e.ranked; r.of != e.cur || r.leader != e.leader || r.self != e.self {
		*r = newRanking(e.cur, e.leader, e.self)
	}
	return e.ranked.rank, e.ranked.among
}

// ranking is a worker's rank in a map without the leader. Every follower asks for it after each
// step, so it is computed once for each map and leader.
type ranking struct {
	of           *record.Assignment
	leader, self record.Process
	rank, among  int32
}

func newRanking(a *record.Assignment, leader, self record.Process) ranking {
	r := ranking{of: a, leader: leader, self: self, rank: record.None}
	for _, w := range a.Workers {
		switch w {
		case leader:
			continue
		case self:
			r.rank = r.among
		}
		r.among++
	}
	return r
}

// resign deletes the leader's lease, so that another worker can lead at once.
func (e *election) resign() {
	if !e.leaderLease.held {
		return
	}
	e.kv(kvEffect{purpose: forResignation, op: opDelete, bucket: e.cfg.bucketMap(), key: leaderKey, rev: e.leaderLease.rev})
	e.stepDown()
}

// stepDown makes this worker stop leading.
func (e *election) stepDown() {
	if !e.leaderLease.held {
		return
	}
	e.leaderLease = leaderLease{}
	e.lost(e.now)
	e.up.leadershipLost()
}

// silent reports whether the group has no leader: the leader's lease has not been renewed for
// so long that it has ended. Owners keep working on their slots meanwhile, but a failed worker
// is not replaced.
func (e *election) silent() bool {
	if e.leaderLease.held {
		return !e.mayAct()
	}
	return !e.now.Before(e.overdue(e.seenAt))
}

// unledSince returns since when the group has had no leader, by what this follower has seen
// since it started. It is in the future while there is one.
func (e *election) unledSince() time.Time { return e.overdue(later(e.seenAt, e.started)) }

// seeMalformed handles a malformed record at the leader's key, which may have no TTL. A leader
// with a valid lease overwrites it at its next renewal. If none has done so within a TTL, there
// is no leader, and a worker campaigns by overwriting it. A newer version's leader, whose record
// is rejected here too, renews it before that.
func (e *election) seeMalformed(rev uint64, err error) {
	if rev <= e.revision {
		return
	}
	e.refuse(recordLeader, rev, err)
	if !overwritable(err) {
		e.stepDown()
	}
	if e.leaderLease.held {
		// The renewal finds the malformed record and overwrites it.
		e.leaderLease.due = e.now
		return
	}
	e.leader, e.revision, e.overwriteAt = record.Process{}, rev, e.now.Add(e.cfg.Lease.TTL+time.Second)
	e.leaderless = e.now
}

// result handles the outcome of an operation of the election.
func (e *election) result(in kvInput) {
	switch in.purpose {
	case forElection:
		e.elected(in)
	case forLeaderRenewal:
		e.renewalResult(in)
	case forSuspicion:
		e.suspectRead(in)
	default:
	}
}

// renew renews the leader's lease when it is due.
func (e *election) renew() {
	if e.leaderLease.renewing || e.now.Before(e.leaderLease.due) {
		return
	}
	e.leaderLease.renewing = true
	e.kv(kvEffect{purpose: forLeaderRenewal, op: opUpdate, bucket: e.cfg.bucketMap(), key: leaderKey, value: e.leaderValue(), rev: e.leaderLease.rev, ttl: e.cfg.Lease.TTL})
}

func (e *election) renewalResult(in kvInput) {
	if !e.leaderLease.held {
		return
	}
	e.leaderLease.renewing = false
	conflict := errors.Is(in.err, errConflict)
	switch {
	case in.err == nil:
		e.leaderLease.rev, e.leaderLease.start = in.gotRev, in.start
		e.renewed(in.gotRev)
		e.leaderLease.due = in.start.Add(e.cfg.Lease.Heartbeat)
	case conflict && e.ownLeadership(in.gotValue):
		// An earlier renewal, whose reply was lost, has succeeded.
		e.leaderLease.rev = in.gotRev
		e.renewed(in.gotRev)
		e.leaderLease.due = e.now
	case conflict && e.nobodys(recordLeader, in) && e.mayAct():
		e.leaderLease.rev, e.leaderLease.due = in.gotRev, e.now
		e.renewed(in.gotRev)
	case conflict, errors.Is(in.err, errNotFound):
		e.leader = record.Process{}
		e.stepDown()
	default:
		e.leaderLease.due = e.now.Add(retryInterval)
	}
}

// suspectLeader handles a probe that found no responder on the leader's subject.
//
// The revision of the leader's lease must be read before the probe that counts. Otherwise the
// leader may have come back and renewed between the two:
//
//  1. The first failed probe has the leader's worker lease read.
//  2. Answers come in order, so once the revision is here, the next failed probe was sent after
//     the read. The suspicion counts from it.
//  3. If this worker wins the election, it inherits the suspicion: it counts against the former
//     leader as long as that worker's lease still has this revision (see roster.seeLease).
func (e *election) suspectLeader(who record.Process) {
	switch s := &e.suspect; {
	case who != e.leader:
	case s.who != who:
		*s = suspicion{who: who}
		e.kv(kvEffect{purpose: forSuspicion, op: opGet, bucket: e.cfg.bucketLeases(), key: who.ID})
	case s.read && s.since.IsZero():
		s.since = e.now
	}
}

func (e *election) suspectRead(in kvInput) {
	switch s := &e.suspect; {
	case in.key != s.who.ID || s.read:
	case in.err == nil || errors.Is(in.err, errNotFound):
		s.rev, s.read = in.gotRev, true
	default:
		*s = suspicion{}
	}
}

// probeNow reports whether the leader's next probes of the workers are due, and schedules those
// after them.
func (e *election) probeNow() bool {
	if e.now.Before(e.probeDue) || !e.mayAct() {
		return false
	}
	e.probeDue = e.now.Add(e.cfg.Lease.ProbeInterval)
	return true
}

// wake passes on when the leader, or a worker that may campaign, has something to do.
func (e *election) wake(sooner func(time.Time)) {
	if e.leaderLease.held {
		if !e.leaderLease.renewing {
			sooner(e.leaderLease.due)
		}
		sooner(e.probeDue)
		return
	}
	sooner(e.retryAt)
	sooner(e.overwriteAt)
	if e.stage != stageJoined || !e.lease.valid || e.leader == (record.Process{}) {
		return
	}
	sooner(e.vacant())
	if !e.candidate() {
		return
	}
	sooner(later(e.probeDue, e.quietUntil))
	if !e.suspect.since.IsZero() && !e.campaigning {
		sooner(e.suspect.since.Add(e.suspicionTime()))
	}
}

// take handles an update of the leader's key.
func (e *election) take(in leaderInput) {
	if in.err != nil {
		e.seeMalformed(in.rev, in.err)
		return
	}
	e.seeLeader(in.leader, in.rev)
}
