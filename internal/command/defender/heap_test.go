package defender

import (
	"runtime/debug"
	"testing"

	"github.com/muster-dev/muster/defender/analyze"
)

// TestPercentFor: a small heap may grow to five times what is live, a large one as Go has it.
func TestPercentFor(t *testing.T) {
	t.Parallel()
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 64 << 20: 400, 80 << 20: 300, 128 << 20: 150, 160 << 20: 100, 1 << 40: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("with %d MiB live: %d, want %d", live>>20, got, want)
		}
	}
}

// TestHeap: the percentage is that of before when an analysis is over, and the user's own stays.
func TestHeap(t *testing.T) {
	if before := debug.SetGCPercent(73); before == 73 {
		t.Fatal("the test shows nothing")
	} else {
		defer debug.SetGCPercent(before)
	}
	current := func() int {
		percent := debug.SetGCPercent(1)
		debug.SetGCPercent(percent)
		return percent
	}

	t.Setenv("GOGC", "73")
	if h := newHeap(); h != nil || current() != 73 {
		t.Errorf("with GOGC set it is %d", current())
	}
	t.Setenv("GOGC", "")
	h := newHeap()
	h.show(analyze.Progress{Runs: heapEvery})
	if got := current(); got < usualPercent || got > lazyPercent {
		t.Errorf("during an analysis it is %d", got)
	}
	h.restore()
	if current() != 73 {
		t.Errorf("after an analysis it is %d", current())
	}
	h = nil
	h.show(analyze.Progress{})
	h.restore()
}
