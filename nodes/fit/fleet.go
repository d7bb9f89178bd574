package fit

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodes"
)

var _ nodes.FleetFitter = (*Fit)(nil)

// Fleet returns nodes that are asked one after the other whether they can go. A node with a pod that fits no other node by itself,
// which in a busy cluster most have, is found out without packing anything.
func (f *Fit) Fleet(list []*nodes.Node) nodes.FittedFleet {
	fl := &fleet{f: f, all: list, nodes: list, index: make(map[*nodes.Node]int, len(list)), seen: make([]*corev1.Node, len(list)), kinds: newKinds()}
	for i, n := range list {
		fl.index[n] = i
	}
	fl.room = nodes.NewRoom(list)
	fl.forget()
	return fl
}

// fleet answers whether pods of nodes that are to go fit on the others. Nodes are removed one after the other, so what was found
// out about one pod alone (alone) and about a kind's admission (admits) holds until the next is removed, and is asked again then.
// Only where several pods compete for the same room is a packing made, and counted in packed.
type fleet struct {
	f     *Fit
	all   []*nodes.Node
	nodes []*nodes.Node // without those that were removed
	room  *nodes.Room
	index map[*nodes.Node]int
	seen  []*corev1.Node // what admits looks at, by index; nil: not asked for yet
	kinds *kinds

	alone  map[single]places // where one pod alone would fit
	admits map[string]places // which nodes let a kind in, whether they have room or not; by its text

	packed int // questions that needed a packing
}

// single is a pod as far as finding it a place alone goes.
type single struct {
	scheduling       string
	milliCPU, memory int64
}

// places are the first two nodes that would do, -1 for none: two, because one may be the node that is to go.
type places struct {
	first, second int
	why           string // of the first node that would not do
}

func (p *places) add(i int) (enough bool) {
	if p.first < 0 {
		p.first = i
	} else {
		p.second = i
	}
	return p.second >= 0
}

func (p places) beside(i int) bool { return p.first >= 0 && p.first != i || p.second >= 0 }

func (fl *fleet) forget() {
	fl.alone, fl.admits = map[single]places{}, map[string]places{}
}

// Remove takes a node out.
func (fl *fleet) Remove(node *nodes.Node) {
	fl.room.Close(fl.index[node])
	fl.nodes = nodes.Others(fl.nodes, node)
	fl.forget()
}

// Without returns "" if all leaving pods fit the nodes without one of them, or the first one that does not and why.
func (fl *fleet) Without(node *nodes.Node, leaving []nodes.Pod) string {
	own := fl.index[node]
	for _, p := range leaving {
		if why := fl.stays(p, own); why != "" {
			return fmt.Sprintf("pod %s (%s) fits no other node: %s", p.Name, asks(p), why)
		}
	}
	fl.packed++
	return fl.f.Fits(leaving, nodes.Others(fl.nodes, node))
}

// stays says why a pod fits no node besides own even alone, "" if it may.
func (fl *fleet) stays(p nodes.Pod, own int) string {
	k := fl.kinds.of(p.Scheduling)
	if k.problem != "" {
		return k.problem
	}
	if fl.place(k, p).beside(own) {
		return ""
	}
	let := fl.admitting(k, p.Scheduling)
	switch {
	case let.beside(own):
		return "none that it may run on has room"
	case let.why != "":
		return let.why
	}
	return "no node is there"
}

// place finds the first two nodes that admit a kind and have the room that a pod asks for.
func (fl *fleet) place(k *kind, p nodes.Pod) places {
	key := single{p.Scheduling, p.Requests.MilliCPU, p.Requests.Memory}
	found, known := fl.alone[key]
	if known {
		return found
	}
	found = places{first: -1, second: -1}
	want := p.Requests
	if want.MilliCPU == 0 { // what asks for nothing fits a node that is overcommitted, too
		want.MilliCPU = math.MinInt64
	}
	if want.Memory == 0 {
		want.Memory = math.MinInt64
	}
	for i := fl.room.First(0, want); i >= 0; i = fl.room.First(i+1, want) {
		if k.admits(fl.node(i)) == "" && found.add(i) {
			break
		}
	}
	fl.alone[key] = found
	return found
}

// admitting finds the first two nodes that admit a kind, with room or without.
func (fl *fleet) admitting(k *kind, text string) places {
	found, known := fl.admits[text]
	if known {
		return found
	}
	found = places{first: -1, second: -1}
	for _, n := range fl.nodes {
		i := fl.index[n]
		why := k.admits(fl.node(i))
		if found.why == "" {
			found.why = why
		}
		if why == "" && found.add(i) {
			break
		}
	}
	fl.admits[text] = found
	return found
}

func (fl *fleet) node(i int) *corev1.Node {
	if fl.seen[i] == nil {
		n := fl.all[i]
		fl.seen[i] = asNode(n.Name, n.Labels, n.Taints)
	}
	return fl.seen[i]
}
