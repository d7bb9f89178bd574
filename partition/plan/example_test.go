package plan_test

import (
	"fmt"

	"github.com/muster-dev/muster/partition/plan"
)

func Example() {
	p := plan.Problem{
		Slots:   6,
		Workers: []plan.Worker{{ID: "defender-0"}, {ID: "defender-1"}, {ID: "defender-2"}},
		// defender-2 is new, and the owner of the last slot crashed.
		Owners: []int32{0, 0, 0, 1, 1, plan.Gone},
	}
	next, err := plan.Sticky().Plan(p)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(next.Owners)
	for _, m := range next.Moves {
		fmt.Println(plan.Explain(p, m))
	}
	// Output:
	// [0 0 2 1 1 2]
	// slot 2 moves from defender-0 to defender-2: defender-0 had more than its share and defender-2 less
	// slot 5 goes to defender-2: its owner is gone
}

// With weights, a budget says how many slots may move only to even them out
// further: none during a crash, any number at leisure.
func ExampleProblem_budget() {
	p := plan.Problem{
		Slots:   4,
		Weights: []uint64{6, 5, 5, 2},
		Workers: []plan.Worker{{ID: "defender-0"}, {ID: "defender-1"}},
		Owners:  []int32{0, 0, 1, 1},
	}
	for _, p.Budget = range []int{0, -1} {
		next, err := plan.Sticky().Plan(p)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("budget", p.Budget, "loads", next.Stats.MinLoad, "to", next.Stats.MaxLoad, "moves", len(next.Moves))
	}
	// Output:
	// budget 0 loads 7 to 11 moves 0
	// budget -1 loads 8 to 10 moves 2
}

func ExampleProblem_Validate() {
	p := plan.Problem{
		Slots:   2,
		Workers: []plan.Worker{{ID: "a"}, {ID: "a"}},
		Owners:  []int32{0, 7},
	}
	fmt.Println(p.Validate())
	// Output:
	// plan: Workers[1].ID: "a" is taken by Workers[0]
	// plan: Owners[1]: 7 is no index into 2 workers
}
