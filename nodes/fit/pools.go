package fit

import (
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Size returns the vCPUs and the memory of an instance type by the table.
func (f *Fit) Size(instanceType string) (nodes.Resources, bool) {
	t, ok := f.c.Catalog[instanceType]
	return nodes.Resources{MilliCPU: int64(t.VCPU) * 1000, Memory: t.MemoryMiB << 20}, ok
}

// otherPools are the pools beside the one that a question is about. What is on its way in them counts as room for the pods that its
// labels and taints will let onto it: otherwise pods that could run in two pools would get a node in each.
type otherPools struct {
	f       *Fit
	q       nodes.Question
	markets map[string]*market
}

func (f *Fit) otherPools(q nodes.Question) otherPools {
	return otherPools{f: f, q: q, markets: map[string]*market{}}
}

// node returns what an arrival will be, nil if that is not known.
func (o otherPools) node(a nodes.Arrival) *nodes.Node {
	pool, ok := o.q.Policy.PoolNamed(a.Pool)
	if !ok {
		return nil
	}
	m := o.markets[pool.Name]
	if m == nil {
		all := o.q.Observation
		all.Zones = nil // those of the question are narrowed to its own pool
		narrowed, _ := all.InPool(pool)
		narrowed.Zones = append(narrowed.Zones[:len(narrowed.Zones):len(narrowed.Zones)], o.arrivalZones()...)
		offered := o.f.offers(o.q.Policy.In(pool.Name), narrowed, nil, time.Time{})
		m = &offered
		o.markets[pool.Name] = m
	}
	for _, of := range m.offerings {
		for z, zone := range m.zones {
			if of.Name != a.Type || zone != a.Zone {
				continue
			}
			n := &nodes.Node{Ready: true, Allocatable: of.room, Extended: of.extended, Pods: a.Leaving}
			n.Name, n.Labels = "coming-"+a.ID, of.nodes[z].Labels
			for _, t := range of.nodes[z].Spec.Taints {
				n.Taints = append(n.Taints, nodes.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
			}
			return n
		}
	}
	return nil
}

// arrivalZones are the zones in which something is on its way.
func (o otherPools) arrivalZones() []string {
	var out []string
	for _, a := range nodes.Arriving(o.q.Policy, o.q.Observation, o.q.Now) {
		out = append(out, a.Zone)
	}
	return out
}
