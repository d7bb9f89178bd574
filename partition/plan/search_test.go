package plan

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// market is two lists of slots to search for trades between. Slots are numbered
// through, those to give first.
type market struct {
	weight       []int64
	home         []int32
	gives, takes int
	route        route
	gap          int64
	maxCost      int
}

func (m market) search() (trade, bool) {
	b := &balance{weight: m.weight, home: m.home}
	var give, take []int32
	for s := range int32(m.gives + m.takes) {
		if int(s) < m.gives {
			give = append(give, s)
		} else {
			take = append(take, s)
		}
	}
	slices.SortFunc(give, b.heavier)
	slices.SortFunc(take, b.heavier)
	return b.search(give, take, m.route, m.gap, m.maxCost)
}

// bundles are all of up to n slots from first on.
func (m market) bundles(first, count, n int) [][]int {
	all := [][]int{nil}
	for s := first; s < first+count; s++ {
		all = append(all, []int{s})
		for t := s + 1; n > 1 && t < first+count; t++ {
			all = append(all, []int{s, t})
		}
	}
	return all
}

// value is the load that a trade moves and how many more slots are then away
// from home.
func (m market) value(give, take []int) (delta int64, cost int) {
	for _, s := range give {
		delta += m.weight[s]
		switch m.home[s] {
		case m.route.from:
			cost++
		case m.route.to:
			cost--
		}
	}
	for _, s := range take {
		delta -= m.weight[s]
		switch m.home[s] {
		case m.route.to:
			cost++
		case m.route.from:
			cost--
		}
	}
	return delta, cost
}

// nearest is the least miss of all trades of up to n slots a side that cost at
// most maxCost.
func (m market) nearest(n, maxCost int) int64 {
	least := int64(math.MaxInt64)
	for _, give := range m.bundles(0, m.gives, n) {
		for _, take := range m.bundles(m.gives, m.takes, n) {
			delta, cost := m.value(give, take)
			if cost <= maxCost && 0 < delta && delta < m.gap {
				least = min(least, max(2*delta-m.gap, m.gap-2*delta))
			}
		}
	}
	return least
}

// best is the miss of the cheapest trade that removes at least half of the gap,
// with single slots if they do, or else of the nearest. It also returns how many
// slots a side and which cost that takes.
func (m market) best() (miss int64, slots, cost int) {
	for cost := range m.maxCost + 1 {
		for n := 1; n <= 2; n++ {
			if miss = m.nearest(n, cost); miss <= m.gap/2 {
				return miss, n, cost
			}
		}
	}
	return miss, 2, m.maxCost
}

func ints(slots []int32) (out []int) {
	for _, s := range slots {
		out = append(out, int(s))
	}
	return out
}

// expect compares what the search finds with the best of all trades.
func (m market) expect(t *testing.T) {
	t.Helper()
	got, ok := m.search()
	miss, slots, maxCost := m.best()
	if m.maxCost < 0 {
		miss = math.MaxInt64
	}
	if ok != (miss < math.MaxInt64) || got.miss != miss {
		t.Fatalf("%+v: found %t with a miss of %d, the best has %d", m, ok, got.miss, miss)
	}
	if !ok {
		return
	}
	give, take := ints(got.give.slots()), ints(got.take.slots())
	delta, cost := m.value(give, take)
	if delta != got.delta() || max(2*delta-m.gap, m.gap-2*delta) != miss {
		t.Fatalf("%+v: giving %v for %v moves %d, the trade says %d and a miss of %d", m, give, take, delta, got.delta(), miss)
	}
	if len(give) > slots || len(take) > slots || cost > maxCost {
		t.Fatalf("%+v: giving %v for %v costs %d, %d slots at a cost of %d will do", m, give, take, cost, slots, maxCost)
	}
	seen := make(map[int]bool)
	for _, s := range give {
		if s >= m.gives || seen[s] {
			t.Fatalf("%+v: gives %v", m, give)
		}
		seen[s] = true
	}
	for _, s := range take {
		if s < m.gives || seen[s] {
			t.Fatalf("%+v: takes %v", m, take)
		}
		seen[s] = true
	}
	for _, bundle := range [][]int{give, take} {
		if len(bundle) == 2 && (m.weight[bundle[0]] == 0 || m.weight[bundle[1]] == 0) && m.singles(bundle) {
			t.Fatalf("%+v: %v are two slots where one weighs as much and costs no more", m, bundle)
		}
	}
}

// singles reports whether the heavier of two slots costs the same as both.
func (m market) singles(pair []int) bool {
	i := 0
	if m.weight[pair[1]] > m.weight[pair[0]] {
		i = 1
	}
	from, to := m.route.from, m.route.to
	return m.home[pair[1-i]] != from && m.home[pair[1-i]] != to
}

func TestSearchFindsTheCheapestTradeThatIsNearEnough(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(11, 12))
	for range 20_000 {
		m := market{gives: r.IntN(6), takes: r.IntN(5), route: route{from: 0, to: 1}, gap: 1 + r.Int64N(30), maxCost: r.IntN(6) - 1}
		most := 1 + r.Int64N(30)
		homes := []int32{0, 1, 2, None}
		if r.IntN(3) == 0 {
			homes = homes[:2]
		}
		if r.IntN(5) == 0 {
			m.route = nobody
			m.maxCost = 0
		}
		for range m.gives + m.takes {
			m.weight = append(m.weight, r.Int64N(most+1))
			m.home = append(m.home, homes[r.IntN(len(homes))])
		}
		m.expect(t)
	}
}

// Pairs are only tried in lists of up to maxPairing slots.
func TestSearchPairsSlotsOfShortListsOnly(t *testing.T) {
	t.Parallel()
	// Only 100 and 200 for 279, or 300 for 100 and 179, move 21 of a gap of 42.
	long := func(n int, first ...int64) []int64 {
		list := slices.Repeat([]int64{1 << 40}, n)
		copy(list, first)
		return list
	}
	for n := maxPairing - 1; n <= maxPairing+1; n++ {
		for _, lists := range [][2][]int64{
			{long(n, 100, 200), {279}},
			{{300}, long(n, 100, 179)},
		} {
			m := market{weight: slices.Concat(lists[0], lists[1]), gives: len(lists[0]), takes: len(lists[1]), route: route{0, 1}, gap: 42}
			m.home = slices.Repeat([]int32{None}, len(m.weight))
			got, ok := m.search()
			if exact := ok && got.miss == 0; exact != (n <= maxPairing) {
				t.Errorf("of %d slots to give and %d to take: found %t, %+v", m.gives, m.takes, ok, got)
			}
		}
	}
}
