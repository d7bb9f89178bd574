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

// candidates is how many followers probe the leader, lowest stable IDs first; for
// the others its lease's expiry tells.
const candidates = 2

// election is what a worker knows of the leader's lease, and of its own attempts to have it.
// It runs on every worker, and the machine gives it every input about the leader's key.
// Two workers may campaign at once: both write the key expecting the same revision, and the
// server lets one of the writes succeed.
type election struct {
	*core
	up electionUser

	revision uint64    // of the leader's record
	seenAt   time.Time // when a renewal of the leader was last seen

	// campaigning: a write of this worker's is under way.
	campaigning bool
	// basis is the suspicion that the campaign rests on.
	basis suspicion
	// retryAt is when to campaign again after a write that failed.
	retryAt time.Time
	// overwriteAt is when a leader's record that can't be read may be overwritten; zero:
	// there is none.
	overwriteAt time.Time

	// suspect is a candidate's suspicion against the leader.
	suspect suspicion
	// probeDue is when to probe next: the leader, or as the leader the others.
	probeDue time.Time

	ranked ranking // this worker's place, as it was last counted
}

// electionUser is told who leads.
type electionUser interface {
	// elected: this worker leads. A suspicion against the leader before may be known.
	elected(basis suspicion)
	// leadershipLost: it does not lead any more.
	leadershipLost()
	// led: there is another leader than before.
	led()
	// prepare: this worker is a candidate, and is to know what a leader needs at once.
	prepare()
}

// suspicion is a candidate's against the leader: since when it is unreachable, and
// the revision of its lease as worker before that. If it is still the same
// later, the lease was not renewed meanwhile.
type suspicion struct {
	who   record.Process
	since time.Time
	rev   uint64 // 0: there was none
	read  bool   // rev is known
}

// won begins as the leader, by a record of this revision.
func (e *election) won(self record.Process, rev uint64) {
	*e = election{core: e.core, up: e.up, revision: rev}
	e.leader = self
}

// renewed notes a newer revision of the leader's own record.
func (e *election) renewed(rev uint64) { e.revision = max(e.revision, rev) }

// lost continues as a worker that does not lead.
func (e *election) lost(now time.Time) {
	*e = election{core: e.core, up: e.up, revision: e.revision, overwriteAt: e.overwriteAt, seenAt: now}
}

// see takes in the leader's record, and returns false if it is not a newer one. A watch
// that is made again tells the revision that was there before. That is no sign of life:
// only a renewal is.
func (e *election) see(rev uint64, now time.Time) bool {
	if rev <= e.revision {
		return false
	}
	e.revision, e.seenAt = rev, now
	e.overwriteAt, e.suspect = time.Time{}, suspicion{}
	return true
}

// campaign creates the leader's lease if there is none.
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

// replaceLeader replaces a leader that is gone, in one write, so that there is no
// moment without.
func (e *election) replaceLeader() {
	e.campaigning = true
	e.kv(kvEffect{purpose: forElection, op: opUpdate, bucket: e.cfg.bucketMap(), key: leaderKey, value: e.leaderValue(), rev: e.revision, ttl: e.cfg.Lease.TTL})
}

func (e *election) leaderValue() []byte {
	e.attempt++
	return record.Encode(record.Leader{Schema: record.Schema, ID: e.self.ID, Claim: e.self.Claim, N: e.attempt})
}

// ownLeadership reports whether the leader's lease was last written by this worker
// as who it is now.
func (e *election) ownLeadership(value []byte) bool {
	var v record.Leader
	return len(value) > 0 && json.Unmarshal(value, &v) == nil && v.ID == e.self.ID && v.Claim == e.self.Claim
}

// seeLeader takes in who leads; the zero record.Process: nobody.
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
		e.emit(event.Event{Kind: event.Elected, Peer: leader.ID, Epoch: rev})
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
		// Nothing is left of what was to be replaced.
		e.overwriteAt = time.Time{}
		e.leaderGone()
	case in.err != nil && in.op == opCreate:
		// There is a leader's lease that the watch has not shown yet.
		e.retryAt = e.now.Add(retryInterval)
	}
}

// leaderGone: there is no leader's lease, although no watch has told of its end. The
// trace of one that expires stays for a moment only, so a worker that was away then, or
// watches a replica that is behind, never sees it.
func (e *election) leaderGone() {
	switch {
	case e.leaderLease.held:
		e.leaderLease.due = e.now // the renewal shows whether it is so
	case e.leader != (record.Process{}):
		e.leader, e.suspect = record.Process{}, suspicion{}
		e.leaderless = e.now
		e.campaign()
	}
}

