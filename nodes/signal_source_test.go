package nodes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/setting"
)

// byCluster is steady without Prometheus: no pod has been pending for an hour.
func byCluster(pending ...Pod) *situation {
	s := steady()
	s.p.Signals, s.p.PendingUpFor, s.p.CooldownUp = SignalsKubernetes, 0, 0
	s.o.Pending = pending
	s.o.Readings = ClusterReadings(pending, s.now)
	s.r.IdleSinceEpoch = Num(s.ago(3600))
	if len(pending) > 0 {
		s.r.IdleSinceEpoch = Num(0)
		s.r.PendingSinceEpoch = Num(s.now.Unix())
	}
	return s
}

// since is a pod that has been unschedulable for some seconds.
func (s *situation) since(sec int) Pod {
	return Pod{Name: "a/p", Requests: Resources{MilliCPU: 3000}, Since: s.now.Add(-time.Duration(sec) * time.Second)}
}

func TestSignalsFromKubernetes(t *testing.T) {
	now := steady()
	for name, c := range map[string]struct {
		change func(*situation)
		pods   []Pod
		action Action
		reason Reason
	}{
		"a pod that is unschedulable now":                {none, []Pod{now.since(0)}, ScaleUp, ReasonTriggered},
		"by a server whose clock is ahead":               {none, []Pod{now.since(-30)}, ScaleUp, ReasonTriggered},
		"not before PENDING_UP_SEC":                      {func(s *situation) { s.p.PendingUpFor = time.Minute }, []Pod{now.since(59)}, Noop, ReasonPendingTooShort},
		"PENDING_UP_SEC counts from the pod's condition": {func(s *situation) { s.p.PendingUpFor = time.Minute }, []Pod{now.since(60)}, ScaleUp, ReasonTriggered},
		"of several the one that has waited longest":     {func(s *situation) { s.p.PendingUpFor = time.Minute }, []Pod{now.since(5), now.since(60)}, ScaleUp, ReasonTriggered},
		"a pod that no node would run has not waited":    {func(s *situation) { s.p.PendingUpFor = time.Minute }, []Pod{now.since(5), {Name: "a/huge", NeverFit: "too big", Since: at(1)}}, Noop, ReasonPendingTooShort},
		"only pods that no node would run":               {none, []Pod{{Name: "a/huge", NeverFit: "too big", Since: at(1)}}, Noop, ReasonNeverFit},
		"without conditions it is what ticks have seen":  {func(s *situation) { s.p.PendingUpFor = time.Minute; s.r.PendingSinceEpoch = Num(s.ago(60)) }, []Pod{{Name: "a/p"}}, ScaleUp, ReasonTriggered},
		"and not longer":                                 {func(s *situation) { s.p.PendingUpFor = time.Minute; s.r.PendingSinceEpoch = Num(s.ago(59)) }, []Pod{{Name: "a/p"}}, Noop, ReasonPendingTooShort},
		"nothing pending":                                {none, nil, Noop, ReasonSteady},
		"an idle cluster is not shrunk by the CPU":       {func(s *situation) { s.o.Readings.CPU, s.o.Readings.CPUMax = Read(0.01), Read(0.01) }, nil, Noop, ReasonSteady},
		"a busy cluster does not grow by the CPU": {func(s *situation) {
			s.o.Readings.CPU, s.o.Readings.CPUMin = Read(1), Read(1)
			s.r.CPUHighSinceEpoch = s.ago(3600)
		}, nil, Noop, ReasonSteady},
		"pods that can't be read are not taken for none":     {func(s *situation) { s.o.Readings.Pending = Missing("timed out") }, nil, Noop, ReasonMetricsMissing},
		"consolidation goes by requests":                     {func(s *situation) { s.p.Consolidation = ConsolidationRemove }, nil, ScaleDown, ReasonConsolidates},
		"not while pods are pending":                         {func(s *situation) { s.p.Consolidation = ConsolidationRemove; s.p.PendingUpFor = time.Hour }, []Pod{now.since(0)}, Noop, ReasonPendingTooShort},
		"not within IDLE_DOWN_SEC after the last was placed": {func(s *situation) { s.p.Consolidation = ConsolidationRemove; s.r.IdleSinceEpoch = Num(s.ago(599)) }, nil, Noop, ReasonSteady},
		"not where a tick could not see":                     {func(s *situation) { s.p.Consolidation = ConsolidationRemove; s.r.IdleSinceEpoch = Num(0) }, nil, Noop, ReasonSteady},
	} {
		t.Run(name, func(t *testing.T) {
			s := byCluster(c.pods...)
			c.change(s)
			d := Decide(s.p, s.o, s.r, s.now)
			if d.Action != c.action || d.Reason != c.reason {
				t.Errorf("%s because of %s %s, want %s because of %s\n%+v", d.Action, d.Reason, d.Detail, c.action, c.reason, d.Gates)
			}
			for _, g := range d.Gates {
				if strings.HasPrefix(g.Name, "up.cpu-s") || g.Name == "up.cpu" || g.Name == "down.cpu" && g.Passed {
					t.Errorf("gate %+v by a load that is not read", g)
				}
			}
		})
	}
}

func TestClassesKeepTheLongestWait(t *testing.T) {
	s := steady()
	got := Classes([]Pod{{Name: "a/1"}, {Name: "a/2", Since: s.now}, {Name: "a/3", Since: s.now.Add(-time.Hour)}})
	if len(got) != 1 || !got[0].Since.Equal(s.now.Add(-time.Hour)) {
		t.Errorf("got %+v", got)
	}
}

