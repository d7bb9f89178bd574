package plan_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/partition/plan"
)

// defenders are n workers as a deployment names them.
func defenders(n int) []plan.Worker {
	ws := make([]plan.Worker, n)
	for i := range ws {
		ws[i].ID = fmt.Sprintf("defender-%d", i)
	}
	return ws
}

// chambers hashes 2,400 keys (600 tools of 4 chambers) into slots as the broker
// does, FNV-1a of the two subject tokens, and adds up their costs.
func chambers(slots int, cost func(key int) uint64) []uint64 {
	weights := make([]uint64, slots)
	for key := range 2400 {
		h := fnv.New32a()
		fmt.Fprintf(h, "tool%03dchamber%d", key/4+1, key%4+1)
		weights[h.Sum32()%uint32(slots)] += cost(key)
	}
	return weights
}

func oneEach(int) uint64 { return 1 }

// costClasses is 60 % light, 35 % middling and 5 % heavy keys, shuffled.
func costClasses() func(int) uint64 {
	classes := make([]uint64, 2400)
	for i := range classes {
		switch {
		case i < 1440:
			classes[i] = 30
		case i < 2280:
			classes[i] = 120
		default:
			classes[i] = 3600
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(classes), func(i, j int) { classes[i], classes[j] = classes[j], classes[i] })
	return func(key int) uint64 { return classes[key] }
}

// measured is what a handler took for each key, in microseconds: no two keys weigh the same.
func measured() func(int) uint64 {
	r := rand.New(rand.NewPCG(1, 2))
	weights := make([]uint64, 2400)
	for i := range weights {
		weights[i] = 1000 + r.Uint64N(1_000_000)
	}
	return func(key int) uint64 { return weights[key] }
}

func must(tb testing.TB, s plan.Strategy, p plan.Problem) plan.Plan {
	tb.Helper()
	pl, err := s.Plan(p)
	if err != nil {
		tb.Fatal(err)
	}
	check(tb, p, pl)
	return pl
}

// check fails unless the plan is one for the problem at all.
func check(tb testing.TB, p plan.Problem, pl plan.Plan) {
	tb.Helper()
	if len(pl.Owners) != p.Slots {
		tb.Fatalf("%d owners for %d slots", len(pl.Owners), p.Slots)
	}
	takers := slices.ContainsFunc(p.Workers, func(w plan.Worker) bool { return !w.Draining })
	next := 0
	for s, to := range pl.Owners {
		from := plan.None
		if p.Owners != nil {
			from = p.Owners[s]
		}
		switch {
		case to < plan.None || int(to) >= len(p.Workers):
			tb.Fatalf("slot %d is given to worker %d of %d", s, to, len(p.Workers))
		case takers && to == plan.None:
			tb.Fatalf("slot %d has no owner", s)
		case takers && p.Workers[to].Draining:
			tb.Fatalf("slot %d is given to draining %s", s, p.Workers[to].ID)
		}
		if to == from || to == plan.None {
			continue
		}
		if next >= len(pl.Moves) {
			tb.Fatalf("slot %d moves but is not in Moves", s)
		}
		if m := pl.Moves[next]; m.Slot != s || m.From != from || m.To != to {
			tb.Fatalf("move %d is %+v, want slot %d from %d to %d", next, m, s, from, to)
		}
		next++
	}
	if next != len(pl.Moves) {
		tb.Fatalf("%d moves listed, %d made", len(pl.Moves), next)
	}
	for _, override := range p.Overrides {
		i := slices.IndexFunc(p.Workers, func(w plan.Worker) bool { return w.ID == override.Worker && !w.Draining })
		if i >= 0 && pl.Owners[override.Slot] != int32(i) {
			tb.Fatalf("slot %d is on worker %d in spite of its override to %d", override.Slot, pl.Owners[override.Slot], i)
		}
	}
}

// renumber translates owners to the indexes of another list of workers; who is
// not in it is Gone.
func renumber(owners []int32, from, to []plan.Worker) []int32 {
	index := make(map[string]int32)
	for i, w := range to {
		index[w.ID] = int32(i)
	}
	out := make([]int32, len(owners))
	for s, o := range owners {
		out[s] = o
		if o >= 0 {
			i, ok := index[from[o].ID]
			if !ok {
				i = plan.Gone
			}
			out[s] = i
		}
	}
	return out
}

func count(pl plan.Plan, r plan.Reason) int {
	n := 0
	for _, m := range pl.Moves {
		if m.Reason == r {
			n++
		}
	}
	return n
}

func TestEqualSlotsMoveTheFewest(t *testing.T) {
	t.Parallel()
	const keys = 2400
	before := must(t, plan.Sticky(), plan.Problem{Slots: keys, Workers: defenders(30)})
	tests := []struct {
		name      string
		workers   []plan.Worker
		moves     int
		low, high int
	}{
		{"30 to 45 moves only what joining workers need", defenders(45), 795, 53, 54},
		{"one crash of 30 moves only what the dead owned", defenders(29), 80, 82, 83},
		{"30 to 20 moves only what the leavers owned", defenders(20), 800, 120, 120},
		{"one joining worker takes its share from all", defenders(31), 77, 77, 78},
		{"nothing changed moves nothing", defenders(30), 0, 80, 80},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := plan.Problem{Slots: keys, Workers: tt.workers, Owners: renumber(before.Owners, defenders(30), tt.workers)}
			pl := must(t, plan.Sticky(), p)
			if len(pl.Moves) != tt.moves || pl.Stats.LowerBound != tt.moves {
				t.Errorf("%d moves with a lower bound of %d, want %d", len(pl.Moves), pl.Stats.LowerBound, tt.moves)
			}
			if pl.Stats.MinSlots != tt.low || pl.Stats.MaxSlots != tt.high {
				t.Errorf("%d to %d slots each, want %d to %d", pl.Stats.MinSlots, pl.Stats.MaxSlots, tt.low, tt.high)
			}
			for _, m := range pl.Moves {
				if m.From >= 0 && m.To < 30 {
					t.Fatalf("slot %d moves between survivors", m.Slot)
				}
			}
		})
	}
}

