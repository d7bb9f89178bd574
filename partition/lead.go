package partition

import (
	"cmp"
	"errors"
	"slices"
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

type leadership struct {
	roster    roster
	maps      mapStore
	takeovers takeovers

	window   stabilizationWindow
	leaveAt  time.Time
	returned bool // a worker that yielded takes slots again before it was out of the map

	planning bool
	absent   map[Member]absence // workers in the map that are not there

	incarnation incarnation
}

// begin is with the election of this worker.
func (l *leadership) begin(inherited suspicion) {
	l.roster.begin(inherited)
	l.maps.reset()
	l.takeovers.reset()
	*l = leadership{roster: l.roster, maps: l.maps, takeovers: l.takeovers, absent: make(map[Member]absence)}
}

// end is when another worker leads, or none.
func (l *leadership) end() {
	l.roster.end()
	l.maps.reset()
	l.takeovers.reset()
	*l = leadership{roster: l.roster, maps: l.maps, takeovers: l.takeovers}
}

func (m *machine) mapTaken() {
	m.lead.roster.watchLeases()
	m.lead.takeovers.due()
}

func (m *machine) slotsDue() { m.lead.takeovers.due() }

func (m *machine) mapWritten() { m.forgetAbsent() }

// newcomer opens the window for more newcomers, or extends it.
func (m *machine) newcomer() { m.extendWindow() }

// going opens the window for more workers that leave, unless it is open.
func (m *machine) going() {
	if m.lead.leaveAt.IsZero() {
		m.lead.leaveAt = m.now.Add(m.cfg.LeaveWindow)
	}
}

func (m *machine) takesSlotsAgain() { m.lead.returned = true }

func (m *machine) absent(w Member, lease leaseValue) { m.miss(w, lease, false) }

// listed begins the leader's work: it knows who is there.
func (m *machine) listed() {
	m.missingAtSync()
	if w := &m.lead.window; w.open() {
		// Only now it is known who else is there.
		if w.cold && !m.lead.roster.coldStart() {
			w.warm(m.now, &m.cfg)
		}
		m.tellWindow(w.ends.Sub(w.begun))
	}
	m.review()
}

func (m *machine) rosterChanged() { m.review() }

func (m *machine) overtaken() { m.stepDown() }

func (m *machine) ownLease() []byte { return m.leaseValue() }

// absence is of a worker in the map that is not there. Its slots wait until then
// for a successor of its name, if they wait.
type absence struct {
	since time.Time
	until time.Time // zero: they don't
	lease leaseValue
}

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
	m.lead.end()
	m.election.lost(m.now)
	m.weight.forget() // another leader may tell others
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

// extendWindow opens a window for newcomers, or starts it again.
func (m *machine) extendWindow() {
	l := &m.lead
	length, opened := l.window.extend(m.now, m.lead.roster.coldStart(), &m.cfg)
	if opened && m.lead.roster.synced {
		m.tellWindow(length)
	}
}

func (m *machine) tellWindow(length time.Duration) {
	m.emit(Event{Kind: EventWindowStarted, Reason: m.lead.window.kind(), Duration: length})
}

func (c *core) workersInMap() int {
	if c.cur == nil {
		return 0
	}
	return len(c.cur.Workers)
}

// windowDue opens a window for newcomers, and closes one that has ended.
func (m *machine) windowDue(newcomers int) {
	w := &m.lead.window
	if newcomers == 0 {
		w.over = false
	}
	if !w.open() {
		if newcomers > 0 && !w.over {
			m.extendWindow()
		}
		return
	}
	if why := w.ended(m.now, newcomers, m.complete()); why != "" {
		m.emit(Event{Kind: EventWindowDone, Reason: why, After: m.lead.roster.peers.staying(), Duration: w.close(m.now, newcomers)})
	}
}

// complete reports whether exactly the workers are there that are expected. More than
// these, or a suspect, means that somebody is dead or about to leave, which is better
// known first.
func (m *machine) complete() bool {
	expected := m.expected()
	if expected == 0 && m.lead.window.cold {
		expected = m.workersInMap()
	}
	return expected > 0 && m.lead.roster.peers.staying() == expected && m.lead.roster.peers.suspects() == 0
}

// planNewcomers plans for everybody who is there.
func (m *machine) planNewcomers() {
	w := &m.lead.window
	w.take()
	reason := "scale-up"
	if w.cold {
		reason = "cold start"
	}
	m.replan(reason, func(*peerView) bool { return true })
}

// replan starts a planning for the workers that include names, without those
// that leave; these only give.
func (m *machine) replan(reason string, include func(*peerView) bool) {
	l := &m.lead
	job := &planJob{reason: reason, base: m.curRev, division: m.nextDivision()}
	newcomers := m.enlist(job, include)
	job.problem.Slots = job.slots
	job.problem.Weights = m.weight.of(job.slots)
	// After a death only what was its owner's moves, and to newcomers what is
	// theirs; a plan for other reasons tunes the balance.
	if reason != reasonCrash && reason != reasonPins || newcomers {
		job.problem.Budget = -1
		l.returned = false
	}
	job.frozen = owners(&job.problem, m.cur, job.workers)
	m.keepOutdated(job)
	m.pin(job)
	l.planning = true
	if reason == reasonWeights {
		job.problem.Budget, job.problem.TuneOnly = m.tuneBudget(), true
	} else {
		m.emit(Event{Kind: EventTopology, Before: m.workersInMap(), After: m.lead.roster.peers.staying()})
		m.emit(Event{Kind: EventRebalance, Reason: reason, Of: job.slots, After: m.lead.roster.peers.staying()})
	}
	m.do(planEffect{job})
}

// enlist adds the workers that a planning is for, and tells whether any of them
// is new.
func (m *machine) enlist(job *planJob, include func(*peerView) bool) (newcomers bool) {
	for _, p := range m.lead.roster.peers.sorted() {
		inMap := !m.lead.roster.joiner(p)
		gives := m.quits(p) || p.outdated()
		if (gives && !inMap) || (!gives && !include(p)) {
			continue
		}
		newcomers = newcomers || (!inMap && !gives)
		job.workers = append(job.workers, p.Member)
		job.problem.Workers = append(job.problem.Workers, plan.Worker{ID: p.ID, Weight: p.lease.Weight, Zone: p.lease.Zone, Draining: gives})
	}
	m.joinAwaited(job)
	return newcomers
}

// nextDivision is that of the map, before the first one the group's first.
func (m *machine) nextDivision() division {
	if m.cur != nil {
		return m.cur.division()
	}
	return division{1, m.cfg.Slots}
}

func (m *machine) planned(in plannedInput) {
	l := &m.lead
	if !m.office.held {
		return
	}
	l.planning = false
	job := in.job
	if in.err != nil {
		m.cfg.Logger.Error("Planning failed; the map stays as it is.", "err", in.err)
		return
	}
	if job.base != m.curRev || m.lead.maps.writer.busy() || m.mapHidden() {
		m.review() // the map has moved on; what was due still is
		return
	}
	if job.reason == reasonWeights {
		if !worthIt(job) {
			m.review() // what came up meanwhile
			return
		}
		m.emit(Event{Kind: EventRebalance, Reason: job.reason, Of: job.slots, After: m.lead.roster.peers.staying()})
	}
	// Changes that came up meanwhile rest on the map before this plan, and would
	// undo it. They are reported again, and entered in the new map.
	m.lead.maps.writer.drop()
	var next *Assignment
	var keys uint64
	if job.reason == reasonLayout {
		next, keys = m.applyLayout(job)
	} else {
		next, keys = m.apply(job)
	}
	if m.cur == nil && next.Version > sequenceGap {
		// A live worker may hold slots by the lost map, which this leader never saw.
		next.takeAll()
	}
	for _, note := range slices.Concat(job.notes, job.result.Notes) {
		m.emit(Event{Kind: EventPlanNote, Reason: note})
	}
	total, staying := job.slots, 0
	for _, w := range job.problem.Workers {
		if !w.Draining {
			staying++
		}
	}
	m.lead.maps.write(next, []Event{
		{Kind: EventPlanned, Reason: job.reason, Before: total, After: staying, Count: next.Moved, Keys: keys, Duration: job.took},
		{Kind: EventMapPublished, Version: next.Version, After: staying, Count: next.Moved, Reason: job.reason},
	})
}

// blank makes the next map of a plan without what the plan decides.
func (m *machine) blank(job *planJob) *Assignment {
	next := &Assignment{Schema: mapSchema, Epoch: m.office.epoch, Leader: m.self, Layout: job.generation, Slots: job.slots, Version: 1, Pins: job.pins,
		FirstAssigned: m.now, Planned: m.now, Workers: job.workers, Owner: make(Owners, job.slots), Since: make(Sinces, job.slots),
		Moves: make(map[int]Move), Taking: make(map[int]bool), Restarting: make(map[int]bool)}
	switch {
	case m.cur != nil:
		next.Version = m.cur.Version + 1
		next.FirstAssigned = m.cur.FirstAssigned
	case m.office.epoch > sequenceGap:
		// The bucket was created again, and no worker is left that knows the map that
		// was in it. Its versions are in fences yet: this one is above them.
		next.Version = m.office.epoch
	}
	for i, w := range job.workers {
		if m.cur != nil && m.flagged(w) {
			next.Restarting[i] = true
		}
	}
	return next
}

// apply makes the next map of a plan, and counts the weight that moves.
func (m *machine) apply(job *planJob) (*Assignment, uint64) {
	next, at := m.blank(job), job.index()
	m.keepFormer(next, at)
	weight := m.weight.of(job.slots)
	var keys uint64
	for s := range next.Owner {
		to := job.result.Owners[s]
		if w, ok := job.frozen[s]; ok {
			to = at[w]
		}
		if m.cur == nil {
			next.Owner[s], next.Since[s] = to, next.Version
			next.Moved++
			continue
		}
		m.applySlot(next, s, to, at)
		if m.cur.member(m.cur.destination(s)) != next.member(next.destination(s)) {
			next.Moved++
			keys += weightOf(weight, s)
		}
	}
	return next, keys
}

// applySlot carries one slot from the current map to the next, where it should
// go to worker "to".
func (m *machine) applySlot(next *Assignment, s int, to int32, at map[Member]int32) {
	owner := m.cur.owner(s)
	o, lives := at[owner]
	mv, moving := m.cur.Moves[s]
	switch {
	case lives && to == o:
		// Stays, or comes back from a move whose other end died. In the
		// second case the owner may have let go already; then it says so.
		next.Owner[s], next.Since[s] = o, m.cur.Since[s]
		if m.cur.Taking[s] {
			next.Taking[s] = true
		}
	case lives && moving && m.cur.member(mv.Next) == next.member(to):
		next.Owner[s], next.Since[s] = o, m.cur.Since[s]
		next.Moves[s] = Move{Next: to, Version: mv.Version}
	case lives && to == plan.None:
		next.Owner[s], next.Since[s] = o, m.cur.Since[s]
	case lives:
		next.Owner[s], next.Since[s] = o, m.cur.Since[s]
		next.Moves[s] = Move{Next: to, Version: next.Version}
	case to == plan.None:
		next.Owner[s], next.Since[s] = none, next.Version
	default:
		// From the dead, or from nobody after a time when nobody was there:
		// the leader takes it.
		next.Owner[s], next.Since[s] = to, next.Version
		next.Taking[s] = true
	}
}

// Writing the map. One write is under way at a time, each expects the revision
// of the one before.

// Reports of the workers.

// Taking slots from the dead: only after the map says so, only by the leader in
// office, one at a time for a slot.

func (m *machine) tellAlone() {
	for _, p := range m.lead.roster.peers.sorted() {
		if p.lease.Leaving {
			m.send(p.Member, peerAlone, nil)
		}
	}
}

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
	m.refreshWeights()
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
	if m.lead.maps.writer.isDue(m.now) && !m.lead.planning {
		m.lead.maps.flush()
	}
	m.review()
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
	l := &m.lead
	if !m.office.renewing {
		sooner(m.office.due)
	}
	sooner(m.lead.maps.rereadAt)
	if m.cfg.Weights != nil {
		m.weight.wake(sooner)
	}
	sooner(m.election.probeDue)
	if m.mayAct() && m.lead.maps.ready && m.lead.roster.synced && m.cur != nil && m.cur.Former != nil && m.cur.Epoch == m.office.epoch {
		sooner(m.lead.takeovers.resharding.due)
	}
	sooner(l.window.ends)
	sooner(l.leaveAt)
	m.raiseWake(sooner)
	if !m.lead.maps.writer.busy() && !l.planning {
		sooner(m.lead.maps.writer.due)
	}
	for _, p := range m.lead.roster.peers {
		m.lead.roster.peerWake(p, sooner)
	}
	for _, b := range m.lead.roster.malformed {
		sooner(b.due)
	}
	for _, a := range l.absent {
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
