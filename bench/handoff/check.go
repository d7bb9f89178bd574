package handoff

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Findings are what a comparison of all published messages with all runs gives.
type Findings struct {
	Published  int `json:"published"`
	Lost       int `json:"lost"`         // never processed to the end
	Concurrent int `json:"concurrent"`   // begun while another of the same key went on
	OutOfOrder int `json:"out_of_order"` // begun for the first time before the one before was done
	Duplicates int `json:"duplicates"`   // processed to the end once more
}

// plus adds up what two examinations found.
func (f Findings) plus(g Findings) Findings {
	return Findings{f.Published + g.Published, f.Lost + g.Lost, f.Concurrent + g.Concurrent, f.OutOfOrder + g.OutOfOrder, f.Duplicates + g.Duplicates}
}

// examine compares what was published with what was processed.
func examine(published []message, runs []run) Findings {
	f := Findings{Published: len(published)}
	byKey := map[int][]run{}
	done := map[message]int{}
	for _, r := range runs {
		byKey[r.key] = append(byKey[r.key], r)
		if r.done {
			done[r.message]++
		}
	}
	order := map[int][]int{}
	for _, p := range published {
		order[p.key] = append(order[p.key], p.n)
		if n := done[p]; n == 0 {
			f.Lost++
		} else {
			f.Duplicates += n - 1
		}
	}
	for key, rs := range byKey {
		slices.SortFunc(rs, func(a, b run) int { return a.start.Compare(b.start) })
		f.Concurrent += overlaps(rs)
		f.OutOfOrder += disorder(order[key], rs)
	}
	return f
}

// overlaps counts the runs of one key, by their start, that begin while another
// one goes on.
func overlaps(rs []run) int {
	n := 0
	var until time.Time
	open := false
	for i, r := range rs {
		if i > 0 && (open || r.start.Before(until)) {
			n++
		}
		open = open || r.end.IsZero()
		if r.end.After(until) {
			until = r.end
		}
	}
	return n
}

// disorder counts the messages of one key whose first run begins before the
// first completion of the one before.
func disorder(order []int, rs []run) int {
	slices.Sort(order)
	begun, done := map[int]time.Time{}, map[int]time.Time{}
	for _, r := range rs { // by start
		if _, ok := begun[r.n]; !ok {
			begun[r.n] = r.start
		}
		if at, ok := done[r.n]; r.done && (!ok || r.end.Before(at)) {
			done[r.n] = r.end
		}
	}
	n := 0
	for i := 1; i < len(order); i++ {
		start, started := begun[order[i]]
		end, ended := done[order[i-1]]
		if started && (!ended || start.Before(end)) {
			n++
		}
	}
	return n
}

// pauses returns, for each unit that has been worked on by one worker and later
// by another after since, for how long nobody worked on it: from the former's
// last completion before that, or the arrival of the message if that was later,
// to the latter's first start. Where that start came before the completion it is
// 0.
func pauses(runs []run, since time.Time) []time.Duration {
	var out []time.Duration
	for _, rs := range byUnit(runs) {
		var last run
		var stopped time.Time
		for i, r := range rs {
			if i > 0 && r.worker != last.worker && r.start.After(since) {
				from := stopped
				if r.arrived.After(from) {
					from = r.arrived
				}
				out = append(out, max(0, r.start.Sub(from)))
				break // what comes later is a return to where it was
			}
			last = r
			if r.done && r.end.After(stopped) {
				stopped = r.end
			}
		}
	}
	return out
}

// takeovers returns, for each unit that a crashed worker had, how long after the crash
// another began its first message, or after the arrival of that message if it came later.
func takeovers(runs []run, crash time.Time, crashed func(worker int) bool) (took []time.Duration) {
	for _, rs := range byUnit(runs) {
		next := slices.IndexFunc(rs, func(r run) bool { return r.start.After(crash) })
		if next <= 0 || !crashed(rs[next-1].worker) {
			continue
		}
		from := crash
		if rs[next].arrived.After(from) {
			from = rs[next].arrived
		}
		took = append(took, rs[next].start.Sub(from))
	}
	return took
}

// byUnit returns the runs of each unit by their start.
func byUnit(runs []run) map[int][]run {
	of := map[int][]run{}
	for _, r := range runs {
		of[r.unit] = append(of[r.unit], r)
	}
	for _, rs := range of {
		slices.SortFunc(rs, func(a, b run) int { return a.start.Compare(b.start) })
	}
	return of
}

// Spread is a distribution of durations.
type Spread struct {
	N   int           `json:"n"`
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

func spread(ds []time.Duration) Spread {
	if len(ds) == 0 {
		return Spread{}
	}
	slices.Sort(ds)
	at := func(q float64) time.Duration { return ds[max(0, int(math.Ceil(q*float64(len(ds))))-1)] }
	return Spread{N: len(ds), P50: at(.5), P99: at(.99), Max: at(1)}
}

func median[T cmp.Ordered](xs []T) T {
	slices.Sort(xs)
	return xs[(len(xs)-1)/2]
}
