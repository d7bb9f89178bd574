package console

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func worker(id, zone string, change func(*nodes.Worker)) nodes.Worker {
	w := nodes.Worker{Instance: nodes.Instance{ID: id, Zone: zone, State: nodes.StateRunning, Type: "t3.large", Market: nodes.Spot, LaunchedAt: noon.Add(-time.Hour)},
		Node: &nodes.Node{NodeRef: nodes.NodeRef{Name: id}, Ready: true, Allocatable: nodes.Resources{Pods: 35}, Pods: []nodes.Pod{{Name: "a/b", Count: 3}}, Daemon: nodes.Resources{Pods: 2}}}
	if change != nil {
		change(&w)
	}
	return w
}

func TestEveryStateOfANodeHasItsName(t *testing.T) {
	r := nodes.Record{ScalingInProgress: true, ScaleDownActionID: "d", ScaleDownTargetInstanceIDs: []string{"i-5", "i-6"},
		Removals: []nodes.Removal{{InstanceID: "i-5", Phase: nodes.PhaseDraining, DrainedSince: noon.Unix()}, {InstanceID: "i-6", Phase: nodes.PhaseTerminating}}}
	o := nodes.Observation{FleetKnown: true, Interruptions: []nodes.Interruption{{InstanceID: "i-7", Kind: nodes.Warning, DeadlineEpoch: noon.Add(time.Minute).Unix()}, {InstanceID: "i-1", Closed: true}},
		Fleet: []nodes.Worker{
			worker("i-1", "a", nil),
			worker("i-2", "a", func(w *nodes.Worker) { w.Node = nil; w.Instance.State = nodes.StatePending }),
			worker("i-3", "a", func(w *nodes.Worker) { w.Node.Ready = false }),
			worker("i-4", "b", func(w *nodes.Worker) { w.Node.Unschedulable = true }),
			worker("i-5", "b", nil), worker("i-6", "b", nil), worker("i-7", "b", nil),
			worker("i-8", "b", func(w *nodes.Worker) { w.Instance.State = nodes.StateTerminated }),
			worker("i-9", "b", func(w *nodes.Worker) { w.Instance.State = nodes.StateTerminated; w.Node = nil }),
		}}
	v := NodePlaneOf(nodes.Snapshot{Now: noon, Record: r, Observation: o, Policy: nodes.DefaultPolicy()}, func(string, nodes.Market) (float64, bool) { return 0.03, true })
	want := map[string]NodeState{"i-1": NodeReady, "i-2": NodeLaunching, "i-3": NodeNotReady, "i-4": NodeCordoned, "i-5": NodeDraining, "i-6": NodeTerminating, "i-7": NodeInterrupted, "i-8": NodeLost}
	if len(v.Nodes) != len(want) {
		t.Errorf("%d nodes, want %d: a terminated instance without a node is nothing", len(v.Nodes), len(want))
	}
	for _, n := range v.Nodes {
		if n.State != want[n.Instance] {
			t.Errorf("%s is %q, want %q", n.Instance, n.State, want[n.Instance])
		}
	}
	if v.Nodes[0].Pods != 5 || v.Nodes[0].Room != 35 {
		t.Errorf("pods %d of %d, want 5 of 35", v.Nodes[0].Pods, v.Nodes[0].Room)
	}
	if v.CostPerHour == nil || *v.CostPerHour < 0.2099 || *v.CostPerHour > 0.2101 { // seven that live
		t.Errorf("cost an hour: %v", v.CostPerHour)
	}
	if a := v.Action; a == nil || a.Kind != "scale-down" || a.Phases[1].State != "now" || a.Phases[2].State != "now" || a.Phases[3].State != "todo" {
		t.Errorf("action: %+v", v.Action)
	}
}