// due does what the time asks of a worker that does not lead.
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

// fallbackSpread bounds how long after the candidates the last of the other workers
// campaigns. Any of them may: the leader's authority has expired by then, and the write
// is conditional. One after the other spares the servers as many writes at once, of which
// all but the first fail.
const fallbackSpread = 500 * time.Millisecond

// vacant is when a leader that has not renewed its lease has lost it, although the
// server has not let that expire. Candidates campaign first; if none of them is alive the
// other workers do, by their place in the map. A worker that has the name that the leader
// had, under a claim of its own, knows at once: there is one lease for a name, so the
// leader's has ended.
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

// candidate reports whether this worker watches over the leader.
func (e *election) candidate() bool {
	rank, _ := e.rank()
	return rank != record.None && rank < candidates
}

// rank returns this worker's place among the workers of the map without the leader, none
// if it is not in the map, and how many they are.
func (e *election) rank() (rank, of int32) {
	if e.cur == nil {
		return record.None, 0
	}
	if r := &e.ranked; r.of != e.cur || r.leader != e.leader || r.self != e.self {
		*r = newRanking(e.cur, e.leader, e.self)
	}
	return e.ranked.rank, e.ranked.among
}

// ranking is a worker's place among those of a map without the leader. Every follower asks
// after each step, so it is counted once for each map and leader.
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

// resign ends this worker's leadership, so that another can begin at once.
func (e *election) resign() {
	if !e.leaderLease.held {
		return
	}
	e.kv(kvEffect{purpose: forResignation, op: opDelete, bucket: e.cfg.bucketMap(), key: leaderKey, rev: e.leaderLease.rev})
	e.stepDown()
}

// stepDown: this worker does not lead any more.
func (e *election) stepDown() {
	if !e.leaderLease.held {
		return
	}
	e.leaderLease = leaderLease{}
	e.lost(e.now)
	e.up.leadershipLost()
}

// silent reports whether nobody can be said to lead: the leader's own lease has
// not been renewed for so long that it has ended. Slots are worked on meanwhile, and no
// worker that dies is replaced.
func (e *election) silent() bool {
	if e.leaderLease.held {
		return !e.mayAct()
	}
	return !e.now.Before(e.overdue(e.seenAt))
}

// unledSince is since when nobody can be said to lead, by what this worker, which doesn't, has
// seen since it started. It is in the future if somebody leads.
func (e *election) unledSince() time.Time { return e.overdue(later(e.seenAt, e.started)) }

// seeMalformed: what lies at the leader's key is no lease of one, and may have no
// end of its own. A leader with a valid lease writes over it. When none has in the time of
// a lease, none is left, and somebody stands for election over it; what a newer
// version has written is renewed before.
func (e *election) seeMalformed(rev uint64, err error) {
	if rev <= e.revision {
		return
	}
	e.refuse(recordLeader, rev, err)
	if !overwritable(err) {
		e.stepDown()
	}
	if e.leaderLease.held {
		// It is noticed when the lease is renewed.
		e.leaderLease.due = e.now
		return
	}
	e.leader, e.revision, e.overwriteAt = record.Process{}, rev, e.now.Add(e.cfg.Lease.TTL+time.Second)
	e.leaderless = e.now
}

// result takes the outcome of an operation of the election's.
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
		// A renewal that was given up was carried out after all.
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

// suspectLeader takes in that a probe found nobody listening on the leader's subject.
//
// What the leader's lease was must be known from before it was found gone: the leader may
// be back, and have renewed, when the first answer is here. Answers come in order, so the
// next one is of a probe after the reading.
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

// probeNow reports whether the leader is to probe the others now, and notes that it does.
func (e *election) probeNow() bool {
	if e.now.Before(e.probeDue) || !e.mayAct() {
		return false
	}
	e.probeDue = e.now.Add(e.cfg.Lease.ProbeInterval)
	return true
}

// wake tells when there is something to do for the leader, or for a worker that may become
// the leader.
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

// take takes what lies at the leader's key.
func (e *election) take(in leaderInput) {
	if in.err != nil {
		e.seeMalformed(in.rev, in.err)
		return
	}
	e.seeLeader(in.leader, in.rev)
}
