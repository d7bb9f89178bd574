package uchart

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// inTheirOrder is counts with contexts taken oldest first, as it is defined.
func inTheirOrder(points []Point, names *Chart, svid int) bool {
	layouts := layoutsOf(points, names)
	up, down, seen := true, true, false
	for step := range names.Steps {
		var mixed bool
		var n, forth, back int
		var before [2]float64
		for i := range points {
			low, ok := layouts[i].value(points[i].Chart, svid, step, Min)
			high, _ := layouts[i].value(points[i].Chart, svid, step, Max)
			if !ok {
				continue
			}
			now := [2]float64{low, high}
			switch {
			case n == 0, now == before:
			case low >= before[1]:
				forth++
			case high <= before[0]:
				back++
			default:
				mixed = true
			}
			n, before = n+1, now
		}
		if n == 0 {
			continue
		}
		seen = true
		enough := !mixed && n >= counterContexts
		up = up && enough && 3*forth >= n-1 && counterStarts*back <= n-1
		down = down && enough && 3*back >= n-1 && counterStarts*forth <= n-1
	}
	return seen && (up || down)
}

// TestCounters compares with the definition, where sensors count, rest, start again, wander, are
// missing in a context or come in another order.
func TestCounters(t *testing.T) {
	found := map[bool]int{}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		points := countingPoints(random, 8+random.IntN(60))
		newest := points[len(points)-1].Chart
		told := map[string]bool{}
		for _, name := range (Policy{}).counters(points) {
			told[name] = true
		}
		for svid, name := range newest.SVIDs {
			want := len(points) >= counterContexts && inTheirOrder(points, newest, svid)
			found[want]++
			if told[name] != want {
				t.Fatalf("seed %d: that %s counts is %t, want %t", seed, name, told[name], want)
			}
		}
	}
	points := overlapping()
	if n := testing.AllocsPerRun(10, func() { (Policy{}).counters(points) }); n > 1 {
		t.Errorf("%g allocations where no sensor counts, want at most 1", n)
	}
	if found[true] < 100 || found[false] < 100 {
		t.Errorf("%v sensors count and not: the test shows little", found)
	}
}

// countingPoints are contexts of sensors of all kinds.
func countingPoints(random *rand.Rand, n int) []Point {
	const sensors = 8
	levels, rises, toAndFro := make([]float64, sensors), make([]float64, sensors), make([]bool, sensors)
	for i := range rises {
		rises[i] = []float64{0, 1, -1, 1, -1, 0.1, 0}[random.IntN(7)]
		toAndFro[i] = random.IntN(4) == 0
	}
	points := make([]Point, n)
	for at := range points {
		chart := &Chart{Steps: []int32{1, 2}}
		for i, svid := range random.Perm(sensors) {
			if at%7 > 0 {
				svid = i
			}
			if random.IntN(60) == 0 {
				continue
			}
			chart.SVIDs = append(chart.SVIDs, fmt.Sprint("s", svid))
			if random.IntN(100) == 0 {
				levels[svid] = 0
			}
			if toAndFro[svid] {
				levels[svid] = float64(random.IntN(2))
			}
			levels[svid] += rises[svid] * float64(random.IntN(3))
			for step := range 2 {
				var values [NumStatistics]float64
				valid := uint8(0)
				if random.IntN(40) > 0 {
					low := levels[svid] + float64(step)/4
					values[Min], values[Max], valid = low, low+0.5*float64(random.IntN(40)/39), 1<<Min|1<<Max
				}
				chart.Values, chart.Valid = append(chart.Values, values[:]...), append(chart.Valid, valid)
			}
		}
		points[at].Chart = chart
	}
	return points
}

// overlapping are 100 contexts whose sensors vary, as those that don't count do.
func overlapping() []Point {
	random := rand.New(rand.NewPCG(1, 2))
	points := make([]Point, 100)
	svids := make([]string, 19)
	for i := range svids {
		svids[i] = fmt.Sprint("s", i)
	}
	for at := range points {
		chart := &Chart{SVIDs: svids, Steps: []int32{1, 2}}
		for range 2 * len(svids) {
			var values [NumStatistics]float64
			values[Min] = random.Float64()
			values[Max] = values[Min] + 5
			chart.Values, chart.Valid = append(chart.Values, values[:]...), append(chart.Valid, 1<<Min|1<<Max)
		}
		points[at].Chart = chart
	}
	return points
}

func BenchmarkCounters(b *testing.B) {
	points := overlapping()
	b.ReportAllocs()
	for b.Loop() {
		if list := (Policy{}).counters(points); len(list) > 0 {
			b.Fatal(list)
		}
	}
}
