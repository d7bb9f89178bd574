package e2e

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

// step is one change of the number of defenders as it was seen.
type step struct {
	*session
	began    time.Time
	from, to int // defenders
	before   *partition.Assignment
	versions []uint64 // maps that were published for it
	joined   time.Time
	settled  time.Time
}

// moved counts the chambers and slots that the step's maps move.
func (s step) moved() (chambers, slots int) {
	bySlot := s.Chambers.bySlot(s.o.Slots)
	prev := s.before
	for _, v := range s.versions {
		m, ok := s.View.FirstOf(v)
		if !ok {
			continue
		}
		for slot := range m.Owner {
			if m.OwnerOf(slot) != prev.OwnerOf(slot) {
				chambers += len(bySlot[slot])
				slots++
			}
		}
		prev = m.Assignment
	}
	return chambers, slots
}

// checkHandoffs looks at every slot that moved from one living defender to
// another: what was in flight, how long no worker processed it, and whether each of
// its chambers got its forced message.
func (s step) checkHandoffs(pubs []publication, runs []run) {
	r := s.report
	busy := 0
	for _, e := range s.View.Since(s.began) {
		if e.Kind == event.SlotReleasing && e.Busy {
			busy++
		}
	}
	hs := s.handoffs(pubs, runs)
	var pauses []time.Duration
	missing, firsts, hits := 0, 0, 0
	for _, h := range hs {
		if h.pause >= 0 {
			pauses = append(pauses, h.pause)
		}
		missing += h.withoutForced
		firsts += h.firsts
		hits += h.hits
	}
	pause := distribution(pauses)
	r.measure("handoffs", len(hs))
	r.measure("handoffs_in_flight", busy)
	r.measure("handoff_pause_ms", pause)
	r.check("moved chambers with a message forced around the move", "all", missing == 0, "%d without", missing)
	if s.o.Case == "" {
		// On a smaller stage than the seed's, in proportion.
		want := 200
		if len(hs) < want {
			want = len(hs) / 2
		}
		r.timed("handoffs with a handler in flight", fmt.Sprintf("at least %d", want), busy >= want, "%d of %d", busy, len(hs))
	}
	r.check("pause of a handoff, ms", "measured", len(pauses) > 0, "%s", pause)
	if firsts > 0 {
		rate := float64(hits) / float64(firsts)
		r.measure("cache_hit_first_after_move", math.Round(rate*1000)/1000)
		r.timed("first message after a move finds its history in memory", "at least 95 %", rate >= 0.95, "%.1f %% of %d", rate*100, firsts)
	}
}

// handoff is one slot's move.
type handoff struct {
	pause         time.Duration // -1: the new owner got no message
	withoutForced int           // chambers that no forced message was processed for
	firsts, hits  int           // chambers' first messages at the new owner
}

func (s step) handoffs(pubs []publication, runs []run) []handoff {
	bySlot := map[int][]run{}
	for _, r := range runs {
		bySlot[r.slot] = append(bySlot[r.slot], r)
	}
	forced := map[string][]publication{}
	for _, p := range pubs {
		if p.Forced {
			forced[p.Key] = append(forced[p.Key], p)
		}
	}
	chambers := s.Chambers.bySlot(s.o.Slots)
	var hs []handoff
	prev := s.before
	for _, v := range s.versions {
		m, ok := s.View.FirstOf(v)
		if !ok {
			continue
		}
		for slot, mv := range m.Moves {
			if mv.Version != v {
				continue
			}
			h := oneHandoff(bySlot[slot], prev.OwnerOf(slot), m.OwnerOf(slot), m.At.UnixNano())
			for _, ch := range chambers[slot] {
				if len(forced[s.Chambers[ch].String()]) == 0 {
					h.withoutForced++
				}
			}
			hs = append(hs, h)
		}
		prev = m.Assignment
	}
	return hs
}

// oneHandoff measures a slot's move from one worker to another: the pause is
// from the old owner's last completion, or the publish if that was later, to the
// new owner's first start.
func oneHandoff(runs []run, from, to string, mapAt int64) handoff {
	slices.SortFunc(runs, func(a, b run) int { return cmp.Compare(a.start, b.start) })
	h := handoff{pause: -1}
	var lastEnd int64
	seenKeys := map[string]bool{}
	for _, r := range runs {
		switch {
		case r.worker == from && (h.pause < 0):
			lastEnd = max(lastEnd, r.end)
		case r.worker == to && r.start > mapAt:
			if h.pause < 0 {
				since := max(lastEnd, r.published)
				h.pause = max(0, time.Duration(r.start-since))
			}
			if r.ok && !seenKeys[r.key] {
				seenKeys[r.key] = true
				h.firsts++
				if r.hit {
					h.hits++
				}
			}
		}
	}
	return h
}
