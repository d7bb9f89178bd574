package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes"
)

// Config says what a new node is like beyond its instance type. The zero Config is that of K3s' defaults.
type Config struct {
	Catalog Catalog           // nil: Shipped
	Zones   []string          // in which nodes can be launched, if an Observation doesn't say; nil: those in which there are some
	Labels  map[string]string // that new nodes are given, beside the well-known ones
	Taints  []nodes.Taint     // that new nodes keep
	MaxPods int               // the kubelet's limit; 0: 110
	// MemoryOverhead is the share of an instance's memory that hypervisor, firmware and kernel keep, 0..1; 0: 0.075, which is what
	// Karpenter takes off by default. It counts only until a node of the type has joined and shows its true size.
	MemoryOverhead float64
	// Reserved is what the kubelet keeps back (kube-reserved, system-reserved, eviction threshold). K3s reserves nothing.
	Reserved nodes.Resources
	// Daemon is what DaemonSets ask for on a new node, as long as there is no node that shows it.
	Daemon nodes.Resources
}

// Fit packs pods. It implements nodes.Sizer, nodes.Screener and nodes.Fitter, and keeps nothing between calls: its answers depend
// on the arguments alone.
type Fit struct {
	c      Config
	prices *nodes.Prices // that go before the catalog's; nil: none
}

var (
	_ nodes.Sizer    = (*Fit)(nil)
	_ nodes.Screener = (*Fit)(nil)
	_ nodes.Fitter   = (*Fit)(nil)

	_ nodes.PoolSizer = (*Fit)(nil)
)

// New returns a Fit.
func New(c Config) *Fit {
	if c.Catalog == nil {
		c.Catalog = Shipped()
	}
	c.MaxPods = cmp.Or(c.MaxPods, 110)
	c.MemoryOverhead = cmp.Or(c.MemoryOverhead, 0.075)
	return &Fit{c: c}
}

// Allocatable returns what a new node of a type offers to pods, DaemonSets' included.
func (f *Fit) Allocatable(t InstanceType) nodes.Resources {
	return nodes.Resources{
		MilliCPU: int64(t.VCPU)*1000 - f.c.Reserved.MilliCPU,
		Memory:   int64(math.Round(float64(t.MemoryMiB)*(1-f.c.MemoryOverhead)))<<20 - f.c.Reserved.Memory,
		Pods:     f.c.MaxPods,
	}
}

// Plan packs the pending pods onto what is there and coming and asks for the cheapest nodes found for the others.
func (f *Fit) Plan(q nodes.Question) nodes.Plan {
	p := f.Pack(q)
	plan := nodes.Plan{Why: p.String(), Coming: p.Coming > 0}
	if len(p.Unplaced) > 0 {
		u := p.Unplaced[0]
		plan.Helpless = fmt.Sprintf("pod %s: %s", u.Pod.Name, really(q.Observation, u.Why))
	}
	for _, g := range p.New {
		for range g.Count {
			plan.Nodes = append(plan.Nodes, nodes.Want{Types: g.Types, Zones: g.Zones})
		}
	}
	return plan
}

// Screen fills in NeverFit of the pending pods: those that would not run even on an empty node of any offered type, in any zone.
// What it can't know counts in the pod's favour: a type that is not in the catalog might run anything.
func (f *Fit) Screen(p nodes.Policy, o nodes.Observation) []nodes.Pod {
	if len(o.Pending) == 0 {
		return o.Pending
	}
	ks := newKinds()
	offered := f.offers(p, o, nil, time.Time{})
	out := slices.Clone(o.Pending)
	for i, pod := range out {
		if pod.NeverFit == "" {
			out[i].NeverFit = really(o, offered.never(ks.of(pod.Scheduling), pod))
		}
	}
	return out
}

// really adds to a reason in what new nodes turned out to differ from the settings, which may well be its cause.
func really(o nodes.Observation, why string) string {
	if why == "" || o.TemplateSeen == nil || o.TemplateSeen.Text() == "" {
		return why
	}
	return why + "; " + o.TemplateSeen.Text()
}

// Fits returns "" if all leaving pods fit the others beside what runs there, or the first one that does not and why.
func (f *Fit) Fits(leaving []nodes.Pod, others []*nodes.Node) string {
	e := newEngine(nil, leaving)
	for _, n := range others {
		e.addNode(n)
	}
	e.start()
	e.placeOnExisting()
	for _, c := range e.classes {
		if c.left > 0 {
			return fmt.Sprintf("pod %s (%s) fits no other node: %s", c.pod.Name, asks(c.pod), e.refusal(c))
		}
	}
	return ""
}

// ---- what can be launched

// seen is what the nodes that are there tell about those to come.
type seen struct {
	allocatable map[string]nodes.Resources // least, by instance type
	daemons     map[string]nodes.Resources // most, by instance type; "" is of all
	labels      map[string]string          // that all nodes that Muster launched have alike
}

