package backtest

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

// twoPools plays two hours in which pods of the pool batch and others come every ten minutes.
func twoPools(t testing.TB) Config {
	t.Helper()
	var b strings.Builder
	b.WriteString("name,cpu_milli,memory_mib,creation_time,deletion_time,scheduled_time,pool\n")
	for i := range 10 {
		fmt.Fprintf(&b, "g%d,1500,1024,%d,%d,%d,\n", i, 600*i, 600*i+1500, 600*i)
		fmt.Fprintf(&b, "b%d,1500,1024,%d,%d,%d,batch\n", i, 600*i, 600*i+1500, 600*i)
	}
	c := byHand(t)
	c.Trace, c.Window = read(t, b.String()), Window{0, 2 * time.Hour}
	c.Catalog = fit.Catalog{
		"four": {Name: "four", VCPU: 4, MemoryMiB: 16384, OnDemand: 0.4, Spot: 0.1, Arch: "amd64"},
		"two":  {Name: "two", VCPU: 2, MemoryMiB: 8192, OnDemand: 0.2, Spot: 0.05, Arch: "amd64"},
	}
	all := 100
	c.Policy.Sizing, c.Policy.Consolidation, c.Policy.ConsolidatePerHour, c.Policy.MaxActions = nodes.SizingFit, nodes.ConsolidationRemove, 10, 5
	c.Policy.Pools = []nodes.Pool{
		{Name: "batch", Weight: 5, InstanceTypes: []string{"two"}, SpotShare: &all, Labels: map[string]string{"team": "batch"}, Taints: []nodes.Taint{{Key: "batch", Value: "true", Effect: "NoSchedule"}}, Limits: nodes.Limits{Nodes: 2}},
		{Name: "general", InstanceTypes: []string{"four"}},
	}
	return c
}

// TestRunPools: each pool's nodes run its pods, its limit holds, and what the pools cost is the whole.
func TestRunPools(t *testing.T) {
	r, err := Run(t.Context(), twoPools(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Pools) != 2 || r.Pools[0].Name != "batch" || r.Pools[1].Name != "general" {
		t.Fatalf("the pools are %+v", r.Pools)
	}
	batch, general := r.Pools[0], r.Pools[1]
	if batch.Launched == 0 || batch.Most > 2 || general.Most == 0 {
		t.Errorf("batch %+v, general %+v", batch, general)
	}
	if sum := batch.Cost + general.Cost; math.Abs(sum-r.Nodes.Cost) > 1e-9 {
		t.Errorf("the pools cost %v together, the nodes %v", sum, r.Nodes.Cost)
	}
	if want := batch.Hours * 0.05; math.Abs(batch.Cost-want) > 1e-9 {
		t.Errorf("%v h of Spot at 0.05 USD cost %v", batch.Hours, batch.Cost)
	}
	if r.Pods.Ran != 20 || r.Pods.NeverFit+r.Pods.Pending != 0 || r.Errors != 0 {
		t.Errorf("pods %+v, %d errors: %s", r.Pods, r.Errors, r.FirstErr)
	}
	if r.Nodes.Cost < r.Nodes.BoundCost {
		t.Errorf("the cost %v is below the lower bound %v", r.Nodes.Cost, r.Nodes.BoundCost)
	}
	var b strings.Builder
	if err := WriteTable(&b, r); err != nil || !strings.Contains(b.String(), "pool batch, node-hours") {
		t.Errorf("%v: the table does not name the pool:\n%s", err, b.String())
	}
}

// TestRunPoolsWithoutRoom: a limit of no use to the pods of a pool leaves them waiting, and an unknown pool is an error.
func TestRunPoolsWithoutRoom(t *testing.T) {
	c := twoPools(t)
	c.Policy.Pools[0].Limits = nodes.Limits{CPU: 1}
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if r.Pods.Pending != 10 || r.Pools[0].Launched != 0 {
		t.Errorf("%d pods wait, %d nodes were launched in batch", r.Pods.Pending, r.Pools[0].Launched)
	}

	c.Policy.Pools[0].Name = "other"
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), `pod b0 of the trace asks for pool "batch"`) {
		t.Errorf("got %v", err)
	}
}
