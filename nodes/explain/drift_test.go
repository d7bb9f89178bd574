package explain_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
)

// drifted is a decision about two workers, of which one was launched by another template.
func drifted() nodes.Snapshot {
	s := nodes.Snapshot{Now: time.Unix(1_790_000_000, 0), Policy: nodes.DefaultPolicy(), Record: nodes.NewRecord("")}
	s.Policy.Drift, s.Policy.InstanceTypes = true, []string{"m"}
	o := &s.Observation
	o.FleetKnown, o.TemplateHashes = true, map[string]string{"": "now"}
	for id, hash := range map[string]string{"i-1": "before", "i-2": "now"} {
		o.Fleet = append(o.Fleet, nodes.Worker{
			Instance: nodes.Instance{ID: id, State: nodes.StateRunning, Zone: "a", Type: "m", TemplateHash: hash, LaunchedAt: s.Now.Add(-time.Hour)},
			Node:     &nodes.Node{NodeRef: nodes.NodeRef{Name: id}, Ready: true, Allocatable: nodes.Resources{MilliCPU: 2000, Memory: 8 << 30, Pods: 20}},
		})
	}
	zero, half := nodes.Read(0), nodes.Read(0.5)
	o.Readings = nodes.Readings{CPU: half, CPUMin: half, CPUMax: half, Pending: zero, PendingMin: zero, PendingMax: zero}
	s.Decision = nodes.Decide(s.Policy, *o, s.Record, s.Now)
	return s
}

func TestDriftIsExplained(t *testing.T) {
	s := drifted()
	var b bytes.Buffer
	if err := explain.WriteSnapshot(&b, explain.Style{}, s, explain.Ahead(nodes.Decider{Policy: s.Policy}, s)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SCALE_UP because of DRIFT", "it replaces: i-1", "replace drifted or expired workers", "hash before, of new nodes now"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestStatusNamesDriftedWorkers(t *testing.T) {
	s := drifted()
	for _, w := range explain.Stand(explain.Input{Now: s.Now, Policy: s.Policy, Record: s.Record, Last: &s}).Workers {
		if told := strings.Contains(w.Note, "drifted"); told != (w.Instance == "i-1") {
			t.Errorf("%s has the note %q", w.Instance, w.Note)
		}
	}
}
