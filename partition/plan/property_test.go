package plan_test

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/muster-dev/muster/partition/plan"
)

// random makes a valid problem of up to these numbers of slots and workers, with or
// without each of the features.
func random(r *rand.Rand, slots, workers int) plan.Problem {
	p := plan.Problem{Slots: r.IntN(slots + 1), Budget: r.IntN(5) - 1}
	n := r.IntN(workers + 1)
	zones, capacities, draining := r.IntN(3) == 0, r.IntN(3) == 0, r.IntN(3) == 0
	for i := range n {
		w := plan.Worker{ID: fmt.Sprintf("w%d", i)}
		if zones {
			w.Zone = string(rune('a' + r.IntN(3)))
		}
		if capacities {
			w.Weight = float64(1 + r.IntN(4))
		}
		w.Draining = draining && r.IntN(4) == 0
		p.Workers = append(p.Workers, w)
	}
	switch r.IntN(3) {
	case 0: // counts
		p.Weights = make([]uint64, p.Slots)
		for s := range p.Weights {
			p.Weights[s] = r.Uint64N(16)
		}
	case 1: // costs
		p.Weights = make([]uint64, p.Slots)
		for s := range p.Weights {
			p.Weights[s] = []uint64{0, 30, 120, 3600, 1 << 40}[min(4, bits.TrailingZeros64(r.Uint64()|16))]
		}
	}
	if r.IntN(4) > 0 {
		p.Owners = make([]int32, p.Slots)
		lazy := 1 + r.IntN(max(1, n)) // only the first few own anything
		for s := range p.Owners {
			p.Owners[s] = int32(r.IntN(lazy+2)) - 2
			if int(p.Owners[s]) >= n {
				p.Owners[s] = plan.None
			}
		}
	}
	if r.IntN(3) == 0 {
		for s := range p.Slots {
			if r.IntN(10) == 0 {
				p.Overrides = append(p.Overrides, plan.Override{Slot: s, Worker: fmt.Sprintf("w%d", r.IntN(workers+2))})
			}
		}
	}
	return p
}

func plain(p plan.Problem) bool {
	return len(p.Overrides) == 0 && !slices.ContainsFunc(p.Workers, func(w plan.Worker) bool { return w.Weight != 0 || w.Draining })
}

// Problems in many shapes, and what must hold for every plan.
func TestProperties(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for i := range 4000 {
		p := random(r, 1+i%120, 1+i%13)
		for _, s := range []plan.Strategy{plan.Sticky(), plan.Ring(20)} {
			pl := must(t, s, p)
			samePlanInAnyOrder(t, r, s, p, pl)
			settledStays(t, s, p, pl)
		}
		if p.Weights == nil {
			countsAreSettledExactly(t, p)
		} else {
			tuningIsInBudget(t, p)
			tuningAloneIsInBudget(t, p)
		}
		if t.Failed() {
			t.Fatalf("case %d: %+v", i, p)
		}
	}
}

// samePlanInAnyOrder permutes the workers and compares the owners by ID.
func samePlanInAnyOrder(t *testing.T, r *rand.Rand, s plan.Strategy, p plan.Problem, pl plan.Plan) {
	t.Helper()
	q := p
	q.Workers = slices.Clone(p.Workers)
	r.Shuffle(len(q.Workers), func(i, j int) { q.Workers[i], q.Workers[j] = q.Workers[j], q.Workers[i] })
	if p.Owners != nil {
		q.Owners = renumber(p.Owners, p.Workers, q.Workers)
	}
	other := must(t, s, q)
	if !slices.Equal(renumber(pl.Owners, p.Workers, q.Workers), other.Owners) {
		t.Errorf("the plan depends on the order of workers: %v and %v", pl.Owners, other.Owners)
	}
	if pl.Stats != other.Stats {
		t.Errorf("the stats depend on the order of workers: %+v and %+v", pl.Stats, other.Stats)
	}
}

// settledStays plans again from the plan.
func settledStays(t *testing.T, s plan.Strategy, p plan.Problem, pl plan.Plan) {
	t.Helper()
	if p.Budget > 0 {
		return // each plan has a budget of its own
	}
	p.Owners = pl.Owners
	if again := must(t, s, p); len(again.Moves) > 0 {
		t.Errorf("planning again moves %+v", again.Moves)
	}
}

