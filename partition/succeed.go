package partition

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster/partition/plan"
)

// This file holds what the leader does with workers that go and come back under
// their names: a rolling update, and a broker that was away. Their slots wait,
// no key moves, and the map keeps its version; only the claim beside the name
// changes in it, and with it the fence.
//
// A worker can't tell why it is told to end, so the leader does: if there are
// more than there should be it leaves, and its slots move before it goes, else it
// restarts. Which of both is in the map before the worker acts on it, so that a
// later leader, the leader may be among those that restart, goes on from it.

// flagged tells whether the map says that a worker restarts.
func (c *core) flagged(w Member) bool {
	i := c.cur.index(w)
	return i != none && c.cur.Restarting[int(i)]
}

// quits tells whether a worker leaves for good, or yields.
func (m *machine) quits(p *peerView) bool {
	return p.lease.Yielding || p.lease.Leaving && (m.cur == nil || !m.flagged(p.Member) && !slices.Contains(m.restarters(), p.ID))
}

// restarters are the workers that leave, have slots and should be replaced, by
// ascending ID: as many as keep the number at what is expected.
func (m *machine) restarters() []string {
	want := m.expected()
	if want == 0 || m.cur == nil {
		return nil
	}
	counts := m.cur.Counts()
	var ids []string
	there := m.awaitedRestarts()
	for id, p := range m.lead.roster.peers {
		switch {
		case p.lease.Leaving && !m.flagged(p.Member) && (m.cur.index(p.Member) == none || counts[id] == 0):
			// Has nothing, or has given it all away: it is as good as gone.
		case p.lease.Leaving && !m.flagged(p.Member):
			ids = append(ids, id)
			there++
		default:
			there++
		}
	}
	slices.SortFunc(ids, compareIDs)
	return ids[:max(0, len(ids)-max(0, there-want))]
}

// awaitedRestarts counts the workers that restart and have gone.
func (m *machine) awaitedRestarts() int {
	n := 0
	for i := range m.cur.Restarting {
		if m.lead.roster.peers[m.cur.Workers[i].ID] == nil {
			n++
		}
	}
	return n
}

// reserve enters workers that restart in the map and reports whether it writes
// one. One that has slots in motion goes on with them first.
func (m *machine) reserve(now bool) bool {
	var who []int32
	for _, id := range m.restarters() {
		p := m.lead.roster.peers[id]
		i := m.cur.index(p.Member)
		if m.atRest(i) && (now || !m.now.Before(p.leavingAt.Add(m.cfg.LeaveWindow))) {
			who = append(who, i)
		}
	}
	if who == nil {
		return false
	}
	next := m.cur.clone()
	next.Epoch, next.Leader = m.office.epoch, m.self
	var events []Event
	for _, i := range who {
		next.Restarting[int(i)] = true
		events = append(events, Event{Kind: EventRestarting, Peer: next.Workers[i].ID, Claim: next.Workers[i].Claim})
	}
	m.lead.maps.write(next, events)
	return true
}

// atRest tells whether no slot moves to or from a worker.
func (m *machine) atRest(i int32) bool {
	for s, mv := range m.cur.Moves {
		if mv.Next == i || m.cur.Owner[s] == i {
			return false
		}
	}
	for s := range m.cur.Taking {
		if m.cur.Owner[s] == i {
			return false
		}
	}
	return true
}

// miss notes that a worker of the map is not there. Its slots wait if it restarts,
// or if it may have gone because the broker was away: it, too, comes back then.
func (m *machine) miss(w Member, lease leaseValue, many bool) {
	a := absence{since: m.now, lease: lease}
	switch {
	case m.flagged(w):
		a.until = m.now.Add(m.cfg.RestartGrace)
	case m.lease.uncertain(m.now) || many:
		a.until = m.now.Add(m.cfg.RestartGrace)
		m.emit(Event{Kind: EventReserved, Peer: w.ID, Claim: w.Claim, Duration: m.cfg.RestartGrace})
	}
	m.lead.absent[w] = a
}

// missingAtSync notes who of the map is not there when a leader begins. If that
// are many, something has befallen all of them, and they are waited for.
func (m *machine) missingAtSync() {
	if m.cur == nil {
		return
	}
	var gone []Member
	renewed := 0 // are back under their names, so whatever befell the others may have befallen them
	for _, w := range m.cur.Workers {
		switch p := m.lead.roster.peers[w.ID]; {
		case p == nil:
			gone = append(gone, w)
		case p.Member != w:
			renewed++
		}
	}
	// When nearly all are new the cluster starts as a whole, which takes longer.
	grace := m.cfg.RestartGrace
	if m.lead.roster.coldStart() {
		grace = max(grace, m.cfg.ColdWindow)
	}
	for _, w := range gone {
		// Its lease ended while no leader was there to tell, or before this one looked.
		m.emit(Event{Kind: EventWorkerGone, Peer: w.ID, Claim: w.Claim, Reason: reasonExpired})
		m.miss(w, leaseValue{}, len(gone)+renewed > many(len(m.cur.Workers)))
		if a := m.lead.absent[w]; !a.until.IsZero() {
			a.until = m.now.Add(grace)
			m.lead.absent[w] = a
		}
	}
}

