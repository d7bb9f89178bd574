package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// scaleUpJudge compares what happened in scenario scale-up with what was to happen.
type scaleUpJudge struct{ step }

func (s scaleUpJudge) judge() error {
	runs, err := s.runs()
	if err != nil {
		return err
	}
	pubs := s.Traffic.published()
	if err := s.keepPublished(pubs); err != nil {
		return err
	}
	s.check.messages(pubs, runs)
	last := s.View.Latest()
	s.checkIDs(last)
	s.checkMap(last)
	s.checkHandoffs(pubs, runs)
	s.checkWindow()
	s.checkLoad(runs)
	if err := s.checkMetrics(); err != nil {
		return err
	}
	return s.tellVerdicts()
}

func (s scaleUpJudge) checkIDs(a *report.Map) {
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

func (s scaleUpJudge) checkMap(last *report.Map) {
	r := s.report
	counts := s.Chambers.counts(last)
	covered := 0
	for _, n := range counts {
		covered += n
	}
	for slot := range last.Owner {
		if last.OwnerOf(slot) == "" {
			covered = -1
		}
	}
	moved, slots := s.moved()
	increments := len(s.versions)
	r.measure("chambers_covered", covered)
	r.measure("min_chambers", slices.Min(counts))
	r.measure("max_chambers", slices.Max(counts))
	r.measure("moved_chambers", moved)
	r.measure("moved_slots", slots)
	r.measure("version_increments", increments)
	equal(r, "chambers covered", s.o.Chambers, covered)
	low, high := s.o.Chambers/s.to, (s.o.Chambers+s.to-1)/s.to
	r.check("chambers each", fmt.Sprintf("%d to %d", low, high), slices.Min(counts) >= low && slices.Max(counts) <= high, "%d to %d", slices.Min(counts), slices.Max(counts))
	wantVersions := 1
	if s.o.Case == "joining-crash" || s.o.Case == "partial" {
		wantVersions = 2
	}
	equal(r, "map version increments", wantVersions, increments)
	if wantVersions == 1 {
		optimum := s.o.Chambers * (s.to - s.from) / s.to
		limit := optimum * 83 / 80
		r.check("chambers moved", fmt.Sprintf("at most %d (optimum about %d)", limit, optimum), moved <= limit && moved > 0, "%d", moved)
	}
	if s.o.Case == "partial" {
		wantEach := s.o.Chambers / (s.o.Defenders + s.o.joining()*2/3)
		least, most := r.Measurements["partial_min_chambers"], r.Measurements["partial_max_chambers"]
		r.check("chambers each at first", fmt.Sprint(wantEach), least == wantEach && most == wantEach, "%v to %v", least, most)
	}
}

func (s scaleUpJudge) checkWindow() {
	var windows, plans []time.Duration
	for _, e := range s.View.Since(s.began) {
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
	total := s.settled.Sub(s.began).Seconds()
	s.report.measure("scale_up_s", math.Round(total*100)/100)
	if s.o.wholeAtOnce() {
		s.report.timed("whole scale-up, s", "at most 40", total <= 40, "%.1f", total)
	}
}

// checkLoad looks at when all were processing, and at how much less the old
// defenders have to do.
func (s scaleUpJudge) checkLoad(runs []run) {
	firstAfter := map[string]int64{}
	m, ok := s.View.FirstOf(s.versions[len(s.versions)-1])
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
	took := time.Duration(last - s.joined.UnixNano())
	s.report.measure("last_joined_to_all_processing_ms", math.Round(float64(took)/1e4)/100)
	s.report.check("all defenders process messages", fmt.Sprint(s.to), len(firstAfter) == s.to, "%d, %.0f ms after the last one joined", len(firstAfter), float64(took)/1e6)
	if s.o.Case == caseBrief {
		s.report.timed("... in ms", "under 1000", took < time.Second, "%.0f", float64(took)/1e6)
	}
	oldBefore := float64(s.o.Chambers) / float64(s.from)
	oldAfter := 0
	latest := s.View.Latest()
	ids := map[string]bool{}
	for _, w := range s.before.Workers {
		ids[w.ID] = true
	}
	for slot, chambers := range s.Chambers.bySlot(s.o.Slots) {
		if ids[latest.OwnerOf(slot)] {
			oldAfter += len(chambers)
		}
	}
	reduction := 1 - float64(oldAfter)/float64(s.from)/oldBefore
	s.report.measure("load_reduction", math.Round(reduction*1000)/1000)
	want := 1 - float64(s.from)/float64(s.to)
	// With few chambers each, one more or less is more than 2 %.
	within := max(0.02, 1/oldBefore)
	s.report.check("load of those who were there", fmt.Sprintf("%.0f %% less, within %.0f", want*100, within*100), math.Abs(reduction-want) < within, "%.1f %% less", reduction*100)
}

func (s scaleUpJudge) checkMetrics() error {
	r := s.report
	moved, _ := s.moved()
	rebalances := s.Defenders.total("defender_rebalance_events_total") - 1 // the first was the cold start
	movements := s.Defenders.total("defender_chamber_movements_total")
	r.measure("rebalances", int(rebalances))
	r.measure("chamber_movements_metric", int(movements))
	equal(r, "rebalance events metric", len(s.versions), int(rebalances))
	equal(r, "chamber movements metric", moved, int(movements))
	equal(r, "assigned chambers metric, sum", s.o.Chambers, int(s.Defenders.total("defender_assigned_chambers")))
	stable := 0
	for _, m := range s.Defenders.Running() {
		families, err := m.Gather()
		if err != nil {
			return err
		}
		if local.StateOf(families) == string(state.Stable) {
			stable++
		}
	}
	equal(r, `defender_state{state="STABLE"}, sum`, s.to, stable)
	missing, err := missingLogLines(s.Dir)
	if err != nil {
		return err
	}
	r.check("log lines by name", fmt.Sprintf("%d", len(expectedLog)), len(missing) == 0, "%d %s", len(expectedLog)-len(missing), strings.Join(missing, "; "))
	return nil
}

// tellVerdicts prints what the defenders found in wafers whose truth is known.
func (s scaleUpJudge) tellVerdicts() error {
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
