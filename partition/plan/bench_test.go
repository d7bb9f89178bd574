package plan_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

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

// BenchmarkWeighted plans the same changes with unequal and with equal weights, in turns, and reports
// how many times as long the former takes (ratio), both times, the moves, how many times the bound
// that no plan can beat these are (over-bound), and the worst load over the mean of what can be
// divided (skew).
func BenchmarkWeighted(b *testing.B) {
	for _, size := range [][2]int{{512, 45}, {8192, 1100}, {65_536, 10_000}} {
		slots, workers := size[0], size[1]
		for _, weights := range []struct {
			name string
			of   func(slots int) []uint64
		}{{"log-normal", logNormal}, {"Zipf", zipf}} {
			for _, c := range changesOf(workers) {
				b.Run(fmt.Sprintf("%d on %d/%s/%s", slots, workers, weights.name, c.name), func(b *testing.B) {
					equal := c.problem(b, slots, workers, nil)
					weighted := c.problem(b, slots, workers, weights.of(slots))
					compare(b, equal, weighted)
				})
			}
		}
	}
}

func compare(b *testing.B, equal, weighted plan.Problem) {
	b.Helper()
	var pl plan.Plan
	took := func(p plan.Problem) time.Duration {
		start := time.Now()
		var err error
		if pl, err = plan.Sticky().Plan(p); err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var equals, weighteds []time.Duration
	for b.Loop() {
		equals = append(equals, took(equal))
		weighteds = append(weighteds, took(weighted))
	}
	median := func(times []time.Duration) float64 {
		slices.Sort(times)
		return float64(times[len(times)/2])
	}
	d := divide(weighted)
	b.ReportMetric(0, "ns/op") // of both together, which says nothing
	b.ReportMetric(median(equals)/1e3, "equal-µs")
	b.ReportMetric(median(weighteds)/1e3, "weighted-µs")
	b.ReportMetric(median(weighteds)/median(equals), "ratio")
	b.ReportMetric(float64(len(pl.Moves)), "moves")
	b.ReportMetric(float64(len(pl.Moves))/float64(d.fewest(weighted)), "over-bound")
	b.ReportMetric(d.skew(weighted, pl.Owners), "skew")
}
