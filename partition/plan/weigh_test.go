package plan

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// consistent fails unless what the balance counts is what its owners add up to.
func consistent(t *testing.T, b *balance) {
	t.Helper()
	moved := 0
	load, count := make([]int64, len(b.load)), make([]int32, len(b.load))
	slots := make([][]int32, len(b.load))
	for s, w := range b.owner {
		if h := b.home[s]; h != None && h != w {
			moved++
		}
		load[w] += b.weight[s]
		count[w]++
		slots[w] = append(slots[w], int32(s))
	}
	for w := range slots {
		slices.SortFunc(slots[w], b.heavier)
	}
	if b.moved != moved || !slices.Equal(b.load, load) || !slices.Equal(b.count, count) || !slices.EqualFunc(b.slots, slots, slices.Equal) {
		t.Fatalf("%d moved, loads %v, %v slots each, which are %v; owners are %v, homes %v: want %d, %v, %v and %v",
			b.moved, b.load, b.count, b.slots, b.owner, b.home, moved, load, count, slots)
	}
}

// The heaviest goes to the least loaded worker first, and slots without weight
// go to the workers with the fewest slots.
func TestOrphansGoToTheLeastLoaded(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(25, 26))
	for range 3000 {
		p := *randomBalance(t, r, 4, 14).f.p
		for s := range p.Owners {
			switch r.IntN(4) {
			case 0:
				p.Weights[s] = 0
			case 1:
				p.Owners[s] = None
			case 2:
				p.Weights[s], p.Owners[s] = r.Uint64N(4), Gone
			}
		}
		f, err := newFrame(&p)
		if err != nil {
			t.Fatal(err)
		}
		b := newBalance(f)
		owner, load, count := slices.Clone(b.owner), slices.Clone(b.load), slices.Clone(b.count)
		orphans := slices.SortedFunc(slices.Values(b.orphan), b.heavier)
		for _, s := range orphans {
			lightest := slices.MinFunc(f.takers, func(v, w int32) int {
				byLoad := cmp.Compare(float64(load[v])*p.Workers[w].Weight, float64(load[w])*p.Workers[v].Weight)
				byCount := cmp.Compare(count[v], count[w])
				if b.weight[s] == 0 {
					byLoad, byCount = byCount, byLoad
				}
				return cmp.Or(byLoad, byCount, cmp.Compare(f.rank[v], f.rank[w]))
			})
			owner[s] = lightest
			load[lightest] += b.weight[s]
			count[lightest]++
		}
		b.placeOrphans()
		if !slices.Equal(b.owner, owner) {
			t.Fatalf("orphans %v of weights %v go to %v, want %v", orphans, b.weight, b.owner, owner)
		}
		consistent(t, b)
	}
}

func TestTradingEndsWhenNoTradeImprovesTheBalance(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(27, 28))
	for i := range 4000 {
		b := randomBalance(t, r, 4, 9)
		b.f.p.Budget = r.IntN(6) - 1
		for s := range b.home {
			switch r.IntN(3) {
			case 0: // moves anyway
				b.home[s] = None
			case 1: // moved already
				b.home[s] = int32(r.IntN(len(b.load)))
				if b.home[s] != b.owner[s] {
					b.moved++
				}
			}
		}
		b.within, b.required = r.Int64N(12), b.moved+r.IntN(2)
		consistent(t, b)
		terms, moved, before := terms(r.IntN(2) == 0), b.moved, slices.Clone(b.owner)
		if traded := b.trade(terms); traded != !slices.Equal(before, b.owner) {
			t.Fatalf("case %d: traded %t, owners were %v and are %v", i, traded, before, b.owner)
		}
		consistent(t, b)
		maxCost := 0
		if terms == withinBudget {
			maxCost = maxTradeCost
			if limit := b.required + b.f.p.Budget; b.f.p.Budget >= 0 {
				maxCost = min(maxCost, limit-b.moved)
				if b.moved > limit {
					t.Fatalf("case %d: %d slots are moved, up to %d may be", i, b.moved, limit)
				}
			}
		} else if b.moved > moved {
			t.Fatalf("case %d: free trades move %d slots more", i, b.moved-moved)
		}
		for _, w := range b.f.takers {
			for _, v := range b.f.takers {
				gap := b.gap(w, v)
				if v == w || terms == onlyFree && gap <= b.within/4 || terms == withinBudget && !b.off(w) && !b.off(v) {
					continue
				}
				m := market{route: route{w, v}, gap: gap, gives: len(b.slots[w]), takes: len(b.slots[v])}
				for _, s := range slices.Concat(b.slots[w], b.slots[v]) {
					m.weight, m.home = append(m.weight, b.weight[s]), append(m.home, b.home[s])
				}
				if m.nearest(2, maxCost) < math.MaxInt64 {
					t.Fatalf("case %d: %d could trade with %d at a cost of at most %d: %+v", i, w, v, maxCost, m)
				}
			}
		}
	}
}

