package plan_test

import (
	"testing"

	"github.com/muster-dev/muster/partition/plan"
)

func BenchmarkSticky(b *testing.B) {
	weights := chambers(512, oneEach)
	costs := chambers(1024, costClasses())
	cases := []struct {
		name     string
		slots    int
		weights  []uint64
		from, to int
	}{
		{"equal/2400/30to45", 2400, nil, 30, 45},
		{"equal/2400/crash", 2400, nil, 30, 29},
		{"equal/1M/10000to10100", 1_000_000, nil, 10_000, 10_100},
		{"equal/1024/30to45", 1024, nil, 30, 45},
		{"equal/8192/1000to1100", 8192, nil, 1000, 1100},
		{"counts/512/30to45", 512, weights, 30, 45},
		{"counts/512/crash", 512, weights, 30, 29},
		{"costs/1024/30to45", 1024, costs, 30, 45},
		{"costs/8192/1000to1100", 8192, chambers(8192, costClasses()), 1000, 1100},
		{"measured/1024/30to45", 1024, chambers(1024, measured()), 30, 45},
		{"measured/8192/1000to1100", 8192, chambers(8192, measured()), 1000, 1100},
	}
	for _, c := range cases {
		b.Run(c.name, func(b *testing.B) {
			p := plan.Problem{Slots: c.slots, Weights: c.weights, Workers: defenders(c.from), Budget: -1}
			before := must(b, plan.Sticky(), p)
			p.Workers = defenders(c.to)
			p.Owners = renumber(before.Owners, defenders(c.from), p.Workers)
			b.ReportAllocs()
			var moves int
			for b.Loop() {
				pl, err := plan.Sticky().Plan(p)
				if err != nil {
					b.Fatal(err)
				}
				moves = len(pl.Moves)
			}
			b.ReportMetric(float64(moves), "moves")
		})
	}
}

func BenchmarkStickyFirstPlan(b *testing.B) {
	p := plan.Problem{Slots: 1_000_000, Workers: defenders(10_000)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.Sticky().Plan(p); err != nil {
			b.Fatal(err)
		}
	}
}
