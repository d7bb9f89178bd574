package fit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
type Fit struct{ c Config }

var (
	_ nodes.Sizer    = (*Fit)(nil)
	_ nodes.Screener = (*Fit)(nil)
	_ nodes.Fitter   = (*Fit)(nil)
)

// New returns a Fit.
func New(c Config) *Fit {
	if c.Catalog == nil {
		c.Catalog = Shipped()
	}
	c.MaxPods = cmp.Or(c.MaxPods, 110)
	c.MemoryOverhead = cmp.Or(c.MemoryOverhead, 0.075)
	return &Fit{c}
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

func asks(p nodes.Pod) string {
	return fmt.Sprintf("%dm CPU, %d MiB", p.Requests.MilliCPU, p.Requests.Memory>>20)
}

// ---- what can be launched

// offering is an instance type as it can be had now.
type offering struct {
	InstanceType
	room     nodes.Resources  // what an empty node has for pods that are no DaemonSet's
	extended map[string]int64 // nil: none
	price    float64          // USD an hour, of the cheapest market that can be had
	zones    uint64           // in which it can be had, a bit each
	nodes    []*corev1.Node   // what a node of it would look like, by zone
}

// market is everything that can be launched.
type market struct {
	offerings []offering
	zones     []string
	complete  bool // every offered type is in the catalog
	placed    bool // the zones are all that there are
}

// perNode are labels that differ from node to node, and those that a new node gets by its type and zone.
func perNode(label string) bool {
	switch label {
	case corev1.LabelHostname, corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelInstanceTypeStable, corev1.LabelArchStable,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion, corev1.LabelInstanceType, "beta.kubernetes.io/arch":
		return true
	}
	return false
}

func (f *Fit) offers(p nodes.Policy, o nodes.Observation, exhausted []nodes.Exhausted, now time.Time) market {
	m := market{zones: f.zones(o), placed: len(f.c.Zones) > 0 || len(o.Zones) > 0}
	if len(m.zones) == 0 {
		m.zones = []string{""}
	}
	types, err := f.c.Catalog.Only(p.InstanceTypes)
	m.complete = err == nil
	seen := observe(o)
	extra := seen.labels
	maps.Copy(extra, f.c.Labels)
	taints := f.c.Taints
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
		if !of.stocked(p, m.zones, exhausted, now) {
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

// stocked sets price and zones to those of the cheapest market that can be had somewhere; false if there is none.
func (of *offering) stocked(p nodes.Policy, zones []string, exhausted []nodes.Exhausted, now time.Time) bool {
	markets := []nodes.Market{nodes.OnDemand}
	if p.Spot {
		markets = []nodes.Market{nodes.Spot, nodes.OnDemand}
	}
	for _, mk := range markets {
		for i, z := range zones {
			o := nodes.Offering{Zone: z, Type: of.Name, Market: mk}
			out := slices.ContainsFunc(exhausted, func(e nodes.Exhausted) bool {
				return e.Subnet == "" && now.Unix() < e.UntilEpoch && e.Covers(o)
			})
			if !out {
				if of.zones == 0 {
					of.price = of.Price(mk)
				}
				of.zones |= 1 << i
			}
		}
	}
	return of.zones != 0
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

// seen is what the nodes that are there tell about those to come.
type seen struct {
	allocatable map[string]nodes.Resources // least, by instance type
	daemons     map[string]nodes.Resources // most, by instance type; "" is of all
	labels      map[string]string          // that all nodes that Muster launched have alike
}

func observe(o nodes.Observation) seen {
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
		if w.Instance.ActionID == "" {
			continue // made by hand, perhaps otherwise
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

// never returns why no offering runs a pod even on an empty node; "" if one does, or if that can't be known.
func (m market) never(k *kind, pod nodes.Pod) string {
	if k.problem != "" {
		return k.problem
	}
	if !m.complete {
		return ""
	}
	var admitted []string
	why := ""
	for i := range m.offerings {
		of := &m.offerings[i]
		for z := range m.zones {
			if of.zones&(1<<z) == 0 {
				continue
			}
			reason := k.admits(of.nodes[z])
			if reason == "" || !m.placed && !k.anywhere {
				admitted = append(admitted, of.Name)
				if of.holds(k, pod.Requests) {
					return ""
				}
				break
			}
			why = reason
		}
	}
	switch {
	case len(m.offerings) == 0:
		return ""
	case len(admitted) == 0:
		return fmt.Sprintf("%s on a new node of any of %s in any of %s", why, m.names(), strings.Join(m.zones, ", "))
	}
	most := make([]string, 0, len(k.Resources))
	for _, name := range slices.Sorted(maps.Keys(k.Resources)) {
		most = append(most, fmt.Sprintf(", %d %s", k.Resources[name], name))
	}
	return fmt.Sprintf("it asks for %s%s, more than an empty node of %s has", asks(pod), strings.Join(most, ""), strings.Join(admitted, ", "))
}

func (m market) names() string {
	names := make([]string, len(m.offerings))
	for i, o := range m.offerings {
		names[i] = o.Name
	}
	return strings.Join(names, ", ")
}

// holds reports whether an empty node has room for a pod.
func (of *offering) holds(k *kind, want nodes.Resources) bool {
	if of.room.Pods < 1 || of.room.MilliCPU < want.MilliCPU || of.room.Memory < want.Memory {
		return false
	}
	for name, n := range k.Resources {
		if of.extended[name] < n {
			return false
		}
	}
	return true
}
