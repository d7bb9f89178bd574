package defender

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// registered is a store with chambers and nothing else.
type registered struct {
	Store
	mu       sync.Mutex
	chambers []ChamberInfo
	err      error
	reads    int
}

func (r *registered) Chambers(context.Context) ([]ChamberInfo, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	return r.chambers, r.err
}

func chambersOf(n int) []ChamberInfo {
	var out []ChamberInfo
	for i := range n {
		out = append(out, ChamberInfo{Chamber: Chamber{Tool: fmt.Sprintf("tool%03d", i), Name: "chamber1"}})
	}
	return out
}

func TestChamberCount(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	store := &registered{chambers: chambersOf(40)}
	c := &ChamberCount{store: store, now: func() time.Time { return now }}
	all := partition.Slots{Of: 8, Slots: every(8)}
	if n := c.In(all); n != 40 {
		t.Errorf("%d chambers in all slots, want 40", n)
	}
	sum := 0
	for s := range 8 {
		sum += c.In(partition.Slots{Of: 8, Slots: []int{s}})
	}
	if sum != 40 || store.reads != 1 {
		t.Errorf("the slots have %d chambers by %d readings, want 40 by 1", sum, store.reads)
	}
	store.chambers = chambersOf(50)
	if n := c.In(all); n != 40 {
		t.Errorf("%d chambers before the count is read again, want 40", n)
	}
	now = now.Add(countFor + time.Second)
	if n := c.In(all); n != 50 {
		t.Errorf("%d chambers after more were registered, want 50", n)
	}
	store.err = errors.New("no store")
	now = now.Add(countFor + time.Second)
	if n := c.In(all); n != 50 {
		t.Errorf("%d chambers while the store can't be read, want the last 50", n)
	}
	if n := c.In(partition.Slots{Of: 16, Slots: every(16)}); n != 0 {
		t.Errorf("%d chambers by a number of slots that was never counted, want 0", n)
	}
}

// assignmentLines plays events and returns what the log says of them.
func assignmentLines(t *testing.T, events ...event.Event) []string {
	t.Helper()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key != slog.MessageKey {
			return slog.Attr{}
		}
		return a
	}}))
	a := newAssignmentLog(newChamberCount(&registered{chambers: chambersOf(40)}), func() *slog.Logger { return log })
	a.cpu = func() time.Duration { return 0 }
	a.used, a.wait = 0, 0
	for _, e := range events {
		a.observe(e)
	}
	written := make(chan struct{})
	a.mu.Lock()
	a.write(func() { close(written) })
	a.mu.Unlock()
	<-written
	var lines []string
	for line := range strings.Lines(out.String()) {
		line, _, _ = strings.Cut(strings.TrimPrefix(line, "msg="), ", Memory")
		lines = append(lines, strings.Trim(line, "\"\n"))
	}
	return lines
}

func TestAssignmentLog(t *testing.T) {
	t.Parallel()
	first := event.Event{Kind: event.Assigned, Of: 4, After: 4, Slots: every(4)}
	acquired := func(s int) event.Event { return event.Event{Kind: event.SlotAcquired, Slot: s} }
	released := func(s int) event.Event { return event.Event{Kind: event.SlotReleased, Slot: s} }
	less := event.Event{Kind: event.Assigned, Of: 4, Before: 4, After: 0, Lost: every(4)}
	for _, c := range []struct {
		name   string
		events []event.Event
		want   []string
	}{
		{"slots come", []event.Event{first, acquired(0), acquired(1), acquired(2), acquired(3)}, []string{
			"Assignment changed: 0 → 40 chambers (0 → 4 slots)", "Assigned 40 chambers: slots [0-3]",
			"Updated NATS consumers: serving 4, one per slot (4 changed)", "Current load: 40 chambers, CPU: 0%",
		}},
		{"slots go", []event.Event{first, acquired(0), acquired(1), acquired(2), acquired(3), less, released(0), released(1), released(2), released(3)}, []string{
			"Assignment changed: 0 → 40 chambers (0 → 4 slots)", "Assigned 40 chambers: slots [0-3]",
			"Updated NATS consumers: serving 4, one per slot (4 changed)", "Current load: 40 chambers, CPU: 0%",
			"Assignment changed: 40 → 0 chambers (4 → 0 slots)", "Removing 40 chambers: slots [0-3]",
			"Updated NATS consumers: serving 0, one per slot (4 changed)", "Current load: 0 chambers, CPU: 0%",
		}},
		{"a plan that is changed before its slots have come", []event.Event{first, acquired(0), less, released(0)}, []string{
			"Assignment changed: 0 → 40 chambers (0 → 4 slots)", "Assigned 40 chambers: slots [0-3]",
			"Assignment changed: 40 → 0 chambers (4 → 0 slots)", "Removing 40 chambers: slots [0-3]",
			"Updated NATS consumers: serving 0, one per slot (2 changed)", "Current load: 0 chambers, CPU: 0%",
		}},
		{"the leader plans", []event.Event{{Kind: event.Rebalance, Reason: "scale-up", Of: 4, After: 3}}, []string{
			"Recalculating assignments (40 chambers → 3 defenders)",
		}},
		{"after resharding", []event.Event{first, {Kind: event.Resharded, Before: 4, After: 8}, {Kind: event.Assigned, Of: 8, Before: 8, After: 7, Lost: []int{3}}}, []string{
			"Assignment changed: 0 → 40 chambers (0 → 4 slots)", "Assigned 40 chambers: slots [0-3]",
			"Assignment changed: 8 → 7 slots", "Removing 5 chambers: slots [3]",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := assignmentLines(t, c.events...)
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("the log says\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestAssignmentLogPicksTheFirstMessageOfEachAcquiredSlot(t *testing.T) {
	t.Parallel()
	a := newAssignmentLog(newChamberCount(&registered{}), slog.Default)
	if a.first(3) {
		t.Error("slot 3 has a first message before it is acquired")
	}
	a.observe(event.Event{Kind: event.SlotAcquired, Slot: 3})
	if got := []bool{a.first(3), a.first(3), a.first(4)}; !got[0] || got[1] || got[2] {
		t.Errorf("first of slots 3, 3, 4: %v, want true, false, false", got)
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	for want, in := range map[string][]int{"[]": nil, "[7]": {7}, "[0-3]": {0, 1, 2, 3}, "[3 17 20-22]": {3, 17, 20, 21, 22}} {
		if got := ranges(in); got != want {
			t.Errorf("ranges(%v) is %s, want %s", in, got, want)
		}
	}
}