func TestSettingsOfSignals(t *testing.T) {
	read := func(t *testing.T, vars map[string]string) Policy {
		t.Helper()
		p, err := PolicyFromEnv(env(vars))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	problems := func(t *testing.T, err error) (out []string) {
		t.Helper()
		var wrong *setting.Error
		if !errors.As(err, &wrong) {
			t.Fatalf("got %v, want a *setting.Error", err)
		}
		for _, p := range wrong.Problems {
			out = append(out, p.Setting)
		}
		return out
	}

	t.Run("kubernetes has defaults of its own", func(t *testing.T) {
		p := read(t, map[string]string{"SIGNALS": " kubernetes "})
		if p.PendingUpFor != 0 || p.CooldownUp != 0 || p.Consolidation != ConsolidationRemove {
			t.Errorf("%+v", p)
		}
	})
	t.Run("what is set goes before them", func(t *testing.T) {
		p := read(t, map[string]string{"SIGNALS": "kubernetes", "PENDING_UP_SEC": "180", "COOLDOWN_UP_SEC": "300", "CONSOLIDATION": "off"})
		if p.PendingUpFor != 180*time.Second || p.CooldownUp != 300*time.Second || p.Consolidation != ConsolidationOff {
			t.Errorf("%+v", p)
		}
	})
	t.Run("also in a policy that is changed", func(t *testing.T) {
		p := read(t, map[string]string{"PENDING_UP_SEC": "60"})
		got, err := p.With(env(map[string]string{"SIGNALS": "kubernetes"}))
		if err != nil || got.PendingUpFor != time.Minute || got.CooldownUp != 0 || got.Consolidation != ConsolidationRemove {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("what contradicts it is refused", func(t *testing.T) {
		_, err := PolicyFromEnv(env(map[string]string{"SIGNALS": "kubernetes", "SCALE_UP_TRIGGER": "all", "PENDING_SOURCE": "phase", "PENDING_UP_SEC": "-1"}))
		if got := problems(t, err); !slices.Equal(got, []string{"PENDING_UP_SEC", "SCALE_UP_TRIGGER", "PENDING_SOURCE"}) {
			t.Errorf("refused: %v", got)
		}
	})
	t.Run("an unknown source is refused, and no wait with Prometheus", func(t *testing.T) {
		_, err := PolicyFromEnv(env(map[string]string{"SIGNALS": "both", "PENDING_UP_SEC": "0"}))
		if got := problems(t, err); !slices.Equal(got, []string{"SIGNALS", "PENDING_UP_SEC"}) {
			t.Errorf("refused: %v", got)
		}
	})
}

// TestNotedWithoutPrometheus: what a tick keeps for those that come after it.
func TestNotedWithoutPrometheus(t *testing.T) {
	note := func(change func(*survey, *Observation)) Note {
		s := byCluster()
		seen := &survey{record: s.r}
		change(seen, &s.o)
		tick := newTick(&Config{Policy: s.p, Clock: SystemClock{}, NewID: func() string { return "x" }})
		return tick.noted(seen, s.o, 1)
	}
	if n := note(func(*survey, *Observation) {}); n.Idle == nil || !*n.Idle || n.CPUHigh == nil || *n.CPUHigh {
		t.Errorf("nothing is pending: %+v", n)
	}
	if n := note(func(_ *survey, o *Observation) { o.Readings = ClusterReadings([]Pod{{Name: "a/p"}}, at(1)) }); n.Idle == nil || *n.Idle || !*n.Pending {
		t.Errorf("a pod is pending: %+v", n)
	}
	if n := note(func(_ *survey, o *Observation) { o.Readings.Pending = Missing("timed out") }); n.Idle != nil || n.Pending != nil {
		t.Errorf("pods can't be read: %+v", n)
	}
}

// TestAReconcilerWithoutPrometheusNeedsNone: with Prometheus' signals there has to be one.
func TestAReconcilerWithoutPrometheusNeedsNone(t *testing.T) {
	p := DefaultPolicy()
	c := Config{Policy: p, Cloud: noCloud{}, Cluster: noCluster{}, Store: noStore{}, EventLog: noLog{}}
	if err := c.validate(); err == nil {
		t.Error("no Signals with SIGNALS=prometheus are accepted")
	}
	c.Policy.Signals = SignalsKubernetes
	if err := c.validate(); err != nil {
		t.Errorf("no Signals with SIGNALS=kubernetes: %v", err)
	}
}

type (
	noCloud   struct{ Cloud }
	noCluster struct{ Cluster }
	noStore   struct{ Store }
	noLog     struct{ EventLog }
)

// TestReadingsWithoutPrometheus: a view that could not be read gives no zero.
func TestReadingsWithoutPrometheus(t *testing.T) {
	p := DefaultPolicy()
	p.Signals = SignalsKubernetes
	tick := newTick(&Config{Policy: p, Clock: SystemClock{}, NewID: func() string { return "x" }})
	var o Observation
	o.Pending = []Pod{{Name: "a/p", Count: 3}}
	tick.surveyor.readMetrics(context.Background(), &survey{}, &o)
	if r := o.Readings; !r.Pending.Known || r.Pending.Value != 3 || r.CPU.Known || r.ReadyIPsKnown {
		t.Errorf("got %+v", r)
	}
	o.Pending = nil
	tick.surveyor.readMetrics(context.Background(), &survey{viewErr: errors.New("timed out")}, &o)
	if r := o.Readings; r.Pending.Known || !strings.Contains(r.Pending.Why, "timed out") {
		t.Errorf("of a view that failed: %+v", r)
	}
}
