package explain_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/sim"
)

// quick is a policy whose times are short, so that a simulated hour holds many actions.
func quick() nodes.Policy {
	p := nodes.DefaultPolicy()
	p.CPUUpFor, p.PendingUpFor, p.IdleDownFor = 2*time.Minute, time.Minute, 3*time.Minute
	p.CooldownUp, p.CooldownDown = 2*time.Minute, 4*time.Minute
	p.MaxWorkers, p.MaxBatchDown = 7, 2
	return p
}

// stage is a simulated cluster with a reconciler.
type stage struct {
	*testing.T
	simulator *sim.Simulator
	c         *sim.Client
	r         *nodes.Reconciler
}

func newStage(t *testing.T, p nodes.Policy, workers ...string) *stage {
	w := sim.New(sim.Options{Policy: p, Workers: workers, Visible: 3 * time.Second})
	c := w.Client("A", nil)
	n := 0
	f, d := deciding(p)
	r, err := nodes.New(nodes.Config{Policy: p, Signals: c, Cloud: c, Cluster: c, Store: c, EventLog: c, Clock: w.Clock(),
		Sizer: d.Sizer, Fitter: d.Fitter, Screener: f, NewID: func() string { n++; return fmt.Sprint("t", n) }})
	if err != nil {
		t.Fatal(err)
	}
	return &stage{t, w, c, r}
}

var shipped = sync.OnceValue(fit.Shipped)

// deciding returns what decides by a policy as the programs do.
func deciding(p nodes.Policy) (*fit.Fit, nodes.Decider) {
	f := fit.New(fit.Config{Catalog: shipped(), Labels: p.NodeLabels, Taints: p.NodeTaints, MaxPods: p.NodeMaxPods})
	d := nodes.Decider{Policy: p, Fitter: f}
	if p.Sizing == nodes.SizingFit {
		d.Sizer = f
	}
	return f, d
}

func (s *stage) tick(after time.Duration) nodes.Report {
	s.simulator.Advance(after)
	report, _ := s.r.Tick(s.Context()) // outages are part of the play
	return report
}

// play lets things happen at random for n ticks, and calls look for each.
func (s *stage) play(seed uint64, ticks int, look func(nodes.Report)) {
	rng := rand.New(rand.NewPCG(seed, 1))
	pods := 0
	for range ticks {
		switch rng.IntN(12) {
		case 0, 1:
			s.simulator.SetLoad([]float64{0.05, 0.2, 0.3, 0.5, 0.7, 0.95, -1}[rng.IntN(7)])
		case 2:
			pods++
			s.simulator.AddPods(rng.IntN(20)+1, sim.PodSpec{Name: fmt.Sprintf("p%d", pods), MilliCPU: 400, Memory: 1 << 28})
		case 3, 4:
			s.simulator.RemovePods(fmt.Sprintf("p%d", rng.IntN(pods+1)))
		case 5:
			if w := s.someWorker(rng); w != "" && rng.IntN(3) == 0 {
				kind := []nodes.InterruptionKind{nodes.Rebalance, nodes.Warning}[rng.IntN(2)]
				_ = s.r.Interrupt(s.Context(), s.simulator.Announce(kind, w))
			}
		case 6:
			part := []sim.Part{sim.CloudPart, sim.ClusterPart, sim.SignalsPart}[rng.IntN(3)]
			s.simulator.Outage(part, 0, time.Minute)
		case 7:
			s.simulator.SetBoots(sim.Boot{NeverJoins: rng.IntN(2) == 0})
		case 8:
			s.simulator.AddPods(1, sim.PodSpec{Name: "huge", MilliCPU: 1 << 20, NeverFit: "too big"})
		case 9:
			s.simulator.RemovePods("huge")
		case 10:
			var t nodes.Transition = nodes.ResumeScaling{}
			if rng.IntN(3) == 0 {
				t = nodes.PauseScaling{Now: s.simulator.Clock().Now(), By: "alice", Reason: "a look around"}
			}
			_, _ = s.c.Apply(s.Context(), t)
		}
		look(s.tick(time.Duration(20+rng.IntN(60)) * time.Second))
	}
}

