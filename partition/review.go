package partition

import "time"

// This file holds when the leader plans, and what for.

// changes are what the map does not know of the workers, in numbers.
type changes struct {
	dead      int // workers in the map that are not there and have slots
	leaving   int // workers in the map that are to have none, and have some or get them
	newcomers int
}

func (c changes) none() bool { return c == (changes{}) }

// changes counts them.
func (m *machine) changes() changes {
	var c changes
	c.newcomers = m.lead.roster.peers.count(func(p *peerView) bool { return p.takesSlots() && m.lead.roster.joiner(p) })
	if m.cur == nil {
		return c
	}
	owns, gets := make([]bool, len(m.cur.Workers)), make([]bool, len(m.cur.Workers))
	for s, o := range m.cur.Owner {
		if o != none {
			owns[o] = true
		}
		if d := m.cur.destination(s); d != none {
			gets[d] = true
		}
	}
	for i, w := range m.cur.Workers {
		p := m.lead.roster.peers.live(w)
		switch {
		case p == nil:
			if (owns[i] || gets[i]) && !m.awaited(int32(i)) {
				c.dead++
			}
		case gets[i] && m.quits(p):
			c.leaving++
		}
	}
	return c
}

// mayPlan reports whether the leader knows what it takes to plan, and is not doing so.
func (m *machine) mayPlan() bool {
	l := &m.lead
	knows := m.lead.maps.ready && m.lead.roster.synced && m.weighed() && !m.mapHidden()
	busy := l.planning || m.lead.maps.writer.busy()
	return m.mayAct() && knows && !busy
}

// review decides whether it is time to plan.
func (m *machine) review() {
	l := &m.lead
	if !m.mayPlan() {
		return
	}
	if m.lead.maps.writer.pending != nil {
		// A plan rests on a map that is written. What is not urgent waits for
		// that until the pending changes are due.
		if m.changes().dead > 0 || m.lead.maps.writer.isDue(m.now) {
			m.lead.maps.flush()
		}
		return
	}
	if m.adopt() || m.raise() {
		return
	}

	c := m.changes()
	if m.reserve(c.dead > 0) {
		return
	}
	m.windowDue(c.newcomers)
	if c.leaving > 0 && l.leaveAt.IsZero() && m.lead.roster.peers.takers() > 0 && m.cur.Settled() {
		// What was on its way to one that leaves has arrived there meanwhile.
		l.leaveAt = m.now
	}
	m.planFor(c)
	if c.leaving == 0 {
		l.leaveAt = time.Time{}
	}
}

// planFor plans for the most urgent reason that there is, if there is one.
func (m *machine) planFor(c changes) {
	l := &m.lead
	known := func(p *peerView) bool { return !m.lead.roster.joiner(p) }
	everybody := func(*peerView) bool { return true }
	switch {
	case c.dead > 0 && m.lead.roster.takersInMap() > 0:
		m.replaceDead()
	case c.leaving > 0 && !l.leaveAt.IsZero() && !m.now.Before(l.leaveAt):
		m.replaceLeaving()
	case c.newcomers > 0 && l.window.over:
		m.planNewcomers()
	case c.none() && m.layoutDue():
		m.relayout()
	case c.none() && m.returnDue():
		m.replan("scale-up", everybody)
	case m.pinsDue():
		m.replan(reasonPins, known)
	case m.tuneDue(c):
		m.weight.uneven = 0
		m.replan(reasonWeights, known)
	default:
		m.prune()
	}
}

// replaceDead plans for the slots of dead workers. A newcomer whose window is over takes
// part: a replacement gets what the dead worker had, in one move.
func (m *machine) replaceDead() {
	together := m.lead.window.take()
	m.replan(reasonCrash, func(p *peerView) bool { return together || !m.lead.roster.joiner(p) })
}

// replaceLeaving plans for the slots of workers that leave or yield. Newcomers take part
// if there are no others.
func (m *machine) replaceLeaving() {
	m.lead.leaveAt = time.Time{}
	if m.lead.roster.peers.takers() == 0 {
		m.tellAlone()
		return
	}
	newcomersToo := m.lead.roster.takersInMap() == 0
	m.replan("scale-down", func(p *peerView) bool { return newcomersToo || !m.lead.roster.joiner(p) })
}

// returnDue reports whether a worker that yielded is to have slots again.
func (m *machine) returnDue() bool {
	return m.lead.returned && m.cur != nil && m.cur.Settled() && m.lead.roster.allThere()
}
