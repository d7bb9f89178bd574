package partition

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/plan"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// twoAndADeadOne is a group of four slots: sim-0 leads and gives slot 0 to
// sim-1, sim-2 is dead, and sim-3 is new.
func twoAndADeadOne() *View {
	now := simEpoch.Add(time.Hour)
	member := func(id string, claim uint64) MemberInfo {
		return MemberInfo{Member: Member{id, claim}, State: state.Stable, Capacity: 1, Renewed: now.Add(-time.Second), Version: 3}
	}
	return &View{At: now, Group: "sim", Slots: 4, Layout: 1, Leader: "sim-0", OverridesRevision: 9,
		Map: &Assignment{Schema: mapSchema, Version: 3, Epoch: 1, Layout: 1, Slots: 4, Overrides: 9, Planned: now.Add(-time.Minute),
			Workers: []Member{{"sim-0", 7}, {"sim-1", 8}, {"sim-2", 9}}, Owner: []int32{0, 0, 1, 2}, Since: []uint64{1, 1, 1, 1},
			Moves: map[int]plannedMove{0: {Next: 1, Version: 3}}},
		Members:   []MemberInfo{member("sim-0", 7), member("sim-1", 8), member("sim-3", 12)},
		Overrides: []Override{{Slot: 1, Worker: "sim-0"}, {Slot: 2, Worker: "sim-2"}, {Slot: 3, Worker: "sim-3"}}}
}

func TestReportTellsWhoHasWhatAndWhatMoves(t *testing.T) {
	t.Parallel()
	v := twoAndADeadOne()
	r := v.Report()
	if r.State != state.Emergency {
		t.Errorf("state %s with a dead owner", r.State)
	}
	want := map[string]report.Worker{
		"sim-0": {State: state.Stable, Slots: 2, Outgoing: 1, Leading: true, LeaseAge: 1},
		"sim-1": {State: state.Stable, Slots: 1, Incoming: 1, LeaseAge: 1},
		"sim-2": {State: state.Gone, Slots: 1, LeaseAge: -1},
		"sim-3": {State: state.Stable, New: true, LeaseAge: 1},
	}
	for _, w := range r.Workers {
		x := want[w.ID]
		if w.State != x.State || w.Slots != x.Slots || w.Incoming != x.Incoming || w.Outgoing != x.Outgoing || w.Leading != x.Leading || w.LeaseAge != x.LeaseAge || w.New != x.New {
			t.Errorf("%+v, want %+v", w, x)
		}
	}
	if len(r.Workers) != 4 || r.WorstOverMean != 1.5 {
		t.Errorf("%d workers, worst over mean %v", len(r.Workers), r.WorstOverMean)
	}
	if len(r.Moves) != 1 || r.Moves[0] != (report.Move{Slot: 0, From: "sim-0", To: "sim-1", Version: 3}) {
		t.Errorf("moves %+v", r.Moves)
	}
	var why []string
	for _, p := range r.Overrides {
		why = append(why, p.Why)
	}
	if !r.Overrides[0].Kept || !slices.Equal(why, []string{"", "the worker is not there", "the worker is not planned for yet"}) {
		t.Errorf("overrides %+v", r.Overrides)
	}
}