// many is how many workers of so many don't vanish at once by a chance of their
// own.
func many(of int) int { return max(3, of/5) }

// awaited tells whether the slots of a worker that is not there wait for a
// successor. They don't once so many are there that none is missing.
func (m *machine) awaited(i int32) bool {
	w := m.cur.Workers[i]
	a := m.lead.absent[w]
	if a.until.IsZero() || !m.now.Before(a.until) {
		return false
	}
	want := m.expected()
	if want == 0 {
		want = len(m.cur.Workers)
	}
	if m.cur.Restarting[int(i)] {
		return len(m.lead.roster.peers)+m.awaitedRestarts() <= want
	}
	return m.lead.roster.peers.staying() < want
}

// joinAwaited adds the workers that are awaited to a planning: they keep what
// they have.
func (m *machine) joinAwaited(job *planJob) {
	if m.cur == nil {
		return
	}
	for i, w := range m.cur.Workers {
		if m.lead.roster.peers[w.ID] == nil && m.awaited(int32(i)) {
			lease := m.lead.absent[w].lease
			job.workers = append(job.workers, w)
			job.problem.Workers = append(job.problem.Workers, plan.Worker{ID: w.ID, Weight: lease.Weight, Zone: lease.Zone})
		}
	}
}

// adopt gives workers that came under the name of one in the map its place there,
// and reports whether it writes a map. There is one lease for a name, so the
// predecessor's has ended, and it has stopped. What was in flight to it is taken
// as from a dead one.
func (m *machine) adopt() bool {
	if m.cur == nil || m.leasesLostLately() {
		return false
	}
	l := &m.lead
	var next *Assignment
	var events []Event
	for _, p := range m.lead.roster.peers.sorted() {
		i := m.cur.predecessor(p.Member)
		if i == none {
			continue
		}
		if next == nil {
			next = m.cur.clone()
			next.Epoch, next.Leader = m.office.epoch, m.self
		}
		was := next.Workers[i]
		next.Workers[i] = p.Member
		delete(next.Restarting, int(i))
		for s, owner := range next.Owner {
			if owner != i {
				continue
			}
			if mv, moving := next.Moves[s]; moving {
				// It was on its way, and arrives.
				delete(next.Moves, s)
				next.Owner[s], next.Since[s] = mv.Next, mv.Version
			} else {
				// It may have been on its way before, to somebody who had it
				// and died before a map showed that: the fence must be above
				// that one's, too.
				next.Since[s] = next.Version
			}
			next.Taking[s] = true
		}
		e := Event{Kind: EventSucceeded, Peer: p.ID, Claim: p.Claim}
		if a, missed := l.absent[was]; missed {
			e.Duration = m.now.Sub(a.since)
			delete(l.absent, was)
		}
		events = append(events, e)
	}
	if next == nil {
		return false
	}
	m.lead.maps.write(next, events)
	return true
}

// prune takes workers out of the map that have left or yield, once all that they had has
// arrived elsewhere.
func (m *machine) prune() {
	if m.cur == nil || !m.cur.Settled() || m.cur.Epoch != m.office.epoch {
		return
	}
	stays := m.staysInMap()
	at := make([]int32, len(m.cur.Workers))
	var workers []Member
	for i, w := range m.cur.Workers {
		if stays[i] {
			at[i] = int32(len(workers))
			workers = append(workers, w)
		}
	}
	if len(workers) == len(m.cur.Workers) || len(workers) == 0 {
		return
	}

	next := m.cur.clone()
	next.Epoch, next.Leader, next.Workers = m.office.epoch, m.self, workers
	for s, i := range next.Owner {
		if i != none {
			next.Owner[s] = at[i]
		}
	}
	next.Restarting = make(map[int]bool)
	for i := range m.cur.Restarting {
		if stays[i] {
			next.Restarting[int(at[i])] = true
		}
	}
	m.lead.maps.write(next, nil)
}

// staysInMap tells, for each worker of the map, whether it has slots, is there and
// takes some, or is awaited.
func (m *machine) staysInMap() []bool {
	stays := make([]bool, len(m.cur.Workers))
	for _, owner := range m.cur.Owner {
		if owner != none {
			stays[owner] = true
		}
	}
	for i, w := range m.cur.Workers {
		p := m.lead.roster.peers.live(w)
		there := p != nil && !p.lease.Yielding
		stays[i] = stays[i] || there || m.awaited(int32(i))
	}
	return stays
}

// forgetAbsent drops what is known of workers that the map does not name any more.
func (m *machine) forgetAbsent() {
	maps.DeleteFunc(m.lead.absent, func(w Member, _ absence) bool { return m.cur.index(w) == none })
}
