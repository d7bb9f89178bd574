package planning

import (
	"fmt"

	"github.com/muster-dev/muster/partition/plan"
)

// Sticky is Muster's default. Timed is all of Plan: validation, the next
// owners, the list of moves with reasons, and the statistics.
func Sticky() Planner { return muster("muster sticky", plan.Sticky()) }

// Ring is Muster's consistent hashing with that many virtual nodes, timed like
// Sticky, including the building of the ring.
func Ring(virtualNodes int) Planner {
	return muster(fmt.Sprintf("ring, %d virtual nodes", virtualNodes), plan.Ring(virtualNodes))
}

func muster(name string, strategy plan.Strategy) Planner {
	return Planner{Name: name, Prepare: func(c Case) (Run, error) {
		first, err := strategy.Plan(plan.Problem{Slots: c.Slots, Workers: workers(c.Before)})
		if err != nil {
			return Run{}, err
		}
		p := plan.Problem{Slots: c.Slots, Workers: workers(c.After), Owners: make([]int32, c.Slots)}
		for s, w := range first.Owners {
			if p.Owners[s] = w; int(w) >= c.After {
				p.Owners[s] = plan.Gone
			}
		}
		var next plan.Plan
		return Run{
			Plan:    func() { next, _ = strategy.Plan(p) }, // valid for the first plan, so for this one
			Outcome: func() (before, after []int32) { return first.Owners, next.Owners },
		}, nil
	}}
}

func workers(n int) []plan.Worker {
	ws := make([]plan.Worker, n)
	for i := range ws {
		ws[i].ID = id(i)
	}
	return ws
}

// id names workers so that the order of names is that of numbers.
func id(i int) string { return fmt.Sprintf("worker-%05d", i) }
