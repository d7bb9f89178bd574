package nodes

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// drifted is steady with workers of a type that is offered, of which i-2 and i-3 were launched by another template.
func drifted() *situation {
	s := steady()
	s.p.Drift, s.p.InstanceTypes = true, []string{"m", "n"}
	s.metrics(0.4, 0)
	s.o.TemplateHashes = map[string]string{"": "now"}
	for i := range s.o.Fleet {
		in := &s.o.Fleet[i].Instance
		in.Type, in.TemplateHash = "m", "now"
		if i == 1 || i == 2 {
			in.TemplateHash = "before"
		}
	}
	return s
}

func TestDriftedWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*situation)
		want   []string
	}{
		"those of another template, the oldest first": {func(s *situation) { s.o.Fleet[1].Instance.LaunchedAt = at(50) }, []string{"i-3", "i-2"}},
		"of a type that is not offered any more":      {func(s *situation) { s.p.InstanceTypes = []string{"n"} }, []string{"i-1", "i-2", "i-3", "i-4"}},
		"one that is too old, without a hash": {func(s *situation) {
			s.p.ExpireAfter = time.Hour
			s.o.Fleet[0].Instance.TemplateHash, s.o.Fleet[0].Instance.LaunchedAt = "", s.now.Add(-time.Hour)
			for i := range s.o.Fleet[1:] {
				s.o.Fleet[1+i].Instance.LaunchedAt = s.now.Add(time.Second - time.Hour)
			}
		}, []string{"i-1", "i-2", "i-3"}},
		"not one without a hash": {func(s *situation) { s.o.Fleet[1].Instance.TemplateHash = "" }, []string{"i-3"}},
		"not one without a hash whose type is not offered": {func(s *situation) {
			s.o.Fleet[0].Instance.TemplateHash, s.o.Fleet[0].Instance.Type = "", "old"
		}, []string{"i-2", "i-3"}},
		"not one that has ended":                    {func(s *situation) { s.o.Fleet[1].Instance.State = StateTerminated }, []string{"i-3"}},
		"none if nobody said what is launched now":  {func(s *situation) { s.o.TemplateHashes = nil }, nil},
		"not one of a pool that is not in the file": {inPools(map[int]string{1: "gone"}), []string{"i-3"}},
		"one without a pool is of the pool default": {inPools(nil), []string{"i-2", "i-3"}},
		"a pool's own hash and types are what count": {func(s *situation) {
			inPools(map[int]string{1: "batch", 2: "batch", 3: "batch"})(s)
			s.o.TemplateHashes["batch"] = "before"
			s.p.Pools[1].InstanceTypes = []string{"m"}
		}, []string{"i-4"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := drifted()
			c.change(s)
			var got []string
			for _, d := range DriftedWorkers(s.p, s.o, s.now) {
				got = append(got, d.InstanceID)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v have drifted, want %v", got, c.want)
			}
		})
	}
}

// inPools makes two pools, and puts some workers into pools by their tags.
func inPools(tags map[int]string) func(*situation) {
	return func(s *situation) {
		s.p.Pools = []Pool{{Name: DefaultPool}, {Name: "batch"}}
		s.o.TemplateHashes = map[string]string{DefaultPool: "now", "batch": "now"}
		for i, pool := range tags {
			s.o.Fleet[i].Instance.Pool = pool
		}
	}
}