func TestMillionSlotsOnTenThousandWorkers(t *testing.T) {
	t.Parallel()
	const slots = 1_000_000
	before := must(t, plan.Sticky(), plan.Problem{Slots: slots, Workers: defenders(10_000)})
	if st := before.Stats; st.MinSlots != 100 || st.MaxSlots != 100 {
		t.Errorf("%d to %d slots each, want 100", st.MinSlots, st.MaxSlots)
	}
	after := must(t, plan.Sticky(), plan.Problem{Slots: slots, Workers: defenders(10_100), Owners: before.Owners})
	if st := after.Stats; len(after.Moves) != 9900 || st.MinSlots != 99 || st.MaxSlots != 100 {
		t.Errorf("%d moves to %d to %d slots each, want 9900 to 99 to 100", len(after.Moves), st.MinSlots, st.MaxSlots)
	}
}

// The case that the design is measured by: 2,400 chambers in slots that weigh
// as many as they hold, 30 workers to 45 and back, and a crash.
func TestChambersInSlotsStayEven(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{512, 1024} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			t.Parallel()
			weights := chambers(slots, oneEach)
			problem := func(n int, owners []int32) plan.Problem {
				return plan.Problem{Slots: slots, Weights: weights, Workers: defenders(n), Owners: owners, Budget: -1}
			}
			expect := func(name string, pl plan.Plan, low, high, moved uint64) {
				t.Helper()
				t.Logf("%s: %d slots, %d chambers moved, %d tuning, %d to %d chambers each", name,
					len(pl.Moves), pl.Stats.MovedWeight, count(pl, plan.Tuning), pl.Stats.MinLoad, pl.Stats.MaxLoad)
				if pl.Stats.MinLoad != low || pl.Stats.MaxLoad != high || pl.Stats.MovedWeight > moved {
					t.Errorf("%s: want at most %d moved, %d to %d each", name, moved, low, high)
				}
			}
			start := must(t, plan.Sticky(), problem(30, nil))
			expect("start", start, 80, 80, 2400)
			up := must(t, plan.Sticky(), problem(45, start.Owners))
			expect("30 to 45", up, 53, 54, 830)
			down := must(t, plan.Sticky(), problem(30, renumber(up.Owners, defenders(45), defenders(30))))
			expect("45 to 30", down, 80, 80, 830)

			crash := problem(29, renumber(start.Owners, defenders(30), defenders(29)))
			tuned := must(t, plan.Sticky(), crash)
			expect("crash, tuned", tuned, 82, 83, 160)
			crash.Budget = 0
			urgent := must(t, plan.Sticky(), crash)
			if len(urgent.Moves) != count(urgent, plan.OwnerGone) || urgent.Stats.MovedWeight != 80 {
				t.Errorf("crash without budget: %d moves of %d chambers, want only the dead one's 80",
					len(urgent.Moves), urgent.Stats.MovedWeight)
			}
			if urgent.Stats.WorstOverMean > 1.07 {
				t.Errorf("crash without budget: worst load is %.3f of the mean", urgent.Stats.WorstOverMean)
			}
		})
	}
}

func TestChambersStayEvenThroughJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	const slots = 512
	weights := chambers(slots, oneEach)
	r := rand.New(rand.NewPCG(3, 4))
	n := 30
	owners := must(t, plan.Sticky(), plan.Problem{Slots: slots, Weights: weights, Workers: defenders(n), Budget: -1}).Owners
	var moved, needed uint64
	for range 40 {
		before := n
		n = min(60, max(20, n+r.IntN(21)-10))
		owners = renumber(owners, defenders(before), defenders(n))
		load := make([]uint64, n)
		for s, o := range owners {
			if o >= 0 {
				load[o] += weights[s]
			} else {
				needed += weights[s]
			}
		}
		for _, l := range load {
			if ceil := uint64(2400+n-1) / uint64(n); l > ceil {
				needed += l - ceil
			}
		}
		pl := must(t, plan.Sticky(), plan.Problem{Slots: slots, Weights: weights, Workers: defenders(n), Owners: owners, Budget: -1})
		if pl.Stats.MaxLoad-pl.Stats.MinLoad > 1 {
			t.Errorf("%d to %d: %d to %d chambers each", before, n, pl.Stats.MinLoad, pl.Stats.MaxLoad)
		}
		moved += pl.Stats.MovedWeight
		owners = pl.Owners
	}
	t.Logf("moved %d chambers in 40 changes, at least %d had to", moved, needed)
	if float64(moved) > 1.3*float64(needed) {
		t.Errorf("moved %d chambers, %d had to", moved, needed)
	}
}

func TestCostClassesAreBalancedWithFewMoves(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{512, 1024} {
		t.Run(fmt.Sprintf("%d slots", slots), func(t *testing.T) {
			t.Parallel()
			weights := chambers(slots, costClasses())
			change := func(from, to int, owners []int32) plan.Plan {
				t.Helper()
				owners = renumber(owners, defenders(from), defenders(to))
				p := plan.Problem{Slots: slots, Weights: weights, Workers: defenders(to), Owners: owners, Budget: -1}
				pl := must(t, plan.Sticky(), p)
				p.Weights = nil
				byCount := must(t, plan.Sticky(), p)
				t.Logf("%d to %d: worst over mean %.4f, %d moves (%d tuning), by count alone %d",
					from, to, pl.Stats.WorstOverMean, len(pl.Moves), count(pl, plan.Tuning), len(byCount.Moves))
				if pl.Stats.WorstOverMean > 1.05 {
					t.Errorf("%d to %d: worst load is %.4f of the mean", from, to, pl.Stats.WorstOverMean)
				}
				return pl
			}
			start := must(t, plan.Sticky(), plan.Problem{Slots: slots, Weights: weights, Workers: defenders(30), Budget: -1})
			up := change(30, 45, start.Owners)
			evenCount := must(t, plan.Sticky(), plan.Problem{Slots: slots, Workers: defenders(30)})
			optimum := len(must(t, plan.Sticky(), plan.Problem{Slots: slots, Workers: defenders(45), Owners: evenCount.Owners}).Moves)
			if float64(len(up.Moves)) > 1.1*float64(optimum) {
				t.Errorf("30 to 45: %d moves, the optimum by count is %d", len(up.Moves), optimum)
			}
			change(45, 30, up.Owners)
			change(30, 29, start.Owners)
		})
	}
}

