package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/state"
)

// judgeScaleUp compares what happened with what was to happen.
func (s *session) judgeScaleUp(st step) error {
	runs, err := s.runs()
	if err != nil {
		return err
	}
	pubs := s.Traffic.published()
	if err := s.keepPublished(pubs); err != nil {
		return err
	}
	s.checkMessages(pubs, runs)
	last := s.View.Latest()
	s.checkIDs(last)
	s.checkMap(st, last)
	s.checkHandoffs(st, pubs, runs)
	s.checkWindow(st)
	s.checkLoad(st, runs)
	if err := s.checkMetrics(st); err != nil {
		return err
	}
	return s.tellVerdicts()
}

// keepPublished writes what was published beside what was processed, for a person who
// wants to look closer.
func (s *session) keepPublished(pubs []publication) error {
	var b strings.Builder
	for _, p := range pubs {
		fmt.Fprintf(&b, "%d %d %s %t\n", p.At, p.Seq, p.Key, p.Forced)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "published"), []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("keeping what was published: %w", err)
	}
	return nil
}

func (s *session) checkMessages(pubs []publication, runs []run) {
	f := examine(pubs, runs, s.rig.endings(s.Defenders.All()))
	r := s.report
	r.measure("published", f.Published)
	r.measure("completed", f.Completed)
	r.measure("lost", f.Lost)
	r.measure("concurrent", f.Concurrent)
	r.measure("out_of_order", f.OutOfOrder)
	r.measure("duplicates", f.Duplicates)
	r.check("published", "at least one message a chamber", f.Published >= s.o.Chambers, "%d", f.Published)
	r.check("lost", "0", f.Lost == 0, "%d %s", f.Lost, strings.Join(f.LostKeys, " "))
	equal(r, "concurrent", 0, f.Concurrent)
	equal(r, "out of order", 0, f.OutOfOrder)
}

func (s *session) checkIDs(a *partition.Assignment) {
	want := s.o.Defenders + s.o.joining()
	ids := map[string]bool{}
	sequential := true
	for _, w := range a.Workers {
		ids[w.ID] = true
	}
	for i := range want {
		sequential = sequential && ids[fmt.Sprintf("%s-%d", defender.Group, i)]
	}
	unique := len(ids) == len(a.Workers) && len(ids) == want
	s.report.measure("ids_unique", unique)
	s.report.measure("ids_sequential", sequential)
	s.report.check("stable IDs unique", fmt.Sprintf("%d", want), unique, "%d", len(ids))
	switch s.o.Case {
	case "stale-claim":
		s.report.check("IDs not in sequence", fmt.Sprintf("without %s-%d", defender.Group, s.o.Defenders), !ids[fmt.Sprintf("%s-%d", defender.Group, s.o.Defenders)], "in sequence: %t", sequential)
	case "":
		s.report.check("new workers' IDs", fmt.Sprintf("%s-%d to %s-%d", defender.Group, s.o.Defenders, defender.Group, want-1), sequential, "in sequence: %t", sequential)
	}
}

func (s *session) checkMap(st step, last *partition.Assignment) {
	r := s.report
	counts := s.chamberCounts(last)
	covered := 0
	for _, n := range counts {
		covered += n
	}
	for slot := range last.Owner {
		if last.OwnerOf(slot) == "" {
			covered = -1
		}
	}
	moved, slots := s.moved(st)
	increments := len(st.versions)
	r.measure("chambers_covered", covered)
	r.measure("min_chambers", slices.Min(counts))
	r.measure("max_chambers", slices.Max(counts))
	r.measure("moved_chambers", moved)
	r.measure("moved_slots", slots)
	r.measure("version_increments", increments)
	equal(r, "chambers covered", s.o.Chambers, covered)
	low, high := s.o.Chambers/st.to, (s.o.Chambers+st.to-1)/st.to
	r.check("chambers each", fmt.Sprintf("%d to %d", low, high), slices.Min(counts) >= low && slices.Max(counts) <= high, "%d to %d", slices.Min(counts), slices.Max(counts))
	wantVersions := 1
	if s.o.Case == "joining-crash" || s.o.Case == "partial" {
		wantVersions = 2
	}
	equal(r, "map version increments", wantVersions, increments)
	if wantVersions == 1 {
		optimum := s.o.Chambers * (st.to - st.from) / st.to
		limit := optimum * 83 / 80
		r.check("chambers moved", fmt.Sprintf("at most %d (optimum about %d)", limit, optimum), moved <= limit && moved > 0, "%d", moved)
	}
	if s.o.Case == "partial" {
		wantEach := s.o.Chambers / (s.o.Defenders + s.o.joining()*2/3)
		least, most := r.Measurements["partial_min_chambers"], r.Measurements["partial_max_chambers"]
		r.check("chambers each at first", fmt.Sprint(wantEach), least == wantEach && most == wantEach, "%v to %v", least, most)
	}
}

