package partition

import (
	"testing"
	"time"
)

func TestStabilizationWindow(t *testing.T) {
	t.Parallel()
	cfg := &Config{Rebalance: Rebalance{PlannedWindow: 10 * time.Second, ColdWindow: 30 * time.Second}}
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }

	t.Run("each joining worker extends it by its whole length", func(t *testing.T) {
		t.Parallel()
		var w stabilizationWindow
		if length, opened := w.extend(start, false, cfg); length != 10*time.Second || !opened {
			t.Errorf("at first: %v, opened %t", length, opened)
		}
		if _, opened := w.extend(at(8), true, cfg); opened || w.cold {
			t.Errorf("opened again: %t, cold: %t", opened, w.cold)
		}
		if why := w.ended(at(17), 2, false); why != "" {
			t.Errorf("after 17 s: %s", why)
		}
		if why := w.ended(at(18), 2, false); why != "its time is over" {
			t.Errorf("after 18 s: %q", why)
		}
		if lasted := w.close(at(18), 2); lasted != 18*time.Second {
			t.Errorf("it was open for %v", lasted)
		}
	})
	t.Run("at a cold start it is longer, until it is known that the group runs", func(t *testing.T) {
		t.Parallel()
		var w stabilizationWindow
		if length, _ := w.extend(start, true, cfg); length != 30*time.Second || w.kind() != "cold start" {
			t.Errorf("%s: %v", w.kind(), length)
		}
		w.warm(at(1), cfg)
		if w.kind() != "planned" || !w.ends.Equal(at(11)) {
			t.Errorf("%s, until %v", w.kind(), w.ends)
		}
	})
	t.Run("it ends early when all are there, or nobody is new", func(t *testing.T) {
		t.Parallel()
		var w stabilizationWindow
		w.extend(start, false, cfg)
		if why := w.ended(at(1), 3, true); why != "all expected workers are there" {
			t.Errorf("all are there: %q", why)
		}
		if why := w.ended(at(1), 0, false); why != "nobody is new any more" {
			t.Errorf("nobody is new: %q", why)
		}
	})
	t.Run("its joining workers are planned for once", func(t *testing.T) {
		t.Parallel()
		var w stabilizationWindow
		w.extend(start, false, cfg)
		w.close(at(10), 1)
		if w.open() || !w.take() || w.take() {
			t.Error("want it closed, and its joining workers taken once")
		}
		w.extend(start, false, cfg)
		w.close(at(1), 0)
		if w.take() {
			t.Error("without joining workers there is nothing to plan for")
		}
	})
}
