package explain_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/sim"
)

// notices returns what is told to the pods that wait, by the last decision of a tick.
func (s *stage) notices(p nodes.Policy, after time.Duration) (nodes.Snapshot, []nodes.PodNotice) {
	s.Helper()
	s.tick(after)
	all := s.decisions()
	snap := snapshot(s.T, all[len(all)-1])
	_, d := deciding(p)
	return snap, explain.Waiting(d, snap)
}

// one returns the only notice.
func one(t *testing.T, n []nodes.PodNotice) nodes.PodNotice {
	t.Helper()
	if len(n) != 1 {
		t.Fatalf("%d notices: %+v", len(n), n)
	}
	return n[0]
}

// says checks what a notice says.
func says(t *testing.T, n nodes.PodNotice, cause nodes.Reason, launch, forever bool, texts ...string) {
	t.Helper()
	if n.Cause != cause || n.Launch != launch || n.Forever != forever {
		t.Errorf("%+v, want cause %s, launch %t, forever %t", n, cause, launch, forever)
	}
	for _, text := range texts {
		if !strings.Contains(n.Text, text) {
			t.Errorf("%q is not in %q", text, n.Text)
		}
	}
}

// TestWaiting_story follows pods from the moment at which they wait: the moment that is told for the launch is the one at which it is
// decided, and the text does not change before.
func TestWaiting_story(t *testing.T) {
	p := quick()
	s := newStage(t, p, "a", "a")
	s.simulator.AddPods(200, sim.PodSpec{Name: "web", MilliCPU: 400, Memory: 1 << 28})
	_, first := s.notices(p, 10*time.Second)
	n := one(t, first)
	says(t, n, nodes.ReasonPendingTooShort, false, false, "pods have to be pending for 1m00s (PENDING_UP_SEC), until ", "a node is launched at ")
	at := regexp.MustCompile(`launched at (\S+) UTC`).FindStringSubmatch(n.Text)
	if at == nil {
		t.Fatalf("no moment in %q", n.Text)
	}

	for {
		snap, again := s.notices(p, 10*time.Second)
		n := one(t, again)
		if snap.Decision.Action == nodes.ScaleUp {
			told, err := time.Parse("15:04:05", at[1])
			now, _ := time.Parse("15:04:05", snap.Now.UTC().Format("15:04:05"))
			if late := now.Sub(told); err != nil || late < 0 || late > 10*time.Second { // a tick
				t.Errorf("launched at %s, told was %s, %v", now, at[1], err)
			}
			says(t, n, nodes.ReasonTriggered, true, false, "nodes are launched", "JOIN_TIMEOUT_SEC")
			break
		}
		if n.Text != first[0].Text {
			t.Errorf("the text changed from %q to %q", first[0].Text, n.Text)
		}
	}
}

// TestWaiting_limits: pods that no launch can help are told so.
func TestWaiting_limits(t *testing.T) {
	p := quick()
	p.MaxWorkers = 2
	s := newStage(t, p, "a", "a")
	s.simulator.AddPods(200, sim.PodSpec{Name: "web", MilliCPU: 400, Memory: 1 << 28})
	var n nodes.PodNotice
	for range 10 {
		_, all := s.notices(p, 10*time.Second)
		n = one(t, all)
	}
	says(t, n, nodes.ReasonMaxWorkers, false, true, "MAX_WORKERS above 2", "no node is launched until that changes")
}

// TestWaiting_onTheWay: pods that have room on nodes that are on their way are told which, and pods of a pool that the nodes are not of
// are not.
func TestWaiting_onTheWay(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := quick()
	p.Sizing = nodes.SizingFit
	p.Pools = []nodes.Pool{
		{Name: "batch", InstanceTypes: []string{"m5.large"}, Labels: map[string]string{"team": "batch"}, Taints: []nodes.Taint{{Key: "batch", Value: "true", Effect: "NoSchedule"}}},
		{Name: "general", InstanceTypes: []string{"m5.large"}},
	}
	coming := nodes.Instance{ID: "i-1", State: nodes.StatePending, Type: "m5.large", Zone: "a", Pool: "general", LaunchedAt: now.Add(-5 * time.Second)}
	snap := nodes.Snapshot{Now: now, Policy: p, Observation: nodes.Observation{FleetKnown: true, Fleet: []nodes.Worker{{Instance: coming}}, Zones: []string{"a"},
		Pending: []nodes.Pod{
			{Name: "default/any", Requests: nodes.Resources{MilliCPU: 100}},
			{Name: "default/never", NeverFit: "it wants a GPU", Each: []nodes.PodRef{{Namespace: "default", Name: "never"}}},
		}},
		Decision: nodes.Decision{Action: nodes.Noop, Reason: nodes.ReasonRoomExists}}
	_, d := deciding(p)
	all := explain.Waiting(d, snap)
	says(t, all[0], nodes.ReasonRoomExists, true, false, "i-1 (m5.large in a, pool general), launched at "+now.Add(-5*time.Second).UTC().Format("15:04:05"))
	says(t, all[1], nodes.ReasonNeverFit, false, true, "it wants a GPU")
	if len(all[1].Pods) != 1 {
		t.Errorf("%+v", all[1])
	}

	snap.Decision = nodes.Decision{Action: nodes.ScaleUp, Reason: nodes.ReasonTriggered, Nodes: 1, Pool: "batch"}
	all = explain.Waiting(d, snap)
	says(t, all[0], nodes.ReasonInProgress, false, false, "the nodes that are launched now, in pool batch, would not run it", "taint")

	snap.Decision = nodes.Decision{Action: nodes.ScaleUp, Reason: nodes.ReasonTriggered, Nodes: 1, Pool: "general"}
	all = explain.Waiting(d, snap)
	says(t, all[0], nodes.ReasonTriggered, true, false, "1 node is launched in pool general")
}