func TestBudgetLimitsTuningOnly(t *testing.T) {
	t.Parallel()
	weights := chambers(512, costClasses())
	start := must(t, plan.Sticky(), plan.Problem{Slots: 512, Weights: weights, Workers: defenders(30)})
	for _, n := range []int{29, 31, 45} {
		owners := renumber(start.Owners, defenders(30), defenders(n))
		worst := math.Inf(1)
		for _, budget := range []int{0, 1, 5, 20, math.MaxInt, -1} {
			p := plan.Problem{Slots: 512, Weights: weights, Workers: defenders(n), Owners: owners, Budget: budget}
			pl := must(t, plan.Sticky(), p)
			if tuning := count(pl, plan.Tuning); budget >= 0 && tuning > budget {
				t.Errorf("%d workers: %d moves tune, the budget is %d", n, tuning, budget)
			}
			if pl.Stats.WorstOverMean > worst {
				t.Errorf("%d workers: a budget of %d makes the worst load %.4f, a lower one %.4f", n, budget, pl.Stats.WorstOverMean, worst)
			}
			worst = pl.Stats.WorstOverMean
			if n == 45 && pl.Stats.MinLoad < 576_000/45*9/10 {
				t.Errorf("joining workers must get their share whatever the budget: least load %d", pl.Stats.MinLoad)
			}
		}
	}
}

func TestReasons(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		problem plan.Problem
		owners  []int32
		reasons []plan.Reason
	}{
		{
			name:    "nobody owned it",
			problem: plan.Problem{Slots: 2, Workers: defenders(1), Owners: []int32{plan.None, 0}},
			owners:  []int32{0, 0}, reasons: []plan.Reason{plan.Unowned},
		}, {
			name:    "its owner is gone",
			problem: plan.Problem{Slots: 2, Workers: defenders(1), Owners: []int32{plan.Gone, 0}},
			owners:  []int32{0, 0}, reasons: []plan.Reason{plan.OwnerGone},
		}, {
			name: "its owner is draining",
			problem: plan.Problem{Slots: 2, Owners: []int32{0, 1},
				Workers: []plan.Worker{{ID: "a", Draining: true}, {ID: "b"}}},
			owners: []int32{1, 1}, reasons: []plan.Reason{plan.OwnerDraining},
		}, {
			name: "it is overridden, and balance gives way",
			problem: plan.Problem{Slots: 2, Workers: defenders(2), Owners: []int32{0, 1},
				Overrides: []plan.Override{{Slot: 0, Worker: "defender-1"}, {Slot: 1, Worker: "defender-1"}}},
			owners: []int32{1, 1}, reasons: []plan.Reason{plan.Overridden},
		}, {
			name:    "a joining worker lacks load",
			problem: plan.Problem{Slots: 2, Workers: defenders(2), Owners: []int32{0, 0}},
			owners:  []int32{0, 1}, reasons: []plan.Reason{plan.Balance},
		}, {
			name: "uneven weights are tuned",
			problem: plan.Problem{Slots: 4, Weights: []uint64{6, 5, 5, 2}, Workers: defenders(2),
				Owners: []int32{0, 0, 1, 1}, Budget: -1},
			owners: []int32{0, 1, 1, 0}, reasons: []plan.Reason{plan.Tuning, plan.Tuning}, // 11 and 7 to 8 and 10
		}, {
			name: "nothing is tuned without a budget",
			problem: plan.Problem{Slots: 4, Weights: []uint64{6, 5, 5, 2}, Workers: defenders(2),
				Owners: []int32{0, 0, 1, 1}},
			owners: []int32{0, 0, 1, 1},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pl := must(t, plan.Sticky(), tt.problem)
			if !slices.Equal(pl.Owners, tt.owners) {
				t.Errorf("owners are %v, want %v", pl.Owners, tt.owners)
			}
			var reasons []plan.Reason
			for _, m := range pl.Moves {
				reasons = append(reasons, m.Reason)
				if text := plan.Explain(tt.problem, m); !strings.Contains(text, fmt.Sprintf("slot %d ", m.Slot)) {
					t.Errorf("the explanation %q does not name the slot", text)
				}
			}
			if !slices.Equal(reasons, tt.reasons) {
				t.Errorf("reasons are %v, want %v", reasons, tt.reasons)
			}
		})
	}
}

