package handoff

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestAnOddKeyIsTheFirstOfAUnitThatHasOthers(t *testing.T) {
	units := map[int]int{0: 7, 1: 8, 2: 7, 3: 9, 4: 9, 5: 9}
	if got, want := oddKeys(units, 2), []int{0, 3}; !slices.Equal(got, want) {
		t.Errorf("odd keys are %v, want %v", got, want)
	}
	if got := oddKeys(units, 3); len(got) != 2 {
		t.Errorf("%d odd keys, want 2: unit 8 has one key only", len(got))
	}
}

func TestAScheduleChangesForOddKeysOnly(t *testing.T) {
	const keys, every, during = 20, time.Second, 10 * time.Second
	counts := func(all []due) map[int]int {
		n := map[int]int{}
		for _, d := range all {
			n[d.key]++
		}
		return n
	}
	others := func(all []due) []due {
		return slices.DeleteFunc(slices.Clone(all), func(d due) bool { return d.key == 3 })
	}

	none, hot := schedule(keys, every, during, []int{3}, 1), schedule(keys, every, during, []int{3}, 100)
	if !slices.Equal(others(none), others(hot)) {
		t.Error("the other keys' messages differ")
	}
	for key, n := range counts(none) {
		if n != 10 {
			t.Errorf("key %d has %d messages without a disturbance, want 10", key, n)
		}
	}
	if n := counts(hot)[3]; n != 1000 {
		t.Errorf("the hot key has %d messages, want 1000", n)
	}
	if !slices.IsSortedFunc(hot, func(a, b due) int { return int(a.at - b.at) }) {
		t.Error("it is not in order of time")
	}
}

func TestAPhaseTellsNeighborsFromOthers(t *testing.T) {
	// Key 1 is odd; key 2 has its unit, key 3 another.
	units := map[int]int{1: 10, 2: 10, 3: 11}
	runs := []run{at(0, 1, 5, 10, 50), at(0, 2, 5, 10, 20), at(1, 2, 5, 15, 16), at(0, 2, 6, 30, 31), at(0, 3, 5, 10, 12), at(0, 3, 4, 1, 2), at(0, 3, 6, 60, 0)}
	moment := func(ms int) time.Time { return at(0, 0, 0, ms, 0).start }
	sent := map[message]time.Time{{1, 5}: moment(9), {2, 5}: moment(6), {2, 6}: moment(28), {3, 5}: moment(2), {3, 6}: moment(58)}

	got := keyPhase(Disturbances()[1], runs, sent, []int{1}, units)
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	want := KeyPhase{
		Disturbance: Disturbances()[1],
		Neighbors:   Spread{N: 2, P50: ms(3), P99: ms(10), Max: ms(10)}, // the first end of a message that was done twice
		Odd:         Spread{N: 1, P50: ms(41), P99: ms(41), Max: ms(41)},
		Elsewhere:   Spread{N: 1, P50: ms(10), P99: ms(10), Max: ms(10)}, // neither what is of another phase nor what has not ended
	}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestARatioIsOfTheSameRound(t *testing.T) {
	phase := func(p99 time.Duration) KeyPhase { return KeyPhase{Neighbors: Spread{P99: p99}} }
	r := KeyResult{Rounds: [][]KeyPhase{{phase(2), phase(3)}, {phase(10), phase(10)}, {phase(4), phase(8)}}}
	if got := r.Ratio(1); got != 1.5 {
		t.Errorf("the ratio is %v, want 1.5, the median of 1.5, 1 and 2", got)
	}
	if got := r.Median(1, func(p KeyPhase) time.Duration { return p.Neighbors.P99 }); got != 8 {
		t.Errorf("the median is %d, want 8", got)
	}
	if got := (KeyResult{Rounds: [][]KeyPhase{{phase(0), phase(8)}}}).Ratio(1); got != 0 {
		t.Errorf("the ratio is %v where there is nothing to compare with", got)
	}
}

// TestDisturbedKeysLoseNothing disturbs keys for a moment with every contender on NATS.
func TestDisturbedKeysLoseNothing(t *testing.T) {
	load := QuickKeyLoad()
	load.Keys, load.Odd, load.Every, load.During = 80, 1, 200*time.Millisecond, time.Second
	for _, c := range KeyContenders() {
		if c.kafka != nil {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			r, err := MeasureKeys(t.Context(), c, load)
			if err != nil {
				t.Fatal(err)
			}
			if r.Lost > 0 {
				t.Errorf("%d messages are lost", r.Lost)
			}
			if ours := strings.HasPrefix(c.Name, "muster"); ours && r.Concurrent+r.OutOfOrder > 0 {
				t.Errorf("%d messages are concurrent, %d out of order", r.Concurrent, r.OutOfOrder)
			}
			for _, p := range r.Rounds[0] {
				if p.Neighbors.N == 0 || p.Odd.N == 0 || p.Elsewhere.N == 0 {
					t.Errorf("%s: %+v", p.Name, p)
				}
			}
		})
	}
}
