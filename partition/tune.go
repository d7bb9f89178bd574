package partition

import (
	"github.com/muster-dev/muster/partition/plan"
)

// This file holds what the leader does when the weights of the keys change and
// nothing else does. Weights are estimates that swing, and each move costs a
// pause and a cold cache, so: loads must be uneven by more than
// Config.Rebalance.TuneAbove in two readings of the weights in a row; a plan then evens
// them out to what the planner aims at, well below that; it moves at most a
// twentieth of the slots, the next one, if need be, some more; and what would not
// make the loads more even by a twentieth of their excess is not done.

const (
	tuneReadings = 2
	tuneFraction = 20
)

// tuning knows the weights of the keys, and when the loads of the workers are to be evened
// out because of them alone.
type tuning struct {
	*core
	roster  *roster
	weights weights
}

// weighed reports whether planning can go by weights.
func (u *tuning) weighed() bool { return u.cfg.Rebalance.Weights == nil || u.weights.known }

// refresh reads the weights when they are due.
func (u *tuning) refresh() {
	if u.cfg.Rebalance.Weights != nil && u.weights.begin(u.now) {
		u.do(weightsEffect{})
	}
}

// read takes the weights in that were read.
func (u *tuning) read(in weightsInput) {
	u.weights.read(in, u.now, u.cfg.Rebalance.WeightsInterval)
	if in.err != nil {
		u.cfg.Logger.Warn("The keys' weights can't be had; planning goes on with those known before, or with equal ones.", "err", in.err)
	} else {
		u.shareLoad()
		u.readBalance()
	}
}

// shareLoad has a leader write the load of the slots down, when it is not yet.
func (u *tuning) shareLoad() {
	if u.leading() && u.weights.tell() {
		u.do(shareLoadEffect{weights: u.weights.finest, keys: u.weights.keys})
	}
}

// readBalance notes whether the loads are uneven by the newest weights.
func (u *tuning) readBalance() {
	if !u.leading() || u.cur == nil || !u.cur.Settled() || !u.roster.allThere() {
		return
	}
	b, err := plan.Measure(u.balance())
	switch {
	case err != nil:
		u.cfg.Logger.Error("The loads can't be measured.", "err", err)
	default:
		u.weights.noteBalance(b.WorstOverMean > u.cfg.Rebalance.TuneAbove)
	}
}

// balance is the problem of the workers in the map, and whose each slot is.
func (u *tuning) balance() (plan.Problem, []int32) {
	p := plan.Problem{Slots: u.cur.Slots, Weights: u.weights.of(u.cur.Slots)}
	for _, w := range u.cur.Workers {
		lease := u.roster.peers.get(w.ID).lease
		p.Workers = append(p.Workers, plan.Worker{ID: w.ID, Weight: lease.Weight, Zone: lease.Zone, Draining: lease.Leaving || lease.Draining})
	}
	return p, u.cur.Owner
}

// due reports whether to even the loads out.
func (u *tuning) due() bool {
	return u.weights.uneven >= tuneReadings && u.cur != nil && u.cur.Settled() &&
		u.roster.takersInMap() > 0 && u.roster.allThere() && u.roster.peers.count(markOutdated) == 0
}

// budget is how many slots may move.
func (u *tuning) budget() int { return 1 + u.cur.Slots/tuneFraction }
