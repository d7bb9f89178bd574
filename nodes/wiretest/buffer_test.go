package wiretest

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// buffered is a rig by the Kubernetes API alone, with two workers that are full.
func buffered(t *testing.T) *rig {
	t.Helper()
	g := build(t, func(s *set) {
		p := &s.policy
		p.Signals, p.Sizing, p.PendingUpFor, p.CooldownUp = nodes.SignalsKubernetes, nodes.SizingFit, 0, 0
		p.Consolidation, p.ConsolidatePerHour, p.EmptyZones, p.MaxWorkers = nodes.ConsolidationRemove, 20, true, 10
		p.InstanceTypes, p.Spot = []string{"t3.large"}, false
		s.direct = true
	})
	g.ServeBuffers(true)
	g.AddPodOn("i-002", sim.PodSpec{Name: "default/full-1", MilliCPU: 2000, Memory: 1 << 30})
	g.AddPodOn("i-003", sim.PodSpec{Name: "default/full-2", MilliCPU: 2000, Memory: 1 << 30})
	return g
}

// rounds does ticks, shows the buffers as the daemon does, and returns the last decision.
func (g *rig) rounds(n int) (d nodes.Decision) {
	g.t.Helper()
	for range n {
		report, err := g.tick()
		g.must(err)
		d = *report.Decision
		_, err = g.cluster.View(g.t.Context())
		g.must(err)
		g.must(g.cluster.ShowBuffers(g.t.Context(), d.Headroom, d.Reason == nodes.ReasonHeadroom))
	}
	return d
}

// stands checks the number of Ready workers, that no pod waits, and what the status of the buffer says.
func (g *rig) stands(ready int, status string) {
	g.t.Helper()
	v, err := g.cluster.View(g.t.Context())
	g.must(err)
	workers := 0
	for _, n := range v.Nodes {
		if n.Available() && !n.ControlPlane {
			workers++
		}
	}
	if workers != ready || len(v.Pending) > 0 || v.BuffersWhy != "" {
		g.t.Errorf("%d Ready workers, want %d; waiting: %v %s", workers, ready, v.Pending, v.BuffersWhy)
	}
	g.must(g.Client("look", nil).Kube(g.t.Context(), "look", func(k *sim.Kube) error {
		for _, b := range k.Buffers() {
			if !strings.Contains(string(b.Status), status) {
				g.t.Errorf("%q is not in the status %s", status, b.Status)
			}
		}
		return nil
	}))
}

// TestHeadroomOverTheWire follows a buffer through the protocols: it is filled with no pod waiting, a burst lands on it, it is refilled,
// consolidation leaves it, and it goes when it is deleted.
func TestHeadroomOverTheWire(t *testing.T) {
	g := buffered(t)
	web := sim.Buffer{Name: "default/web", Replicas: 4, Pod: sim.PodSpec{MilliCPU: 1000, Memory: 1 << 30}}
	g.SetBuffers(web)
	d := g.rounds(1)
	if d.Action != nodes.ScaleUp || d.Reason != nodes.ReasonHeadroom || d.Nodes != 2 {
		t.Fatalf("decided %s of %d because of %s %s", d.Action, d.Nodes, d.Reason, d.Detail)
	}
	g.stands(2, "NodesOnTheirWay")
	g.rounds(5)
	g.stands(4, "Provisioned")

	g.AddPods(4, sim.PodSpec{Name: "default/burst", MilliCPU: 1000, Memory: 1 << 30})
	g.Advance(time.Second)
	g.stands(4, "Provisioned")
	g.rounds(6)
	g.stands(6, "Provisioned")
	g.rounds(15)
	g.stands(6, "Provisioned")

	g.SetBuffers()
	g.rounds(20)
	g.stands(4, "")
}