func TestEdges(t *testing.T) {
	t.Parallel()
	draining := defenders(3)
	for i := range draining {
		draining[i].Draining = true
	}
	tests := []struct {
		name    string
		problem plan.Problem
		want    func(plan.Plan) bool
	}{
		{"the zero problem has an empty plan", plan.Problem{},
			func(pl plan.Plan) bool { return len(pl.Owners) == 0 && len(pl.Moves) == 0 }},
		{"without workers nobody owns anything", plan.Problem{Slots: 3, Owners: []int32{plan.Gone, plan.None, plan.Gone}},
			func(pl plan.Plan) bool {
				return slices.Equal(pl.Owners, []int32{plan.None, plan.None, plan.None}) && len(pl.Moves) == 0
			}},
		{"workers without slots get none", plan.Problem{Workers: defenders(3)},
			func(pl plan.Plan) bool { return len(pl.Owners) == 0 && pl.Stats.MaxSlots == 0 }},
		{"of more workers than slots some get one", plan.Problem{Slots: 3, Workers: defenders(5)},
			func(pl plan.Plan) bool { return pl.Stats.MaxSlots == 1 && pl.Stats.MinSlots == 0 }},
		{"who drains keeps what nobody can take", plan.Problem{Slots: 3, Workers: draining, Owners: []int32{2, plan.None, plan.Gone}},
			func(pl plan.Plan) bool {
				return slices.Equal(pl.Owners, []int32{2, plan.None, plan.None}) && len(pl.Moves) == 0
			}},
		{"slots that all weigh nothing are counted", plan.Problem{Slots: 4, Weights: make([]uint64, 4), Workers: defenders(2)},
			func(pl plan.Plan) bool { return pl.Stats.MinSlots == 2 && pl.Stats.WorstOverMean == 0 }},
		{"slots without weight are spread", plan.Problem{Slots: 7, Weights: []uint64{5, 0, 0, 0, 0, 0, 0}, Workers: defenders(2)},
			func(pl plan.Plan) bool { return pl.Stats.MinSlots >= 3 }},
		{"the largest weights do not overflow", plan.Problem{Slots: 4, Weights: []uint64{1 << 58, 1 << 58, 1<<58 - 1, 1}, Workers: defenders(2), Owners: []int32{0, 0, 0, 0}, Budget: -1},
			func(pl plan.Plan) bool { return pl.Stats.MaxLoad <= 1<<59 }},
		{"a slot above the mean is alone and the others are even", plan.Problem{Slots: 11,
			Weights: []uint64{100, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, Workers: defenders(3), Owners: []int32{0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
			func(pl plan.Plan) bool { return pl.Stats.MaxLoad == 100 && pl.Stats.MinLoad == 5 }},
		{"an override to an absent worker is ignored with a note", plan.Problem{Slots: 1, Workers: defenders(1), Overrides: []plan.Override{{Slot: 0, Worker: "x"}}},
			func(pl plan.Plan) bool { return len(pl.Notes) == 1 && strings.Contains(pl.Notes[0], `"x" is absent`) }},
		{"an override to a draining worker is ignored with a note", plan.Problem{Slots: 1, Overrides: []plan.Override{{Slot: 0, Worker: "a"}},
			Workers: []plan.Worker{{ID: "a", Draining: true}, {ID: "b"}}},
			func(pl plan.Plan) bool {
				return len(pl.Notes) == 1 && strings.Contains(pl.Notes[0], `"a" is draining`) && pl.Owners[0] == 1
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if pl := must(t, plan.Sticky(), tt.problem); !tt.want(pl) {
				t.Errorf("the plan is %+v", pl)
			}
			must(t, plan.Ring(0), tt.problem)
		})
	}
}

func TestCapacityIsProportional(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		weights []float64
		want    []int
	}{
		{"zero means one", []float64{0, 1, 2}, []int{25, 25, 50}},
		{"a third", []float64{1, 3}, []int{25, 75}},
		{"not whole in binary", []float64{0.1, 0.4, 0.5}, []int{10, 40, 50}},
		{"very different", []float64{1e-30, 1e30}, []int{0, 100}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ws := defenders(len(tt.weights))
			for i, w := range tt.weights {
				ws[i].Weight = w
			}
			uneven := make([]uint64, 100)
			for s := range uneven {
				uneven[s] = uint64(1000 + s%2)
			}
			for _, weights := range [][]uint64{nil, uneven} {
				pl := must(t, plan.Sticky(), plan.Problem{Slots: 100, Weights: weights, Workers: ws})
				got := make([]int, len(ws))
				for _, o := range pl.Owners {
					got[o]++
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("slots are %v, want %v", got, tt.want)
				}
			}
		})
	}
}

func TestMeasureTellsWorstAndExcess(t *testing.T) {
	t.Parallel()
	p := plan.Problem{Slots: 4, Weights: []uint64{6, 2, 1, 1}, Workers: defenders(2)}
	got, err := plan.Measure(p, []int32{0, 0, 1, plan.None})
	if want := (plan.Evenness{WorstOverMean: 8 / 4.5, Excess: 3, Short: 3}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := plan.Measure(p, []int32{0}); err == nil {
		t.Error("owners of another problem are measured")
	}
	if got, err := plan.Measure(plan.Problem{Slots: 1}, []int32{plan.Gone}); err != nil || got != (plan.Evenness{}) {
		t.Errorf("nobody: %+v, %v", got, err)
	}
}

func TestRemaindersGoRoundTheZones(t *testing.T) {
	t.Parallel()
	ws := defenders(9)
	for i := range ws {
		ws[i].Zone = string(rune('a' + i/3))
	}
	for _, weights := range [][]uint64{nil, {2, 1, 1, 1, 1, 1}} {
		slots := 6
		pl := must(t, plan.Sticky(), plan.Problem{Slots: slots, Weights: weights, Workers: ws})
		inZone := make(map[string]int)
		for _, o := range pl.Owners {
			inZone[ws[o].Zone]++
		}
		if inZone["a"] != 2 || inZone["b"] != 2 || inZone["c"] != 2 {
			t.Errorf("slots in zones: %v, want 2 each", inZone)
		}
	}
}

func TestValidateReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	p := plan.Problem{
		Slots:     4,
		Weights:   []uint64{math.MaxUint64, 1},
		Workers:   []plan.Worker{{ID: "a"}, {ID: ""}, {ID: "a"}, {ID: "b", Weight: -1}, {ID: "c", Weight: math.NaN()}},
		Owners:    []int32{5, -3, 0},
		Overrides: []plan.Override{{Slot: 4, Worker: "a"}, {Slot: 1, Worker: "a"}, {Slot: 1, Worker: "b"}},
	}
	err := p.Validate()
	for _, field := range []string{"Weights", "Workers[1].ID", "Workers[2].ID", "Workers[3].Weight", "Workers[4].Weight",
		"Owners", "Owners[0]", "Owners[1]", "Overrides[0].Slot", "Overrides[2]"} {
		if !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s is not named in\n%v", field, err)
		}
	}
	var fault *plan.FieldError
	if !errors.As(err, &fault) || fault.Field == "" {
		t.Errorf("%v holds no FieldError", err)
	}
	for _, s := range []plan.Strategy{plan.Sticky(), plan.Ring(0)} {
		if _, got := s.Plan(p); got == nil || got.Error() != err.Error() {
			t.Errorf("planning fails with %v, want %v", got, err)
		}
	}
	if err := (plan.Problem{Slots: -1}).Validate(); err == nil || !strings.Contains(err.Error(), "Slots: -1") {
		t.Errorf("negative Slots: %v", err)
	}
	many := plan.Problem{Slots: 1000, Owners: make([]int32, 1000)}
	if err := many.Validate(); err == nil || !strings.Contains(err.Error(), "992 more") {
		t.Errorf("a thousand faults alike: %v", err)
	}
}

