package wiretest

import (
	"context"
	"testing"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// TestPodsOfAPoolOverTheWire: pods that select a pool's label, and tolerate its taint, get a node of that pool, by the real adapters: the
// user data that EC2 is sent gives the node what the pool says, and the node is verified by it.
func TestPodsOfAPoolOverTheWire(t *testing.T) {
	taint := nodes.Taint{Key: "batch", Value: "true", Effect: "NoSchedule"}
	g := build(t, func(s *set) {
		s.policy.Sizing, s.policy.MaxActions = nodes.SizingFit, 3
		s.policy.Pools = []nodes.Pool{
			{Name: "general", InstanceTypes: []string{"t3.large"}, Weight: 10},
			{Name: "batch", InstanceTypes: []string{"m5.large"}, Labels: map[string]string{"team": "batch"}, Taints: []nodes.Taint{taint}, Limits: nodes.Limits{Nodes: 1}},
		}
	})
	g.SetLoad(0.5)
	g.AddPods(4, sim.PodSpec{Name: "shop/old", MilliCPU: 1000})
	g.watched()
	g.AddPods(2, sim.PodSpec{Name: "batch/job", MilliCPU: 800, Selector: map[string]string{"team": "batch"}, Tolerates: []nodes.Taint{taint}})
	g.AddPods(1, sim.PodSpec{Name: "shop/new", MilliCPU: 800})
	g.ticks(14, func(nodes.Report) bool { f := g.Fleet(); return f.Available == 4 && f.Pending == 0 })

	got := map[string]string{}
	for _, e := range g.Ledger() {
		if e.Kind == sim.Launched {
			got[g.Instance(e.Instance).Pool] += e.Request.Offering.Type
		}
	}
	if len(got) != 2 || got["general"] != "t3.large" || got["batch"] != "m5.large" {
		g.show()
		t.Errorf("launched by pool: %v, want one t3.large in general and one m5.large in batch", got)
	}
	record, err := g.store.Load(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, pool := range []string{"general", "batch"} {
		if seen := record.PoolState(pool).TemplateSeen; seen != nil && seen.Text() != "" {
			t.Errorf("the nodes of %s are not as promised: %s", pool, seen.Text())
		}
	}
	g.unharmed()
}