func TestDrift(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*situation)
		action Action
		reason Reason
		goes   string
	}{
		"the oldest drifted worker is replaced": {none, ScaleUp, ReasonDrift, "i-2"},
		"drift is off, and one is too old": {func(s *situation) {
			s.p.Drift, s.p.ExpireAfter = false, time.Hour
			for i := range s.o.Fleet {
				s.o.Fleet[i].Instance.LaunchedAt = s.now.Add(-time.Minute)
			}
			s.o.Fleet[3].Instance.LaunchedAt = s.now.Add(-2 * time.Hour)
		}, ScaleUp, ReasonDrift, "i-4"},
		"drift is off, and none is too old": {func(s *situation) {
			s.p.Drift, s.p.ExpireAfter = false, time.Hour
			for i := range s.o.Fleet {
				s.o.Fleet[i].Instance.LaunchedAt = s.now.Add(-time.Minute)
			}
		}, Noop, ReasonSteady, ""},
		"off":                                    {func(s *situation) { s.p.Drift = false }, Noop, ReasonSteady, ""},
		"nothing has drifted":                    {func(s *situation) { s.o.TemplateHashes[""] = "before"; s.o.Fleet = s.o.Fleet[1:3] }, Noop, ReasonSteady, ""},
		"not while pods are pending":             {func(s *situation) { s.metrics(0.4, 1); s.r.PendingSinceEpoch = Num(s.ago(1)) }, Noop, ReasonPendingTooShort, ""},
		"not within the down-cooldown":           {func(s *situation) { s.r.LastScaleEpoch = s.ago(599) }, Noop, ReasonCooldownDown, ""},
		"not within a back-off":                  {func(s *situation) { s.r.BackoffUntilEpoch = s.ago(-60) }, Noop, ReasonBackoff, ""},
		"not during an interruption":             {func(s *situation) { s.o.Interruptions = []Interruption{{InstanceID: "i-4"}} }, Noop, ReasonInterruption, ""},
		"not while scaling is paused":            {pause, Noop, ReasonPaused, ""},
		"not beyond the disruption budget":       {func(s *situation) { s.p.ConsolidatePerHour, s.r.ConsolidatedEpochs = 1, []int64{s.ago(3599)} }, Noop, ReasonBudget, ""},
		"not outside of the windows":             {func(s *situation) { s.p.ConsolidateWindows = hourBeside(s, 1) }, Noop, ReasonWindow, ""},
		"within one of the windows":              {func(s *situation) { s.p.ConsolidateWindows = hourBeside(s, 0) }, ScaleUp, ReasonDrift, "i-2"},
		"an hour later the budget is free":       {func(s *situation) { s.p.ConsolidatePerHour, s.r.ConsolidatedEpochs = 1, []int64{s.ago(3600)} }, ScaleUp, ReasonDrift, "i-2"},
		"not without room for both":              {func(s *situation) { s.p.MaxWorkers = 4 }, Noop, ReasonMaxWorkers, ""},
		"also at MIN_WORKERS":                    {func(s *situation) { s.p.MinWorkers = 4 }, ScaleUp, ReasonDrift, "i-2"},
		"one that is kept is passed over":        {func(s *situation) { s.o.Fleet[1].Node.Keep = true }, ScaleUp, ReasonDrift, "i-3"},
		"one that failed is passed over a while": {func(s *situation) { s.r.SkipList = []Skip{{InstanceID: "i-2", UntilEpoch: s.ago(-60)}} }, ScaleUp, ReasonDrift, "i-3"},
		"then it goes without another node, if its pods fit": {func(s *situation) {
			s.r.SkipList = []Skip{{InstanceID: "i-2", UntilEpoch: s.ago(60)}}
		}, ScaleDown, ReasonDrift, "i-2"},
		"or with one, if they don't": {func(s *situation) {
			s.r.SkipList = []Skip{{InstanceID: "i-2", UntilEpoch: s.ago(60)}}
			for i := range s.o.Fleet {
				s.o.Fleet[i].Node.Pods = []Pod{{Name: "ns/p", Requests: Resources{MilliCPU: 3000}}}
			}
		}, ScaleUp, ReasonDrift, "i-2"},
		"all are kept":                          {func(s *situation) { s.o.Fleet[1].Node.Keep, s.o.Fleet[2].Node.Keep = true, true }, Noop, ReasonNoTarget, ""},
		"what high CPU asks for goes first":     {func(s *situation) { s.metrics(0.9, 0) }, ScaleUp, ReasonTriggered, ""},
		"and what an idle cluster doesn't need": {func(s *situation) { s.metrics(0.1, 0) }, ScaleDown, ReasonIdle, ""},
		"before a consolidation":                {func(s *situation) { s.p.Consolidation = ConsolidationRemove }, ScaleUp, ReasonDrift, "i-2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := drifted()
			c.change(s)
			d := Decide(s.p, s.o, s.r, s.now)
			if d.Action != c.action || d.Reason != c.reason {
				t.Fatalf("%s because of %s %s, want %s because of %s\n%+v", d.Action, d.Reason, d.Detail, c.action, c.reason, d.Gates)
			}
			goes := slices.Clone(d.Replaces)
			for _, x := range d.Targets {
				goes = append(goes, x.InstanceID)
			}
			if c.goes != "" && !slices.Equal(goes, []string{c.goes}) {
				t.Errorf("%v go, want %s: %s", goes, c.goes, d.Detail)
			}
		})
	}
}

func TestDrift_replacement(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*situation)
		types  []string
	}{
		"of the worker's own type":              {none, []string{"m"}},
		"of any type if its own is not offered": {func(s *situation) { s.p.InstanceTypes = []string{"n"} }, nil},
		"of a type that takes its pods":         {func(s *situation) { s.p.InstanceTypes = []string{"n", "small"}; heavy(s) }, []string{"n"}},
		"of its own type, if that takes its pods": {func(s *situation) {
			heavy(s)
			for i := range s.o.Fleet {
				s.o.Fleet[i].Instance.Type = "n"
			}
		}, []string{"n"}},
		"not of its own type, if that doesn't any more": {func(s *situation) {
			heavy(s)
			for i := range s.o.Fleet {
				s.o.Fleet[i].Instance.Type = "small"
			}
			s.p.InstanceTypes = []string{"small", "n"}
		}, []string{"n"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := drifted()
			c.change(s)
			d := Decider{Policy: s.p, Appraiser: bySize{"m": 4000, "n": 4000, "small": 1000}}.Decide(s.o, s.r, s.now)
			if d.Reason != ReasonDrift || len(d.Wanted) != 1 || !slices.Equal(d.Wanted[0].Types, c.types) {
				t.Fatalf("%s %s: %+v, want types %v", d.Reason, d.Detail, d.Wanted, c.types)
			}
			i := slices.IndexFunc(s.o.Fleet, func(w Worker) bool { return w.Instance.ID == d.Replaces[0] })
			if zones := d.Wanted[0].Zones; !slices.Equal(zones, []string{s.o.Fleet[i].Instance.Zone}) {
				t.Errorf("in zones %v, want that of the worker", zones)
			}
		})
	}

	t.Run("none that could not run its pods", func(t *testing.T) {
		s := drifted()
		heavy(s)
		s.p.InstanceTypes = []string{"small"}
		d := Decider{Policy: s.p, Appraiser: bySize{"small": 1000}}.Decide(s.o, s.r, s.now)
		if d.Action != Noop || d.Reason != ReasonNoTarget || !strings.Contains(d.Detail, "would take its pods") {
			t.Errorf("%s because of %s %s", d.Action, d.Reason, d.Detail)
		}
	})
}