// observe looks at the nodes that are there. Labels alike are those of one pool's nodes, if the policy is narrowed to one: another pool's
// promise nothing of it.
func observe(p nodes.Policy, o nodes.Observation) seen {
	s := seen{allocatable: map[string]nodes.Resources{}, daemons: map[string]nodes.Resources{}}
	for _, w := range o.Fleet {
		n := w.Node
		if n == nil || !n.Ready || !w.Instance.Alive() {
			continue
		}
		t := w.Instance.Type
		if a, ok := s.allocatable[t]; !ok {
			s.allocatable[t] = n.Allocatable
		} else {
			s.allocatable[t] = nodes.Resources{MilliCPU: min(a.MilliCPU, n.Allocatable.MilliCPU), Memory: min(a.Memory, n.Allocatable.Memory), Pods: min(a.Pods, n.Allocatable.Pods)}
		}
		for _, key := range []string{t, ""} {
			d := s.daemons[key]
			s.daemons[key] = nodes.Resources{MilliCPU: max(d.MilliCPU, n.Daemon.MilliCPU), Memory: max(d.Memory, n.Daemon.Memory), Pods: max(d.Pods, n.Daemon.Pods)}
		}
		if w.Instance.ActionID == "" || p.Pool != "" && p.PoolOf(w.Instance.Pool) != p.Pool {
			continue // made by hand, perhaps otherwise, or of another pool
		}
		if s.labels == nil {
			s.labels = map[string]string{}
			for k, v := range n.Labels {
				if !perNode(k) {
					s.labels[k] = v
				}
			}
		}
		maps.DeleteFunc(s.labels, func(k, v string) bool { return n.Labels[k] != v })
	}
	if s.labels == nil {
		s.labels = map[string]string{}
	}
	return s
}

func (f *Fit) offers(p nodes.Policy, o nodes.Observation, exhausted []nodes.Exhausted, now time.Time) market {
	m := market{zones: f.zones(o), placed: len(f.c.Zones) > 0 || len(o.Zones) > 0}
	if len(m.zones) == 0 {
		m.zones = []string{""}
	}
	types, err := f.c.Catalog.Only(p.InstanceTypes)
	m.complete = err == nil
	seen := observe(p, o)
	extra, promised, taints := seen.labels, f.c.Labels, f.c.Taints
	if p.Pool != "" {
		promised, taints = p.NodeLabels, p.NodeTaints
	}
	maps.Copy(extra, promised)
	var actual nodes.TemplateSeen // zero: as promised
	if o.TemplateSeen != nil {
		actual = *o.TemplateSeen
		maps.DeleteFunc(extra, func(name, _ string) bool { return actual.LacksLabel(name) })
		taints = slices.DeleteFunc(slices.Clone(taints), func(t nodes.Taint) bool { return slices.Contains(actual.LacksTaint, t) })
		taints = append(taints, actual.Taints...)
	}
	for _, t := range types {
		of := offering{InstanceType: t, room: f.Allocatable(t)}
		if r, ok := seen.allocatable[t.Name]; ok {
			of.room = r
		} else if r, ok := actual.Sizes[t.Name]; ok {
			of.room = r
		}
		daemon := f.c.Daemon
		if d, ok := seen.daemons[t.Name]; ok {
			daemon = d
		} else if d, ok := seen.daemons[""]; ok {
			daemon = d
		}
		of.room.MilliCPU -= daemon.MilliCPU
		of.room.Memory -= daemon.Memory
		of.room.Pods -= daemon.Pods
		if t.GPUs > 0 {
			of.extended = map[string]int64{"nvidia.com/gpu": int64(t.GPUs)}
		}
		if !f.stock(&of, p, m.zones, exhausted, now) {
			continue
		}
		for _, z := range m.zones {
			labels := f.labels(extra, t, z)
			maps.DeleteFunc(labels, func(name, _ string) bool { return actual.LacksLabel(name) })
			of.nodes = append(of.nodes, asNode("new", labels, taints))
		}
		m.offerings = append(m.offerings, of)
	}
	return m
}

// zones returns those in which nodes can be launched, 64 at most.
func (f *Fit) zones(o nodes.Observation) []string {
	zones := o.Zones
	if len(zones) == 0 {
		zones = f.c.Zones
	}
	if len(zones) == 0 {
		for _, w := range o.Fleet {
			if z := w.Instance.Zone; z != "" && !slices.Contains(zones, z) {
				zones = append(zones, z)
			}
		}
	}
	zones = slices.Sorted(slices.Values(zones))
	return zones[:min(len(zones), 64)]
}

