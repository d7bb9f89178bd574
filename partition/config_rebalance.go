package partition

import (
	"context"
	"time"

	"github.com/muster-dev/muster/partition/plan"
)

// Rebalance sets when the leader moves slots between workers, which plan it makes, and how
// long a move may take.
//
// The windows collect what happens at about the same time into one plan, so that ten workers
// that start together cause one rebalance; a failed worker's slots wait for none of them. The
// timeouts bound the three steps of a move: the new owner prepares, the old one hands off, and
// a worker that ends has all of its slots handed off. Workers of a group may differ in these
// settings; those of the leader count for windows, strategy and weights.
type Rebalance struct {
	// ColdWindow and PlannedWindow are how long the leader waits for more workers before it
	// plans: at the first start (default 30 s) and when workers join later (default 10 s),
	// counted from the last that joined. A window ends at once when Expected workers are there.
	ColdWindow, PlannedWindow time.Duration
	// LeaveWindow is how long the leader collects workers that leave; default 100 ms.
	LeaveWindow time.Duration
	// RestartGrace is how long the slots of a worker that restarts wait for it to rejoin;
	// default 10 s. See docs/partition.md, "Leave or restart".
	RestartGrace time.Duration
	// Expected returns how many workers there should be, 0 for unknown. It must not block.
	// Default: what Group.Expect said last, unknown before.
	Expected func() int

	// PrepareTimeout bounds Preparer.Prepare; default 5 s.
	PrepareTimeout time.Duration
	// HandoffTimeout bounds how long the old owner of a moving slot may continue with the
	// message it has; then its context is cancelled and the slot is taken. Default 20 s.
	HandoffTimeout time.Duration
	// LeaveTimeout bounds how long a worker that ends hands its slots off; default 25 s.
	LeaveTimeout time.Duration

	// Strategy plans; default plan.Sticky().
	Strategy plan.Strategy
	// Weights returns the weight of each key, "tool001:chamber1" -> 120; keys it does not name
	// weigh nothing. Default: every slot weighs the same.
	Weights func(ctx context.Context) (map[string]uint64, error)
	// WeightsInterval is how often the leader asks for the weights; default 1 minute.
	WeightsInterval time.Duration
	// TuneAbove is from what load skew (max/mean) slots move for no other reason than changed
	// weights, in two readings of them in a row: more than 1.05, default 1.15; +Inf means never.
	TuneAbove float64
}

func (r Rebalance) resolve() Rebalance {
	defaulted(&r.ColdWindow, 30*time.Second)
	defaulted(&r.PlannedWindow, 10*time.Second)
	defaulted(&r.LeaveWindow, 100*time.Millisecond)
	defaulted(&r.RestartGrace, 10*time.Second)
	defaulted(&r.PrepareTimeout, 5*time.Second)
	defaulted(&r.HandoffTimeout, 20*time.Second)
	defaulted(&r.LeaveTimeout, 25*time.Second)
	defaulted(&r.WeightsInterval, time.Minute)
	defaulted(&r.TuneAbove, 1.15)
	if r.Strategy == nil {
		r.Strategy = plan.Sticky()
	}
	return r
}

func (r Rebalance) validate(f *faults) {
	f.positive("Rebalance.ColdWindow", r.ColdWindow)
	f.positive("Rebalance.PlannedWindow", r.PlannedWindow)
	f.positive("Rebalance.LeaveWindow", r.LeaveWindow)
	f.positive("Rebalance.RestartGrace", r.RestartGrace)
	f.positive("Rebalance.PrepareTimeout", r.PrepareTimeout)
	f.positive("Rebalance.HandoffTimeout", r.HandoffTimeout)
	f.positive("Rebalance.LeaveTimeout", r.LeaveTimeout)
	f.positive("Rebalance.WeightsInterval", r.WeightsInterval)
	if !(r.TuneAbove > 1.05) { // also if it is no number
		f.add("Rebalance.TuneAbove is %v: give more than 1.05, which is how even plans are, or +Inf", r.TuneAbove)
	}
}