// moved counts the chambers and slots that the step's maps move.
func (s *session) moved(st step) (chambers, slots int) {
	bySlot := s.chambersBySlot()
	prev := st.before
	for _, v := range st.versions {
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
// another: what was in flight, how long nobody worked on it, and whether each of
// its chambers got its forced message.
func (s *session) checkHandoffs(st step, pubs []publication, runs []run) {
	r := s.report
	busy := 0
	for _, e := range s.View.Since(st.began) {
		if e.Kind == event.SlotReleasing && e.Busy {
			busy++
		}
	}
	hs := s.handoffs(st, pubs, runs)
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

func (s *session) handoffs(st step, pubs []publication, runs []run) []handoff {
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
	chambers := s.chambersBySlot()
	var hs []handoff
	prev := st.before
	for _, v := range st.versions {
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

func (s *session) checkWindow(st step) {
	var windows, plans []time.Duration
	for _, e := range s.View.Since(st.began) {
		switch e.Kind {
		case event.WindowDone:
			windows = append(windows, e.Duration)
		case event.Planned:
			plans = append(plans, e.Duration)
		default:
		}
	}
	if len(windows) == 0 {
		s.report.check("stabilization window", "completes", false, "none was seen")
		return
	}
	w := windows[0].Seconds()
	s.report.measure("window_s", math.Round(w*1000)/1000)
	switch {
	case s.o.Expect && s.o.wholeAtOnce():
		s.report.timed("stabilization window, s", "ends as soon as all are there (under 10)", w < 10, "%.1f", w)
	default:
		s.report.check("stabilization window, s", "10 or more", w >= 9.9, "%.1f", w)
	}
	s.report.measure("plan_ms", distribution(plans).Max)
	total := st.settled.Sub(st.began).Seconds()
	s.report.measure("scale_up_s", math.Round(total*100)/100)
	if s.o.wholeAtOnce() {
		s.report.timed("whole scale-up, s", "at most 40", total <= 40, "%.1f", total)
	}
}

// checkLoad looks at when all were processing, and at how much less the old
// defenders have to do.
func (s *session) checkLoad(st step, runs []run) {
	firstAfter := map[string]int64{}
	m, ok := s.View.FirstOf(st.versions[len(st.versions)-1])
	if !ok {
		return
	}
	for _, r := range runs {
		if at, seen := firstAfter[r.worker]; r.start >= m.At.UnixNano() && (!seen || r.start < at) {
			firstAfter[r.worker] = r.start
		}
	}
	var last int64
	for _, at := range firstAfter {
		last = max(last, at)
	}
	took := time.Duration(last - st.joined.UnixNano())
	s.report.measure("last_joined_to_all_processing_ms", math.Round(float64(took)/1e4)/100)
	s.report.check("all defenders process messages", fmt.Sprint(st.to), len(firstAfter) == st.to, "%d, %.0f ms after the last one joined", len(firstAfter), float64(took)/1e6)
	if s.o.Case == caseBrief {
		s.report.timed("... in ms", "under 1000", took < time.Second, "%.0f", float64(took)/1e6)
	}
	oldBefore := float64(s.o.Chambers) / float64(st.from)
	oldAfter := 0
	latest := s.View.Latest()
	ids := map[string]bool{}
	for _, w := range st.before.Workers {
		ids[w.ID] = true
	}
	for slot, chambers := range s.chambersBySlot() {
		if ids[latest.OwnerOf(slot)] {
			oldAfter += len(chambers)
		}
	}
	reduction := 1 - float64(oldAfter)/float64(st.from)/oldBefore
	s.report.measure("load_reduction", math.Round(reduction*1000)/1000)
	want := 1 - float64(st.from)/float64(st.to)
	// With few chambers each, one more or less is more than 2 %.
	within := max(0.02, 1/oldBefore)
	s.report.check("load of those who were there", fmt.Sprintf("%.0f %% less, within %.0f", want*100, within*100), math.Abs(reduction-want) < within, "%.1f %% less", reduction*100)
}

func (s *session) checkMetrics(st step) error {
	r := s.report
	moved, _ := s.moved(st)
	rebalances := s.Defenders.total("defender_rebalance_events_total") - 1 // the first was the cold start
	movements := s.Defenders.total("defender_chamber_movements_total")
	r.measure("rebalances", int(rebalances))
	r.measure("chamber_movements_metric", int(movements))
	equal(r, "rebalance events metric", len(st.versions), int(rebalances))
	equal(r, "chamber movements metric", moved, int(movements))
	equal(r, "assigned chambers metric, sum", s.o.Chambers, int(s.Defenders.total("defender_assigned_chambers")))
	stable := 0
	for _, m := range s.Defenders.Running() {
		f, err := m.Gather()
		if err != nil {
			return err
		}
		for _, fam := range f {
			if fam.GetName() != "defender_state" {
				continue
			}
			for _, x := range fam.Metric {
				if x.GetGauge().GetValue() == 1 && x.Label[0].GetValue() == string(state.Stable) {
					stable++
				}
			}
		}
	}
	equal(r, `defender_state{state="STABLE"}, sum`, st.to, stable)
	missing, err := s.missingLogLines()
	if err != nil {
		return err
	}
	r.check("log lines by name", fmt.Sprintf("%d", len(expectedLog)), len(missing) == 0, "%d %s", len(expectedLog)-len(missing), strings.Join(missing, "; "))
	return nil
}

// tellVerdicts prints what the defenders found in wafers whose truth is known.
func (s *session) tellVerdicts() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	type tally struct{ Faulty, Detected, Normal, FalseAlarms, BadData, Learning int }
	var t tally
	for _, ch := range slices.Sorted(maps.Keys(s.Source.Followed())) {
		if ch >= len(s.Chambers) {
			continue
		}
		rows, err := s.Store.UCharts(ctx, s.Chambers[ch], 10_000)
		if err != nil {
			return err
		}
		slices.Reverse(rows)
		for _, u := range rows {
			fault := s.Traffic.fault(u.Context.TChart())
			state := u.Verdict.State.String()
			switch {
			case state == "learning":
				t.Learning++
			case state == "bad-data":
				t.BadData++
			case fault != "":
				t.Faulty++
				if state == "alarm" {
					t.Detected++
				}
			default:
				t.Normal++
				if state == "alarm" {
					t.FalseAlarms++
				}
			}
			if fault != "" || u.Verdict.Flagged() {
				s.Say("Wafer %s on %s (%s), truth %q: %s %s", u.Context.Wafer, u.Context.Chamber, u.Context.Recipe, cmp.Or(fault, "normal"), state, u.Verdict.Reason())
			}
		}
	}
	s.report.measure("verdicts", map[string]int{"faulty_judged": t.Faulty, "detected": t.Detected, "normal_judged": t.Normal, "false_alarms": t.FalseAlarms, "bad_data": t.BadData, "learning": t.Learning})
	s.Say("Followed wafers: %d of %d faults raised an alarm, %d of %d normal wafers too (false alarms), %d bad data, %d while learning",
		t.Detected, t.Faulty, t.FalseAlarms, t.Normal, t.BadData, t.Learning)
	if t.Faulty > 0 {
		s.report.check("known faults raise alarms", "at least one", t.Detected > 0, "%d of %d, false alarms %d of %d", t.Detected, t.Faulty, t.FalseAlarms, t.Normal)
	}
	return nil
}
