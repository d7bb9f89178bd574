package nodes

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// beside opens actions beside what a situation has and allows several.
func (s *situation) beside(actions ...ScalingAction) {
	s.p.MaxActions = 3
	s.r.OtherActions = actions
	s.r = s.r.normal()
}

func openUp(id string, requested int, launched ...string) ScalingAction {
	a := ScalingAction{ScaleUpActionID: id, ScaleUpStartedEpoch: 1, ScaleUpRequested: requested, ScaleUpInstanceIDs: launched}
	for _, l := range launched {
		a.ScaleUpLaunches = append(a.ScaleUpLaunches, Intent{InstanceID: l})
	}
	return a
}

func openDown(id string, targets ...string) ScalingAction {
	return ScalingAction{ScaleDownActionID: id, ScaleDownStartedEpoch: 1, ScaleDownTargetInstanceIDs: targets}
}

func TestDecideBesideOpenActions(t *testing.T) {
	for name, c := range map[string]struct {
		s      *situation
		change func(*situation)
		want   string // action, reason, nodes or targets, actions to be cancelled
	}{
		"pods that wait while nodes join":       {pressed(), func(s *situation) { s.beside(openUp("u", 1, "i-9")) }, "SCALE_UP TRIGGERED 2 0 []"},
		"what was launched has room for them":   {pressed(), func(s *situation) { s.beside(openUp("u", 2, "i-8", "i-9")); s.launched("i-8", "i-9") }, "NOOP ROOM_EXISTS 0 0 []"},
		"what has not joined for long has none": {pressed(), func(s *situation) { s.beside(openUp("u", 1, "i-9")); s.late("i-9") }, "SCALE_UP TRIGGERED 2 0 []"},
		"another one is launching":              {pressed(), func(s *situation) { s.beside(openUp("u", 2, "i-9")) }, "NOOP IN_PROGRESS 0 0 []"},
		"as many as may be open":                {pressed(), func(s *situation) { s.beside(openUp("u", 1, "i-7"), openUp("v", 1, "i-8"), openUp("w", 1, "i-9")) }, "NOOP IN_PROGRESS 0 0 []"},
		"the CPU alone beside a scale-up":       {hot(), func(s *situation) { s.beside(openUp("u", 1, "i-9")) }, "NOOP IN_PROGRESS 0 0 []"},
		"the CPU alone at first":                {hot(), func(s *situation) { s.beside() }, "SCALE_UP TRIGGERED 1 0 []"},
		"all in flight count for MAX_WORKERS":   {pressed(), func(s *situation) { s.beside(openUp("u", 1, "i-9")); s.launched("i-9"); s.p.MaxWorkers = 5 }, "NOOP MAX_WORKERS 0 0 []"},
		"pods that wait during a drain":         {pressed(), func(s *situation) { s.beside(openDown("d", "i-1")) }, "NOOP CANCELS_SCALE_DOWN 0 0 [d]"},
		"also when nothing may be launched":     {pressed(), func(s *situation) { s.beside(openDown("d", "i-1")); s.p.MaxWorkers = 4 }, "NOOP CANCELS_SCALE_DOWN 0 0 [d]"},
		"also in a cooldown":                    {pressed(), func(s *situation) { s.beside(openDown("d", "i-1")); s.r.LastScaleEpoch = s.ago(1) }, "NOOP CANCELS_SCALE_DOWN 0 0 [d]"},
		"also with one action at a time":        {pressed(), func(s *situation) { s.beside(openDown("d", "i-1")); s.p.MaxActions = 1 }, "NOOP CANCELS_SCALE_DOWN 0 0 [d]"},
		"a marked target stays a target": {pressed(), func(s *situation) {
			s.beside(openDown("d", "i-1"))
			s.r.Removals = []Removal{{InstanceID: "i-1", ActionID: "d", Phase: PhaseTerminating}}
		}, "SCALE_UP TRIGGERED 2 0 []"},
		"pods that have just come cancel nothing": {pressed(), func(s *situation) { s.beside(openDown("d", "i-1")); s.r.PendingSinceEpoch = Num(s.ago(5)) }, "NOOP PENDING_TOO_SHORT 0 0 []"},
		"a lost worker during a drain":            {idle(), func(s *situation) { s.beside(openDown("d", "i-1")); s.keep(1) }, "NOOP CANCELS_SCALE_DOWN 0 0 [d]"},
		"a repair counts what is on its way":      {steady(), func(s *situation) { s.beside(openUp("u", 1, "i-9")); s.launched("i-9"); s.keep(1) }, "NOOP STEADY 0 0 []"},
		"no scale-down beside a scale-up":         {idle(), func(s *situation) { s.beside(openUp("u", 1, "i-9")) }, "NOOP IN_PROGRESS 0 0 []"},
		"as many targets as actions":              {idle(), func(s *situation) { s.beside(); s.p.MaxBatchDown, s.p.MinWorkers, s.p.MaxActions = 4, 0, 2 }, "SCALE_DOWN IDLE 0 2 []"},
	} {
		t.Run(name, func(t *testing.T) {
			c.change(c.s)
			d := Decide(c.s.p, c.s.o, c.s.r, c.s.now)
			if got := fmt.Sprint(d.Action, " ", d.Reason, " ", d.Nodes, " ", len(d.Targets), " ", d.Cancel); got != c.want {
				t.Errorf("got %s (%s), want %s\n%+v", got, d.Detail, c.want, d.Gates)
			}
		})
	}
}

// launched lets the cloud not list yet what was launched a moment ago.
func (s *situation) launched(ids ...string) {
	for _, id := range ids {
		s.o.Launched = append(s.o.Launched, Instance{ID: id, State: StatePending, LaunchedAt: s.now.Add(-time.Second)})
	}
}

// late adds an instance that has not joined, long after others had.
func (s *situation) late(id string) {
	for i := range s.o.Fleet {
		s.o.Fleet[i].Instance.ActionID = "before"
		s.o.Fleet[i].Node.CreatedAt = s.o.Fleet[i].Instance.LaunchedAt.Add(20 * time.Second)
	}
	s.o.Fleet = append(s.o.Fleet, Worker{Instance: Instance{ID: id, State: StateRunning, ActionID: "u", LaunchedAt: s.now.Add(-150 * time.Second)}})
}

func TestGatesBesideOpenActions(t *testing.T) {
	s := pressed()
	s.beside(openUp("u", 2, "i-9"), openUp("v", 1, "i-8"))
	gates := Decide(s.p, s.o, s.r, s.now).Gates
	for _, want := range []Gate{
		{"no-action", "u, v", "fewer than 3 in progress", true},
		{"up.launched", "u", "no scale-up is launching", false},
		{"up.cpu-alone", "false", "not beside another scale-up", true},
		{"down.no-action", "u, v", "none in progress", false},
	} {
		if !slices.Contains(gates, want) {
			t.Errorf("no gate %+v among %+v", want, gates)
		}
	}
}
