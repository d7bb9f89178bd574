package plan

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestHighestFirstSortsByValueThenIndex(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(33, 34))
	for i := range 300 {
		weight := make([]int64, r.IntN(1+i*10))
		most := int64(1) << r.IntN(60)
		for s := range weight {
			weight[s] = r.Int64N(most+1) - most/2
		}
		b := &balance{weight: weight}
		want := make([]int32, len(weight))
		for s := range want {
			want[s] = int32(s)
		}
		slices.SortFunc(want, b.heavier)
		if got := highestFirst(weight); !slices.Equal(got, want) {
			t.Fatalf("values %v are in order %v, want %v", weight, got, want)
		}
	}
}

// standingsAtRandom are n standings, many of which differ by rank only.
func standingsAtRandom(r *rand.Rand, n int) []standing {
	list := make([]standing, n)
	for i := range list {
		list[i] = standing{first: r.Int64N(6), second: r.Int64N(3), rank: int32(i)}
	}
	return list
}

func compareStandings(x, y standing) int {
	return cmp.Or(cmp.Compare(x.first, y.first), cmp.Compare(x.second, y.second), cmp.Compare(x.rank, y.rank))
}

func TestStandingsAreAHeap(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(35, 36))
	for range 500 {
		list := standingsAtRandom(r, 1+r.IntN(30))
		h := standings(slices.Clone(list[:len(list)/2]))
		h.init()
		for _, x := range list[len(list)/2:] {
			h.push(x)
		}
		h[0].first += r.Int64N(9)
		list[h[0].rank] = h[0]
		h.down(0)

		slices.SortFunc(list, compareStandings)
		for _, want := range list {
			if got := h.pop(); got != want {
				t.Fatalf("popped %+v, want %+v", got, want)
			}
		}
	}
}

func TestPartnersStayInOrder(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(37, 38))
	for range 500 {
		list := standingsAtRandom(r, 1+r.IntN(12))
		p := partners{rest: slices.Clone(list)}
		p.rest.init()
		for range 20 {
			slices.SortFunc(list, compareStandings)
			n := r.IntN(len(list)) + 1
			for i := range n {
				if got, ok := p.at(i); !ok || got != list[i] {
					t.Fatalf("partner %d is %+v, %t, want %+v", i, got, ok, list[i])
				}
			}
			list[n-1].first += r.Int64N(7) - 3
			p.replace(n-1, list[n-1])
		}
		for i := range len(list) {
			p.at(i)
		}
		if _, ok := p.at(len(list)); ok {
			t.Fatalf("there are more than %d partners", len(list))
		}
	}
}

func TestPoolFindsWhatIsLeft(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(39, 40))
	for range 500 {
		items := make([]pooled, r.IntN(12))
		for i := range items {
			items[i] = pooled{value: r.Int64N(20), id: int32(i)}
		}
		slices.SortFunc(items, func(x, y pooled) int { return cmp.Compare(x.value, y.value) })
		p, left := newPool(items), slices.Clone(items)
		for len(left) > 0 {
			least := r.Int64N(22)
			i := slices.IndexFunc(left, func(x pooled) bool { return x.value >= least })
			at := p.find(least)
			if i < 0 {
				if at >= 0 {
					t.Fatalf("found %+v, want nothing of %d or more in %v", p.items[at], least, left)
				}
				i, at = len(left)-1, p.last()
			}
			if at < 0 || p.items[at] != left[i] {
				t.Fatalf("found place %d for %d, want %+v", at, least, left[i])
			}
			p.remove(at)
			left = slices.Delete(left, i, i+1)
		}
		if p.find(0) >= 0 || p.last() >= 0 {
			t.Fatal("an empty pool has items")
		}
	}
}

// Where all capacities are equal, shares are those that apportioning finds.
func TestEqualSharesAreTheApportionedOnes(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(41, 42))
	for i := range 4000 {
		n := 1 + r.IntN(8)
		f := newTakers(t, slices.Repeat([]float64{1}, n)...)
		f.p.Slots = r.IntN(20)
		most := 1 + r.Uint64N(60)
		for range f.p.Slots {
			w := r.Uint64N(most)
			if r.IntN(4) == 0 {
				w *= 10
			}
			f.p.Weights = append(f.p.Weights, w)
			f.p.Owners = append(f.p.Owners, int32(r.IntN(n)))
		}
		b := newBalance(f)
		b.share()
		got := slices.Clone(b.target)

		f.override = slices.Repeat([]int32{None}, f.p.Slots) // overrides, though of no slot
		b.share()
		if !slices.Equal(got, b.target) {
			t.Fatalf("case %d: slots %v of %v have targets %v, want %v", i, f.p.Weights, f.p.Owners, got, b.target)
		}
	}
}
