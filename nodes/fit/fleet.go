package fit

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes"
)

var _ nodes.FleetFitter = (*Fit)(nil)

// Fleet returns nodes that are asked one after the other whether they can go. What it finds out about one question it keeps for the
// next ones, so that asking for every node of a full cluster takes a time that grows with the cluster and not with its square.
func (f *Fit) Fleet(list []*nodes.Node) nodes.FittedFleet {
	fl := &fleet{f: f, e: newEngine(nil, nil), nodes: list, index: make(map[*nodes.Node]int, len(list)), room: nodes.NewRoom(list)}
	fl.e.leastOf = fl.least
	for i, n := range list {
		fl.index[n] = i
		b := newBin(n)
		fl.e.bins = append(fl.e.bins, b)
		for _, p := range n.Pods {
			fl.e.hold(b, p)
		}
	}
	fl.known = fl.e.kinds
	fl.known.of("") // of pods without constraints
	fl.known.link()
	fl.bound = make([][]number, len(list))
	fl.gone = make([]bool, len(list))
	for i, n := range list {
		for _, p := range n.Pods {
			if k := fl.known.of(p.Scheduling); len(k.selected)+len(k.without) > 0 {
				fl.bound[i] = append(fl.bound[i], number{k, p.N()})
			}
		}
		fl.note(i, 1)
	}
	fl.ownNames = ownNames(fl.e.bins)
	fl.forget()
	return fl
}

// fleet answers whether pods of nodes that are to go fit on the others. Its engine holds all nodes. A question takes one node out,
// places its pods, and takes everything back (trial), so between two questions the engine is as it was before. Nodes are removed one
// after the other: what was found out about places holds until the next is removed.
type fleet struct {
	f     *Fit
	e     *engine
	known *kinds
	nodes []*nodes.Node
	room  *nodes.Room
	index map[*nodes.Node]int

	bound    [][]number // by node: its pods that rules look at
	gone     []bool     // by node: removed
	ownNames bool       // no two nodes share a host name, so what one node holds is no other's domain of it
	trial    *trial     // the question that is being answered

	places  map[single]*places
	admits  map[string]admission    // which nodes let a kind in, whether they have room or not; by its text
	domains map[string]domains      // of nodes by label, for kinds that may go anywhere
	spreads map[*spreadRule]domains // of nodes that count for a spread constraint

	packed int // questions that needed a placement
	failed int // simulations of the scheduler that left a pod without a place
	looked int // nodes that were looked at for a place
}

// number is how many pods of a kind a node holds.
type number struct {
	kind *kind
	n    int
}

// domains is how many nodes each value of a label has.
type domains map[string]int

// ownNames reports whether each node has a host name of its own.
func ownNames(bins []*bin) bool {
	seen := make(map[string]bool, len(bins))
	for _, b := range bins {
		d, _ := b.domain(corev1.LabelHostname)
		if seen[d] {
			return false
		}
		seen[d] = true
	}
	return true
}

// note counts a node's pods in the rules that look at them, or with sign -1 no longer.
func (fl *fleet) note(i, sign int) {
	for _, b := range fl.bound[i] {
		fl.e.note(b.kind, fl.e.bins[i], sign*b.n)
	}
}

func (fl *fleet) forget() {
	fl.places, fl.admits = map[single]*places{}, map[string]admission{}
	fl.domains, fl.spreads = map[string]domains{}, map[*spreadRule]domains{}
}

// Remove takes a node out.
func (fl *fleet) Remove(node *nodes.Node) {
	i := fl.index[node]
	fl.note(i, -1)
	fl.room.Close(i)
	fl.gone[i] = true
	fl.forget()
}

// Without returns "" if all leaving pods fit the nodes without one of them, both packed and as the scheduler places them, or one that
// does not and why.
func (fl *fleet) Without(node *nodes.Node, leaving []nodes.Pod) string {
	own := fl.index[node]
	var classes []*class
	for _, p := range leaving {
		k := fl.known.byText[p.Scheduling]
		if k == nil { // a pod that was on none of the nodes: the rules don't know it
			return fl.f.Fits(leaving, fl.others(node))
		}
		c := newClass(k, p)
		if why := fl.stays(c, own); why != "" {
			return refused(c, why)
		}
		classes = append(classes, c)
	}

	fl.packed++
	order(classes)
	if why := fl.try(own, classes, (*trial).place); why != "" {
		return why
	}
	return fl.simulateScheduling(own, leaving)
}

func refused(c *class, why string) string {
	return fmt.Sprintf("pod %s (%s) fits no other node: %s", c.pod.Name, asks(c.pod), why)
}

func (fl *fleet) others(node *nodes.Node) []*nodes.Node {
	var out []*nodes.Node
	for i, n := range fl.nodes {
		if n != node && !fl.gone[i] {
			out = append(out, n)
		}
	}
	return out
}

// stays says why a pod fits no node besides own even alone, "" if it may.
func (fl *fleet) stays(c *class, own int) string {
	if c.problem != "" {
		return c.problem
	}
	places := fl.placesOf(c)
	for n := 0; ; n++ {
		switch i, found := fl.nth(places, n); {
		case !found:
			return fl.nowhere(c, places, own)
		case i != own:
			return ""
		}
	}
}

