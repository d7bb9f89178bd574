package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
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

// runs reads what all members have processed.
func (s *session) runs() ([]run, error) {
	files, err := filepath.Glob(filepath.Join(s.Dir, "record", "*"))
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