func TestRingIsWhatTheLiteratureSays(t *testing.T) {
	t.Parallel()
	p := plan.Problem{Slots: 2400, Workers: defenders(30)}
	before := must(t, plan.Ring(160), p)
	after := must(t, plan.Ring(160), plan.Problem{Slots: 2400, Workers: defenders(45), Owners: before.Owners})
	if n := len(after.Moves); n < 700 || n > 900 {
		t.Errorf("%d moves, want about 800", n)
	}
	for _, m := range after.Moves {
		if m.To < 30 {
			t.Fatalf("slot %d moves between survivors", m.Slot)
		}
	}
	if st := after.Stats; st.MaxSlots <= 54 {
		t.Errorf("%d to %d slots each: a ring cannot be that even", st.MinSlots, st.MaxSlots)
	}
	double := defenders(30)
	double[7].Weight = 2
	n := 0
	for _, o := range must(t, plan.Ring(160), plan.Problem{Slots: 2400, Workers: double}).Owners {
		if o == 7 {
			n++
		}
	}
	if n < 110 || n > 200 {
		t.Errorf("a worker of twice the capacity gets %d slots, want about 155", n)
	}
}

func TestReasonsHaveNames(t *testing.T) {
	t.Parallel()
	for r := plan.Unowned; r <= plan.Tuning; r++ {
		if s := r.String(); s == "" || strings.HasPrefix(s, "Reason(") {
			t.Errorf("reason %d is called %q", r, s)
		}
	}
	if got := plan.Reason(99).String(); got != "Reason(99)" {
		t.Errorf("an unknown reason is called %q", got)
	}
}