// TestPoolStatuses counts pools, and says why one launches nothing.
func TestPoolStatuses(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	p := quick()
	p.Sizing = nodes.SizingFit
	p.Pools = []nodes.Pool{{Name: "a", Limits: nodes.Limits{Nodes: 3}}, {Name: "b"}, {Name: "c"}}
	worker := func(pool string, ready bool, market nodes.Market) nodes.Worker {
		return nodes.Worker{Instance: nodes.Instance{ID: "i-" + pool, State: nodes.StateRunning, Type: "m5.large", Pool: pool, Market: market},
			Node: &nodes.Node{Ready: ready, Allocatable: nodes.Resources{MilliCPU: 1930, Memory: 7 << 30}}}
	}
	joining := worker("a", false, nodes.Spot)
	joining.Node = nil
	snap := nodes.Snapshot{Now: now, Policy: p,
		Observation: nodes.Observation{Fleet: []nodes.Worker{worker("a", true, nodes.OnDemand), joining, worker("b", false, nodes.OnDemand)}},
		Record:      nodes.Record{PoolStates: []nodes.PoolState{{Name: "b", ScaleUpFailures: 2, BackoffUntilEpoch: now.Unix() + 60}}},
		Decision:    nodes.Decision{Gates: []nodes.Gate{{Name: "pool.a", Value: "3 nodes", Passed: false}, {Name: "pool.c", Passed: true}}}}
	_, d := deciding(p)
	got := explain.PoolStatuses(d, snap)
	want := []nodes.PoolStatus{
		{Name: "a", Nodes: 2, Ready: 1, Joining: 1, Spot: 1, CPU: 2, Memory: "7168Mi", Limits: "3 nodes", Launch: "no: its limits are reached"},
		{Name: "b", Nodes: 1, CPU: 2, Memory: "7168Mi", Limits: "no limit", Launch: "no: 2 failures in a row, back-off until " + now.Add(time.Minute).Format("15:04:05") + " UTC"},
		{Name: "c", Memory: "0Mi", Limits: "no limit", Launch: "yes"},
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}

	snap.Policy.Pools = nil
	snap.Decision.Gates = []nodes.Gate{{Name: "up.max-workers", Passed: false}}
	if got := explain.PoolStatuses(d, snap); len(got) != 1 || got[0].Name != nodes.DefaultPool || got[0].Nodes != 3 || got[0].Ready != 1 || got[0].Launch != "no: MAX_WORKERS is 7" {
		t.Errorf("without pools: %+v", got)
	}
}

// TestAhead_poolBackoff: the end of a pool's back-off is a moment at which a decision can change.
func TestAhead_poolBackoff(t *testing.T) {
	now := time.Unix(1_800_000_000, 0).UTC()
	p := quick()
	p.Sizing, p.MinWorkers, p.Pools = nodes.SizingFit, 0, []nodes.Pool{{Name: "only", InstanceTypes: []string{"m5.large"}}}
	pod := nodes.Pod{Name: "default/waits", Requests: nodes.Resources{MilliCPU: 500, Memory: 1 << 28}}
	snap := nodes.Snapshot{Now: now, Policy: p,
		Observation: nodes.Observation{FleetKnown: true, Zones: []string{"a"}, Pending: []nodes.Pod{pod}, Readings: readings(0.5, 1)},
		Record: nodes.Record{PendingSinceEpoch: nodes.Num(now.Unix() - 600),
			PoolStates: []nodes.PoolState{{Name: "only", ScaleUpFailures: 1, BackoffUntilEpoch: now.Unix() + 90}}}}
	_, d := deciding(p)
	snap.Decision = d.Decide(snap.Observation, snap.Record, now)
	if snap.Decision.Reason != nodes.ReasonBackoff {
		t.Fatalf("%s: %s", snap.Decision.Reason, snap.Decision.Detail)
	}
	want := now.Add(90 * time.Second)
	if then := explain.Ahead(d, snap).Then; then == nil || !then.At.Equal(want) {
		t.Errorf("the next action is foreseen at %+v, want %s", then, want)
	}
	says(t, one(t, explain.Waiting(d, snap)), nodes.ReasonBackoff, false, false, "a node is launched at "+want.Format("15:04:05"))
}
