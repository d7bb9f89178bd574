package nodes_test

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/sim"
)

var batchTaint = nodes.Taint{Key: "batch", Value: "true", Effect: "NoSchedule"}

// poolCatalog has machines as the simulator's: two cores and 8 GiB.
func poolCatalog() *fit.Fit { return fit.New(fit.Config{Catalog: poolTypes(), MemoryOverhead: 1e-9}) }

func poolTypes() fit.Catalog {
	c := fit.Catalog{}
	for name, usd := range map[string]float64{"m": 0.10, "n": 0.08, "dear": 0.50} {
		c[name] = fit.InstanceType{Name: name, VCPU: 2, MemoryMiB: 8 << 10, OnDemand: usd, Spot: usd / 2, Arch: "amd64"}
	}
	c["arm"] = fit.InstanceType{Name: "arm", VCPU: 2, MemoryMiB: 8 << 10, OnDemand: 0.05, Spot: 0.02, Arch: "arm64"}
	c["big"] = fit.InstanceType{Name: "big", VCPU: 4, MemoryMiB: 16 << 10, OnDemand: 0.20, Spot: 0.10, Arch: "amd64"}
	return c
}

// generalAndBatch are two pools: one for every pod, and one that only batch pods may use, of two nodes at most.
func generalAndBatch(p *nodes.Policy) {
	p.Sizing, p.MaxActions, p.MaxWorkers = nodes.SizingFit, 3, 8
	p.Pools = []nodes.Pool{
		{Name: "general", InstanceTypes: []string{"m", "n"}},
		{Name: "batch", InstanceTypes: []string{"m"}, Labels: map[string]string{"team": "batch"}, Taints: []nodes.Taint{batchTaint}, Limits: nodes.Limits{Nodes: 2}},
	}
}

// templateOf is what the pools of a scenario boot from.
func templatesOf(p nodes.Policy) map[string]nodes.Template {
	out := map[string]nodes.Template{}
	for _, name := range p.PoolNames() {
		out[name] = nodes.Template{ID: "lt-" + name, Version: "1"}
	}
	return out
}

// joining lets the user data of each pool's template give what the pool says.
func joining(o *sim.Options) {
	o.Joins = map[string]sim.Joins{}
	for _, pool := range o.Policy.Pools {
		o.Joins["lt-"+pool.Name] = sim.Joins{Labels: pool.Labels, Taints: pool.Taints}
	}
}

// batchPod runs on nodes of the pool batch only.
func batchPod(name string) sim.PodSpec {
	pod := &corev1.Pod{}
	pod.Spec.NodeSelector = map[string]string{"team": "batch"}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "batch", Operator: corev1.TolerationOpEqual, Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	return sim.PodSpec{Name: name, MilliCPU: 1000, Selector: pod.Spec.NodeSelector, Tolerates: []nodes.Taint{batchTaint}, Scheduling: fit.Encode(pod)}
}

// inPool wants a number of live instances in a pool.
func inPool(pool string, least, most int) func(*stage) string {
	return func(s *stage) string {
		if n := len(s.livingIn(pool)); n < least || n > most {
			return fmt.Sprintf("pool %s has %d instances, want %d to %d", pool, n, least, most)
		}
		return ""
	}
}

// livingIn lists the live instances that were launched in a pool.
func (s *stage) livingIn(pool string) []string {
	var out []string
	for _, e := range s.Ledger() {
		if e.Kind == sim.Launched && e.Request.Offering.Pool == pool && s.Instance(e.Instance).Alive() {
			out = append(out, e.Instance)
		}
	}
	return out
}

// waiting wants a number of pods to be without a node.
func waiting(n int) func(*stage) string {
	return func(s *stage) string {
		if f := s.Fleet(); f.Pending != n {
			return fmt.Sprintf("%d pods wait, want %d", f.Pending, n)
		}
		return ""
	}
}