func TestTheLargestProblemsAreValid(t *testing.T) {
	t.Parallel()
	most := int64(math.MaxInt32)
	for name, tt := range map[string]struct {
		problem plan.Problem
		valid   bool
	}{
		"the most slots":      {plan.Problem{Slots: int(most)}, true},
		"one slot more":       {plan.Problem{Slots: int(most + 1)}, false},
		"the largest weights": {plan.Problem{Slots: 2, Weights: []uint64{1<<60 - 1, 1}}, true},
		"one unit more":       {plan.Problem{Slots: 2, Weights: []uint64{1 << 60, 1}}, false},
	} {
		if err := tt.problem.Validate(); (err == nil) != tt.valid {
			t.Errorf("%s: %v, want valid: %t", name, err, tt.valid)
		}
	}
}

func TestEightFaultsOfAListAreSpeltOut(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{7: "", 8: "", 9: "plan: Owners: has 1 more faults", 11: "plan: Owners: has 3 more faults"} {
		err := plan.Problem{Slots: n, Owners: make([]int32, n)}.Validate()
		if err == nil {
			t.Fatalf("%d slots of no worker are accepted", n)
		}
		lines := strings.Split(err.Error(), "\n")
		spelt := 0
		for _, line := range lines {
			if strings.Contains(line, "Owners[") {
				spelt++
			}
		}
		if last := lines[len(lines)-1]; spelt != min(n, 8) || want != "" && last != want || want == "" && len(lines) != n {
			t.Errorf("%d faults: %d are spelt out, the last line is %q, want %d and %q", n, spelt, last, min(n, 8), want)
		}
	}
}

func TestIndexesThatAreNoWorkersAreNobody(t *testing.T) {
	t.Parallel()
	p := plan.Problem{Slots: 2, Workers: defenders(1)}
	for _, to := range []int32{1, plan.None, plan.Gone} {
		want := "slot 1 moves from nobody to nobody: an override keeps it there"
		if got := plan.Explain(p, plan.Move{Slot: 1, From: to, To: to, Reason: plan.Overridden}); got != want {
			t.Errorf("worker %d of 1: %q, want %q", to, got, want)
		}
		if got, err := plan.Measure(p, []int32{0, to}); err != nil || got != (plan.Evenness{WorstOverMean: 1}) {
			t.Errorf("a slot of worker %d of 1 is measured as %+v, %v", to, got, err)
		}
	}
	if got := (plan.Tuning + 1).String(); got != "Reason(6)" {
		t.Errorf("the reason after the last is called %q", got)
	}
}

func TestARingHasThePointsThatItIsGiven(t *testing.T) {
	t.Parallel()
	p := plan.Problem{Slots: 200, Workers: defenders(5)}
	usual := must(t, plan.Ring(plan.DefaultVirtualNodes), p)
	for n, same := range map[int]bool{0: true, -1: true, 1: false, 2: false} {
		if pl := must(t, plan.Ring(n), p); slices.Equal(pl.Owners, usual.Owners) != same {
			t.Errorf("a ring of %d points per worker plans like one of %d: %t, want %t", n, plan.DefaultVirtualNodes, !same, same)
		}
	}
}

