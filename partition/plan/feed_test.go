package plan

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomBalance is a balance of up to n workers that own slots at random.
func randomBalance(tb testing.TB, r *rand.Rand, n, slots int) *balance {
	tb.Helper()
	n, slots = 1+r.IntN(n), 1+r.IntN(slots)
	capacities := make([]float64, n)
	alike := r.IntN(2) == 0
	for i := range capacities {
		capacities[i] = 1
		if !alike {
			capacities[i] = float64(1 + r.IntN(3))
		}
	}
	f := newTakers(tb, capacities...)
	f.p.Slots = slots
	most := 1 + r.Uint64N(60)
	for range slots {
		f.p.Weights = append(f.p.Weights, r.Uint64N(most+1))
		f.p.Owners = append(f.p.Owners, int32(r.IntN(n)))
	}
	b := newBalance(f)
	b.share()
	return b
}

// What is picked weighs what was asked for, to within half the tolerance, or no
// exchange of up to two slots for up to two comes nearer.
func TestPickedSlotsWeighWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(21, 22))
	for i := range 5000 {
		b := randomBalance(t, r, 1, 7)
		b.within = r.Int64N(8)
		give, most := r.Int64N(b.load[0]+1), r.Int64N(60)
		picked := b.pick(0, give, most)
		var m market
		excess := -give
		for _, s := range picked {
			excess += b.weight[s]
			m.weight = append(m.weight, b.weight[s])
		}
		m.gives = len(picked)
		for s, w := range b.weight {
			if !slices.Contains(picked, int32(s)) {
				m.weight = append(m.weight, w)
			}
		}
		m.takes = len(b.weight) - m.gives
		if len(m.weight) != len(b.weight) {
			t.Fatalf("case %d: of %d slots %v are picked", i, len(b.weight), picked)
		}
		far := max(excess, -excess)
		if far <= b.within/2 {
			continue
		}
		m.home = make([]int32, len(m.weight))
		for _, give := range m.bundles(0, m.gives, 2) {
			for _, take := range m.bundles(m.gives, m.takes, 2) {
				delta, _ := m.value(give, take)
				if nearer := excess - delta; max(nearer, -nearer) < far {
					t.Fatalf("case %d: picked of %v is %d too much, %d would be nearer", i, b.weight, excess, nearer)
				}
			}
		}
	}
}

func TestOfferedSlotsGoToTheWorkerThatLacksMost(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(23, 24))
	for i := range 5000 {
		b := randomBalance(t, r, 5, 12)
		b.lacking = 1 + r.Int64N(40)
		var hungry []int32
		var offers []offer
		for _, w := range b.f.takers {
			if b.dev(w) < 0 {
				hungry = append(hungry, w)
				continue
			}
			for _, s := range slices.Clone(b.slots[w]) {
				if r.IntN(2) == 0 {
					offers = append(offers, offer{slot: s, giver: w})
					b.take(s)
				}
			}
		}
		if len(hungry) == 0 {
			continue
		}
		slices.SortFunc(offers, func(x, y offer) int { return b.heavier(x.slot, y.slot) })

		owner, load := slices.Clone(b.owner), slices.Clone(b.load)
		dev := func(w int32) int64 { return load[w] - b.target[w] }
		count := slices.Clone(b.count)
		moves := false
		for _, o := range offers {
			taker := slices.MinFunc(hungry, func(v, w int32) int {
				ws := b.f.p.Workers
				return cmp.Or(cmp.Compare(dev(v), dev(w)),
					cmp.Compare(float64(load[v])*ws[w].Weight, float64(load[w])*ws[v].Weight),
					cmp.Compare(count[v], count[w]),
					cmp.Compare(b.f.rank[v], b.f.rank[w]))
			})
			if dev(taker) >= dev(o.giver) || dev(taker)+b.weight[o.slot] > b.lacking/2 {
				taker = o.giver
			} else {
				moves = true
			}
			owner[o.slot] = taker
			load[taker] += b.weight[o.slot]
			count[taker]++
		}
		if moved := b.serve(slices.Clone(hungry), offers); moved != moves || !slices.Equal(b.owner, owner) {
			t.Fatalf("case %d: the offers %v to %v end at %v, moved %t, want %v, %t", i, offers, hungry, b.owner, moved, owner, moves)
		}
		for _, o := range offers {
			if b.fed[o.slot] != (owner[o.slot] != o.giver) {
				t.Fatalf("case %d: slot %d is fed: %t", i, o.slot, b.fed[o.slot])
			}
		}
	}
}

