package plan

import "fmt"

// Strategy turns a problem into a plan. Strategies are pure and safe for
// concurrent use: the same problem gives the same plan on every machine,
// whatever the order of its workers. They do not modify the problem. The error
// is that of [Problem.Validate]; no valid problem fails.
type Strategy interface {
	Plan(Problem) (Plan, error)
}

// Plan says who owns each slot next, and why that differs from before.
type Plan struct {
	// Owners is the next owner of each slot as an index into the problem's
	// Workers, or None if no worker can own it.
	Owners []int32
	// Moves are the slots that change owner, in ascending order of slot.
	Moves []Move
	// Notes tell the operator about settings that were ignored, such as an override
	// to a worker that is absent.
	Notes []string
	// Stats measure the plan.
	Stats Stats
}

// Move is one slot changing its owner.
type Move struct {
	Slot int
	// From is the owner before, an index into the problem's Workers, or None
	// or Gone as in Problem.Owners.
	From int32
	// To is the owner after, an index into the problem's Workers.
	To     int32
	Reason Reason
}

// Reason is why a slot moves.
type Reason uint8

// The reasons of a move. The first four are not the planner's choice; Balance
// serves a worker that lacks load; only Tuning is limited by Problem.Budget.
const (
	// Unowned is a first assignment.
	Unowned Reason = iota
	// OwnerGone means that the previous owner left or crashed.
	OwnerGone
	// OwnerDraining means that the previous owner gives everything away.
	OwnerDraining
	// Overridden means that an operator's override asks for it.
	Overridden
	// Balance means that the new owner, perhaps a joining worker, lacked load that
	// the old owner had in excess.
	Balance
	// Tuning means that the move only evens out unequal weights further.
	Tuning
)

var reasons = [...]string{"unowned", "owner gone", "owner draining", "overridden", "balance", "tuning"}

// String returns the reason in lower-case words.
func (r Reason) String() string {
	if int(r) < len(reasons) {
		return reasons[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// Stats measure a plan. Loads are sums of slot weights; a worker's load counts
// against its capacity, that is, it is divided by Worker.Weight. Draining
// workers are left out.
type Stats struct {
	// MinLoad and MaxLoad are the least and the most load on a worker, not
	// divided by its capacity.
	MinLoad, MaxLoad uint64
	// MinSlots and MaxSlots are the fewest and the most slots on a worker.
	MinSlots, MaxSlots int
	// WorstOverMean is the worst load relative to the worker's share of the
	// total: 1 is perfect. It is 0 if there is no load or no worker.
	WorstOverMean float64
	// MovedWeight is the sum of the weights of the slots that move.
	MovedWeight uint64
	// LowerBound is a number of moves that no balanced plan can beat. With
	// equal weights it is exact, and the plans of Sticky have that many. With
	// different weights it is rough, and a balanced plan is one in which no
	// worker could give a slot away without another being worse off.
	LowerBound int
}

// Explain says in one sentence why m, a move planned for p, happens.
func Explain(p Problem, m Move) string {
	name := func(i int32) string {
		if i < 0 || int(i) >= len(p.Workers) {
			return "nobody"
		}
		return p.Workers[i].ID
	}
	from, to := name(m.From), name(m.To)
	switch m.Reason {
	case Unowned:
		return fmt.Sprintf("slot %d goes to %s: nobody owned it", m.Slot, to)
	case OwnerGone:
		return fmt.Sprintf("slot %d goes to %s: its owner is gone", m.Slot, to)
	case OwnerDraining:
		return fmt.Sprintf("slot %d moves from %s to %s: %s is draining", m.Slot, from, to, from)
	case Overridden:
		return fmt.Sprintf("slot %d moves from %s to %s: an override keeps it there", m.Slot, from, to)
	case Balance:
		return fmt.Sprintf("slot %d moves from %s to %s: %s had more than its share and %s less", m.Slot, from, to, from, to)
	case Tuning:
		return fmt.Sprintf("slot %d moves from %s to %s: it evens out their unequal weights", m.Slot, from, to)
	}
	return fmt.Sprintf("slot %d moves from %s to %s: %s", m.Slot, from, to, m.Reason)
}