// nowhere says why no node has a place for one pod of a class: the reason of the node that comes nearest to having one.
func (fl *fleet) nowhere(c *class, p *places, own int) string {
	if p.barred != "" {
		return p.barred
	}
	let := fl.admission(c.kind, c.pod.Scheduling)
	switch {
	case let.beside(own):
		return "none that it may run on has room"
	case let.why != "":
		return let.why
	}
	return "no node is there"
}

// admission is which nodes let a kind in: the first two, -1 for none, because one may be the node that is to go.
type admission struct {
	first, second int
	why           string // of the first node that does not
}

func (a admission) beside(i int) bool { return a.first >= 0 && a.first != i || a.second >= 0 }

func (fl *fleet) admission(k *kind, text string) admission {
	a, known := fl.admits[text]
	if known {
		return a
	}
	a = admission{first: -1, second: -1}
	for i, b := range fl.e.bins {
		switch {
		case fl.gone[i]:
		case !b.admits(k):
			if a.why == "" {
				a.why = k.admits(b.node)
			}
		case a.first < 0:
			a.first = i
		default:
			a.second = i
		}
		if a.second >= 0 {
			break
		}
	}
	fl.admits[text] = a
	return a
}

// ---- places

// single is a pod as far as finding it a place alone goes.
type single struct {
	scheduling       string
	milliCPU, memory int64
}

// places are the nodes that may take one pod of some kind and size, in their order, as far as they have been searched: the rules of
// the whole cluster, such as a spread, may still forbid it. They are searched when no pod is being placed, or as if none were: what is
// placed later only takes room.
type places struct {
	class  *class
	want   nodes.Resources
	found  []int
	next   int    // where the search continues
	barred string // why the first node that has room and admits the pod does not take it
}

func (fl *fleet) placesOf(c *class) *places {
	key := single{c.pod.Scheduling, c.needs.MilliCPU, c.needs.Memory}
	if p := fl.places[key]; p != nil {
		return p
	}
	want := c.needs
	if want.MilliCPU == 0 { // what asks for nothing fits a node that is overcommitted, too
		want.MilliCPU = math.MinInt64
	}
	if want.Memory == 0 {
		want.Memory = math.MinInt64
	}
	p := &places{class: c, want: want}
	fl.places[key] = p
	return p
}

// nth returns the n-th of the places.
func (fl *fleet) nth(p *places, n int) (i int, found bool) {
	for len(p.found) <= n {
		i := fl.room.First(p.next, p.want)
		if i < 0 {
			p.next = len(fl.nodes)
			return 0, false
		}
		p.next = i + 1
		fl.looked++
		if b := fl.e.bins[i]; b.admits(p.class.kind) && fl.takes(p, b) {
			p.found = append(p.found, i)
		}
	}
	return p.found[n], true
}

// takes reports whether a node may take the pod as far as the node's own pods go: extended resources, host ports, and pods that it can't
// bear on one node. A node that the question being answered has changed counts as one that may: the question asks it again.
func (fl *fleet) takes(p *places, b *bin) bool {
	if fl.trial.changed(b) {
		return true
	}
	for name, v := range p.class.Resources {
		if b.extra[name] < v {
			return false
		}
	}
	why := ""
	if collides(b.ports, p.class.HostPorts) {
		why = portTaken
	} else if r := b.unbearable(p.class.kind); fl.ownNames && r != nil && r.key == corev1.LabelHostname {
		why = unbearableText(p.class.kind, r)
	}
	if p.barred == "" {
		p.barred = why
	}
	return why == ""
}

// ---- spread

// spreadOf finds the domains of a kind's spread constraints, before a question changes anything.
func (fl *fleet) spreadOf(k *kind) {
	for _, s := range k.spread {
		if fl.spreads[s] != nil {
			continue
		}
		plain := k.anywhere && !fl.tainted()
		d := fl.domains[s.key]
		if d == nil || !plain {
			d = fl.domainsOf(k, s)
		}
		if plain {
			fl.domains[s.key] = d
		}
		fl.spreads[s] = d
	}
}

func (fl *fleet) tainted() bool {
	for _, b := range fl.e.bins {
		if len(b.node.Spec.Taints) > 0 {
			return true
		}
	}
	return false
}

func (fl *fleet) domainsOf(k *kind, s *spreadRule) domains {
	out := domains{}
	for i, b := range fl.e.bins {
		if d, ok := b.domain(s.key); ok && !fl.gone[i] && s.counts(k, b.node) {
			out[d]++
		}
	}
	return out
}

// least is the engine's least for the question that is being answered: of all domains but that of the node that goes, if it is the
// only one of it.
func (fl *fleet) least(k *kind, s *spreadRule) int {
	domains := fl.spreads[s]
	own := fl.e.bins[fl.trial.own]
	d, in := own.domain(s.key)
	alone := in && domains[d] == 1 && s.counts(k, own.node)
	n := len(domains)
	if alone {
		n--
	}
	if n < int(s.MinDomains) || n == 0 || len(s.count) < n { // the last: one of them has no pod that counts
		return 0
	}
	least := math.MaxInt
	for name := range domains {
		if !alone || name != d {
			least = min(least, s.count[name])
		}
	}
	return least
}
