package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// group is a problem with log-normal weights of a group of n workers which has a plan, and in which
// then a worker joins, one leaves, or the weights drift.
func group(r *rand.Rand, slots, n int, change string) *Problem {
	p := &Problem{Slots: slots, Budget: -1}
	for range slots {
		p.Weights = append(p.Weights, uint64(1e5*math.Exp(0.7*r.NormFloat64())))
	}
	for i := range n + 1 {
		p.Workers = append(p.Workers, Worker{ID: fmt.Sprintf("w%d", i)})
	}
	all := p.Workers
	p.Workers = all[:n+map[string]int{"join": -1, "leave": 1}[change]]
	before, err := Sticky().Plan(*p)
	if err != nil {
		panic(err)
	}
	p.Owners, p.Workers = before.Owners, all[:n]
	for s, o := range p.Owners {
		if int(o) >= n {
			p.Owners[s] = Gone
		}
		if change == "drift" {
			p.TuneOnly = true
			p.Weights[s] = uint64(float64(p.Weights[s]) * math.Exp(0.2*r.NormFloat64()))
		}
	}
	return p
}

// fewestMoves is how many slots move in the best of all plans whose loads are from least to most.
func fewestMoves(p *Problem, least, most uint64) int {
	load := make([]uint64, len(p.Workers))
	best := math.MaxInt
	var assign func(s, moves int)
	assign = func(s, moves int) {
		if moves >= best {
			return
		}
		if s == p.Slots {
			if slices.Min(load) >= least {
				best = moves
			}
			return
		}
		for w := range load {
			if load[w]+p.Weights[s] > most {
				continue
			}
			moved := 0
			if p.Owners[s] != int32(w) {
				moved = 1
			}
			load[w] += p.Weights[s]
			assign(s+1, moves+moved)
			load[w] -= p.Weights[s]
		}
	}
	assign(0, 0)
	return best
}

// Both ways to plan unequal weights, against all plans of small problems that are as even, or within
// the tolerance. With so few slots the fewest moves take luck, so the sum of many problems counts.
func TestWeightedMovesAgainstAllPlans(t *testing.T) {
	t.Parallel()
	ways := map[string]func(b *balance){"thorough": (*balance).tradeThoroughly, "tuning": (*balance).tuneWhatIsOff}
	shapes := []struct {
		slots, workers int
		limit          float64
	}{{18, 2, 1.1}, {15, 3, 1.35}, {12, 3, 1.35}, {10, 4, 1.3}}
	for _, change := range []string{"join", "leave", "drift"} {
		for _, shape := range shapes {
			for way, plan := range ways {
				t.Run(fmt.Sprintf("%s/%d slots, %d workers/%s", change, shape.slots, shape.workers, way), func(t *testing.T) {
					againstAllPlans(t, change, shape.slots, shape.workers, shape.limit, plan)
				})
			}
		}
	}
}

func againstAllPlans(t *testing.T, change string, slots, workers int, limit float64, plan func(b *balance)) {
	t.Helper()
	r := rand.New(rand.NewPCG(43, 44))
	moves, fewest := 0, 0
	for range 60 {
		p := group(r, slots, workers, change)
		f, err := newFrame(p)
		if err != nil {
			t.Fatal(err)
		}
		b := newBalance(f)
		b.placeOrphans()
		plan(b)
		for s, o := range b.owner {
			if o != p.Owners[s] {
				moves++
			}
		}
		least, most := b.window(0)
		least, most = min(least, slices.Min(b.load)), max(most, slices.Max(b.load))
		fewest += fewestMoves(p, uint64(least), uint64(most))
	}
	ratio := float64(moves) / float64(fewest)
	t.Logf("%d moves, the fewest are %d: %.3f times as many", moves, fewest, ratio)
	if ratio > limit {
		t.Errorf("that is more than %.2f times as many", limit)
	}
}
