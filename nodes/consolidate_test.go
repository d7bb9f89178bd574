package nodes

import (
	"errors"
	"slices"
	"testing"
)

// loaded has four workers with a pod each at a medium load, under CONSOLIDATION=remove.
func loaded() *situation {
	s := steady()
	s.p.Consolidation = ConsolidationRemove
	s.metrics(0.4, 0)
	for i := range s.o.Fleet {
		s.o.Fleet[i].Node.Pods = []Pod{{Name: "ns/p", Requests: Resources{MilliCPU: 500}, Count: i + 1}}
	}
	return s
}

// hourBeside is a window of the hour that begins some hours after the present one.
func hourBeside(s *situation, hours int) Windows {
	from := (s.now.UTC().Hour() + hours) % 24 * 60
	return Windows{{First: 0, Last: 6, From: from, To: from + 60}}
}

func TestConsolidation(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*situation)
		action Action
		target string
	}{
		"the worker with the fewest pods goes": {none, ScaleDown, "i-1"},
		"off":                                  {func(s *situation) { s.p.Consolidation = ConsolidationOff }, Noop, ""},
		"not while pods are pending":           {func(s *situation) { s.metrics(0.4, 1); s.r.PendingSinceEpoch = Num(s.ago(1)) }, Noop, ""},
		"not when pods were pending within IDLE_DOWN_SEC": {func(s *situation) { s.o.Readings.PendingMax = Read(1) }, Noop, ""},
		"not within the down-cooldown":                    {func(s *situation) { s.r.LastScaleEpoch = s.ago(599) }, Noop, ""},
		"not within a back-off":                           {func(s *situation) { s.r.BackoffUntilEpoch = s.ago(-60) }, Noop, ""},
		"not during an interruption":                      {func(s *situation) { s.o.Interruptions = []Interruption{{InstanceID: "i-4"}} }, Noop, ""},
		"not while scaling is paused":                     {pause, Noop, ""},
		"not beyond its budget":                           {func(s *situation) { s.p.ConsolidatePerHour, s.r.ConsolidatedEpochs = 1, []int64{s.ago(3599)} }, Noop, ""},
		"an hour later the budget is free":                {func(s *situation) { s.p.ConsolidatePerHour, s.r.ConsolidatedEpochs = 1, []int64{s.ago(3600)} }, ScaleDown, "i-1"},
		"not outside of its windows":                      {func(s *situation) { s.p.ConsolidateWindows = hourBeside(s, 1) }, Noop, ""},
		"within one of its windows":                       {func(s *situation) { s.p.ConsolidateWindows = append(hourBeside(s, 1), hourBeside(s, 0)...) }, ScaleDown, "i-1"},
		"not below MIN_WORKERS":                           {func(s *situation) { s.p.MinWorkers = 4 }, Noop, ""},
		"not to where high CPU asks for a node":           {func(s *situation) { s.metrics(0.6, 0) }, Noop, ""},
		"unless pods have to be pending too":              {func(s *situation) { s.metrics(0.6, 0); s.p.Trigger = TriggerAll }, ScaleDown, "i-1"},
		"no pods that fit nowhere else": {func(s *situation) {
			for i := range s.o.Fleet {
				s.o.Fleet[i].Node.Pods = []Pod{{Name: "ns/big", Requests: Resources{MilliCPU: 3000}}}
			}
		}, Noop, ""},
		"no last worker of a zone": {func(s *situation) { s.o.Fleet = []Worker{s.o.Fleet[0], s.o.Fleet[2], s.o.Fleet[3]} }, ScaleDown, "i-3"},
		"no node that is kept":     {func(s *situation) { s.o.Fleet[0].Node.Keep = true }, ScaleDown, "i-2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := loaded()
			c.change(s)
			d := Decide(s.p, s.o, s.r, s.now)
			if d.Action != c.action {
				t.Fatalf("%s because of %s %s, want %s\n%+v", d.Action, d.Reason, d.Detail, c.action, d.Gates)
			}
			if c.target != "" && (len(d.Targets) != 1 || d.Targets[0].InstanceID != c.target || d.Reason != ReasonConsolidates) {
				t.Errorf("%s removes %+v, want %s", d.Reason, d.Targets, c.target)
			}
		})
	}
}

func TestCompleteReplacement(t *testing.T) {
	fresh := func() Record {
		r := NewRecord("")
		r.LeaseFence, r.ScalingInProgress = 7, true
		r.ScaleUpActionID, r.ScaleUpRequested, r.ScaleUpInstanceIDs = "up", 1, []string{"i-9"}
		r.ScaleUpReplaces = []string{"i-1"}
		return r
	}
	turn := CompleteReplacement{Fence: 7, ActionID: "up", Down: "down", Now: at(5)}

	t.Run("the scale-down of the replaced worker follows in the same write", func(t *testing.T) {
		r := apply(t, fresh(), turn)
		if r.Open("up") || !r.Open("down") || !slices.Equal(r.ScaleDownTargetInstanceIDs, []string{"i-1"}) || r.LastScaleEpoch != at(5).Unix() {
			t.Errorf("got %+v", r)
		}
		if _, changed, err := Applied(r, turn); changed || err != nil {
			t.Errorf("applied again: changed %t, %v", changed, err)
		}
	})
	for name, c := range map[string]struct {
		change func(*Record)
		want   error
	}{
		"a stale fence":           {func(r *Record) { r.LeaseFence = 8 }, ErrStaleFence},
		"while scaling is paused": {func(r *Record) { r.PausedSinceEpoch = 1 }, ErrPaused},
		"beside another scale-up": {func(r *Record) { r.OtherActions = []ScalingAction{{ScaleUpActionID: "more"}} }, ErrScalingInProgress},
		"of a worker that goes anyway": {func(r *Record) {
			r.OtherActions = []ScalingAction{{ScaleDownActionID: "x", ScaleDownTargetInstanceIDs: []string{"i-1"}}}
		}, ErrScalingInProgress},
		"of an action that is not open": {func(r *Record) { r.ScaleUpActionID = "other" }, errNotThatAction},
	} {
		t.Run(name, func(t *testing.T) {
			r := fresh()
			c.change(&r)
			if _, _, err := Applied(r, turn); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}
