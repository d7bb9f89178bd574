package planning

import (
	"fmt"
	"runtime"
	"slices"
	"time"
)

// Case is one change of the set of workers. Every planner starts from its own
// plan for the workers before.
type Case struct {
	Name   string
	Slots  int
	Before int // number of workers; they are numbered from 0
	After  int // number of workers; the highest numbers come or go
}

// Cases are the changes that are measured.
func Cases() []Case {
	return []Case{
		{Name: "30 to 45", Slots: 2400, Before: 30, After: 45},
		{Name: "45 to 30", Slots: 2400, Before: 45, After: 30},
		{Name: "crash of one", Slots: 2400, Before: 30, After: 29},
		{Name: "first plan", Slots: 1_000_000, Before: 0, After: 10_000},
		{Name: "100 join", Slots: 1_000_000, Before: 10_000, After: 10_100},
	}
}

// fewest is the least number of moves from these owners to any plan with
// balanced counts: what is beyond a worker's new size must move, and the larger
// sizes are best given to those who own most.
func fewest(before []int32, workers int) int {
	held := make([]int, workers)
	for _, w := range before {
		if w >= 0 && int(w) < workers {
			held[w]++
		}
	}
	slices.SortFunc(held, func(a, b int) int { return b - a })
	moves := len(before)
	for i, n := range held {
		size := len(before) / workers
		if i < len(before)%workers {
			size++
		}
		moves -= min(n, size)
	}
	return moves
}

// Run is a planner ready to plan one case.
type Run struct {
	// Reset, if there is one, is called before each Plan and not timed.
	Reset func()
	// Plan makes the plan of the case; it is what is timed. It can be called
	// again and again.
	Plan func()
	// Outcome returns the number of each slot's worker before the change, or
	// -1, and after. It is nil for a part of planning that has none.
	Outcome func() (before, after []int32)
}

// Planner is a contender.
type Planner struct {
	Name    string
	Prepare func(Case) (Run, error)
}

// Result is what a planner did in a case.
type Result struct {
	Case    string `json:"case"`
	Slots   int    `json:"slots"`
	Before  int    `json:"workers_before"`
	After   int    `json:"workers_after"`
	Planner string `json:"planner"`
	Moves   int    `json:"moves"`
	Fewest  int    `json:"fewest_moves"` // to balanced counts from the same start
	Min     int    `json:"min_slots"`
	Max     int    `json:"max_slots"`
	Median  int64  `json:"median_ns"`
	Best    int64  `json:"best_ns"`
	Runs    int    `json:"runs"`
	Allocs  uint64 `json:"allocs"`
	Bytes   uint64 `json:"bytes"`
}

// Measure runs every planner on every case: once to warm up, then at least
// minRuns times and until each case has taken atLeast. The planners take turns,
// so that a disturbance of the machine hits all of them.
func Measure(cases []Case, planners []Planner, minRuns int, atLeast time.Duration) ([]Result, error) {
	var results []Result
	for _, c := range cases {
		runs := make([]Run, len(planners))
		times := make([][]time.Duration, len(planners))
		for i, p := range planners {
			var err error
			if runs[i], err = p.Prepare(c); err != nil {
				return nil, fmt.Errorf("preparing %s for %s, %w", p.Name, c.Name, err)
			}
			timed(runs[i])
		}
		for start := time.Now(); len(times[0]) < minRuns || time.Since(start) < atLeast; {
			for i := range runs {
				times[i] = append(times[i], timed(runs[i]))
			}
		}
		for i, p := range planners {
			results = append(results, result(c, p, runs[i], times[i]))
		}
	}
	return results, nil
}

// timed collects first, so that nobody pays for another's garbage.
func timed(run Run) time.Duration {
	run.reset()
	runtime.GC()
	start := time.Now()
	run.Plan()
	return time.Since(start)
}

func (r Run) reset() {
	if r.Reset != nil {
		r.Reset()
	}
}

func result(c Case, p Planner, run Run, times []time.Duration) Result {
	slices.Sort(times)
	r := Result{
		Case: c.Name, Slots: c.Slots, Before: c.Before, After: c.After, Planner: p.Name,
		Median: int64(times[len(times)/2]), Best: int64(times[0]), Runs: len(times),
	}
	r.Allocs, r.Bytes = allocated(run)
	if run.Outcome == nil {
		return r
	}
	before, after := run.Outcome()
	r.Fewest = fewest(before, c.After)
	counts := make([]int, c.After)
	for s, w := range after {
		counts[w]++
		if before[s] != w {
			r.Moves++
		}
	}
	r.Min, r.Max = slices.Min(counts), slices.Max(counts)
	return r
}

func allocated(run Run) (objects, bytes uint64) {
	var before, after runtime.MemStats
	run.reset()
	runtime.GC()
	runtime.ReadMemStats(&before)
	run.Plan()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
}
