package explain_test

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// TestBlocked tells of what is on a worker and can be changed there, and of no other reason.
func TestBlocked(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	ready := func(id string, change func(*nodes.Node)) nodes.Worker {
		n := &nodes.Node{NodeRef: nodes.NodeRef{Name: id, UID: "uid-" + id}, Ready: true}
		change(n)
		return nodes.Worker{Instance: nodes.Instance{ID: id, State: nodes.StateRunning}, Node: n}
	}
	plain := func(*nodes.Node) {}
	blocks := func(n *nodes.Node) { n.Blocker = "pod default/db-0: disruption budget db allows none" }
	s := nodes.Snapshot{Now: now}
	s.Observation.Fleet = []nodes.Worker{
		ready("i-kept", func(n *nodes.Node) { n.Keep = true }),
		ready("i-blocked", blocks),
		ready("i-failed", plain),
		ready("i-others-first", plain),
		ready("i-not-asked", blocks),
		ready("i-drained", func(n *nodes.Node) { blocks(n); n.Unschedulable = true }),
		{Instance: nodes.Instance{ID: "i-joining", State: nodes.StateRunning}},
	}
	for _, w := range s.Observation.Fleet {
		if w.Instance.ID != "i-not-asked" {
			s.Decision.Passed = append(s.Decision.Passed, nodes.Passed{InstanceID: w.Instance.ID, Why: "why"})
		}
	}
	s.Record.SkipList = []nodes.Skip{{InstanceID: "i-failed", UntilEpoch: now.Unix() + 60, Cause: "the cause"}}

	want := map[string]string{
		"i-kept":    "a scale-down does not take it: it is annotated against that",
		"i-blocked": "a scale-down does not take it, because its drain would fail: pod default/db-0: disruption budget db allows none",
		"i-failed":  "a scale-down does not take it for a while, because its drain failed: the cause",
	}
	got := explain.Blocked(s)
	if len(got) != len(want) {
		t.Errorf("%+v", got)
	}
	for _, n := range got {
		if n.Text != want[n.Node.Name] || n.Kind != nodes.NodeBlocked || n.Cause != "" || n.Node.UID != "uid-"+n.Node.Name {
			t.Errorf("%+v", n)
		}
	}
}
