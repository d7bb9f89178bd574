package partition

import (
	"encoding/json"
	"errors"
	"time"
)

// This file holds the election: what every worker knows of the leader, and how one
// becomes the leader. What a leader then does is in lead.go.

// deputies is how many followers probe the leader, lowest stable IDs first; for
// the others its lease's expiry tells.
const deputies = 2

// election is what a worker knows of the leader, and of its own attempts to become it.
type election struct {
	leader   Member    // as the bucket shows; zero: none
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
	// quietUntil is until when nobody is suspected: after a reconnect of this worker the
	// others look gone for a while.
	quietUntil time.Time
}

// suspicion is a deputy's against the leader: since when it is unreachable, and
// the revision of its lease as worker before that. If it is still the same
// later, the lease was not renewed meanwhile.
type suspicion struct {
	who   Member
	since time.Time
	rev   uint64 // 0: there was none
	read  bool   // rev is known
}

// won begins as the leader, by a record of this revision.
func (e *election) won(self Member, rev uint64) {
	*e = election{leader: self, revision: rev, quietUntil: e.quietUntil}
}

// renewed notes a newer revision of the leader's own record.
func (e *election) renewed(rev uint64) { e.revision = max(e.revision, rev) }

// lost goes on as a worker that does not lead.
func (e *election) lost(now time.Time) {
	*e = election{leader: e.leader, revision: e.revision, overwriteAt: e.overwriteAt, seenAt: now, quietUntil: e.quietUntil}
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

func (m *machine) campaign() {
	if m.stage != stageMember || !m.lease.valid || m.office.held || m.election.campaigning || m.election.leader != (Member{}) {
		return
	}
	if m.now.Before(m.election.overwriteAt) {
		return
	}
	m.election.campaigning, m.election.basis = true, suspicion{}
	if !m.election.overwriteAt.IsZero() {
		m.replaceLeader()
		return
	}
	m.kv(kvEffect{purpose: forElection, op: opCreate, bucket: m.cfg.bucketMap(), key: leaderKey, value: m.leaderValue(), ttl: m.cfg.LeaseTTL})
}

// replaceLeader replaces a leader that is gone, in one write, so that there is no
// moment without.
func (m *machine) replaceLeader() {
	m.election.campaigning = true
	m.kv(kvEffect{purpose: forElection, op: opUpdate, bucket: m.cfg.bucketMap(), key: leaderKey, value: m.leaderValue(), rev: m.election.revision, ttl: m.cfg.LeaseTTL})
}

type leaderValue struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	Claim  uint64 `json:"claim"`
	N      uint64 `json:"n"`
}

func (c *core) leaderValue() []byte {
	c.attempt++
	return mustJSON(leaderValue{Schema: valueSchema, ID: c.self.ID, Claim: c.self.Claim, N: c.attempt})
}

// ownLeadership tells whether the leader's lease was last written by this worker
// as who it is now.
func (c *core) ownLeadership(value []byte) bool {
	var v leaderValue
	return len(value) > 0 && json.Unmarshal(value, &v) == nil && v.ID == c.self.ID && v.Claim == c.self.Claim
}

func (m *machine) seeLeader(leader Member, rev uint64) {
	if !m.election.see(rev, m.now) {
		return
	}
	changed := leader != m.election.leader
	if m.office.held && leader != m.self {
		m.stepDown()
	}
	m.election.leader = leader
	if leader == (Member{}) {
		if m.stage == stageLeaving {
			m.own.leaderless = m.now
		}
		m.campaign()
		return
	}
	if changed && !m.office.held {
		m.emit(Event{Kind: EventElected, Peer: leader.ID, Epoch: rev})
		// What was reported to the old leader may be unknown to the new one.
		if m.own.resyncAt.IsZero() {
			m.own.resyncAt = m.now.Add(resyncInterval / 2)
		}
	}
}

func (m *machine) elected(in kvInput) {
	m.election.campaigning = false
	switch {
	case in.err == nil && (m.stage == stageMember || m.stage == stageLeaving):
		m.office = office{held: true, epoch: in.gotRev, rev: in.gotRev, start: in.start, due: in.start.Add(m.cfg.HeartbeatInterval)}
		m.lead.begin(m.election.basis)
		m.election.won(m.self, in.gotRev)
		m.emit(Event{Kind: EventElected, Peer: m.self.ID, Epoch: m.office.epoch})
		if m.stage == stageLeaving {
			m.resign()
			return
		}
		m.tuning.refresh()
		m.tuning.shareLoad()
		m.lead.maps.read()
	case in.err != nil && !errors.Is(in.err, errConflict):
		m.election.retryAt = m.now.Add(retryInterval)
	case in.err != nil && in.op == opUpdate && in.gotRev == 0:
		// Nothing is left of what was to be replaced.
		m.election.overwriteAt = time.Time{}
		m.leaderGone()
	case in.err != nil && in.op == opCreate:
		// There is a leader's lease that the watch has not shown yet.
		m.election.retryAt = m.now.Add(retryInterval)
	}
}

// leaderGone: there is no leader's lease, although no watch has told of its end. The
// trace of one that expires stays for a moment only, so a worker that was away then, or
// watches a replica that is behind, never sees it.
func (m *machine) leaderGone() {
	switch {
	case m.office.held:
		m.office.due = m.now // the renewal shows whether it is so
	case m.election.leader != (Member{}):
		m.election.leader, m.election.suspect = Member{}, suspicion{}
		if m.stage == stageLeaving {
			m.own.leaderless = m.now
		}
		m.campaign()
	}
}

func (m *machine) followDue() {
	if !m.election.retryAt.IsZero() && !m.now.Before(m.election.retryAt) {
		m.election.retryAt = time.Time{}
		m.campaign()
	}
	if m.election.leader == (Member{}) {
		if m.election.retryAt.IsZero() {
			m.campaign()
		}
		return
	}
	if m.stage != stageMember || !m.lease.valid {
		return
	}
	if !m.election.campaigning && !m.now.Before(m.vacant()) {
		m.election.seenAt = m.now
		m.election.basis = suspicion{}
		m.replaceLeader()
		return
	}
	if !m.deputy() {
		return
	}
	m.tuning.refresh()
	if !m.now.Before(m.election.probeDue) && !m.now.Before(m.election.quietUntil) {
		m.election.probeDue = m.now.Add(m.cfg.ProbeInterval)
		m.do(probeEffect{[]Member{m.election.leader}})
	}
	if s := m.election.suspect; !s.since.IsZero() && !m.election.campaigning && !m.now.Before(s.since.Add(m.suspicionTime())) {
		m.election.suspect = suspicion{}
		m.election.basis = s
		m.replaceLeader()
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
func (m *machine) vacant() time.Time {
	at := m.overdue(m.election.seenAt)
	if m.election.leader.ID == m.self.ID {
		return at.Add(-m.cfg.LeaseTTL)
	}
	rank, of := m.rank()
	switch {
	case rank == none:
		return at.Add(fallbackSpread)
	case rank < deputies:
		return at
	}
	return at.Add(fallbackSpread * time.Duration(rank) / time.Duration(of))
}

// deputy reports whether this worker watches over the leader.
func (m *machine) deputy() bool {
	rank, _ := m.rank()
	return rank != none && rank < deputies
}

// rank returns this worker's place among the workers of the map without the leader, none
// if it is not in the map, and how many they are.
func (m *machine) rank() (rank, of int32) {
	rank = none
	if m.cur == nil {
		return rank, 0
	}
	for _, w := range m.cur.Workers {
		switch w {
		case m.election.leader:
			continue
		case m.self:
			rank = of
		}
		of++
	}
	return rank, of
}