func TestWeightsThatAreAllEqualPlanLikeNone(t *testing.T) {
	t.Parallel()
	before := must(t, plan.Sticky(), plan.Problem{Slots: 40, Workers: defenders(3)})
	p := plan.Problem{Slots: 40, Workers: defenders(5), Owners: before.Owners}
	want := must(t, plan.Sticky(), p)
	p.TuneOnly = true // which means nothing where nothing has a weight
	if pl := must(t, plan.Sticky(), p); !slices.Equal(pl.Owners, want.Owners) {
		t.Errorf("with TuneOnly the owners are %v, want %v", pl.Owners, want.Owners)
	}
	p.TuneOnly, p.Weights = false, slices.Repeat([]uint64{7}, 40)
	if pl := must(t, plan.Sticky(), p); !slices.Equal(pl.Owners, want.Owners) || pl.Stats.LowerBound != want.Stats.LowerBound {
		t.Errorf("with equal weights the owners are %v, at least %d moves, want %v and %d", pl.Owners, pl.Stats.LowerBound, want.Owners, want.Stats.LowerBound)
	}
}

func TestMeasureAddsUpTheExcessOfAll(t *testing.T) {
	t.Parallel()
	p := plan.Problem{Slots: 5, Weights: []uint64{8, 7, 3, 1, 1}, Workers: defenders(4)}
	got, err := plan.Measure(p, []int32{0, 1, 2, 3, 3})
	if want := (plan.Evenness{WorstOverMean: 8. / 5, Excess: 3 + 2, Short: 2 + 3}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

// TestMeasureTellsWhoIsShort: shares are rounded up for the excess and down for what is
// missing, so two workers with the larger share hide nothing of the third.
func TestMeasureTellsWhoIsShort(t *testing.T) {
	t.Parallel()
	p := plan.Problem{Slots: 10, Workers: defenders(3)}
	for _, tt := range []struct {
		counts []int
		short  uint64
	}{{[]int{4, 3, 3}, 0}, {[]int{4, 4, 2}, 1}, {[]int{4, 6, 0}, 3}} {
		var owners []int32
		for w, n := range tt.counts {
			owners = append(owners, slices.Repeat([]int32{int32(w)}, n)...)
		}
		if got, err := plan.Measure(p, owners); err != nil || got.Short != tt.short {
			t.Errorf("%v: %+v, %v; want %d short", tt.counts, got, err, tt.short)
		}
	}
}

func TestFaultsOfManySlotsAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		problem plan.Problem
		want    string
	}{
		{plan.Problem{Slots: 3, Weights: []uint64{1 << 59, 1 << 59, 1}},
			"plan: Weights: the sum overflows at slot 2: it must not exceed 1152921504606846976"},
		{plan.Problem{Slots: 3, Workers: defenders(1), Overrides: []plan.Override{{Slot: 3, Worker: "defender-0"}}},
			"plan: Overrides[0].Slot: 3 is outside 0 to 2"},
	} {
		if err := tt.problem.Validate(); err == nil || err.Error() != tt.want {
			t.Errorf("%v, want %s", err, tt.want)
		}
	}
}

// One worker of two has everything. It has to give what is more than a balanced
// plan could leave it: a share, 4 % of it or the heaviest slot, and a unit.
func TestLowerBoundOfUnequalWeights(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		weights []uint64
		want    int
	}{
		{"a slot beyond the heaviest must go", []uint64{2, 3, 3}, 0},                                                                 // a share of 4 and 1 + 3: 8 may stay
		{"the heaviest slot may be in excess", append(slices.Repeat([]uint64{10}, 9), 6), 4},                                         // 96: 48 and 11 may stay, 37 go
		{"exactly three slots are too many", append(slices.Repeat([]uint64{10}, 8), 2), 3},                                           // 82: 41 and 11 may stay, 30 go
		{"one unit more takes another slot", append(slices.Repeat([]uint64{10}, 8), 4), 4},                                           // 84: 42 and 11 may stay, 31 go
		{"4 % may be in excess if no slot is heavier", append(slices.Repeat([]uint64{2}, 99), slices.Repeat([]uint64{1}, 2)...), 48}, // 200: 100, 4 and 1 may stay, 95 go
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := plan.Problem{Slots: len(tt.weights), Weights: tt.weights, Workers: defenders(2), Owners: make([]int32, len(tt.weights)), Budget: -1}
			if got := must(t, plan.Sticky(), p).Stats.LowerBound; got != tt.want {
				t.Errorf("at least %d moves, want %d", got, tt.want)
			}
		})
	}
}