// poolScenarios are those of pools.
func poolScenarios() []scenario {
	fullOf := func(pods int) func(*stage) {
		return func(s *stage) {
			s.AddPods(4, one("old")) // all that the two first workers take
			for i := range pods {
				s.AddPods(1, batchPod(fmt.Sprintf("batch-%d", i)))
			}
		}
	}
	late := func(p *nodes.Policy) { generalAndBatch(p); p.MaxBatchUp = 1 }
	reserve := func(p *nodes.Policy) {
		generalAndBatch(p)
		p.Pools = append(p.Pools, nodes.Pool{Name: "preferred", InstanceTypes: []string{"dear"}, Weight: 10})
	}
	oneZone := func(p *nodes.Policy) {
		generalAndBatch(p)
		p.Pools[1].Zones = []string{"b"}
	}
	out := []scenario{
		{name: "pods of two pools", workers: "ab", policy: generalAndBatch, length: minutes(8), setup: func(s *stage) { fullOf(2)(s); s.AddPods(2, one("new")) },
			want: both(inPool("batch", 1, 2), inPool("general", 1, 2), waiting(0)), undone: both(inPool("batch", 1, 1), inPool("general", 1, 1))},
		{name: "a pool at its limit", workers: "ab", policy: late, length: minutes(9), stride: 2, setup: fullOf(6),
			want: both(inPool("batch", 2, 2), inPool("general", 0, 0), waiting(2))},
		{name: "a warning of a pool's worker", workers: "ab", policy: generalAndBatch, length: minutes(11), stride: 2, setup: fullOf(4),
			events: []delivery{{at: 300 * time.Second, kind: nodes.Warning, instance: "i-004"}}, want: both(inPool("batch", 2, 2), waiting(0))},
		{name: "a pool whose nodes come without its label", workers: "ab", policy: generalAndBatch, length: minutes(9), stride: 2, setup: fullOf(2),
			want: both(inPool("batch", 1, 1), inPool("general", 0, 0), waiting(2), func(s *stage) string {
				if seen := s.Record().PoolState("batch").TemplateSeen; seen == nil || !slices.Contains(seen.Lacks, "team=batch") {
					return fmt.Sprintf("the record does not say what the nodes of batch lack: %+v", seen)
				}
				return ""
			})},
		{name: "a pool that is out of stock", workers: "ab", policy: reserve, length: minutes(8), stride: 2, want: both(inPool("preferred", 0, 0), inPool("general", 1, 1), waiting(0)),
			setup: func(s *stage) {
				fullOf(0)(s)
				s.AddPods(2, one("new"))
				s.AddShortage(sim.Shortage{Type: "dear"})
			}},
		{name: "a pool of one zone", workers: "ab", policy: oneZone, length: minutes(8), stride: 3, setup: fullOf(4), want: both(inPool("batch", 2, 2), waiting(0))},
		{name: "a pool whose nodes never join", workers: "ab", policy: generalAndBatch, length: minutes(14), stride: 3, later: minutes(6), arrive: func(s *stage) { s.AddPods(2, one("later")) },
			setup: func(s *stage) {
				fullOf(2)(s)
				s.SetBoots(sim.Boot{NeverJoins: true})
			}, want: both(inPool("general", 1, 2), waiting(0))},
	}
	for i := range out {
		out[i].region = joining
		if out[i].name == "a pool whose nodes come without its label" {
			out[i].region = nil
		}
	}
	return out
}

// poolsUntold hides from which pool an instance is.
func poolsUntold(_ *stage, in *nodes.Instance) bool { in.Pool = ""; return true }

// onePoolsTemplate launches everything from the template of one pool.
func onePoolsTemplate(r *nodes.LaunchRequest) { r.Template.ID = "lt-general" }

// labelsSeen shows every node as its pool says it is.
func labelsSeen(_ *stage, v nodes.View, err error) (nodes.View, error) {
	for i := range v.Nodes {
		v.Nodes[i].Labels, v.Nodes[i].Taints = map[string]string{"team": "batch"}, []nodes.Taint{batchTaint}
	}
	return v, err
}
