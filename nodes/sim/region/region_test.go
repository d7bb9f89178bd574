package region

import (
	"context"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

func quick() nodes.Policy {
	p := nodes.DefaultPolicy()
	p.Cluster = "local"
	p.CPUUpFor, p.PendingUpFor, p.IdleDownFor = 2*time.Second, 2*time.Second, 3*time.Second
	p.CooldownUp, p.CooldownDown = time.Second, time.Second
	p.MinWorkers, p.MaxWorkers, p.PodsPerNode = 2, 5, 10
	return p
}

// TestARealNodePlaneGrowsAndShrinksTheRegion runs the real adapters against the region over the wire, in real time: pods wait, a node
// comes and takes them, the pods go, a node is drained and goes.
func TestARealNodePlaneGrowsAndShrinksTheRegion(t *testing.T) {
	r, err := Start(Options{Sim: sim.Options{Policy: quick(), Workers: []string{"a", "b"}, Boot: 6 * time.Second, Visible: time.Second}, Dir: t.TempDir(), Scrape: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	c, err := r.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rec, err := nodes.New(c)
	if err != nil {
		t.Fatal(err)
	}
	until := func(what string, done func(sim.Fleet) bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var last nodes.Report
		for !done(r.Simulator.Fleet()) {
			report, err := rec.Tick(ctx)
			if ctx.Err() != nil {
				t.Fatalf("%s: never; fleet %+v, last decision %+v, errors %v", what, r.Simulator.Fleet(), last.Decision, err)
			}
			last = report
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}
	r.Simulator.SetLoad(0.5)
	r.Simulator.AddPods(8, sim.PodSpec{Name: "fab/p", MilliCPU: 500})
	r.Simulator.AddPods(3, sim.PodSpec{Name: "fab/q", MilliCPU: 500})
	until("three workers and nothing pending", func(f sim.Fleet) bool { return f.Available == 3 && f.Pending == 0 })
	r.Simulator.RemovePods("fab/q")
	r.Simulator.SetLoad(0.1)
	until("two workers, one terminated", func(f sim.Fleet) bool { return f.Alive == 2 && f.Available == 2 && f.Pending == 0 && f.StaleNodes == 0 })
}