func (s *stage) someWorker(rng *rand.Rand) string {
	v, err := s.c.View(s.Context())
	if err != nil {
		return ""
	}
	var ids []string
	for _, n := range v.Nodes {
		if !n.ControlPlane && s.simulator.Instance(n.Name).Alive() {
			ids = append(ids, n.Name)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ids[rng.IntN(len(ids))]
}

func (s *stage) decisions() []nodes.Event {
	var out []nodes.Event
	for e, err := range s.c.Read(s.Context(), nodes.Query{Kind: "decision"}) {
		if err != nil {
			s.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

func snapshot(t *testing.T, e nodes.Event) nodes.Snapshot {
	t.Helper()
	s, err := explain.Snapshot(e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryJournaledDecisionComesOutTheSameFromItsSnapshot(t *testing.T) {
	t.Parallel()
	reasons := map[nodes.Reason]int{}
	n := 0
	for seed := range uint64(8) {
		p := quick()
		if seed%2 == 1 {
			p.Trigger = nodes.TriggerAll
		}
		if seed%4 >= 2 {
			p.Sizing = nodes.SizingFit
		}
		s := newStage(t, p, "a", "b", "a")
		s.play(seed, 120, func(nodes.Report) {})
		var r explain.Replayed
		for _, e := range s.decisions() {
			snap := snapshot(t, e)
			reasons[snap.Decision.Reason]++
			_, d := deciding(snap.Policy)
			r.Replay(d, e.Tick, snap)
		}
		n += r.Decisions
		for _, d := range r.Differences {
			t.Errorf("seed %d, tick %s: %v differ: was %+v, is %+v", seed, d.Tick, d.Fields, d.Was, d.Is)
		}
	}
	if n < 500 || len(reasons) < 12 {
		t.Errorf("only %d decisions with %d reasons were looked at: %v", n, len(reasons), reasons)
	}
}

// TestWhatIsPredictedHappens stops all change at random moments and lets the reconciler go on ticking every few seconds. The first action
// must come when it was predicted, and be the one that was.
func TestWhatIsPredictedHappens(t *testing.T) {
	t.Parallel()
	predicted, never := map[nodes.Action]int{}, 0
	for seed := range uint64(28) {
		s := newStage(t, quick(), "a", "b", "a", "b")
		var last *nodes.Snapshot
		rng := rand.New(rand.NewPCG(seed, 2))
		s.play(seed, 8+rng.IntN(40), func(nodes.Report) {})
		s.tick(2 * time.Minute) // an outage has passed by then
		for range 40 {          // until a decision is made with nothing under way
			r := s.tick(time.Minute)
			open, _ := s.c.OpenInterruptions(t.Context())
			if r.Decision != nil && r.Decision.Action == nodes.Noop && r.Decision.Reason != nodes.ReasonInProgress && len(open) == 0 && s.simulator.Fleet().Nodeless == 0 {
				e := s.decisions()
				snap := snapshot(t, e[len(e)-1])
				last = &snap
				break
			}
		}
		if last == nil {
			continue
		}
		_, d := deciding(last.Policy)
		then := explain.Ahead(d, *last).Then
		if then == nil {
			never++
		}
		for {
			at := s.simulator.Clock().Now()
			if at.Sub(last.Now) > 12*time.Minute {
				break
			}
			r := s.tick(4 * time.Second)
			if r.Decision == nil || r.Decision.Action == nodes.Noop {
				continue
			}
			e := s.decisions()
			made := snapshot(t, e[len(e)-1])
			switch {
			case then == nil:
				t.Errorf("seed %d: %s %s although nothing was predicted", seed, made.Decision.Action, made.Decision.Reason)
			case made.Now.Before(then.At) || made.Now.Sub(then.At) > 6*time.Second:
				t.Errorf("seed %d: %s at %v, predicted was %s at %v", seed, made.Decision.Action, made.Now, then.Decision.Action, then.At)
			case made.Decision.Action != then.Decision.Action || made.Decision.Nodes != then.Decision.Nodes || !slices.Equal(made.Decision.Targets, then.Decision.Targets):
				t.Errorf("seed %d: made %+v, predicted %+v", seed, made.Decision, then.Decision)
			default:
				predicted[made.Decision.Action]++
			}
			then = nil
			break
		}
		if then != nil {
			t.Errorf("seed %d: predicted %s at %v never came", seed, then.Decision.Action, then.At)
		}
	}
	if predicted[nodes.ScaleUp] < 2 || predicted[nodes.ScaleDown] < 1 || never < 2 {
		t.Errorf("the play was too tame: %v came as predicted, %d were predicted to stay", predicted, never)
	}
}

func TestTheEarliestMomentOfAPathIsWhenAllItsWaitsAreOver(t *testing.T) {
	t.Parallel()
	p := quick()
	s := newStage(t, p, "a", "b")
	now := s.simulator.Clock().Now().Truncate(time.Second)
	busy := nodes.Observation{FleetKnown: true, Readings: readings(0.5, 0)}
	v, _ := s.c.View(t.Context())
	in, _ := s.c.Workers(t.Context())
	busy.Fleet = nodes.Match(in, v.Nodes)
	record := func(change func(*nodes.Record)) nodes.Record {
		r := nodes.NewRecord("")
		change(&r)
		return r
	}
	ago := func(d time.Duration) int64 { return now.Add(-d).Unix() }
	for _, c := range []struct {
		name  string
		o     func(nodes.Observation) nodes.Observation
		r     nodes.Record
		path  string
		want  time.Duration // from now; negative: no waiting suffices
		gates []string
	}{
		{"pending pods would have to be there for their time", nil, record(func(*nodes.Record) {}), "up", p.PendingUpFor,
			[]string{"up.cpu", "up.pending", "up.trigger"}},
		{"a cooldown that is longer than that", nil, record(func(r *nodes.Record) { r.LastScaleEpoch = ago(10 * time.Second) }), "up", p.CooldownUp - 10*time.Second, nil},
		{"a back-off that is longer still", nil, record(func(r *nodes.Record) { r.ScaleUpFailures, r.BackoffUntilEpoch = 2, now.Add(time.Hour).Unix() }), "up", time.Hour, nil},
		{"idleness has to last", nil, record(func(*nodes.Record) {}), "down", -1, nil}, // two workers, MIN_WORKERS 2
		{"half idle already", func(o nodes.Observation) nodes.Observation {
			o.Readings = readings(0.1, 0)
			o.Readings.CPUMax = nodes.Read(0.9)
			o.Fleet = append(slices.Clone(o.Fleet), more(o.Fleet[0], "i-900", "a"))
			return o
		}, record(func(r *nodes.Record) { r.IdleSinceEpoch = nodes.Num(ago(time.Minute)) }), "down", p.IdleDownFor - time.Minute, []string{"down.idle-since", "down.cpu-sustained"}},
		{"a pause is ended", nil, record(func(r *nodes.Record) { r.PausedSinceEpoch = ago(time.Hour) }), "up", p.PendingUpFor, []string{"not-paused"}},
		{"the cloud can't be read", func(o nodes.Observation) nodes.Observation {
			o.FleetKnown, o.FleetWhy = false, "throttled"
			return o
		}, record(func(*nodes.Record) {}), "up", p.PendingUpFor, []string{"fleet-known"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := busy
			if c.o != nil {
				o = c.o(o)
			}
			snap := nodes.Snapshot{Now: now, Policy: p, Observation: o, Record: c.r, Decision: nodes.Decide(p, o, c.r, now)}
			for _, path := range explain.Ahead(nodes.Decider{}, snap).Paths {
				if path.Name != c.path {
					continue
				}
				want := time.Time{}
				if c.want >= 0 {
					want = now.Add(c.want)
				}
				if !path.Earliest.Equal(want) {
					t.Errorf("earliest is %v, want %v", path.Earliest, want)
				}
				for _, g := range c.gates {
					if !slices.ContainsFunc(path.Needs, func(n explain.Need) bool { return n.Gate == g }) {
						t.Errorf("needs %+v lack %s", path.Needs, g)
					}
				}
				return
			}
			t.Errorf("no path %s", c.path)
		})
	}
}

func readings(cpu float64, pending float64) nodes.Readings {
	c, p := nodes.Read(cpu), nodes.Read(pending)
	return nodes.Readings{CPU: c, CPUMin: c, CPUMax: c, Pending: p, PendingMin: p, PendingMax: p, PendingOther: p}
}

func more(like nodes.Worker, id, zone string) nodes.Worker {
	n := *like.Node
	n.Name, n.UID, n.ProviderID = id, "uid-"+id, "aws:///"+zone+"/"+id
	like.Instance.ID, like.Instance.Zone = id, zone
	like.Node = &n
	return like
}

func TestReplayWithOtherSettingsNamesTheGateThatTurns(t *testing.T) {
	t.Parallel()
	s := newStage(t, quick(), "a", "b")
	s.simulator.SetLoad(0.6)
	for range 6 {
		s.tick(time.Minute)
	}
	lower := func(p nodes.Policy) nodes.Policy { p.CPUUp = 0.55; p.CPUUpFor = time.Second; return p }
	var r explain.Replayed
	for _, e := range s.decisions() {
		snap := snapshot(t, e)
		r.Replay(nodes.Decider{Policy: lower(snap.Policy)}, e.Tick, snap)
	}
	if r.Decisions != 6 || len(r.Differences) != 6 || !slices.Equal(r.Windows, []string{"CPU_UP_SEC"}) {
		t.Fatalf("%d decisions, %d differ, windows %v", r.Decisions, len(r.Differences), r.Windows)
	}
	var b strings.Builder
	if err := explain.WriteReplayed(&b, explain.Style{}, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"NOOP STEADY", "NOOP CPU_HIGH_TOO_SHORT", "up.cpu 0.6 vs 0.55 passes", "6 decisions, 0 the same, 6 different", "under the old CPU_UP_SEC"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, b.String())
		}
	}
}

func TestADecisionThatWasTamperedWithIsFound(t *testing.T) {
	t.Parallel()
	s := newStage(t, quick(), "a", "b")
	s.tick(time.Minute)
	snap := snapshot(t, s.decisions()[0])
	for name, change := range map[string]func(*nodes.Decision){
		"action":  func(d *nodes.Decision) { d.Action = nodes.ScaleUp },
		"reason":  func(d *nodes.Decision) { d.Reason = nodes.ReasonBackoff },
		"detail":  func(d *nodes.Decision) { d.Detail = "x" },
		"nodes":   func(d *nodes.Decision) { d.Nodes = 3 },
		"wanted":  func(d *nodes.Decision) { d.Wanted = []nodes.Want{{Types: []string{"x"}}} },
		"targets": func(d *nodes.Decision) { d.Targets = []nodes.Target{{InstanceID: "i-1"}} },
		"passed":  func(d *nodes.Decision) { d.Passed = append(d.Passed, nodes.Passed{InstanceID: "i-1"}) },
		"gates":   func(d *nodes.Decision) { d.Gates = d.Gates[1:] },
	} {
		was := snap
		was.Decision.Gates = slices.Clone(snap.Decision.Gates)
		change(&was.Decision)
		var r explain.Replayed
		r.Replay(nodes.Decider{Policy: was.Policy}, "t", was)
		if len(r.Differences) != 1 || !slices.Equal(r.Differences[0].Fields, []string{name}) {
			t.Errorf("%s: %+v", name, r.Differences)
		}
	}
}

func TestAScaleDownSaysWhatRemovingANodeCosts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	p := nodes.DefaultPolicy()
	o := nodes.Observation{FleetKnown: true, Readings: readings(0.05, 0), Costs: map[string]float64{"i-1": 64, "i-2": 32, "i-3": 48, "i-4": 64}}
	for _, id := range []string{"i-1", "i-2", "i-3", "i-4"} {
		o.Fleet = append(o.Fleet, nodes.Worker{Instance: nodes.Instance{ID: id, State: nodes.StateRunning, Zone: "a", ActionID: "up-1"},
			Node: &nodes.Node{NodeRef: nodes.NodeRef{Name: id}, Ready: true}})
	}
	r := nodes.NewRecord("")
	r.IdleSinceEpoch = nodes.Num(now.Add(-time.Hour).Unix())
	s := nodes.Snapshot{Now: now, Policy: p, Observation: o, Record: r, Decision: nodes.Decide(p, o, r, now)}
	var b strings.Builder
	if err := explain.WriteSnapshot(&b, explain.Style{}, s, explain.Ahead(nodes.Decider{}, s)); err != nil {
		t.Fatal(err)
	}
	if want := "to remove: i-2 (node i-2) in a: as old as i-3, and costs the workers 32, not 48"; !strings.Contains(b.String(), want) {
		t.Errorf("it lacks %q:\n%s", want, b.String())
	}
}

// TestAConsolidationIsForeseenForTheOpeningOfItsWindow: until then nothing happens, and the gate says so.
func TestAConsolidationIsForeseenForTheOpeningOfItsWindow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 10, 0, 0, 0, time.UTC) // a Monday
	p := nodes.DefaultPolicy()
	p.Consolidation, p.ConsolidateWindows = nodes.ConsolidationRemove, nodes.Windows{{First: time.Monday, Last: time.Friday, From: 22 * 60, To: 6 * 60}}
	o := nodes.Observation{FleetKnown: true, Readings: readings(0.4, 0)}
	for _, id := range []string{"i-1", "i-2", "i-3", "i-4"} {
		o.Fleet = append(o.Fleet, nodes.Worker{Instance: nodes.Instance{ID: id, State: nodes.StateRunning, Zone: "a", ActionID: "up-1"},
			Node: &nodes.Node{NodeRef: nodes.NodeRef{Name: id}, Ready: true, Allocatable: nodes.Resources{MilliCPU: 4000, Memory: 8 << 30, Pods: 50}}})
	}
	r := nodes.NewRecord("")
	s := nodes.Snapshot{Now: now, Policy: p, Observation: o, Record: r, Decision: nodes.Decide(p, o, r, now)}
	if d := s.Decision; d.Action != nodes.Noop {
		t.Fatalf("%s %s outside of the window", d.Action, d.Reason)
	}
	then := explain.Ahead(nodes.Decider{}, s).Then
	if then == nil || !then.At.Equal(now.Add(12*time.Hour)) || then.Decision.Reason != nodes.ReasonConsolidates {
		t.Errorf("foreseen is %+v, want a consolidation at 22:00", then)
	}
	var b strings.Builder
	if err := explain.WriteSnapshot(&b, explain.Style{}, s, explain.Outlook{}); err != nil || !strings.Contains(b.String(), "Mon 10:00") || !strings.Contains(b.String(), "Mon-Fri 22:00-06:00") {
		t.Errorf("%v: the window is not named:\n%s", err, b.String())
	}
}

// TestExplainShowsWorkersThatAreNotReady: with what happens to each.
func TestExplainShowsWorkersThatAreNotReady(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	at := now.Add(-5 * time.Minute)
	worker := func(id string, since time.Time) nodes.Worker {
		return nodes.Worker{Instance: nodes.Instance{ID: id, State: nodes.StateRunning}, Node: &nodes.Node{NodeRef: nodes.NodeRef{Name: "node-" + id}, Ready: since.IsZero(), NotReadySince: since}}
	}
	s := nodes.Snapshot{Now: now, Policy: nodes.DefaultPolicy(), Observation: nodes.Observation{FleetKnown: true, Fleet: []nodes.Worker{worker("i-1", at), worker("i-2", time.Time{}), worker("i-3", time.Time{})}}}
	s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, now)
	var b strings.Builder
	if err := explain.WriteSnapshot(&b, explain.Style{}, s, explain.Ahead(nodes.Decider{Policy: s.Policy}, s)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Workers that are not Ready", "i-1", "node-i-1", "2023-11-14 22:08:20", "removed in 5m0s unless it becomes Ready"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}

// TestExplainNamesFaults: with what to do about each, for people and in the status.
func TestExplainNamesFaults(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	s := nodes.Snapshot{Now: now, Policy: nodes.DefaultPolicy(), Observation: nodes.Observation{FleetKnown: true,
		Fleet:  []nodes.Worker{{Instance: nodes.Instance{ID: "i-1", State: nodes.StateRunning}}},
		Faults: []nodes.Fault{{InstanceID: "i-1", Name: nodes.FaultToken, Saw: "401 Unauthorized"}}}}
	s.Decision = nodes.Decide(s.Policy, s.Observation, s.Record, now)
	var b strings.Builder
	if err := explain.WriteSnapshot(&b, explain.Style{}, s, explain.Ahead(nodes.Decider{Policy: s.Policy}, s)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"What is wrong with workers", "i-1", "wrong token", "K3S_TOKEN_REF", "401 Unauthorized"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	status := explain.Stand(explain.Input{Now: now, Policy: s.Policy, Last: &s})
	if len(status.Workers) != 1 || status.Workers[0].Note != "wrong token" {
		t.Errorf("the status has %+v", status.Workers)
	}
}

func TestPricesSayWhereTheyComeFrom(t *testing.T) {
	now := time.Unix(1730001600, 0).UTC()
	r := nodes.NewRecord("")
	r.Prices = &nodes.Prices{
		OnDemand: &nodes.PriceList{USD: map[string]float64{"m5.large": 0.1}, Epoch: now.Add(-time.Hour).Unix()},
		Spot:     &nodes.PriceList{TriedEpoch: now.Unix(), Failure: "reading Spot prices: RequestLimitExceeded"},
	}
	const want = "On-Demand by AWS, read 3600s ago (1); Spot by the table, because reading Spot prices: RequestLimitExceeded"
	var status, decision bytes.Buffer
	if err := explain.WriteStatus(&status, explain.Style{}, explain.Stand(explain.Input{Now: now, Record: r})); err != nil {
		t.Fatal(err)
	}
	snapshot := nodes.Snapshot{Now: now, Record: r, Decision: nodes.Decision{Action: nodes.Noop}}
	if err := explain.WriteSnapshot(&decision, explain.Style{}, snapshot, explain.Outlook{}); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"status": status.String(), "explain": decision.String()} {
		if !strings.Contains(text, want) {
			t.Errorf("%s does not say %q:\n%s", name, want, text)
		}
	}
	status.Reset()
	r.Prices = nil
	if err := explain.WriteStatus(&status, explain.Style{}, explain.Stand(explain.Input{Now: now, Record: r})); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(status.String(), "prices") {
		t.Errorf("with PRICES=table status speaks of prices:\n%s", status.String())
	}
}