// Slots heavier than any worker lacks, or than twice what is left to pick, are
// passed over, and what is within half the tolerance stays as it was picked.
func TestPickTakesHeavySlotsFirst(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		weights            []uint64
		give, most, within int64
		want               []int32
	}{
		{[]uint64{50, 20, 10, 10}, 50, 50, 30, []int32{0}},
		{[]uint64{50, 20, 10, 10}, 50, 49, 30, []int32{1, 2, 3}},
		{[]uint64{50, 20, 10, 10}, 50, 20, 30, []int32{1, 2, 3}},
		{[]uint64{20, 5}, 10, 99, 30, []int32{1}},
		{[]uint64{20, 5}, 11, 99, 30, []int32{0}},
		{[]uint64{14, 10}, 10, 99, 8, []int32{0}},
		{[]uint64{14, 10}, 10, 99, 7, []int32{1}},
	} {
		f := newTakers(t, 1)
		f.p.Slots, f.p.Weights, f.p.Owners = len(tt.weights), tt.weights, make([]int32, len(tt.weights))
		b := newBalance(f)
		b.within = tt.within
		if got := b.pick(0, tt.give, tt.most); !slices.Equal(got, tt.want) {
			t.Errorf("of %v with a tolerance of %d slots %v are picked for %d of at most %d each, want %v", tt.weights, tt.within, got, tt.give, tt.most, tt.want)
		}
	}
}

func TestFeedingTakesFromEachGiverItsPart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name            string
		slots           [][]uint64 // per worker
		within, lacking int64
		want            []int64
	}{
		{
			// 15 are wanted of an excess of 20, so each gives 7 of 10. The third
			// worker is short of too little.
			name:   "in proportion to its excess",
			slots:  [][]uint64{slices.Repeat([]uint64{1}, 40), slices.Repeat([]uint64{1}, 40), slices.Repeat([]uint64{1}, 25), slices.Repeat([]uint64{1}, 15)},
			within: 0, lacking: 10, want: []int64{33, 33, 25, 29},
		}, {
			name:   "in slots no heavier than what is lacked",
			slots:  [][]uint64{{30, 10, 10, 10}, {20}},
			within: 40, lacking: 5, want: []int64{40, 40},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newTakers(t, slices.Repeat([]float64{1}, len(tt.slots))...)
			for w, slots := range tt.slots {
				f.p.Slots += len(slots)
				f.p.Weights = append(f.p.Weights, slots...)
				f.p.Owners = append(f.p.Owners, slices.Repeat([]int32{int32(w)}, len(slots))...)
			}
			b := newBalance(f)
			b.share()
			b.within, b.lacking = tt.within, tt.lacking
			if moved := b.feed(); !moved || !slices.Equal(b.load, tt.want) {
				t.Errorf("moved %t, loads are %v, want %v", moved, b.load, tt.want)
			}
		})
	}
}

// A quarter of the tolerance is not worth a trade, even a free one.
func TestFreeTradesNeedAGap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		within int64
		want   bool
	}{{within: 15, want: true}, {within: 16, want: false}} {
		f := newTakers(t, 1, 1)
		f.p.Slots, f.p.Weights, f.p.Owners = 3, []uint64{8, 6, 2}, []int32{0, 1, 0}
		b := newBalance(f)
		b.share()
		b.within = tt.within
		for s := range b.home {
			b.home[s] = None
		}
		if got := b.trade(onlyFree); got != tt.want {
			t.Errorf("a gap of 4 with a tolerance of %d: traded %t, want %t", tt.within, got, tt.want)
		}
	}
}
