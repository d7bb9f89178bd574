package partition

import "time"

// stabilizationWindow is the time that a leader waits for more workers that join, so that it
// plans once for all that start together. The zero value is a window that is not open.
type stabilizationWindow struct {
	begun time.Time
	ends  time.Time // zero: it is not open
	// cold: the group starts as a whole. Such a window is longer.
	cold bool
	// over: it has ended, and the workers that joined are to be planned for.
	over bool
}

func (w *stabilizationWindow) open() bool { return !w.ends.IsZero() }

// kind is what events call the window.
func (w *stabilizationWindow) kind() string {
	if w.cold {
		return "cold start"
	}
	return "planned"
}

// extend opens the window, or has it last for its whole length again. cold counts only for
// a window that opens. It returns the length, and whether it has opened.
func (w *stabilizationWindow) extend(now time.Time, cold bool, c *Config) (length time.Duration, opened bool) {
	opened = !w.open()
	if opened {
		w.begun, w.cold = now, cold
	}
	length = c.Rebalance.PlannedWindow
	if w.cold {
		length = c.Rebalance.ColdWindow
	}
	w.ends = now.Add(length)
	return length, opened
}

// warm makes a window that was opened for a cold start one of the other kind, since the
// group has turned out to run.
func (w *stabilizationWindow) warm(now time.Time, c *Config) {
	w.cold = false
	w.ends = now.Add(c.Rebalance.PlannedWindow)
}

// ended returns why an open window has ended, "" if it has not. complete says that
// there are exactly the workers that are expected.
func (w *stabilizationWindow) ended(now time.Time, joining int, complete bool) string {
	switch {
	case joining == 0:
		return "nobody is new any more"
	case complete:
		return "all expected workers are there"
	case !now.Before(w.ends):
		return "its time is over"
	}
	return ""
}

// close closes the window, and returns how long it was open.
func (w *stabilizationWindow) close(now time.Time, joining int) time.Duration {
	w.ends = time.Time{}
	w.over = joining > 0
	return now.Sub(w.begun)
}

// take reports whether there are workers that joined in a window that is over, whom the plan that
// is about to be made is for.
func (w *stabilizationWindow) take() bool {
	was := w.over
	w.over = false
	return was
}
