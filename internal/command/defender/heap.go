package defender

import (
	"os"
	"runtime/debug"
	"runtime/metrics"

	"github.com/muster-dev/muster/defender/analyze"
)

// Of the heap of an analysis.
const (
	// heapWanted is how much it may have. What the runs of a small file need is far less, and each
	// collection of garbage costs the same however little room there is, so the rest is used to
	// collect less often.
	heapWanted   = 320 << 20
	lazyPercent  = 400
	usualPercent = 100 // Go's default, which large files come to
)

// heapEvery is after how many runs the heap is looked at.
const heapEvery = 500

// heap has garbage collected rarely while there is little in memory.
type heap struct {
	live    []metrics.Sample
	percent int
	before  int // the percentage when it began
}

// newHeap returns nil if the user has a percentage of their own.
func newHeap() *heap {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	h := &heap{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}, percent: lazyPercent}
	h.before = debug.SetGCPercent(h.percent)
	return h
}

// show looks at the heap after some runs.
func (h *heap) show(at analyze.Progress) {
	if h == nil || at.Runs%heapEvery != 0 {
		return
	}
	metrics.Read(h.live)
	if percent := percentFor(h.live[0].Value.Uint64()); percent != h.percent {
		h.percent = percent
		debug.SetGCPercent(percent)
	}
}

// restore sets the percentage that was there before.
func (h *heap) restore() {
	if h != nil {
		debug.SetGCPercent(h.before)
	}
}

// percentFor returns by how much the heap may grow over what is live until garbage is collected.
func percentFor(live uint64) int {
	if live == 0 {
		return lazyPercent
	}
	room := (heapWanted - int64(live)) * 100 / int64(live)
	// In steps: each change costs a stop of the program.
	return int(min(max(room/50*50, usualPercent), lazyPercent))
}
