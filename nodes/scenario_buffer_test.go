package nodes_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// bufferedCluster is a simulated cluster by the Kubernetes API alone, whose pods are packed.
type bufferedCluster struct {
	*testing.T
	*sim.Simulator
	client *sim.Client
	r      *nodes.Reconciler
}

// buffered returns a cluster with workers of two cores that are full.
func buffered(t *testing.T, change ...func(*nodes.Policy)) *bufferedCluster {
	t.Helper()
	p := nodes.DefaultPolicy()
	p.Signals, p.Sizing, p.PendingUpFor, p.CooldownUp = nodes.SignalsKubernetes, nodes.SizingFit, 0, 0
	p.Consolidation, p.ConsolidatePerHour, p.CooldownDown, p.IdleDownFor = nodes.ConsolidationRemove, 20, 3*time.Minute, 2*time.Minute
	p.InstanceTypes, p.Spot, p.MinWorkers, p.MaxWorkers, p.EmptyZones = []string{"m"}, false, 1, 8, true
	for _, f := range change {
		f(&p)
	}
	b := &bufferedCluster{T: t, Simulator: sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}, WorkerType: "m"})}
	b.client = b.Client("A", nil)
	f, ids := poolCatalog(), 0
	var err error
	b.r, err = nodes.New(nodes.Config{Policy: p, Cloud: b.client, Cluster: b.client, Store: b.client, EventLog: b.client, Clock: b.Clock(),
		Sizer: f, Fitter: f, Screener: f, Appraiser: f, NewID: func() string { ids++; return fmt.Sprint("t", ids) }})
	if err != nil {
		t.Fatal(err)
	}
	b.AddPodOn(w1, core("full-1", 2000))
	b.AddPodOn(w2, core("full-2", 2000))
	return b
}

func core(name string, milliCPU int64) sim.PodSpec {
	return sim.PodSpec{Name: "default/" + name, MilliCPU: milliCPU, Grace: 10 * time.Second}
}

// headroom is a buffer of pods of one core each.
func headroom(replicas int) sim.Buffer {
	return sim.Buffer{Name: "default/web", Replicas: replicas, Pod: sim.PodSpec{MilliCPU: 1000}}
}

// ticks runs the reconciler for some minutes and returns the decisions.
func (b *bufferedCluster) ticks(minutes int) (out []nodes.Decision) {
	b.Helper()
	for range minutes {
		b.Advance(time.Minute)
		report, err := b.r.Tick(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if report.Decision != nil {
			out = append(out, *report.Decision)
		}
	}
	return out
}

// expect checks the fleet and how many pods wait.
func (b *bufferedCluster) expect(ready, pending int) {
	b.Helper()
	v, err := b.client.View(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	got := 0
	for _, n := range v.Nodes {
		if n.Available() && !n.ControlPlane {
			got++
		}
	}
	if got != ready {
		b.Errorf("%d Ready workers, want %d", got, ready)
	}
	if len(v.Pending) != pending {
		b.Errorf("%d pods wait, want %d", len(v.Pending), pending)
	}
}

// TestCapacityBuffer follows a buffer from its creation to its deletion.
func TestCapacityBuffer(t *testing.T) {
	t.Run("a node is launched although no pod waits", func(t *testing.T) {
		b := buffered(t)
		b.ticks(2)
		b.expect(2, 0)
		b.SetBuffers(headroom(3))
		d := b.ticks(1)
		if len(d) != 1 || d[0].Action != nodes.ScaleUp || d[0].Reason != nodes.ReasonHeadroom || d[0].Nodes != 2 {
			t.Fatalf("decided %+v, want two nodes for the buffer", d)
		}
		if !strings.Contains(d[0].Detail, "capacity buffer default/web has no room for 3 of its 3 pods") {
			t.Errorf("the detail does not name the buffer: %s", d[0].Detail)
		}
		b.ticks(4)
		b.expect(4, 0)
	})

	t.Run("a burst lands on it at once, and it is refilled", func(t *testing.T) {
		b := buffered(t)
		b.SetBuffers(headroom(4))
		b.ticks(6)
		b.expect(4, 0)
		b.AddPods(4, core("burst", 1000))
		b.Advance(time.Second)
		b.expect(4, 0)
		b.ticks(6)
		b.expect(6, 0)
	})

	t.Run("real pods come first", func(t *testing.T) {
		b := buffered(t)
		b.SetBuffers(headroom(2))
		b.AddPods(2, core("real", 1000))
		d := b.ticks(1)
		if len(d) != 1 || d[0].Reason != nodes.ReasonTriggered || d[0].Nodes != 1 {
			t.Fatalf("decided %+v, want one node for the pods that wait", d)
		}
		b.ticks(8)
		b.expect(4, 0)
	})

	t.Run("consolidation leaves it", func(t *testing.T) {
		b := buffered(t)
		b.SetBuffers(headroom(4))
		b.ticks(40)
		b.expect(4, 0)
		if n := launched(b.Simulator); n != 2 {
			t.Errorf("%d launches, want 2: the buffer flaps", n)
		}
	})

	t.Run("it shrinks when it is deleted", func(t *testing.T) {
		b := buffered(t)
		b.SetBuffers(headroom(4))
		b.ticks(6)
		b.expect(4, 0)
		b.SetBuffers()
		b.ticks(30)
		b.expect(2, 0)
	})

	t.Run("never beyond MAX_WORKERS, and what it has is kept", func(t *testing.T) {
		b := buffered(t, func(p *nodes.Policy) { p.MaxWorkers = 3 })
		b.SetBuffers(headroom(40))
		b.ticks(20)
		b.expect(3, 0)
		if n := launched(b.Simulator); n != 1 {
			t.Errorf("%d launches, want 1", n)
		}
	})

	t.Run("ignored where pods are not packed", func(t *testing.T) {
		p := nodes.DefaultPolicy()
		p.Signals, p.PendingUpFor, p.MinWorkers = nodes.SignalsKubernetes, 0, 1
		w := sim.New(sim.Options{Policy: p, Workers: []string{"a", "b"}})
		c := w.Client("A", nil)
		r, err := nodes.New(nodes.Config{Policy: p, Cloud: c, Cluster: c, Store: c, EventLog: c, Clock: w.Clock()})
		if err != nil {
			t.Fatal(err)
		}
		w.SetBuffers(headroom(40))
		report, err := r.Tick(t.Context())
		if err != nil || report.Decision.Action != nodes.Noop || len(report.Decision.Headroom) > 0 {
			t.Errorf("decided %+v, %v; want nothing for a buffer", report.Decision, err)
		}
	})
}

func launched(w *sim.Simulator) int {
	n := 0
	for _, e := range w.Ledger() {
		if e.Kind == sim.Launched {
			n++
		}
	}
	return n
}
