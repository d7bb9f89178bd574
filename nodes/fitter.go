package nodes

import "fmt"

// Fitter says whether the pods of nodes that are to go could run on the others.
type Fitter interface {
	// Fits returns "" if all leaving pods fit the others beside what runs there, or else the name of one that
	// does not and why. It alters nothing that it is given.
	Fits(leaving []Pod, others []*Node) (blocker string)
}

// RequestsFit judges by requests alone: CPU, memory and the number of pods.
type RequestsFit struct{}

// Fits places the pods one by one, each onto the first node that still has room.
func (f RequestsFit) Fits(leaving []Pod, others []*Node) string {
	gone := &Node{}
	return f.Fleet(append([]*Node{gone}, others...)).Without(gone, leaving)
}

// FleetFitter is a Fitter that answers many questions about one fleet without looking at all of it each time.
type FleetFitter interface {
	Fitter
	// Fleet returns the nodes to ask about. It alters none of them.
	Fleet(nodes []*Node) FittedFleet
}

// FittedFleet are nodes that are asked for one after the other whether they can go.
type FittedFleet interface {
	// Without is Fitter's Fits, the others being all nodes but one and those that were removed.
	Without(node *Node, leaving []Pod) (blocker string)
	// Remove takes a node out: it goes.
	Remove(node *Node)
}

// fleetOf returns a fleet of any Fitter.
func fleetOf(f Fitter, nodes []*Node) FittedFleet {
	if ff, ok := f.(FleetFitter); ok {
		return ff.Fleet(nodes)
	}
	return &anyFleet{f, nodes}
}

// anyFleet asks a Fitter about all of the fleet each time.
type anyFleet struct {
	fitter Fitter
	nodes  []*Node
}

func (f *anyFleet) Without(node *Node, leaving []Pod) string {
	return f.fitter.Fits(leaving, Others(f.nodes, node))
}

func (f *anyFleet) Remove(node *Node) { f.nodes = Others(f.nodes, node) }

// Others returns the nodes without one of them, in their order.
func Others(nodes []*Node, without *Node) []*Node {
	out := make([]*Node, 0, len(nodes))
	for _, n := range nodes {
		if n != without {
			out = append(out, n)
		}
	}
	return out
}

// Fleet prepares nodes for many questions.
func (RequestsFit) Fleet(nodes []*Node) FittedFleet {
	f := &requestsFleet{room: NewRoom(nodes), index: make(map[*Node]int, len(nodes))}
	for i, n := range nodes {
		f.index[n] = i
	}
	return f
}

type requestsFleet struct {
	room  *Room
	index map[*Node]int
}

func (f *requestsFleet) Remove(node *Node) { f.room.Close(f.index[node]) }

func (f *requestsFleet) Without(node *Node, leaving []Pod) string {
	mark := f.room.Mark()
	defer f.room.Undo(mark)
	f.room.Close(f.index[node])
	for _, p := range leaving {
		for range p.N() {
			i := f.room.First(0, p.Requests)
			if i < 0 {
				return noRoom(p)
			}
			f.room.Take(i, p.Requests)
		}
	}
	return ""
}

func noRoom(p Pod) string {
	return fmt.Sprintf("pod %s (%dm CPU, %d MiB) fits no other node", p.Name, p.Requests.MilliCPU, p.Requests.Memory>>20)
}
