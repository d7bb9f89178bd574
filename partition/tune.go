package partition

import (
	"github.com/muster-dev/muster/partition/plan"
)

// This file holds what the leader does when the weights of the keys change and
// nothing else does. Weights are estimates that swing, and each move costs a
// pause and a cold cache, so: loads must be uneven by more than
// Config.TuneAbove in two readings of the weights in a row; a plan then evens
// them out to what the planner aims at, well below that; it moves at most a
// twentieth of the slots, the next one, if need be, some more; and what would not
// make the loads more even by a twentieth of their excess is not done.

const (
	reasonWeights = "weights"
	tuneReadings  = 2
	tuneFraction  = 20
)

// weighed tells whether planning can go by weights.
func (m *machine) weighed() bool { return m.cfg.Weights == nil || m.weight.known }

// refreshWeights reads the weights when they are due.
func (m *machine) refreshWeights() {
	if m.cfg.Weights != nil && m.weight.begin(m.now) {
		m.do(weightsEffect{})
	}
}

func (m *machine) weights(in weightsInput) {
	m.weight.read(in, m.now, m.cfg.WeightsInterval)
	if in.err != nil {
		m.cfg.Logger.Warn("The keys' weights can't be had; planning goes on with those known before, or with equal ones.", "err", in.err)
	} else {
		m.shareLoad()
		m.readBalance()
	}
	m.review()
}

// shareLoad has a leader write the load of the slots down, when it is not yet.
func (m *machine) shareLoad() {
	if m.leading() && m.weight.tell() {
		m.do(shareLoadEffect{weights: m.weight.finest, keys: m.weight.keys})
	}
}

// readBalance notes whether the loads are uneven by the newest weights.
func (m *machine) readBalance() {
	if !m.leading() || m.cur == nil || !m.cur.Settled() || !m.lead.roster.allThere() {
		return
	}
	b, err := plan.Measure(m.balance())
	switch {
	case err != nil:
		m.cfg.Logger.Error("The loads can't be measured.", "err", err)
	default:
		m.weight.noteBalance(b.WorstOverMean > m.cfg.TuneAbove)
	}
}

// balance is the problem of the workers in the map, and whose each slot is.
func (m *machine) balance() (plan.Problem, []int32) {
	p := plan.Problem{Slots: m.cur.Slots, Weights: m.weight.of(m.cur.Slots)}
	for _, w := range m.cur.Workers {
		lease := m.lead.roster.peers[w.ID].lease
		p.Workers = append(p.Workers, plan.Worker{ID: w.ID, Weight: lease.Weight, Zone: lease.Zone, Draining: lease.Leaving || lease.Yielding})
	}
	return p, m.cur.Owner
}

// tuneDue tells whether it is time to even the loads out, while nothing else is
// going on.
func (m *machine) tuneDue(c changes) bool {
	return m.weight.uneven >= tuneReadings && c.newcomers == 0 && c.leaving == 0 && m.cur != nil && m.cur.Settled() &&
		m.lead.roster.takersInMap() > 0 && !m.lead.window.open() && m.lead.roster.allThere() && m.lead.roster.peers.count((*peerView).outdated) == 0
}

// tuneBudget is how many slots may move.
func (m *machine) tuneBudget() int { return 1 + m.cur.Slots/tuneFraction }

// worthIt tells whether a plan made because of weights is to be carried out.
func worthIt(job *planJob) bool {
	if len(job.result.Moves) == 0 {
		return false
	}
	before, err := plan.Measure(job.problem, job.problem.Owners)
	if err != nil {
		return false
	}
	after, err := plan.Measure(job.problem, job.result.Owners)
	return err == nil && after.Excess < before.Excess && before.Excess-after.Excess >= before.Excess/tuneFraction
}
