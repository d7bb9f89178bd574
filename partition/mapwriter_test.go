package partition

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

func TestMapWriter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	newest := &record.Assignment{Version: 7, Owner: record.OwnerColumn{0, 0}, Since: record.VersionColumn{1, 1}}

	t.Run("changes are collected in a copy until they are due", func(t *testing.T) {
		t.Parallel()
		var w mapWriter
		a, first := w.change(newest, 5, now)
		a.Owner[0] = 1
		b, second := w.change(newest, 5, now.Add(settleDelay/2))
		if !first || second || a != b || newest.Owner[0] != 0 {
			t.Errorf("first %t, second %t, the same %t, owner in the newest map %d", first, second, a == b, newest.Owner[0])
		}
		if w.isDue(now.Add(settleDelay-1)) || !w.isDue(now.Add(settleDelay)) {
			t.Errorf("due at %v, want %v after the first change", w.due.Sub(now), settleDelay)
		}
		w.hurry(now)
		if !w.isDue(now) || w.latest(newest) != a || w.take() != a || w.latest(newest) != newest {
			t.Error("in a hurry: want it due at once, and taken once")
		}
	})
	t.Run("a large group collects for longer", func(t *testing.T) {
		t.Parallel()
		for workers, want := range map[int]time.Duration{0: settleDelay, 250: settleDelay, 251: 2 * settleDelay, 1000: 4 * settleDelay, 10_000: mostSettleDelay} {
			var w mapWriter
			w.change(&record.Assignment{Workers: make([]record.Process, workers)}, 5, now)
			if got := w.due.Sub(now); got != want {
				t.Errorf("%d workers: %v, want %v", workers, got, want)
			}
		}
	})
	t.Run("changes during a write rest on what it writes", func(t *testing.T) {
		t.Parallel()
		w := mapWriter{writing: &mapWrite{next: &record.Assignment{Version: 8}}}
		a, _ := w.change(newest, 5, now)
		if a.Version != 8 {
			t.Errorf("it is a copy of version %d, want 8", a.Version)
		}
		w.dropStale(5)
		w.done(6)
		w.dropStale(6)
		if w.busy() || w.pending != a {
			t.Error("the write has succeeded: want the changes kept")
		}
		w.dropStale(7)
		if w.pending != nil {
			t.Error("another map came: want the changes dropped")
		}
	})
	t.Run("a write that failed takes the changes with it", func(t *testing.T) {
		t.Parallel()
		w := mapWriter{writing: &mapWrite{next: newest}}
		w.change(newest, 5, now)
		w.failed()
		if w.busy() || w.pending != nil || !w.due.IsZero() {
			t.Errorf("left: %+v", w)
		}
	})
}
