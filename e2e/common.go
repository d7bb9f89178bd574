package e2e

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// slotsOf returns the slots with chambers of a worker.
func (s *session) slotsOf(a *partition.Assignment, id string) []int {
	var slots []int
	chambers := s.chambersOf(a.Slots)
	for slot := range a.Owner {
		if a.OwnerOf(slot) == id && len(chambers[slot]) > 0 {
			slots = append(slots, slot)
		}
	}
	return slots
}

// busy gives each slot of some workers a message that is worked on for a while,
// and waits until the server has them.
func (s *session) busy(ctx context.Context, a *partition.Assignment, ids []string, each int) error {
	chambers := s.chambersOf(a.Slots)
	want := s.Traffic.forced.Load()
	for _, id := range ids {
		for _, slot := range s.slotsOf(a, id) {
			for range each {
				s.Traffic.press(chambers[slot][0])
				want++
			}
		}
	}
	return s.Wait(ctx, time.Minute, "the forced messages published", func() bool { return s.Traffic.forced.Load() >= want })
}

// finish gives every chamber one more message, has all processed, and compares
// what was published with what was processed.
func (s *session) finish(ctx context.Context) ([]run, error) {
	s.View.SetOnMap(nil)
	s.Traffic.hold.Store(0)
	for i := range s.Chambers {
		s.Traffic.publish(i, false)
	}
	if err := s.Drain(ctx); err != nil {
		return nil, err
	}
	runs, err := s.runs()
	if err != nil {
		return nil, err
	}
	pubs := s.Traffic.published()
	if err := s.keepPublished(pubs); err != nil {
		return nil, err
	}
	s.checkMessages(pubs, runs)
	return runs, nil
}

// checkSpread checks that all chambers are covered, and evenly.
func (s *session) checkSpread(a *partition.Assignment, workers int) {
	counts := s.chamberCounts(a)
	covered := 0
	for _, n := range counts {
		covered += n
	}
	for slot := range a.Owner {
		if a.OwnerOf(slot) == "" {
			covered = -1
		}
	}
	r := s.report
	r.measure("chambers_covered", covered)
	r.measure("min_chambers", slices.Min(counts))
	r.measure("max_chambers", slices.Max(counts))
	equal(r, "chambers covered", s.o.Chambers, covered)
	equal(r, "defenders in the map", workers, len(a.Workers))
	low, high := s.o.Chambers/workers, (s.o.Chambers+workers-1)/workers
	r.check("chambers each", fmt.Sprintf("%d to %d", low, high), slices.Min(counts) >= low && slices.Max(counts) <= high, "%d to %d", slices.Min(counts), slices.Max(counts))
}

// checkNothingMoved checks that a map is another one with the same owners, by
// name, and the same version.
func (s *session) checkNothingMoved(before, after *partition.Assignment) {
	moved := 0
	for slot := range after.Owner {
		if before.OwnerOf(slot) != after.OwnerOf(slot) {
			moved++
		}
	}
	s.report.measure("moved_slots", moved)
	equal(s.report, "slots moved", 0, moved)
	equal(s.report, "map version", before.Version, after.Version)
}

// checkEpochs checks that no map of an earlier leader comes after one of a later.
func (s *session) checkEpochs() {
	var last uint64
	back := 0
	for _, m := range s.View.Versions() {
		if m.Epoch < last {
			back++
		}
		last = max(last, m.Epoch)
	}
	equal(s.report, "maps of a former leader", 0, back)
}

// pauses measures, for each time that a slot went from one incarnation of a
// defender to another after a moment, how long nobody worked on it: from the last
// end, or the receipt of the next message if that was later, to the next start.
// A killed one's last run ends with it.
func (s *session) pauses(runs []run, after time.Time) []time.Duration {
	return s.pausesBetween(runs, after, time.Now())
}

// pausesBetween is pauses of those that ended by a moment.
func (s *session) pausesBetween(runs []run, after, until time.Time) []time.Duration {
	ended := s.rig.endings(s.Defenders.All())
	bySlot := map[int][]run{}
	for _, r := range runs {
		bySlot[r.slot] = append(bySlot[r.slot], r)
	}
	var ds []time.Duration
	for _, rs := range bySlot {
		slices.SortFunc(rs, func(a, b run) int { return cmp.Compare(a.start, b.start) })
		for i := 1; i < len(rs); i++ {
			was, next := rs[i-1], rs[i]
			if was.file == next.file || next.start < after.UnixNano() || next.start > until.UnixNano() {
				continue
			}
			end := was.end
			if end == 0 {
				end = ended[was.file]
			}
			ds = append(ds, max(0, time.Duration(next.start-max(end, next.published))))
		}
	}
	return ds
}

// ownerless measures, for each time that a slot was given up after a moment, how
// long it was until somebody had it again, by the defenders' own clocks.
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

// countEvents counts the events of a kind since a moment.
func (s *session) countEvents(since time.Time, kind event.Kind) int {
	n := 0
	for _, e := range s.View.Since(since) {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// silent counts the defenders that were taken for dead and had not
// told that they leave. The leader may see of a lease only that it is gone.
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

// lastEvent returns when the last event of a kind since a moment was that match
// holds for, every one without; zero if there was none.
func (s *session) lastEvent(since time.Time, kind event.Kind, match func(local.SeenEvent) bool) time.Time {
	var last time.Time
	for _, e := range s.View.Since(since) {
		if e.Kind == kind && (match == nil || match(e)) && e.Time.After(last) {
			last = e.Time
		}
	}
	return last
}

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