// heavy gives each worker a pod for which none of the others has room.
func heavy(s *situation) {
	for i := range s.o.Fleet {
		s.o.Fleet[i].Node.Pods = []Pod{{Name: "ns/heavy", Requests: Resources{MilliCPU: 3000}}}
	}
}

// bySize is a price list in which a type costs its milli-CPU.
type bySize map[string]int64

func (b bySize) Price(typ string, _ Market, _ string) (float64, bool) {
	return float64(b[typ]), b[typ] > 0
}

func (b bySize) Cheaper(q Question, below float64) (Replacement, bool) {
	need := int64(0)
	for _, p := range q.Observation.Pending {
		need += p.Requests.MilliCPU
	}
	for _, typ := range q.Policy.InstanceTypes {
		if b[typ] >= need && float64(b[typ]) < below {
			return Replacement{Want: Want{Types: []string{typ}, Market: Spot}, Type: typ, Price: float64(b[typ]), Room: Resources{MilliCPU: b[typ]}}, true
		}
	}
	return Replacement{}, false
}

// TestFingerprint: every worker would have drifted if it changed from one version to the next.
func TestFingerprint(t *testing.T) {
	template := Template{ID: "lt-1", Version: "7", ImageID: "ami-1", UserDataRef: "ssm:join:3"}
	a, b := Taint{Key: "a", Effect: "NoSchedule"}, Taint{Key: "b", Value: "x", Effect: "NoExecute"}
	labels := map[string]string{"team": "batch", "disk": "ssd"}
	was := fingerprint(template, Policy{NodeLabels: labels, NodeTaints: []Taint{a, b}})
	if want := "b75fb62214cb8959"; was != want {
		t.Errorf("got %s, want %s as it has always been", was, want)
	}
	if got := fingerprint(template, Policy{NodeLabels: labels, NodeTaints: []Taint{b, a}}); got != was {
		t.Error("it depends on the order of taints")
	}
	if fingerprint(template, Policy{NodeLabels: map[string]string{}, NodeTaints: []Taint{}}) != fingerprint(template, Policy{}) {
		t.Error("an empty list differs from none")
	}
	seen := map[string]string{was: "the former"}
	for name, change := range map[string]func(*Template, *Policy){
		"template": func(t *Template, _ *Policy) { t.ID = "lt-2" }, "version": func(t *Template, _ *Policy) { t.Version = "8" },
		"image": func(t *Template, _ *Policy) { t.ImageID = "ami-2" }, "user data": func(t *Template, _ *Policy) { t.UserDataRef = "ssm:join:4" },
		"groups": func(t *Template, _ *Policy) { t.SecurityGroups = "sg-1" }, "profile": func(t *Template, _ *Policy) { t.InstanceProfile = "p" },
		"labels": func(_ *Template, p *Policy) { p.NodeLabels = map[string]string{"team": "web"} }, "taints": func(_ *Template, p *Policy) { p.NodeTaints = []Taint{a} },
	} {
		other, p := template, Policy{NodeLabels: labels, NodeTaints: []Taint{a, b}}
		change(&other, &p)
		hash := fingerprint(other, p)
		if seen[hash] != "" {
			t.Errorf("another %s has the hash of %s", name, seen[hash])
		}
		seen[hash] = name
	}
}

func TestCompleteScaleUp_objection(t *testing.T) {
	r := NewRecord("")
	r.LeaseFence, r.ScalingInProgress = 7, true
	r.ScaleUpActionID, r.ScaleUpRequested, r.ScaleUpInstanceIDs, r.ScaleUpReplaces = "up", 1, []string{"i-9"}, []string{"i-1"}
	kept := apply(t, r, CompleteScaleUp{Fence: 7, ActionID: "up", Now: at(5), Objection: "pod p fits nowhere"})
	if s, ok := kept.Skipped("i-1", at(6)); !ok || s.Cause != "pod p fits nowhere" {
		t.Errorf("a worker that stays would be replaced again at once: %+v", kept.SkipList)
	}
	if next := apply(t, r, CompleteScaleUp{Fence: 7, ActionID: "up", Now: at(5)}); len(next.SkipList) > 0 {
		t.Errorf("skipped without an objection: %+v", next.SkipList)
	}
}