// countsAreSettledExactly holds a plan of equal slots against the arithmetic.
func countsAreSettledExactly(t *testing.T, p plan.Problem) {
	t.Helper()
	pl := must(t, plan.Sticky(), p)
	if pl.Stats.LowerBound != len(pl.Moves) && slices.ContainsFunc(p.Workers, func(w plan.Worker) bool { return !w.Draining }) {
		t.Errorf("%d moves, the fewest are %d", len(pl.Moves), pl.Stats.LowerBound)
	}
	if !plain(p) || len(p.Workers) == 0 {
		return
	}
	if pl.Stats.MaxSlots-pl.Stats.MinSlots > 1 {
		t.Errorf("%d to %d slots each", pl.Stats.MinSlots, pl.Stats.MaxSlots)
	}
	held := make([]int, len(p.Workers))
	for _, o := range p.Owners {
		if o >= 0 {
			held[o]++
		}
	}
	for _, m := range pl.Moves {
		if m.From >= 0 && (held[m.From] <= p.Slots/len(p.Workers) || held[m.To] > p.Slots/len(p.Workers)) {
			t.Errorf("slot %d moves from %d slots to %d without need", m.Slot, held[m.From], held[m.To])
		}
	}
}

func tuningIsInBudget(t *testing.T, p plan.Problem) {
	t.Helper()
	pl := must(t, plan.Sticky(), p)
	if n := count(pl, plan.Tuning); p.Budget >= 0 && n > p.Budget {
		t.Errorf("%d moves tune, the budget is %d", n, p.Budget)
	}
	if p.Budget < 0 && pl.Stats.LowerBound > len(pl.Moves) {
		t.Errorf("%d moves beat the lower bound of %d", len(pl.Moves), pl.Stats.LowerBound)
	}
	for _, m := range pl.Moves {
		if m.Reason <= plan.OwnerDraining && m.From >= 0 && !p.Workers[m.From].Draining {
			t.Errorf("slot %d moves from a live worker because: %s", m.Slot, m.Reason)
		}
	}
}

// tuningAloneIsInBudget: when nothing but weights has changed, every move that
// nothing forces is within the budget, and loads only get more even.
func tuningAloneIsInBudget(t *testing.T, p plan.Problem) {
	t.Helper()
	p.TuneOnly = true
	pl := must(t, plan.Sticky(), p)
	chosen := 0
	for _, m := range pl.Moves {
		if m.Reason > plan.Overridden {
			chosen++
		}
	}
	if p.Budget >= 0 && chosen > p.Budget {
		t.Errorf("%d moves of choice, the budget is %d: %+v", chosen, p.Budget, pl.Moves)
	}
	after, err := plan.Measure(p, pl.Owners)
	if err != nil {
		t.Error(err)
	}
	if after.WorstOverMean != pl.Stats.WorstOverMean && slices.ContainsFunc(p.Workers, func(w plan.Worker) bool { return !w.Draining }) {
		t.Errorf("measured are %v, the plan says %v", after.WorstOverMean, pl.Stats.WorstOverMean)
	}
	before, err := plan.Measure(p, p.Owners)
	if err == nil && len(pl.Moves) == chosen && chosen > 0 && after.WorstOverMean > before.WorstOverMean {
		t.Errorf("worst over mean from %v to %v by tuning", before.WorstOverMean, after.WorstOverMean)
	}
}

// Against every possible plan of small problems: the best balance, and of the
// plans that have it the fewest moves.
func TestAgainstBruteForce(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 1500 {
		p := random(r, 6, 4)
		p.Budget = -1
		for w := range p.Workers {
			p.Workers[w].Weight = 0
		}
		if !slices.ContainsFunc(p.Workers, func(w plan.Worker) bool { return !w.Draining }) {
			continue
		}
		pl := must(t, plan.Sticky(), p)
		best := bruteForce(p)
		if p.Weights == nil {
			if got := score(p, pl.Owners); got != best {
				t.Fatalf("case %d: squares and moves are %v, the best are %v: %+v", i, got, best, p)
			}
			continue
		}
		if p.Owners == nil && len(p.Overrides) == 0 {
			// Graham's bound for LPT, which exchanges can only improve.
			n := float64(0)
			for _, w := range p.Workers {
				if !w.Draining {
					n++
				}
			}
			if got, opt := float64(pl.Stats.MaxLoad), float64(lightestWorst(p)); got > opt*(4/3.-1/(3*n))+1e-6 {
				t.Fatalf("case %d: the worst load is %v, the best plan's %v: %+v", i, got, opt, p)
			}
		}
	}
}

