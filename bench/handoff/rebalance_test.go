package handoff

import (
	"slices"
	"testing"
	"time"
)

func TestUnitsTakeTurns(t *testing.T) {
	units := map[int]int{1: 10, 2: 10, 3: 11, 4: 12, 5: 10, 6: 12}
	order := evenly(units)
	if want := []int{1, 3, 4, 2, 3, 6, 5, 3, 4}; !slices.Equal(order, want) {
		t.Errorf("the order is %v, want %v", order, want)
	}
	if got, want := firstOfEach(order, units), []int{1, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("the first keys are %v, want %v", got, want)
	}
}

func TestMovesAreCountedUntilTheLastOwnerWorks(t *testing.T) {
	since := at(0, 0, 0, 10, 0).start
	runs := []run{
		at(0, 1, 0, 1, 5), at(0, 1, 1, 20, 25), // stays
		at(0, 2, 0, 1, 5), at(1, 2, 1, 30, 35), at(2, 2, 2, 50, 55), at(2, 2, 3, 70, 75), // moves twice
		at(0, 3, 0, 1, 5), at(1, 3, 1, 80, 85), at(0, 3, 2, 90, 95), // moves, and back again
		at(1, 4, 0, 20, 25), at(1, 4, 1, 99, 100), // had no owner before
	}
	n, last := moves(runs, since)
	if n != 4 || last != 40*time.Millisecond {
		t.Errorf("%d moves, the last after %v; want 4 and 40ms", n, last)
	}
}

func TestTheLongestGapIsWhileAMessageWaits(t *testing.T) {
	since := at(0, 0, 0, 10, 0).start
	waits := func(r run, arrived int) run {
		r.arrived = at(0, 0, 0, arrived, 0).start
		return r
	}
	for _, tt := range []struct {
		name string
		runs []run
		want []time.Duration
	}{
		{"from the arrival", []run{at(0, 1, 0, 1, 5), waits(at(0, 1, 1, 40, 41), 30)}, []time.Duration{10 * time.Millisecond}},
		{"from the end before", []run{at(0, 1, 0, 1, 20), waits(at(1, 1, 1, 40, 41), 12)}, []time.Duration{20 * time.Millisecond}},
		{"from the change", []run{at(0, 1, 0, 1, 5), waits(at(1, 1, 1, 40, 41), 2)}, []time.Duration{30 * time.Millisecond}},
		{"the longest", []run{at(0, 1, 0, 1, 5), waits(at(0, 1, 1, 15, 16), 12), waits(at(0, 1, 2, 25, 26), 19), waits(at(0, 1, 3, 30, 31), 29)},
			[]time.Duration{6 * time.Millisecond}},
		{"beside another", []run{at(0, 1, 0, 1, 50), waits(at(0, 1, 1, 40, 41), 12)}, []time.Duration{0}},
		{"beside one that goes on", []run{at(0, 1, 0, 1, 0), waits(at(0, 1, 1, 40, 41), 12)}, nil},
		{"before the change", []run{at(0, 1, 0, 1, 5)}, nil},
	} {
		if got := gaps(tt.runs, since); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestAStepIsTheMedianOfItsRuns(t *testing.T) {
	run := func(contender string, consuming time.Duration, moves int, longest time.Duration) RebalanceRun {
		return RebalanceRun{Contender: contender, Findings: Findings{Published: 10, Duplicates: 1},
			Steps: []Step{{Name: oneLeaves, From: 9, To: 8, Consuming: consuming, Moves: moves, Pause: Spread{N: 90, Max: longest}}}}
	}
	runs := []RebalanceRun{run("a", 3, 30, 5), run("a", 1, 10, 9), run("b", 100, 1, 1), run("a", 2, 20, 7)}
	s, f, n := StepOf(runs, "a", oneLeaves)
	want := Step{Name: oneLeaves, From: 9, To: 8, Consuming: 2, Moves: 20, Pause: Spread{N: 90, Max: 9}}
	if s != want || f != (Findings{Published: 30, Duplicates: 3}) || n != 3 {
		t.Errorf("%+v, %+v of %d runs, want %+v", s, f, n, want)
	}
	if _, _, n := StepOf(runs, "a", oneKilled); n != 0 {
		t.Errorf("%d runs of a step that was not made", n)
	}
}

// TestRebalancesLoseNothing makes all steps with a small group of Muster's.
func TestRebalancesLoseNothing(t *testing.T) {
	load := QuickRebalance()
	load.Keys, load.Partitions, load.Consumers, load.Rest = 120, 20, 3, 500*time.Millisecond
	c := Rebalancers(false)[0]
	runs, err := MeasureRebalances(t.Context(), c, load)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range StepNames() {
		s, f, n := StepOf(runs, c.Name, name)
		if n != 1 {
			t.Errorf("%s: %d runs", name, n)
			continue
		}
		if f.Lost+f.Concurrent+f.OutOfOrder > 0 {
			t.Errorf("%s: %+v", name, f)
		}
		if s.Moves == 0 || s.Consuming <= 0 || s.Pause.N != load.Partitions {
			t.Errorf("%+v", s)
		}
	}
}
