package e2e

import (
	"cmp"
	"slices"
)

// findings are what a comparison of all publications with all runs gives.
type findings struct {
	Published  int
	Completed  int
	Lost       int
	Concurrent int
	OutOfOrder int
	Duplicates int

	LostKeys []string // the first few, for a person
}

// examine compares what was published with what was processed. ended gives, by
// recorder file, when a killed incarnation was gone; its runs can't have gone on
// after that.
func examine(pubs []publication, runs []run, ended map[string]int64) findings {
	f := findings{Published: len(pubs)}
	completions := map[uint64]int{}
	for _, r := range runs {
		if r.ok {
			completions[r.seq]++
		}
	}
	for _, p := range pubs {
		if n := completions[p.Seq]; n > 0 {
			f.Completed++
			f.Duplicates += n - 1
			continue
		}
		f.Lost++
		if len(f.LostKeys) < 5 {
			f.LostKeys = append(f.LostKeys, p.Key)
		}
	}
	for _, rs := range byKey(runs) {
		f.Concurrent += overlaps(rs, ended)
	}
	order := map[string][]uint64{}
	for _, p := range pubs {
		order[p.Key] = append(order[p.Key], p.Seq)
	}
	for key, rs := range byKey(runs) {
		f.OutOfOrder += disorder(order[key], rs)
	}
	return f
}

func byKey(runs []run) map[string][]run {
	m := map[string][]run{}
	for _, r := range runs {
		m[r.key] = append(m[r.key], r)
	}
	for _, rs := range m {
		slices.SortFunc(rs, func(a, b run) int { return cmp.Compare(a.start, b.start) })
	}
	return m
}

// overlaps counts the runs of one key that begin while another is still under way.
func overlaps(rs []run, ended map[string]int64) int {
	n := 0
	var until int64
	for _, r := range rs {
		if r.start < until {
			n++
		}
		until = max(until, r.until(ended))
	}
	return n
}

// disorder counts the messages of one key that began before an earlier one had
// been completed.
func disorder(order []uint64, rs []run) int {
	slices.Sort(order)
	firstDone := map[uint64]int64{}
	firstStart := map[uint64]int64{}
	for _, r := range rs {
		if at, ok := firstStart[r.seq]; !ok || r.start < at {
			firstStart[r.seq] = r.start
		}
		if at, ok := firstDone[r.seq]; r.ok && (!ok || r.end < at) {
			firstDone[r.seq] = r.end
		}
	}
	n := 0
	for i := 1; i < len(order); i++ {
		start, started := firstStart[order[i]]
		done, isDone := firstDone[order[i-1]]
		if started && (!isDone || start < done) {
			n++
		}
	}
	return n
}
