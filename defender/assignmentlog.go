package defender

import (
	"fmt"
	"log/slog"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/internal/processor"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// An assignmentLog writes the log lines of a changed assignment: which chambers come
// and go, when the consumers have followed, and what load the process has then. It
// also picks the messages whose processing is worth a line at level INFO: the first of
// each slot that the defender has acquired.
//
// The lines count chambers, which takes a reading of the store. Observe must not wait
// for that, so the lines are written by a goroutine, in order.
type assignmentLog struct {
	chambers *ChamberCount
	log      func() *slog.Logger
	cpu      func() time.Duration // processor time of this process so far; 0 if unknown
	wait     time.Duration        // from an event to its lines

	mu    sync.Mutex
	of    int          // number of slots of the group, of the last assignment
	owned map[int]bool // slots that the assignments seen so far give to this defender
	// coming and going are slots of the last assignment whose handoff or takeover
	// hasn't ended. changed counts those that have.
	coming, going map[int]bool
	changed       int
	silent        map[int]bool // acquired slots without a processed message
	queue         []func()     // lines to write; a goroutine runs while there are any
	writing       bool
	since         time.Time     // start of the interval of the next CPU share
	used          time.Duration // processor time at since
}

func newAssignmentLog(chambers *ChamberCount, log func() *slog.Logger) *assignmentLog {
	a := &assignmentLog{chambers: chambers, log: log, cpu: processor.Time, wait: time.Second}
	a.forget()
	a.since, a.used = time.Now(), a.cpu()
	return a
}

// forget empties the assignment: a defender that joins again starts without slots.
func (a *assignmentLog) forget() {
	a.owned, a.coming, a.going, a.silent = map[int]bool{}, map[int]bool{}, map[int]bool{}, map[int]bool{}
	a.changed = 0
}

// observe takes note of one event of the worker.
func (a *assignmentLog) observe(e event.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch e.Kind {
	case event.IDClaimed, event.Resharded:
		// After resharding the slots' numbers mean other chambers.
		a.forget()
	case event.Rebalance:
		all := a.counted(e.Of, every(e.Of))
		a.write(func() {
			a.log().Info(fmt.Sprintf("Recalculating assignments (%d chambers → %d defenders)", all(), e.After), "reason", e.Reason)
		})
	case event.Assigned:
		a.assigned(e)
	case event.SlotAcquired:
		a.silent[e.Slot] = true
		if a.coming[e.Slot] {
			delete(a.coming, e.Slot)
			a.progress()
		}
	case event.SlotReleased:
		delete(a.silent, e.Slot)
		if a.going[e.Slot] {
			delete(a.going, e.Slot)
			a.progress()
		}
	}
}

func (a *assignmentLog) assigned(e event.Event) {
	before := a.counted(e.Of, keys(a.owned))
	a.of = e.Of
	for _, s := range e.Slots {
		a.owned[s], a.coming[s] = true, true
		delete(a.going, s)
	}
	for _, s := range e.Lost {
		delete(a.owned, s)
		// A slot that was never acquired isn't released either.
		if a.coming[s] {
			delete(a.coming, s)
		} else {
			a.going[s] = true
		}
	}
	after, come, gone := a.counted(e.Of, keys(a.owned)), a.counted(e.Of, e.Slots), a.counted(e.Of, e.Lost)
	// After resharding the slots that stayed aren't known, only those that came or went.
	known := len(a.owned) == e.After
	a.write(func() {
		if known {
			a.log().Info(fmt.Sprintf("Assignment changed: %d → %d chambers (%d → %d slots)", before(), after(), e.Before, e.After), "version", e.Version)
		} else {
			a.log().Info(fmt.Sprintf("Assignment changed: %d → %d slots", e.Before, e.After), "version", e.Version)
		}
		if len(e.Lost) > 0 {
			a.log().Info(fmt.Sprintf("Removing %d chambers: slots %s", gone(), ranges(e.Lost)), "version", e.Version)
		}
		if len(e.Slots) > 0 {
			a.log().Info(fmt.Sprintf("Assigned %d chambers: slots %s", come(), ranges(e.Slots)), "version", e.Version)
		}
	})
	a.done()
}

// progress counts one ended handoff or takeover of the last assignment.
func (a *assignmentLog) progress() {
	a.changed++
	a.done()
}

// done writes the lines of an assignment that has been carried out.
func (a *assignmentLog) done() {
	if len(a.coming)+len(a.going) > 0 || a.changed == 0 {
		return
	}
	changed, slots := a.changed, len(a.owned)
	a.changed = 0
	chambers := a.counted(a.of, keys(a.owned))
	now, used := time.Now(), a.cpu()
	share := 0.0
	if elapsed := now.Sub(a.since); elapsed > 0 {
		share = 100 * (used - a.used).Seconds() / elapsed.Seconds()
	}
	a.since, a.used = now, used
	a.write(func() {
		a.log().Info(fmt.Sprintf("Updated NATS consumers: serving %d, one per slot (%d changed)", slots, changed))
		a.log().Info(fmt.Sprintf("Current load: %d chambers, CPU: %.0f%%, Memory: %.1f GB", chambers(), share, float64(memory())/1e9))
	})
}

// first reports whether a processed message is the first of its slot since this
// defender acquired it.
func (a *assignmentLog) first(slot int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	is := a.silent[slot]
	delete(a.silent, slot)
	return is
}

// counted returns a function that counts the chambers in slots, when the line with
// their number is written.
func (a *assignmentLog) counted(of int, slots []int) func() int {
	return func() int {
		if of == 0 || len(slots) == 0 {
			return 0
		}
		return a.chambers.In(partition.Slots{Of: of, Slots: slots})
	}
}

// write queues lines. One goroutine at a time writes them, so they stay in order. It
// waits first: counting chambers reads the store, and the handoffs that have just begun
// need it and the processor more than the log does.
func (a *assignmentLog) write(line func()) {
	a.queue = append(a.queue, line)
	if a.writing {
		return
	}
	a.writing = true
	time.AfterFunc(a.wait, a.drain)
}

// drain writes the queued lines.
func (a *assignmentLog) drain() {
	for {
		a.mu.Lock()
		if len(a.queue) == 0 {
			a.writing = false
			a.mu.Unlock()
			return
		}
		line := a.queue[0]
		a.queue = a.queue[1:]
		a.mu.Unlock()
		line()
	}
}

// every returns the slots of a group that has n.
func every(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func keys(set map[int]bool) []int {
	out := make([]int, 0, len(set))
	for s := range set {
		out = append(out, s)
	}
	return out
}

// ranges writes ascending numbers in short: "[3 17 20-22]".
func ranges(ascending []int) string {
	var b strings.Builder
	b.WriteByte('[')
	for i := 0; i < len(ascending); {
		last := i
		for last+1 < len(ascending) && ascending[last+1] == ascending[last]+1 {
			last++
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(ascending[i]))
		if last > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ascending[last]))
		}
		i = last + 1
	}
	b.WriteByte(']')
	return b.String()
}

// memory returns the bytes that Go's runtime holds in memory.
func memory() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64() - s[1].Value.Uint64()
}
