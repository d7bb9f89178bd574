package backtest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
	"github.com/muster-dev/muster/nodes/sim"
)

// PoolResult is what the nodes of one pool came to.
type PoolResult struct {
	Name     string  `json:"name"`
	Hours    float64 `json:"hours"`
	Cost     float64 `json:"costUSD"`
	Most     int     `json:"most"` // at a time
	Launched int     `json:"launched"`
}

// pools is what a backtest has to know of the pools of a policy. Without pools there is one kind of nodes, whose name is "".
type pools struct {
	policy nodes.Policy
	alive  map[string]int
	booked map[string]*PoolResult
}

func newPools(p nodes.Policy) pools {
	ps := pools{policy: p, alive: map[string]int{}, booked: map[string]*PoolResult{}}
	for _, name := range p.PoolNames() {
		ps.booked[name] = &PoolResult{Name: name}
	}
	return ps
}

// kinds returns the policy as it is for each kind of nodes.
func (ps pools) kinds() []nodes.Policy {
	if len(ps.policy.Pools) == 0 {
		return []nodes.Policy{ps.policy}
	}
	var out []nodes.Policy
	for _, name := range ps.policy.PoolNames() {
		out = append(out, ps.policy.In(name))
	}
	return out
}

// types lists what the kinds of nodes offer, each type once.
func (ps pools) types() []string {
	var out []string
	for _, k := range ps.kinds() {
		for _, t := range k.InstanceTypes {
			if !slices.Contains(out, t) {
				out = append(out, t)
			}
		}
	}
	return out
}

// first returns the kind of the workers with which a window begins: of the highest weight among the pools that every pod may use, or else
// among all of them.
func (ps pools) first() nodes.Policy {
	kinds := ps.kinds()
	best := slices.MinFunc(kinds, func(a, b nodes.Policy) int {
		first, _ := a.PoolNamed(a.Pool)
		second, _ := b.PoolNamed(b.Pool)
		return cmp.Or(cmp.Compare(len(a.NodeTaints), len(b.NodeTaints)), cmp.Compare(second.Weight, first.Weight))
	})
	return best
}

// template is what the nodes of a kind boot from.
func template(k nodes.Policy) nodes.Template { return nodes.Template{ID: "lt-" + k.Pool} }

// templates are those of the pools.
func (ps pools) templates() map[string]nodes.Template {
	out := map[string]nodes.Template{}
	for _, k := range ps.kinds() {
		out[k.Pool] = template(k)
	}
	return out
}

// joins is what the templates' user data gives the nodes.
func (ps pools) joins() map[string]sim.Joins {
	out := map[string]sim.Joins{}
	for _, k := range ps.kinds() {
		if k.Pool != "" {
			out[template(k).ID] = joinsOf(k)
		}
	}
	return out
}

func joinsOf(k nodes.Policy) sim.Joins {
	if k.Pool == "" {
		return sim.Joins{}
	}
	return sim.Joins{Labels: k.NodeLabels, Taints: k.NodeTaints}
}

// never returns why no kind of nodes could run a pod, "" if one could.
func (ps pools) never(f *fit.Fit, pod nodes.Pod) (why string) {
	for _, k := range ps.kinds() {
		why = f.Screen(k, nodes.Observation{Pending: []nodes.Pod{pod}})[0].NeverFit
		if why == "" {
			return ""
		}
	}
	return why
}

// least returns the lowest price of a type among the kinds of nodes that offer it, each at the market that is cheapest for it.
func (ps pools) least(t fit.InstanceType, price func(fit.InstanceType, nodes.Market) float64) float64 {
	least := math.Inf(1)
	for _, k := range ps.kinds() {
		if !slices.Contains(k.InstanceTypes, t.Name) {
			continue
		}
		market := nodes.OnDemand
		if k.Spot {
			market = nodes.Spot
		}
		least = min(least, price(t, market))
	}
	return least
}

// began counts a node of a pool.
func (ps pools) began(pool string) {
	ps.alive[pool]++
	if b := ps.booked[pool]; b != nil {
		b.Most = max(b.Most, ps.alive[pool])
	}
}

// launched counts a launch in a pool.
func (ps pools) launched(pool string) {
	if b := ps.booked[pool]; b != nil {
		b.Launched++
	}
}

// ended books the life of a node.
func (ps pools) ended(pool string, hours, usd float64) {
	ps.alive[pool]--
	if b := ps.booked[pool]; b != nil {
		b.Hours += hours
		b.Cost += usd
	}
}

// results lists what the pools came to, in their order.
func (ps pools) results() []PoolResult {
	var out []PoolResult
	for _, name := range ps.policy.PoolNames() {
		out = append(out, *ps.booked[name])
	}
	return out
}

// spec describes a pod of the trace for the simulator. One that names a pool selects the pool's labels and tolerates its taints.
func (ps pools) spec(name string, p Pod) sim.PodSpec {
	out := sim.PodSpec{Name: name, MilliCPU: p.MilliCPU, Memory: p.Memory, Runs: p.Runs}
	if _, ok := ps.policy.PoolNamed(p.Pool); !ok {
		return out
	}
	k := ps.policy.In(p.Pool)
	pod := &corev1.Pod{}
	pod.Spec.NodeSelector = k.NodeLabels
	for _, t := range k.NodeTaints {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations,
			corev1.Toleration{Key: t.Key, Operator: corev1.TolerationOpEqual, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	out.Selector, out.Tolerates, out.Scheduling = k.NodeLabels, k.NodeTaints, fit.Encode(pod)
	return out
}

// asked is what a pod of the trace asks for, as a decision sees it.
func (ps pools) asked(p Pod) nodes.Pod {
	s := ps.spec(p.Name, p)
	return nodes.Pod{Name: s.Name, Requests: nodes.Resources{MilliCPU: s.MilliCPU, Memory: s.Memory}, Scheduling: s.Scheduling}
}

// check reports a pod whose pool there is none of.
func (ps pools) check(list []Pod) error {
	for _, p := range list {
		if _, ok := ps.policy.PoolNamed(p.Pool); p.Pool != "" && !ok && len(ps.policy.Pools) > 0 {
			return fmt.Errorf("pod %s of the trace asks for pool %q, which is not in POOLS: add it, or name one of %v in the column pool", p.Name, p.Pool, ps.policy.PoolNames())
		}
	}
	return nil
}