func TestStateOfTheGroupIsThatOfWhatIsMostUrgent(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*View)
		want   state.State
	}{
		{"an owner is dead", func(*View) {}, state.Emergency},
		{"nobody leads", func(v *View) { v.Leader = "" }, state.Election},
		{"the leader is not sure of its lease", func(v *View) { v.Members[0].State = state.Degraded }, state.Degraded},
		{"the leader's lease has ended", func(v *View) {
			v.LeaseTTL, v.LeaderRenewed = 6*time.Second, v.At.Add(-time.Minute)
			v.Map.Restarting, v.Map.Moves, v.Members = map[int]bool{2: true}, nil, v.Members[:2]
		}, state.Election},
		{"no lease was written for a minute", func(v *View) {
			v.LeaseTTL, v.LeaderRenewed = 6*time.Second, v.At.Add(-time.Minute)
			for i := range v.Members {
				v.Members[i].Renewed = v.At.Add(-time.Minute)
			}
		}, state.Degraded},
		{"the clock of this machine is a minute ahead", func(v *View) {
			v.LeaseTTL, v.ServerTime, v.LeaderRenewed = 6*time.Second, v.At, v.At.Add(-time.Second)
			v.At = v.At.Add(time.Minute)
			v.Map.Restarting, v.Map.Moves, v.Members = map[int]bool{2: true}, nil, v.Members[:2]
		}, state.Stable},
		{"there is no map", func(v *View) { v.Map = nil }, state.Init},
		{"an owner restarts", func(v *View) { v.Map.Restarting = map[int]bool{2: true} }, state.Rebalancing},
		{"a joining worker waits", func(v *View) { v.Map.Restarting, v.Map.Moves = map[int]bool{2: true}, nil }, state.Scaling},
		{"a joining worker drains", func(v *View) {
			v.Map.Restarting, v.Map.Moves = map[int]bool{2: true}, nil
			v.Members[2].Draining = true
		}, state.Stable},
		{"a joining worker is of an earlier version", func(v *View) {
			v.Map.Restarting, v.Map.Moves = map[int]bool{2: true}, nil
			v.Members[2].Outdated = true
		}, state.Stable},
		{"a slot is being taken", func(v *View) { v.Map.Restarting, v.Map.Taking = map[int]bool{2: true}, map[int]bool{3: true} }, state.Emergency},
	} {
		v := twoAndADeadOne()
		c.change(v)
		if got := v.State(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		v.Report() // whatever it is, it can be told
		if _, err := v.Forecast(WhatIf{Balance: true}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestOutdatedWorker: a worker that can't read the map keeps its slots and gets no others, in
// a forecast as in a plan, and an operator is told to replace it.
func TestOutdatedWorker(t *testing.T) {
	t.Parallel()
	v := twoAndADeadOne()
	v.Map.Moves, v.Overrides = nil, []Override{{Slot: 3, Worker: "sim-1"}}
	v.Members[1].Outdated = true
	r := v.Report()
	if !r.Workers[1].Outdated || r.Overrides[0].Kept || r.Overrides[0].Why != "the worker is of an earlier version, which gets no slots" {
		t.Errorf("reported: %+v, overrides %+v", r.Workers[1], r.Overrides)
	}
	f, err := v.Forecast(WhatIf{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range f.Moves {
		if m.From == "sim-1" || m.To == "sim-1" {
			t.Errorf("moves with the outdated worker: %+v", m)
		}
	}
	if len(f.Moves) == 0 || len(f.Notes) == 0 || !strings.Contains(f.Notes[0], "sim-1 is of an earlier version") {
		t.Errorf("moves %+v, notes %q", f.Moves, f.Notes)
	}
}

func TestForecastLeavesWhatIsInMotionAndTellsWhy(t *testing.T) {
	t.Parallel()
	f, err := twoAndADeadOne().Forecast(WhatIf{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.Reasons, []string{"crash", "scale-up"}) || f.InMotion != 1 {
		t.Errorf("reasons %v, %d in motion", f.Reasons, f.InMotion)
	}
	for _, m := range f.Moves {
		if m.Slot == 0 {
			t.Errorf("a slot in motion moves again: %+v", m)
		}
		if m.Why == "" || m.Reason == "" {
			t.Errorf("no reason: %+v", m)
		}
	}
	// Slot 3 was the dead one's, and is overridden to the joining worker.
	if i := slices.IndexFunc(f.Moves, func(m report.ForecastMove) bool { return m.Slot == 3 }); i < 0 || f.Moves[i].To != "sim-3" {
		t.Errorf("moves %+v", f.Moves)
	}
	if len(f.Notes) != 1 || !strings.Contains(f.Notes[0], "sim-2") {
		t.Errorf("notes %v", f.Notes)
	}
	after := 0
	for _, w := range f.Workers {
		after += w.After
		if w.ID == "sim-2" && (w.What != "gone" || w.After != 0 || w.Before != 1) {
			t.Errorf("%+v", w)
		}
	}
	if after != 4 {
		t.Errorf("%d slots afterwards", after)
	}
}

func TestForecastWithoutAReasonMovesNothing(t *testing.T) {
	t.Parallel()
	v := twoAndADeadOne()
	v.Map.Moves, v.Map.Owner = nil, ownerColumn{0, 0, 1, 1}
	v.Members = v.Members[:2]
	f, err := v.Forecast(WhatIf{})
	if err != nil || len(f.Reasons) != 0 || len(f.Moves) != 0 || f.Version != 3 || len(f.Workers) != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	for _, c := range []struct {
		name string
		w    WhatIf
		want string
		gain string
	}{
		{"a death", WhatIf{Without: []string{"sim-1"}}, "crash", "sim-0"},
		{"a drain", WhatIf{Drain: []string{"sim-1"}}, "scale-down", "sim-0"},
		{"a joining worker", WhatIf{Add: 1}, "scale-up", "sim-2"},
		{"an override", WhatIf{Overrides: []Override{{Slot: 0, Worker: "sim-1"}}}, "overrides", "sim-1"},
	} {
		f, err := v.Forecast(c.w)
		if err != nil || !slices.Equal(f.Reasons, []string{c.want}) || len(f.Moves) == 0 || !slices.ContainsFunc(f.Moves, func(m report.ForecastMove) bool { return m.To == c.gain }) {
			t.Errorf("%s: %+v, %v", c.name, f, err)
		}
	}
	if _, err := v.Forecast(WhatIf{Without: []string{"sim-9"}, Drain: []string{"sim-8"}, Add: -1}); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("three faults are told as %v", err)
	}
	if f, err := v.Forecast(WhatIf{Add: 2, Strategy: plan.Ring(0)}); err != nil || len(f.Workers) != 4 {
		t.Errorf("by the ring: %+v, %v", f, err)
	}
}

// Two keys may come to share a slot when the number of slots changes; the override
// that was set last holds, and none beyond the slots.
func TestOfTwoOverridesOfASlotTheLaterHolds(t *testing.T) {
	t.Parallel()
	early, late := simEpoch, simEpoch.Add(time.Second)
	slot := SlotOfKey(8, "a:b")
	got := bySlot([]Override{{Key: "a:b", Slot: 77, Worker: "sim-1", At: late}, {Slot: slot, Worker: "sim-2", At: early}, {Slot: 8, Worker: "sim-3"}}, 8)
	if len(got) != 1 || got[slot].Worker != "sim-1" || got[slot].Slot != slot {
		t.Errorf("%+v", got)
	}
}

// FuzzOverrides: whatever is in the bucket, it is overrides or refused.
func FuzzOverrides(f *testing.F) {
	f.Add(mustJSON(overridesValue{Schema: valueSchema, Overrides: []Override{{Slot: 3, Worker: "sim-1", Key: "a:b"}}}))
	f.Add([]byte(`{"schema":2,"pins":[]}`))
	f.Add([]byte(`{"schema":1,"pins":[{"slot":-1,"worker":""},{"slot":70000,"worker":"x"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		overrides, err := decodeOverrides(data)
		if err != nil {
			return
		}
		m, _ := joinedMachine(t)
		m.step(m.now, overridesInput{overrides, 11})
		for s, p := range bySlot(overrides, 4) {
			if s < 0 || s >= 4 || p.Worker == "" {
				t.Errorf("%s overrides slot %d to %q", data, s, p.Worker)
			}
		}
	})
}
