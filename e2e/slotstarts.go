package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// slotStarts reads from the records when messages of each slot were begun.
type slotStarts struct {
	pattern string
	read    map[string]int64 // by file, bytes
	starts  []slotStart
}

type slotStart struct {
	at   int64 // ns
	slot int
}

// firstSince returns, by slot, when the first message was begun since a moment.
func (s *slotStarts) firstSince(t time.Time) (map[int]time.Time, error) {
	if err := s.follow(); err != nil {
		return nil, err
	}
	s.starts = slices.DeleteFunc(s.starts, func(x slotStart) bool { return x.at < t.UnixNano() })
	first := map[int]time.Time{}
	for _, x := range s.starts {
		at := time.Unix(0, x.at)
		if known, ok := first[x.slot]; !ok || at.Before(known) {
			first[x.slot] = at
		}
	}
	return first, nil
}

// follow reads what the records have got since the last time.
func (s *slotStarts) follow() error {
	files, err := filepath.Glob(s.pattern)
	if err != nil {
		return err
	}
	if s.read == nil {
		s.read = map[string]int64{}
	}
	for _, name := range files {
		if err := s.followOne(name); err != nil {
			return fmt.Errorf("reading what was processed: %w", err)
		}
	}
	return nil
}

func (s *slotStarts) followOne(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if _, err := f.Seek(s.read[name], 0); err != nil {
		return err
	}
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil //nolint:nilerr // a line that is cut off is read when it is whole
		}
		s.read[name] += int64(len(line))
		var x slotStart
		var worker, key string
		var seq uint64
		if text, begins := strings.CutPrefix(line, "s "); begins {
			if _, err := fmt.Sscan(text, &x.at, &worker, &seq, &key, &x.slot); err == nil {
				s.starts = append(s.starts, x)
			}
		}
	}
}
