package nodes

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func actionIDs(r Record) []string {
	var out []string
	for _, a := range r.Actions() {
		out = append(out, a.ID())
	}
	return out
}

// twoOpen has a scale-up whose node joins and one that is launching.
func twoOpen(t *testing.T) Record {
	t.Helper()
	return apply(t, leased(),
		BeginScaleUp{Fence: 7, ActionID: "u", Now: at(1), Requested: 1, MaxActions: 3},
		IntendLaunch{Fence: 7, ActionID: "u", Intent: launchIntent(0, 0, "t0")},
		RecordScaleUpInstances{Fence: 7, ActionID: "u", Token: "t0", InstanceID: "i-1", Launched: at(2)},
		BeginScaleUp{Fence: 7, ActionID: "v", Now: at(3), Requested: 1, MaxActions: 3},
	)
}

func TestActionsOfOneRecordDoNotTouchEachOther(t *testing.T) {
	r := twoOpen(t)
	if got := actionIDs(r); !slices.Equal(got, []string{"u", "v"}) || r.ActionID() != "u" || r.SchemaVersion != 2 {
		t.Fatalf("open %v, first %s, version %d", got, r.ActionID(), r.SchemaVersion)
	}
	first := r.Of("u")
	r = apply(t, r,
		IntendLaunch{Fence: 7, ActionID: "v", Intent: launchIntent(0, 0, "t1")},
		RecordScaleUpInstances{Fence: 7, ActionID: "v", Token: "t1", InstanceID: "i-2", Launched: at(4)},
	)
	if !equal(r.Of("u").front(), first.front()) || !slices.Equal(r.Of("v").ScaleUpInstanceIDs, []string{"i-2"}) {
		t.Errorf("a launch of v left %+v", r)
	}

	r = apply(t, r, CompleteScaleUp{Fence: 7, ActionID: "u", Now: at(5)})
	if got := actionIDs(r); !slices.Equal(got, []string{"v"}) || !r.ScalingInProgress || r.SchemaVersion != 0 || r.OtherActions != nil {
		t.Errorf("after the end of u: open %v, %+v", got, r)
	}
	r = apply(t, r, FailScaleUp{Fence: 7, ActionID: "v", Now: at(6)})
	if r.ScalingInProgress || r.BackoffUntilEpoch != 0 || r.ScaleUpFailures != 0 {
		t.Errorf("after the end of v, without a back-off: %+v", r)
	}
}

// TestSeveralActionsAreRefusedByWhoKnowsOne: a program of the former version knows version 1 only, and sees it
// whenever the record holds no more than it can continue.
func TestSeveralActionsAreRefusedByWhoKnowsOne(t *testing.T) {
	r := upLaunched(t)
	if r.SchemaVersion > 1 {
		t.Errorf("a single action is of version %d", r.SchemaVersion)
	}
	if r = twoOpen(t); r.SchemaVersion <= 1 {
		t.Errorf("two actions are of version %d", r.SchemaVersion)
	}
}

func TestActionsBesideOthersAreRefused(t *testing.T) {
	launching := twoOpen(t)
	drains := apply(t, leased(), BeginScaleDown{Fence: 7, ActionID: "d", Now: at(1), Targets: []string{"i-1"}, MaxActions: 3})
	for name, c := range map[string]struct {
		r    Record
		t    Transition
		want error
	}{
		"one more than MAX_ACTIONS":                {launching, BeginScaleUp{Fence: 7, ActionID: "w", Now: at(4), Requested: 1, MaxActions: 2}, ErrScalingInProgress},
		"a scale-up while another launches":        {launching, BeginScaleUp{Fence: 7, ActionID: "w", Now: at(4), Requested: 1, MaxActions: 9}, ErrScalingInProgress},
		"a scale-down beside a scale-up":           {launching, BeginScaleDown{Fence: 7, ActionID: "d", Now: at(4), Targets: []string{"i-9"}, MaxActions: 9}, ErrScalingInProgress},
		"the same target twice":                    {drains, BeginScaleDown{Fence: 7, ActionID: "e", Now: at(4), Targets: []string{"i-1"}, MaxActions: 9}, ErrScalingInProgress},
		"a launch of an action that is not open":   {launching, IntendLaunch{Fence: 7, ActionID: "x", Intent: launchIntent(0, 0, "t")}, errNotThatAction},
		"another action's launch":                  {launching, RecordScaleUpInstances{Fence: 7, ActionID: "u", Token: "t1", InstanceID: "i-3"}, errNotRecorded},
		"a mark of another action's target":        {drains, MarkTerminating{7, Removal{InstanceID: "i-1", ActionID: "e"}}, errNotThatAction},
		"a removal of an action's target":          {drains, MarkTerminating{7, Removal{InstanceID: "i-1"}}, errNotThatAction},
		"a completion before all targets are gone": {apply(t, drains, BeginScaleDown{Fence: 7, ActionID: "e", Now: at(2), Targets: []string{"i-2"}, MaxActions: 9}), CompleteScaleDown{7, "e", at(9)}, errUnfinished},
	} {
		if _, _, err := Applied(c.r, c.t); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func TestAScaleUpBeginsBesideADrain(t *testing.T) {
	r := apply(t, leased(),
		BeginScaleDown{Fence: 7, ActionID: "d", Now: at(1), Targets: []string{"i-1"}, MaxActions: 3},
		BeginScaleDown{Fence: 7, ActionID: "e", Now: at(1), Targets: []string{"i-2"}, MaxActions: 3},
		BeginScaleUp{Fence: 7, ActionID: "u", Now: at(2), Requested: 1, MaxActions: 3},
		StartDrain{7, Removal{InstanceID: "i-2", ActionID: "e", DrainedSince: at(2).Unix()}},
		MarkTerminating{7, Removal{InstanceID: "i-2", ActionID: "e"}},
	)
	if p := r.Of("e").ScaleDownPhase; p != PhaseTerminating || r.Of("d").ScaleDownPhase != PhaseDraining {
		t.Errorf("the phases are %s and %s", r.Of("d").ScaleDownPhase, p)
	}
	r = apply(t, r, MarkScaleDownInstanceDone{7, "e", "i-2"}, CompleteScaleDown{7, "e", at(9)}, FailScaleDown{Fence: 7, ActionID: "d", Now: at(9)})
	if got := actionIDs(r); !slices.Equal(got, []string{"u"}) || r.Targets("i-1") || r.LastScaleEpoch != at(9).Unix() {
		t.Errorf("open %v, %+v", got, r)
	}
}

func TestUsualJoin(t *testing.T) {
	p := DefaultPolicy()
	joined := func(after ...time.Duration) (o Observation) {
		for _, d := range after {
			o.Fleet = append(o.Fleet, Worker{Instance: Instance{ActionID: "a", LaunchedAt: t0}, Node: &Node{CreatedAt: t0.Add(d)}})
		}
		return o
	}
	for _, c := range []struct {
		o    Observation
		want time.Duration
	}{
		{joined(), p.JoinTimeout},
		{joined(40 * time.Second), 3 * time.Minute},
		{joined(20*time.Second, 30*time.Second, 500*time.Second), 150 * time.Second},
		{joined(400 * time.Second), p.JoinTimeout},
		{joined(-time.Second), p.JoinTimeout},
	} {
		if got := usualJoin(p, c.o); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
