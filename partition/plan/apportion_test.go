package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// newTakers makes a frame of workers with these capacities, in order of rank.
func newTakers(tb testing.TB, capacities ...float64) *frame {
	tb.Helper()
	p := &Problem{Workers: make([]Worker, len(capacities))}
	for i, c := range capacities {
		p.Workers[i] = Worker{ID: fmt.Sprintf("w%d", i), Weight: c}
	}
	f, err := newFrame(p)
	if err != nil {
		tb.Fatal(err)
	}
	return f
}

// split is a problem of apportionment with capacities that are small integers,
// so that shares can be compared exactly.
type split struct {
	total                int
	capacity, base, held []int
}

// apportioned is what the code makes of it.
func (sp split) apportioned(tb testing.TB) []int {
	tb.Helper()
	capacities := make([]float64, len(sp.capacity))
	base, held := make([]uint64, len(sp.capacity)), make([]uint64, len(sp.capacity))
	for i, c := range sp.capacity {
		// A tenth isn't a binary fraction, so capacities are rounded.
		capacities[i], base[i], held[i] = float64(c)/10, uint64(sp.base[i]), uint64(sp.held[i])
	}
	var target []int
	for _, x := range newTakers(tb, capacities...).apportion(uint64(sp.total), base, held) {
		target = append(target, int(x))
	}
	return target
}

// shared returns the load that is shared out, and the capacity of those who share it, if
// the workers in keep have their base.
func (sp split) shared(keep uint) (total, all int) {
	total = sp.total
	for i, c := range sp.capacity {
		if keep>>i&1 == 1 {
			total -= sp.base[i]
		} else {
			all += c
		}
	}
	return total, all
}

// worth is what the ways to round shares are compared by: the most load stays
// where it is held, then the largest fractions are rounded up. If capacities are
// alike, the first workers come next. If not, equal fractions differ in the last
// bit, so which comes first is open.
func (sp split) worth(keep uint, target []int) (worth []int, valid bool) {
	total, all := sp.shared(keep)
	left, stay, fraction := total, 0, 0
	up := make([]int, len(target))
	for i, c := range sp.capacity {
		if keep>>i&1 == 1 {
			if target[i] != sp.base[i] || sp.base[i]*all <= total*c {
				return nil, false
			}
			continue
		}
		up[i] = target[i] - total*c/all
		rest := total * c % all
		if target[i] < sp.base[i] || up[i] < 0 || up[i] > min(1, rest) {
			return nil, false
		}
		left -= target[i]
		stay += min(sp.held[i], target[i])
		fraction += up[i] * rest
	}
	worth = []int{stay, fraction}
	if slices.Min(sp.capacity) == slices.Max(sp.capacity) {
		worth = append(worth, up...)
	}
	return worth, left == 0
}

// best tries every way to round the shares if the workers in keep have their
// base, which must be more than the share that they would get.
func (sp split) best(keep uint) (best []int) {
	total, all := sp.shared(keep)
	if total < 0 {
		return nil
	}
	target := make([]int, len(sp.base))
	for up := range uint(1) << len(sp.base) {
		for i, c := range sp.capacity {
			if keep>>i&1 == 1 {
				target[i] = sp.base[i]
			} else {
				target[i] = total*c/all + int(up>>i&1)
			}
		}
		if worth, valid := sp.worth(keep, target); valid && slices.Compare(worth, best) > 0 {
			best = worth
		}
	}
	return best
}

// isBest reports whether target is as good as the best rounding for a set of
// workers that keep their base, of which none could be left out.
func (sp split) isBest(target []int) bool {
	var possible []uint
	for keep := range uint(1) << len(target) {
		best := sp.best(keep)
		if best == nil || slices.ContainsFunc(possible, func(smaller uint) bool { return smaller&^keep == 0 }) {
			continue
		}
		possible = append(possible, keep)
		if worth, valid := sp.worth(keep, target); valid && slices.Equal(worth, best) {
			return true
		}
	}
	return false
}

func TestApportionmentIsTheBestOfAllRoundings(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	for range 20_000 {
		n := 1 + r.IntN(4)
		sp := split{total: r.IntN(25), capacity: make([]int, n), base: make([]int, n), held: make([]int, n)}
		alike := r.IntN(2) == 0
		free := sp.total
		for i := range n {
			sp.capacity[i] = 1
			if !alike {
				sp.capacity[i] += r.IntN(9)
			}
			if r.IntN(2) == 0 {
				sp.base[i] = r.IntN(free + 1)
				free -= sp.base[i]
			}
			sp.held[i] = sp.base[i] + r.IntN(8)
		}
		if got := sp.apportioned(t); !sp.isBest(got) {
			t.Fatalf("%+v is split into %v, which is no best way", sp, got)
		}
	}
}