func TestNodePlaneOf_pools(t *testing.T) {
	p := nodes.DefaultPolicy()
	p.Pools = []nodes.Pool{{Name: "full", Weight: 3, Limits: nodes.Limits{Nodes: 1}}, {Name: "failed"}, {Name: "away"}, {Name: "open"}}
	in := func(pool string) func(*nodes.Worker) { return func(w *nodes.Worker) { w.Instance.Pool = pool } }
	r := nodes.NewRecord("")
	r.PoolStates = []nodes.PoolState{{Name: "failed", ScaleUpFailures: 2, BackoffUntilEpoch: noon.Add(90 * time.Second).Unix()}}
	s := nodes.Snapshot{Now: noon, Policy: p, Record: r,
		Observation: nodes.Observation{FleetKnown: true, Fleet: []nodes.Worker{worker("i-1", "a", in("full")), worker("i-2", "b", in(""))}},
		Decision: nodes.Decision{Action: nodes.Noop, Gates: []nodes.Gate{{Name: "pool.full", Value: "1 node, 2 vCPU, 0 MiB"},
			{Name: "pool.failed", Value: "0 nodes, 0 vCPU, 0 MiB; 2 failures in a row"}, {Name: "pool.away", Value: "0 nodes; none of its zones has a subnet"}, {Name: "pool.open", Passed: true}}}}
	want := []Pool{
		{Name: "full", Weight: 3, Nodes: 1, Spot: 1, Limits: "1 node", Held: "at its limit: it uses 1 node, 2 vCPU, 0 MiB"},
		{Name: "failed", Limits: "no limit", Held: "back-off for 1m30s after 2 failures"},
		{Name: "away", Limits: "no limit", Held: "none of its zones has a subnet"},
		{Name: "open", Limits: "no limit"},
	}
	v := NodePlaneOf(s, nil)
	if !slices.Equal(v.Pools, want) {
		t.Errorf("got  %+v\nwant %+v", v.Pools, want)
	}
	if v.Nodes[0].Pool != "full" || v.Nodes[1].Pool != "" {
		t.Errorf("the workers are in %q and %q", v.Nodes[0].Pool, v.Nodes[1].Pool)
	}
}

func TestNodePlaneOf_fault(t *testing.T) {
	o := nodes.Observation{FleetKnown: true, Fleet: []nodes.Worker{worker("i-1", "a", nil), worker("i-2", "a", nil)},
		Faults: []nodes.Fault{{InstanceID: "i-2", Name: nodes.FaultDisk, Saw: "No space left on device"}}}
	v := NodePlaneOf(nodes.Snapshot{Now: noon, Observation: o, Policy: nodes.DefaultPolicy()}, nil)
	if n := v.Nodes[0]; n.Fault != "" {
		t.Errorf("i-1 has %q", n.Fault)
	}
	if n := v.Nodes[1]; n.Fault != "disk full" || n.FaultSeen != "No space left on device" || n.FaultFix == "" {
		t.Errorf("i-2 has %+v", n)
	}
}

func TestAScaleUpShowsWhatIsDurableAndWhatComesNext(t *testing.T) {
	r := nodes.Record{ScalingInProgress: true, ScaleUpActionID: "u", ScaleUpStartedEpoch: noon.Unix(), ScaleUpRequested: 2, ScaleUpInstanceIDs: []string{"i-1"},
		ScaleUpIntent: &nodes.Intent{Ordinal: 1, Attempt: 2, Request: nodes.LaunchRequest{Offering: nodes.Offering{Zone: "b", Type: "m5.large", Market: nodes.OnDemand}}}}
	s := nodes.Snapshot{Now: noon, Record: r, Policy: nodes.DefaultPolicy(), Observation: nodes.Observation{FleetKnown: true, Fleet: []nodes.Worker{worker("i-1", "a", nil)}}}
	states := func(s nodes.Snapshot) (out []string) {
		for _, p := range NodePlaneOf(s, nil).Action.Phases {
			out = append(out, p.State)
		}
		return out
	}
	check := func(when string, want ...string) {
		t.Helper()
		for i, got := range states(s) {
			if got != want[i] {
				t.Errorf("%s: phase %d is %s, want %s", when, i, got, want[i])
			}
		}
	}
	check("one of two launched", "done", "now", "todo", "todo")
	if d := NodePlaneOf(s, nil).Action.Phases[1].Detail; d != "1 of 2, now on-demand m5.large in b, attempt 3" {
		t.Errorf("launch: %q", d)
	}
	s.Record.ScaleUpInstanceIDs, s.Record.ScaleUpIntent = []string{"i-1", "i-2"}, nil
	check("both launched, one Ready", "done", "done", "now", "todo")
	s.Observation.Fleet = append(s.Observation.Fleet, worker("i-2", "b", nil))
	check("both Ready", "done", "done", "done", "now")
}