// outcome is what plans are compared by: the sum of the squared loads, which is
// least for the most even loads, then moves.
type outcome struct {
	squares uint64
	moves   int
}

func score(p plan.Problem, owners []int32) outcome {
	load := make([]uint64, len(p.Workers))
	var o outcome
	for s, w := range owners {
		load[w]++
		if p.Owners == nil || p.Owners[s] != w {
			o.moves++
		}
	}
	for _, l := range load {
		o.squares += l * l
	}
	return o
}

// everyPlan calls visit with every assignment that honours overrides and draining.
func everyPlan(p plan.Problem, visit func(owners []int32)) {
	overridden := make(map[int]int32)
	for _, override := range p.Overrides {
		i := slices.IndexFunc(p.Workers, func(w plan.Worker) bool { return w.ID == override.Worker && !w.Draining })
		if i >= 0 {
			overridden[override.Slot] = int32(i)
		}
	}
	owners := make([]int32, p.Slots)
	var assign func(s int)
	assign = func(s int) {
		if s == p.Slots {
			visit(owners)
			return
		}
		for w := range p.Workers {
			if override, ok := overridden[s]; p.Workers[w].Draining || ok && override != int32(w) {
				continue
			}
			owners[s] = int32(w)
			assign(s + 1)
		}
	}
	assign(0)
}

func bruteForce(p plan.Problem) outcome {
	best := outcome{squares: 1 << 62}
	everyPlan(p, func(owners []int32) {
		o := score(p, owners)
		if o.squares < best.squares || o.squares == best.squares && o.moves < best.moves {
			best = o
		}
	})
	return best
}

func lightestWorst(p plan.Problem) uint64 {
	best := uint64(1 << 62)
	everyPlan(p, func(owners []int32) {
		load := make([]uint64, len(p.Workers))
		for s, w := range owners {
			load[w] += p.Weights[s]
		}
		best = min(best, slices.Max(load))
	})
	return best
}

// FuzzPlan plans whatever problem the bytes seed, once as it is and once with
// fields that may be wrong.
func FuzzPlan(f *testing.F) {
	f.Add(uint64(1), []byte("muster"))
	f.Add(uint64(2), []byte{0xff, 0x7f, 0, 0, 0, 0, 0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, seed uint64, raw []byte) {
		r := rand.New(rand.NewPCG(seed, uint64(len(raw))))
		p := random(r, 64, 9)
		for i := range p.Weights {
			if len(raw) > 0 {
				p.Weights[i] = uint64(raw[i%len(raw)])
			}
		}
		for _, s := range []plan.Strategy{plan.Sticky(), plan.Ring(8)} {
			settledStays(t, s, p, must(t, s, p))
		}
		distort(&p, raw)
		for _, s := range []plan.Strategy{plan.Sticky(), plan.Ring(8)} {
			pl, err := s.Plan(p)
			if (err == nil) != (p.Validate() == nil) {
				t.Fatalf("planning says %v, validation %v", err, p.Validate())
			}
			if err == nil {
				check(t, p, pl)
			}
		}
	})
}

// distort overwrites fields with raw bytes.
func distort(p *plan.Problem, raw []byte) {
	for len(raw) >= 9 {
		x := binary.LittleEndian.Uint64(raw[1:9])
		at := int(x>>32) % 64
		switch raw[0] % 6 {
		case 0:
			if at < len(p.Weights) {
				p.Weights[at] = x
			}
		case 1:
			if at < len(p.Owners) {
				p.Owners[at] = int32(x)
			}
		case 2:
			p.Overrides = append(p.Overrides, plan.Override{Slot: int(int32(x)), Worker: "w1"})
		case 3:
			p.Workers = append(p.Workers, plan.Worker{ID: fmt.Sprintf("w%d", x%16), Weight: float64(int32(x))})
		case 4:
			p.Budget = int(int32(x))
		case 5:
			p.Slots += int(int8(x))
		}
		raw = raw[9:]
	}
}
