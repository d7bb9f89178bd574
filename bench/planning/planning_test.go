package planning

import "testing"

func TestEveryPlannerPlansTheSmallCases(t *testing.T) {
	var small []Case
	for _, c := range Cases() {
		if c.Slots < 10_000 {
			small = append(small, c)
		}
	}
	results, err := Measure(small, Planners(), 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		switch r.Planner {
		case "muster sticky":
			if r.Moves != r.Fewest || r.Max-r.Min > 1 {
				t.Errorf("%s: %d moves to %d to %d slots each, the fewest are %d", r.Case, r.Moves, r.Min, r.Max, r.Fewest)
			}
		case "franz-go cooperative, adjusting":
			if r.Moves != 0 || r.Max != 0 {
				t.Errorf("%s: a part of planning has an outcome: %+v", r.Case, r)
			}
		case "ring, 160 virtual nodes":
			if r.Max-r.Min < 10 {
				t.Errorf("%s: %d to %d slots each: a ring cannot be that even", r.Case, r.Min, r.Max)
			}
		default:
			if r.Moves < r.Fewest || r.Max-r.Min > 1 {
				t.Errorf("%s: %s makes %d moves to %d to %d slots each, the fewest are %d", r.Case, r.Planner, r.Moves, r.Min, r.Max, r.Fewest)
			}
		}
	}
}

func TestFewest(t *testing.T) {
	even := func(slots, workers int) []int32 {
		owners := make([]int32, slots)
		for s := range owners {
			owners[s] = int32(s % workers)
		}
		return owners
	}
	for _, tt := range []struct {
		name    string
		before  []int32
		workers int
		want    int
	}{
		{"joins take what they need", even(2400, 30), 45, 795},
		{"leavers give what they have", even(2400, 45), 30, 795},
		{"the dead lose what they had", even(2400, 30), 29, 80},
		{"uneven starts are evened out", []int32{0, 0, 0, 0, 1, -1}, 2, 2},
	} {
		if got := fewest(tt.before, tt.workers); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func BenchmarkPlanning(b *testing.B) {
	for _, c := range Cases() {
		for _, p := range Planners() {
			b.Run(p.Name+"/"+c.Name, func(b *testing.B) {
				run, err := p.Prepare(c)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if run.Reset != nil {
						b.StopTimer()
						run.Reset()
						b.StartTimer()
					}
					run.Plan()
				}
				if run.Outcome == nil {
					return
				}
				before, after := run.Outcome()
				moves := 0
				for s := range after {
					if before[s] != after[s] {
						moves++
					}
				}
				b.ReportMetric(float64(moves), "moves")
			})
		}
	}
}
