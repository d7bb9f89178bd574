package partition

import (
	"cmp"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/partition/plan"
)

// This file holds what the leader does: who is there, when to plan, writing the
// map, taking slots from the dead. A leader's authority is its epoch. It first
// rewrites the map with its own epoch, so that a deposed leader's next write,
// which expects the revision before, fails; then it reads who is there.

const (
	reasonCrash       = "crash"
	reasonUnreachable = "connection gone"
	reasonExpired     = "lease expired"
	reasonDeleted     = "lease deleted"
)

// leadership is the leader's work. Each part knows the parts above it in this list.
type leadership struct {
	roster      roster
	maps        mapStore
	takeovers   takeovers
	absentees   absentees
	incarnation incarnation
	rebalance   rebalance
}

// connect has the parts of m know each other.
func (l *leadership) connect(m *machine) {
	c := &m.core
	l.roster = roster{core: c, up: m}
	l.maps = mapStore{core: c, up: m}
	l.takeovers = takeovers{core: c, roster: &l.roster, maps: &l.maps}
	l.absentees = absentees{core: c, roster: &l.roster, maps: &l.maps}
	l.incarnation = incarnation{core: c, maps: &l.maps}
	m.tuning = tuning{core: c, roster: &l.roster}
	l.rebalance = rebalance{core: c, roster: &l.roster, maps: &l.maps, absentees: &l.absentees, incarnation: &l.incarnation, tuning: &m.tuning}
}

// begin is with the election of this worker.
func (l *leadership) begin(inherited suspicion) {
	l.reset()
	l.roster.begin(inherited)
}

// reset forgets everything: another worker leads, or none.
func (l *leadership) reset() {
	l.roster.reset()
	l.maps.reset()
	l.takeovers.reset()
	l.absentees.reset()
	l.incarnation.reset()
	l.rebalance.reset()
}

func (m *machine) mapTaken() {
	m.lead.roster.watchLeases()
	m.lead.takeovers.due()
}

func (m *machine) slotsDue() { m.lead.takeovers.due() }

func (m *machine) mapWritten() { m.lead.absentees.forget() }

// newcomer opens the window for more newcomers, or extends it.
func (m *machine) newcomer() { m.lead.rebalance.extendWindow() }

// going opens the window for more workers that leave, unless it is open.
func (m *machine) going() {
	if m.lead.rebalance.leaveAt.IsZero() {
		m.lead.rebalance.leaveAt = m.now.Add(m.cfg.LeaveWindow)
	}
}

func (m *machine) takesSlotsAgain() { m.lead.rebalance.returned = true }

func (m *machine) absent(w Member, lease leaseValue) { m.lead.absentees.miss(w, lease, false) }

// listed begins the leader's work: it knows who is there.
func (m *machine) listed() {
	m.lead.absentees.missingAtSync()
	if w := &m.lead.rebalance.window; w.open() {
		// Only now it is known who else is there.
		if w.cold && !m.lead.roster.coldStart() {
			w.warm(m.now, &m.cfg)
		}
		m.lead.rebalance.tellWindow(w.ends.Sub(w.begun))
	}
	m.lead.rebalance.review()
}

func (m *machine) rosterChanged() { m.lead.rebalance.review() }

func (m *machine) mapChanged() { m.lead.rebalance.review() }

func (m *machine) overtaken() { m.stepDown() }

func (m *machine) ownLease() []byte { return m.leaseValue() }

// mapWrite is a map on its way to the bucket, and what to tell when it is there.
type mapWrite struct {
	next   *Assignment
	events []Event
}

// planJob is one planning: the problem is fixed when it starts.
type planJob struct {
	reason string
	division
	base    uint64 // revision of the map it rests on
	pins    uint64 // revision of the pins it honours; 0: not all of them
	workers []Member
	problem plan.Problem
	frozen  map[int]Member // slots in motion, which keep their destination, and those of outdated workers
	notes   []string       // for the operator
	result  plan.Plan
	took    time.Duration
}

func (j *planJob) index() map[Member]int32 {
	at := make(map[Member]int32, len(j.workers))
	for i, w := range j.workers {
		at[w] = int32(i)
	}
	return at
}

