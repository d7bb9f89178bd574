package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/explain"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestCapacityBuffersAreExplained: what is launched without a pod that waits names the buffer that it is for.
func TestCapacityBuffersAreExplained(t *testing.T) {
	p := quick()
	p.Signals, p.Sizing, p.PendingUpFor, p.CooldownUp, p.CooldownDown = nodes.SignalsKubernetes, nodes.SizingFit, 0, 0, 0
	p.InstanceTypes = []string{"t3.large"}
	s := newStage(t, p, "a", "b")
	s.simulator.SetBuffers(
		sim.Buffer{Name: "shop/web", Replicas: 6, Pod: sim.PodSpec{MilliCPU: 1000, Memory: 1 << 30}},
		sim.Buffer{Name: "shop/huge", Replicas: 1, Pod: sim.PodSpec{MilliCPU: 64000}},
		sim.Buffer{Name: "shop/odd", Strategy: "example.com/standby"},
	)
	s.tick(time.Minute)
	all := s.decisions()
	snap := snapshot(t, all[0])
	text := written(t, snap)
	for _, want := range []string{
		"SCALE_UP because of CAPACITY_BUFFER: capacity buffer shop/web has no room for 2 of its 6 pods",
		"The pods of a capacity buffer have no room, and no pod that waits needs a node.",
		"shop/odd", "ignored: its provisioning strategy example.com/standby is not supported",
		"shop/huge", "no node that can be launched would run its pods: ",
		"fill capacity buffers",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}

	// What needs a scale-up for pods is not told as if a buffer's were one.
	snap.Record.LastScaleEpoch = snap.Now.Unix() - 30
	snap.Policy.CooldownUp = time.Minute
	_, d := deciding(snap.Policy)
	snap.Decision = d.Decide(snap.Observation, snap.Record, snap.Now)
	if snap.Decision.Reason != nodes.ReasonCooldownUp || !strings.Contains(snap.Decision.Detail, "shop/web") {
		t.Errorf("in the cooldown it is %s %s", snap.Decision.Reason, snap.Decision.Detail)
	}
	o := explain.Ahead(d, snap)
	if o.Then == nil || o.Then.Decision.Reason != nodes.ReasonHeadroom {
		t.Errorf("what comes is %+v, want a scale-up for the buffer", o.Then)
	}
	for _, path := range o.Paths {
		if path.Name == "up" && path.Earliest.Sub(snap.Now) < 29*time.Second {
			t.Errorf("a scale-up for pods could begin at %s, within the cooldown", path.Earliest)
		}
	}
}
