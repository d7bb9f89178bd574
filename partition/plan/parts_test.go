package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQueueHasTheFirstOnTop(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(15, 16))
	for range 2000 {
		n := 1 + r.IntN(12)
		key := make([]int, n)
		workers := make([]int32, n)
		for i := range workers {
			workers[i], key[i] = int32(i), r.IntN(20)
		}
		q := newQueue(workers, func(v, w int32) int {
			return cmp.Or(cmp.Compare(key[v], key[w]), cmp.Compare(v, w))
		})
		for range 2 * n {
			if first := slices.Index(key, slices.Min(key)); q.top() != int32(first) {
				t.Fatalf("%d is on top of %v, want %d", q.top(), key, first)
			}
			key[q.top()] += r.IntN(20)
			q.sink()
		}
	}
}

// weighted is a balance of workers with these loads, one slot each.
func weighted(tb testing.TB, capacities []float64, loads ...uint64) *balance {
	tb.Helper()
	f := newTakers(tb, capacities...)
	f.p.Slots, f.p.Weights = len(loads), loads
	for i := range loads {
		f.p.Owners = append(f.p.Owners, int32(i))
	}
	return newBalance(f)
}

func TestOrderByLoadSurvivesATrade(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(17, 18))
	for range 2000 {
		n := 1 + r.IntN(8)
		loads, capacities := make([]uint64, n), make([]float64, n)
		for i := range loads {
			loads[i], capacities[i] = r.Uint64N(12), float64(1+r.IntN(2))
		}
		b := weighted(t, capacities, loads...)
		order := slices.Clone(b.f.takers)
		slices.SortFunc(order, b.lighter)
		// A trade makes one lighter and then another heavier; resort sees both.
		w := int32(r.IntN(n))
		b.load[w] = r.Int64N(12)
		b.resort(order, w)
		if !slices.IsSortedFunc(order, b.lighter) {
			t.Fatalf("workers %v are not in order of their loads %v", order, b.load)
		}
	}
}

// Any first few workers are spread over the zones as evenly as these allow.
func TestRankGoesRoundTheZones(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(19, 20))
	for range 500 {
		p := &Problem{Workers: make([]Worker, 1+r.IntN(10))}
		size := make(map[string]int)
		for i := range p.Workers {
			zone := []string{"", "a", "b", "c"}[r.IntN(4)]
			p.Workers[i] = Worker{ID: fmt.Sprintf("w%02d", i), Zone: zone}
			size[zone]++
		}
		f, err := newFrame(p)
		if err != nil {
			t.Fatal(err)
		}
		in := make(map[string]int)
		for k, w := range f.takers {
			zone := p.Workers[w].Zone
			in[zone]++
			for other, n := range size {
				if in[other] < min(n, in[zone]-1) {
					t.Fatalf("worker %d in order of rank is number %d of zone %q, but of %q only %d came before: %v", k, in[zone], zone, other, in[other], f.takers)
				}
			}
			for _, v := range f.takers[:k] {
				if p.Workers[v].Zone == zone && v > w {
					t.Fatalf("%d comes before %d, which is in the same zone: %v", v, w, f.takers)
				}
			}
		}
	}
}

// A worker lacks load from its shortage on. Without any load it lacks some if
// its share is more than the tolerance.
func TestAWorkerLacksLoadFromItsShortageOn(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		load, target int64
		want         bool
	}{
		{load: 90, target: 100, want: false},
		{load: 81, target: 100, want: false},
		{load: 80, target: 100, want: true},
		{load: 120, target: 100, want: false},
		{load: 0, target: 0, want: false},
		{load: 0, target: 5, want: false},
		{load: 0, target: 6, want: true},
		{load: 1, target: 7, want: false},
	} {
		b := &balance{load: []int64{tt.load}, target: []int64{tt.target}, within: 4, lacking: 20}
		if got := b.lacks(0); got != tt.want {
			t.Errorf("a load of %d for a target of %d: lacks %t, want %t", tt.load, tt.target, got, tt.want)
		}
	}
}

// A load is off if it is beyond the tolerance. Of two targets one apart the
// higher may be any worker's, so the tolerance is from the lower one below and from
// the higher one above.
func TestALoadIsOffBeyondTheTolerance(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		equal        bool
		load, target int64
		want         bool
	}{
		{true, 100, 100, false}, {true, 105, 100, false}, {true, 106, 100, true}, {true, 96, 100, false}, {true, 95, 100, true},
		{true, 105, 101, false}, {true, 106, 101, true}, {true, 96, 101, false}, {true, 95, 101, true},
		{true, 107, 102, false}, {true, 108, 102, true}, {true, 98, 102, false}, {true, 97, 102, true},
		{false, 100, 100, false}, {false, 105, 100, false}, {false, 106, 100, true}, {false, 95, 100, false}, {false, 94, 100, true},
		{false, 106, 101, false}, {false, 107, 101, true}, {false, 96, 101, false}, {false, 95, 101, true},
	} {
		b := &balance{f: &frame{equal: tt.equal}, load: []int64{tt.load}, target: []int64{tt.target}, least: 100, within: 4}
		if got := b.off(0); got != tt.want {
			t.Errorf("a load of %d for a target of %d, equal capacity %t: off %t, want %t", tt.load, tt.target, tt.equal, got, tt.want)
		}
	}
}

func TestMovesTakeNoMoreMemoryThanTheyNeed(t *testing.T) {
	t.Parallel()
	for n := range 40 {
		p := Problem{Slots: n + 5, Workers: []Worker{{ID: "a", Draining: n == 7}}, Owners: make([]int32, n+5)}
		for s := range n {
			p.Owners[s] = None
		}
		pl, err := Sticky().Plan(p)
		if err != nil {
			t.Fatal(err)
		}
		if len(pl.Moves) != n && n != 7 || cap(pl.Moves) != len(pl.Moves) || (pl.Moves == nil) != (len(pl.Moves) == 0) {
			t.Errorf("%d slots to assign: %d moves, with room for %d, nil %t", n, len(pl.Moves), cap(pl.Moves), pl.Moves == nil)
		}
	}
}