// compareIDs orders "defender-9" before "defender-10".
func compareIDs(a, b string) int {
	return cmp.Or(cmp.Compare(ordinal(a), ordinal(b)), cmp.Compare(a, b))
}

func ordinal(id string) int {
	n, err := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

func (c *core) leading() bool { return c.office.held }

// mayAct tells whether the office can be trusted right now.
func (c *core) mayAct() bool {
	return c.office.held && c.lease.valid && c.now.Before(c.office.start.Add(c.cfg.LeaseTTL-c.cfg.LeaseMargin))
}

func (m *machine) resign() {
	if !m.office.held {
		return
	}
	m.kv(kvEffect{purpose: forResignation, op: opDelete, bucket: m.cfg.bucketMap(), key: leaderKey, rev: m.office.rev})
	m.stepDown()
}

func (m *machine) stepDown() {
	if !m.office.held {
		return
	}
	m.office = office{}
	m.lead.reset()
	m.election.lost(m.now)
	m.tuning.weights.forget() // another leader may tell others
	m.do(watchLeasesEffect{})
}

func (m *machine) leadResult(in kvInput) {
	switch in.purpose {
	case forElection:
		m.elected(in)
	case forLeaderRenewal:
		if !m.office.held {
			return
		}
		m.office.renewing = false
		switch {
		case in.err == nil:
			m.office.rev, m.office.start = in.gotRev, in.start
			m.election.renewed(in.gotRev)
			m.office.due = in.start.Add(m.cfg.HeartbeatInterval)
		case errors.Is(in.err, errConflict) && m.ownLeadership(in.gotValue):
			// A renewal that was given up was carried out after all.
			m.office.rev = in.gotRev
			m.election.renewed(in.gotRev)
			m.office.due = m.now
		case errors.Is(in.err, errConflict) && m.nobodys(recordLeader, in) && m.mayAct():
			m.office.rev, m.office.due = in.gotRev, m.now
			m.election.renewed(in.gotRev)
		case errors.Is(in.err, errConflict), errors.Is(in.err, errNotFound):
			m.election.leader = Member{}
			m.stepDown()
		default:
			m.office.due = m.now.Add(retryInterval)
		}
	case forMapRead:
		m.lead.maps.wasRead(in)
	case forMapHistory:
		m.lead.maps.historyRead(in)
	case forMapWrite:
		m.lead.maps.written(in)
	case forFencing:
		m.lead.roster.fenced(in)
	case forSuspicion:
		switch s := &m.election.suspect; {
		case in.key != s.who.ID || s.read:
		case in.err == nil || errors.Is(in.err, errNotFound):
			s.rev, s.read = in.gotRev, true
		default:
			*s = suspicion{}
		}
	default:
	}
}

// Membership, as the leases show it.

// suspect: a probe found nobody listening on a worker's subject, so its
// connection is gone. If it lives it knows so within the grace, since its own
// round trips fail, and has stopped by then. That is why waiting for grace and
// margin, and a conditional delete of its lease, make it as dead as its lease's
// expiry would.
func (m *machine) suspect(who Member) {
	if m.now.Before(m.election.quietUntil) {
		return
	}
	if !m.office.held {
		// What the lease was must be known from before it was found gone: it
		// may be back, and have renewed, when the first answer is here. Answers
		// come in order, so the next one is of a probe after the reading.
		switch s := &m.election.suspect; {
		case who != m.election.leader:
		case s.who != who:
			*s = suspicion{who: who}
			m.kv(kvEffect{purpose: forSuspicion, op: opGet, bucket: m.cfg.bucketLeases(), key: who.ID})
		case s.read && s.since.IsZero():
			s.since = m.now
		}
		return
	}
	if p := m.lead.roster.peers.live(who); p != nil && p.suspectAt.IsZero() && who != m.self {
		p.suspectAt = m.now
		m.emit(Event{Kind: EventSuspected, Peer: p.ID})
	}
}

func (c *core) suspicionTime() time.Duration { return c.cfg.SuspicionGrace + c.cfg.SuspicionMargin }

// overdue is when a lease that is not renewed has ended although the server has
// not let it expire: after a restart servers have been seen to forget it. Its
// holder's trust ended before.
func (c *core) overdue(seen time.Time) time.Time {
	return notBefore(seen, c.lease.regained).Add(c.cfg.LeaseTTL + time.Second)
}

func notBefore(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// Windows and planning.

func (c *core) workersInMap() int {
	if c.cur == nil {
		return 0
	}
	return len(c.cur.Workers)
}

// Writing the map. One write is under way at a time, each expects the revision
// of the one before.

// Reports of the workers.

// Taking slots from the dead: only after the map says so, only by the leader in
// office, one at a time for a slot.

// leadDue does what the time asks of a leader, and of its deputies.
func (m *machine) leadDue() {
	if !m.office.held {
		m.followDue()
		return
	}
	if !m.office.renewing && !m.now.Before(m.office.due) {
		m.office.renewing = true
		m.kv(kvEffect{purpose: forLeaderRenewal, op: opUpdate, bucket: m.cfg.bucketMap(), key: leaderKey, value: m.leaderValue(), rev: m.office.rev, ttl: m.cfg.LeaseTTL})
	}
	if !m.lead.maps.rereadAt.IsZero() && !m.now.Before(m.lead.maps.rereadAt) {
		m.lead.maps.read()
	}
	m.tuning.refresh()
	if !m.now.Before(m.election.probeDue) && m.mayAct() {
		m.election.probeDue = m.now.Add(m.cfg.ProbeInterval)
		var to []Member
		for _, p := range m.lead.roster.peers.sorted() {
			if p.Member != m.self && !m.now.Before(m.election.quietUntil) {
				to = append(to, p.Member)
			}
		}
		if to != nil {
			m.do(probeEffect{to})
		}
	}
	if m.mayAct() {
		m.lead.roster.expireDue()
		m.lead.roster.fenceDue()
		m.lead.roster.sweepDue()
		m.lead.takeovers.due()
		m.lead.maps.restore()
	}
	if m.lead.maps.writer.isDue(m.now) && !m.lead.rebalance.planning {
		m.lead.maps.flush()
	}
	m.lead.rebalance.review()
}

// leadWake tells when there is something to do for the leader, or for a worker that may
// become the leader.
func (m *machine) leadWake(sooner func(time.Time)) {
	if m.office.held {
		m.officeWake(sooner)
		return
	}
	sooner(m.election.retryAt)
	sooner(m.election.overwriteAt)
	if m.stage != stageMember || !m.lease.valid || m.election.leader == (Member{}) {
		return
	}
	sooner(m.vacant())
	if !m.deputy() {
		return
	}
	sooner(later(m.election.probeDue, m.election.quietUntil))
	if !m.election.suspect.since.IsZero() && !m.election.campaigning {
		sooner(m.election.suspect.since.Add(m.suspicionTime()))
	}
}

// officeWake is the leader's part of it.
func (m *machine) officeWake(sooner func(time.Time)) {
	if !m.office.renewing {
		sooner(m.office.due)
	}
	sooner(m.lead.maps.rereadAt)
	if m.cfg.Weights != nil {
		m.tuning.weights.wake(sooner)
	}
	sooner(m.election.probeDue)
	if m.mayAct() && m.lead.maps.ready && m.lead.roster.synced && m.cur != nil && m.cur.Former != nil && m.cur.Epoch == m.office.epoch {
		sooner(m.lead.takeovers.resharding.due)
	}
	sooner(m.lead.rebalance.window.ends)
	sooner(m.lead.rebalance.leaveAt)
	m.lead.incarnation.wake(sooner)
	if !m.lead.maps.writer.busy() && !m.lead.rebalance.planning {
		sooner(m.lead.maps.writer.due)
	}
	for _, p := range m.lead.roster.peers {
		m.lead.roster.peerWake(p, sooner)
	}
	for _, b := range m.lead.roster.malformed {
		sooner(b.due)
	}
	for _, a := range m.lead.absentees.absent {
		if a.until.After(m.now) {
			sooner(a.until)
		}
	}
	m.lead.takeovers.table.wake(sooner)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