func TestGapIsWhatMustMoveForLoadsToChangePlaces(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(29, 30))
	for range 3000 {
		b := randomBalance(t, r, 3, 9)
		ws := b.f.p.Workers
		// squares is what trades lower, twice the load moved.
		squares := func(w, v int32, moved int64) int64 {
			x, y := b.load[w]-moved, b.load[v]+moved
			return x*x*int64(ws[v].Weight) + y*y*int64(ws[w].Weight)
		}
		for _, w := range b.f.takers {
			for _, v := range b.f.takers {
				gap := b.gap(w, v)
				for moved := int64(1); v != w && moved < 40; moved++ {
					if better := squares(w, v, moved) < squares(w, v, 0); better != (moved < gap) {
						t.Fatalf("loads %d and %d, capacities %v and %v: a gap of %d, but moving %d improves the balance: %t",
							b.load[w], b.load[v], ws[w].Weight, ws[v].Weight, gap, moved, better)
					}
				}
			}
		}
	}
}

func TestSharesLeaveOutOversizedSlots(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name            string
		workers         int
		weights         []uint64
		owners          []int32
		overrides       []Override
		target          []int64
		within, lacking int64
	}{
		{
			name: "even", workers: 2, weights: []uint64{400, 400, 400, 400}, owners: []int32{0, 0, 0, 0},
			target: []int64{800, 800}, within: 400 / 16, lacking: 400 + 1, // an average slot
		}, {
			name: "many small slots", workers: 2, weights: slices.Repeat([]uint64{200}, 100), owners: make([]int32, 100),
			target: []int64{10_000, 10_000}, within: 200 / 16, lacking: 10_000/20 + 1, // 5 % of a share
		}, {
			name: "one heavy slot and others without weight", workers: 2, weights: append([]uint64{40, 40}, make([]uint64, 98)...), owners: make([]int32, 100),
			target: []int64{40, 40}, within: 40 / tolerance, lacking: 40/20 + 1,
		}, {
			name: "little load beside an oversized slot", workers: 2, weights: append([]uint64{16, 10}, make([]uint64, 98)...), owners: make([]int32, 100),
			target: []int64{16, 10}, within: 0, lacking: 1 + 1, // a shortage of a unit is none
		}, {
			name: "the tolerance and a unit", workers: 3, weights: append([]uint64{16, 17, 17}, make([]uint64, 98)...), owners: make([]int32, 101),
			target: []int64{17, 17, 16}, within: 0, lacking: 2,
		}, {
			name: "a slot heavier than a share", workers: 3, weights: []uint64{1000, 32, 32, 32}, owners: []int32{1, 0, 0, 0},
			target: []int64{48, 1000, 48}, within: 48 / tolerance, lacking: 32 + 1,
		}, {
			name: "a slot as heavy as the highest share", workers: 3, weights: []uint64{4, 3, 3}, owners: []int32{0, 0, 0},
			target: []int64{4, 3, 3}, within: 0, lacking: 3 + 1,
		}, {
			name: "a slot that might be the highest share", workers: 3, weights: []uint64{4, 3, 2}, owners: []int32{0, 0, 0},
			target: []int64{3, 3, 3}, within: 0, lacking: 3 + 1,
		}, {
			name: "a slot a unit heavier", workers: 3, weights: []uint64{5, 2, 2}, owners: []int32{0, 0, 0},
			target: []int64{5, 2, 2}, within: 0, lacking: 2 + 1,
		}, {
			name: "two on one worker", workers: 3, weights: []uint64{1000, 900, 40, 40}, owners: []int32{0, 0, 1, 1},
			target: []int64{1000, 490, 490}, within: 490 / tolerance, lacking: 326 + 1,
		}, {
			name: "two on two workers", workers: 3, weights: []uint64{1000, 900, 40, 40}, owners: []int32{0, 1, 1, 1},
			target: []int64{1000, 900, 80}, within: 40 / 16, lacking: 40 + 1,
		}, {
			name: "one becomes heavier than a share because of another", workers: 3, weights: []uint64{1000, 300, 40, 40}, owners: []int32{0, 1, 2, 2},
			target: []int64{1000, 300, 80}, within: 40 / 16, lacking: 40 + 1,
		}, {
			name: "an overridden slot heavier than a share", workers: 2, weights: []uint64{1000, 32, 32, 32}, owners: []int32{0, 0, 0, 0}, overrides: []Override{{0, "w0"}},
			target: []int64{1000, 96}, within: 32 / 16, lacking: 274 + 1,
		}, {
			name: "two overridden slots on one worker", workers: 2, weights: []uint64{300, 500, 32, 32}, owners: []int32{0, 0, 0, 0}, overrides: []Override{{0, "w0"}, {1, "w0"}},
			target: []int64{800, 64}, within: 32 / 16, lacking: 216 + 1, // the average of 4 slots
		}, {
			name: "an oversized slot beside an overridden one", workers: 2, weights: []uint64{100, 500, 20, 20}, owners: []int32{0, 0, 0, 1}, overrides: []Override{{0, "w0"}},
			target: []int64{600, 40}, within: 1, lacking: 13 + 1,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newTakers(t, slices.Repeat([]float64{1}, tt.workers)...)
			p := f.p
			p.Slots, p.Weights, p.Owners, p.Overrides = len(tt.weights), tt.weights, tt.owners, tt.overrides
			f, err := newFrame(p)
			if err != nil {
				t.Fatal(err)
			}
			b := newBalance(f)
			b.share()
			if !slices.Equal(b.target, tt.target) || b.least != slices.Min(tt.target) {
				t.Errorf("targets are %v, at least %d, want %v", b.target, b.least, tt.target)
			}
			if b.within != tt.within || b.lacking != tt.lacking {
				t.Errorf("a tolerance of %d, a shortage from %d, want %d and %d", b.within, b.lacking, tt.within, tt.lacking)
			}
		})
	}
}

// As many moves count as balance as feeding took: the ones that fed, then others
// to the workers that were hungry, then any.
func TestMovesThatFeedingTookAreBalance(t *testing.T) {
	t.Parallel()
	for required := range 6 {
		f := newTakers(t, 1, 1, 1)
		f.p.Slots, f.p.Weights, f.p.Owners = 5, []uint64{1, 1, 1, 1, 2}, []int32{0, 0, 0, 0, None}
		b := newBalance(f)
		b.owner = []int32{1, 2, 1, 2, 0}
		b.fed, b.hungry, b.required = make([]bool, 5), []bool{false, false, true}, required
		b.fed[2] = true
		pl := b.finish()
		want := []Reason{Tuning, Tuning, Tuning, Tuning, Unowned}
		for _, s := range []int{2, 1, 3, 0}[:min(4, required)] {
			want[s] = Balance
		}
		for i, m := range pl.Moves {
			if m.Slot != i || m.Reason != want[i] {
				t.Errorf("%d required: move %d is %+v, want %v", required, i, m, want[i])
			}
		}
		if len(pl.Moves) != len(want) {
			t.Errorf("%d moves, want %d", len(pl.Moves), len(want))
		}
	}
}
