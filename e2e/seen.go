package e2e

import (
	"slices"
	"time"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition/event"
)

// seen is what can be seen of the defenders from outside.
type seen struct{ *local.View }

// gone reports whether a worker was reported as gone since a moment.
func (v seen) gone(since time.Time, id string) bool {
	for _, e := range v.Since(since) {
		if e.Kind == event.WorkerGone && e.Peer == id {
			return true
		}
	}
	return false
}

// joined returns how many workers have joined since a moment.
func (v seen) joined(since time.Time) int {
	all := map[string]bool{}
	for _, e := range v.Since(since) {
		if e.Kind == event.WorkerJoined {
			all[e.Peer] = true
		}
	}
	return len(all)
}

// count counts the events of a kind since a moment.
func (v seen) count(since time.Time, kind event.Kind) int {
	n := 0
	for _, e := range v.Since(since) {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// silent counts the defenders that were reported as gone and had not
// said that they leave. The leader may see of a lease only that it is gone.
func silent(events []local.SeenEvent) int {
	n := 0
	for _, e := range events {
		if e.Kind != event.WorkerGone || e.Duration == 0 {
			continue
		}
		told := slices.ContainsFunc(events, func(l local.SeenEvent) bool {
			return l.Kind == event.Left && l.Worker == e.Peer && e.Time.Sub(l.Time).Abs() < time.Second
		})
		if !told {
			n++
		}
	}
	return n
}

// last returns when the last event of a kind since a moment was that match
// holds for, every one without; zero if there was none.
func (v seen) last(since time.Time, kind event.Kind, match func(local.SeenEvent) bool) time.Time {
	var last time.Time
	for _, e := range v.Since(since) {
		if e.Kind == kind && (match == nil || match(e)) && e.Time.After(last) {
			last = e.Time
		}
	}
	return last
}

// ownerless measures, for each time that a slot was released after a moment, how
// long it was until a worker had it again, by the defenders' own clocks.
func ownerless(events []local.SeenEvent, after time.Time) []time.Duration {
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b local.SeenEvent) int { return a.Time.Compare(b.Time) })
	holder := map[int]string{}
	free := map[int]time.Time{} // since when
	var ds []time.Duration
	for _, e := range events {
		switch e.Kind {
		case event.SlotAcquired:
			if at, ok := free[e.Slot]; ok && !at.Before(after) {
				ds = append(ds, e.Time.Sub(at))
			}
			delete(free, e.Slot)
			holder[e.Slot] = e.Worker
		case event.SlotReleased:
			if holder[e.Slot] == e.Worker {
				free[e.Slot] = e.Time
				delete(holder, e.Slot)
			}
		case event.Left, event.WorkerGone:
			who, at := e.Worker, e.Time
			if e.Kind == event.WorkerGone {
				if e.Duration == 0 {
					continue // it has told so itself
				}
				who, at = e.Peer, e.Time.Add(-e.Duration)
			}
			for slot, w := range holder {
				if w == who {
					free[slot] = at
					delete(holder, slot)
				}
			}
		default:
		}
	}
	return ds
}
