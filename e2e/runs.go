package e2e

import (
	"bufio"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// run is one processing of one message by one defender.
type run struct {
	worker     string // stable ID
	file       string // one for each incarnation
	seq        uint64
	key        string
	slot       int
	start, end int64 // ns; end is 0 while open
	published  int64 // ns, when the server stored the message
	ok, hit    bool
}

// until returns when a run was over, ns: one that is still open lasted until its
// incarnation was gone, or still does. ended gives, by recorder file, when a killed
// incarnation was gone.
func (r run) until(ended map[string]int64) int64 {
	if r.end != 0 {
		return r.end
	}
	if gone, ok := ended[r.file]; ok {
		return gone
	}
	return math.MaxInt64
}

// readAllRuns reads what all defenders have processed, by the files of a directory.
func readAllRuns(dir string) ([]run, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return nil, err
	}
	var all []run
	for _, f := range files {
		rs, err := readRuns(f)
		if err != nil {
			return nil, err
		}
		all = append(all, rs...)
	}
	return all, nil
}

// readRuns reads a recorder's file. A last line that is cut off by a kill is
// left out.
func readRuns(path string) ([]run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading what was processed: %w", err)
	}
	defer func() { _ = f.Close() }()
	var runs []run
	open := map[uint64]int{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		var kind string
		var at int64
		r := run{file: path}
		if _, err := fmt.Sscan(strings.TrimSpace(s.Text()), &kind, &at, &r.worker, &r.seq, &r.key, &r.slot, &r.ok, &r.hit, &r.published); err != nil {
			continue
		}
		switch i, isOpen := open[r.seq]; {
		case kind == "s":
			r.start = at
			open[r.seq] = len(runs)
			runs = append(runs, r)
		case kind == "e" && isOpen:
			runs[i].end, runs[i].ok, runs[i].hit = at, r.ok, r.hit
			delete(open, r.seq)
		}
	}
	return runs, s.Err()
}

// pauses measures, for each time that a slot went from one incarnation of a defender to
// another between two moments, how long none worked on it: from the last end, or the receipt
// of the next message if that was later, to the next start. A killed one's last run ends with
// it; see [run.until] for ended.
func pauses(runs []run, ended map[string]int64, after, until time.Time) []time.Duration {
	bySlot := map[int][]run{}
	for _, r := range runs {
		bySlot[r.slot] = append(bySlot[r.slot], r)
	}
	var ds []time.Duration
	for _, rs := range bySlot {
		slices.SortFunc(rs, func(a, b run) int { return cmp.Compare(a.start, b.start) })
		for i := 1; i < len(rs); i++ {
			was, next := rs[i-1], rs[i]
			if was.file == next.file || next.start < after.UnixNano() || next.start > until.UnixNano() {
				continue
			}
			end := was.end
			if end == 0 {
				end = ended[was.file]
			}
			ds = append(ds, max(0, time.Duration(next.start-max(end, next.published))))
		}
	}
	return ds
}