// labels returns those of a new node.
func (f *Fit) labels(extra map[string]string, t InstanceType, zone string) map[string]string {
	l := maps.Clone(extra)
	l[corev1.LabelInstanceTypeStable], l[corev1.LabelInstanceType] = t.Name, t.Name
	l[corev1.LabelArchStable], l["beta.kubernetes.io/arch"] = t.Arch, t.Arch
	l[corev1.LabelOSStable], l["beta.kubernetes.io/os"] = "linux", "linux"
	if zone != "" {
		l[corev1.LabelTopologyZone], l[corev1.LabelFailureDomainBetaZone] = zone, zone
		if region, ok := regionOf(zone); ok {
			l[corev1.LabelTopologyRegion], l[corev1.LabelFailureDomainBetaRegion] = region, region
		}
	}
	return l
}

// regionOf returns the region of a zone that is named as AWS names them: the region's name and a letter.
func regionOf(zone string) (string, bool) {
	n := len(zone) - 1
	if n < 1 || zone[n] < 'a' || zone[n] > 'z' || zone[n-1] < '0' || zone[n-1] > '9' {
		return "", false
	}
	return zone[:n], true
}

// Pack places the pending pods of a question first on what is there and coming, then on new nodes, as cheap as it finds them.
//
// Pods whose placement depends on other pods come first and one by one. The others are packed by patterns: for each type a node is
// filled, the filling that is worth most for its price at the shadow prices of the whole demand wins and is repeated as often as there are
// pods for it. In the end each node becomes the cheapest type that holds what it got.
func (f *Fit) Pack(q nodes.Question) Packing {
	m := f.offers(q.Policy, q.Observation, q.Exhausted, q.Now)
	var pods []nodes.Pod
	for _, p := range q.Observation.Pending {
		if p.NeverFit == "" {
			pods = append(pods, p)
		}
	}
	e := newEngine(&m, pods)
	coming := f.addFleet(e, q)
	e.start()
	e.placeOnExisting()

	out := Packing{}
	for _, b := range coming {
		for _, p := range b.content {
			out.Coming += p.n
		}
	}
	for i, c := range e.classes {
		out.Pods += c.pod.N()
		out.Existing += c.pod.N() - c.left
		e.classes[i].prepare(&m)
	}
	prices := e.appraise()
	e.skip = make([]bool, len(m.offerings))
	for i := range e.skip {
		e.skip[i] = e.dominated(i)
	}
	there := len(e.bins)
	e.openForBound(there)
	for _, c := range e.classes {
		if c.free() && c.closed == "" {
			e.placeOn(c, e.bins[there:])
		}
	}
	bound := e.bins[there:]
	free := e.cheapest(q.Room-len(bound), prices)
	e.result(&out, slices.Concat(bound, free))
	out.Bound = min(out.Bound, out.Cost)
	return out
}

// addFleet adds what is there, and what is on its way, which it returns. On a node that replaces another there is room only beside the
// pods that still have to come over.
func (f *Fit) addFleet(e *engine, q nodes.Question) (coming []*bin) {
	interrupted := map[string]bool{}
	for _, i := range q.Observation.Interruptions {
		interrupted[i.InstanceID] = !i.Closed
	}
	e.perZone = make([]int, len(e.m.zones))
	count := func(zone string) (index int) {
		z := slices.Index(e.m.zones, zone)
		if z >= 0 {
			e.perZone[z]++
		}
		return z
	}
	listed := map[string]bool{}
	for _, w := range q.Observation.Fleet {
		listed[w.Instance.ID] = true
		if w.Instance.Alive() {
			count(w.Instance.Zone)
		}
		if w.Node == nil || !w.Node.Ready {
			continue
		}
		b := e.addNode(w.Node)
		if !w.Instance.Alive() || interrupted[w.Instance.ID] || w.Node.Closed() {
			b.room = nodes.Resources{} // its pods count for others' affinity all the same
		}
	}
	others := f.otherPools(q)
	for _, a := range nodes.Arriving(q.Policy, q.Observation, q.Now) {
		if q.Policy.Pool != "" && a.Pool != q.Policy.Pool {
			if n := others.node(a); n != nil {
				coming = append(coming, e.addNode(n))
			}
			continue
		}
		z := slices.Index(e.m.zones, a.Zone)
		if !listed[a.ID] {
			z = count(a.Zone)
		}
		i := slices.IndexFunc(e.m.offerings, func(o offering) bool { return o.Name == a.Type })
		if i < 0 || z < 0 {
			continue
		}
		b := e.newBin(i, z)
		b.of = -1
		for _, p := range a.Leaving {
			b.take(p.Requests, p.N())
			b.room.Pods -= p.N()
		}
		coming = append(coming, b)
	}
	return coming
}

// Bound returns a function that tells what pods that ask for so much together cost an hour at least, in USD, on nodes of some types
// at their On-Demand price, whichever nodes are chosen and however the pods are placed. It asks for no DaemonSet.
func (f *Fit) Bound(types []InstanceType) func(nodes.Resources) float64 {
	var planes []plane
	for _, t := range types {
		planes = append(planes, plane{asVector(f.Allocatable(t)), t.OnDemand})
	}
	return func(r nodes.Resources) float64 {
		demand := asVector(r)
		return demand.dot(shadowPrices(demand, planes))
	}
}
