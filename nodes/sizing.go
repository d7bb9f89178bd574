package nodes

import "fmt"

// Sizer says how many nodes a scale-up asks for. It is the seam at which another way of sizing comes in: everything around it, the
// batch limit and MAX_WORKERS, is applied to what it returns.
type Sizer interface {
	// Size returns the nodes wanted for pending pods, at least 1, and how it came to the number.
	Size(p Policy, o Observation, pending int) (nodes int, why string)
}

// PodsPerNode sizes by ceil(pending / PODS_PER_NODE), at least 1.
type PodsPerNode struct{}

// Size returns the quotient, rounded up.
func (PodsPerNode) Size(p Policy, _ Observation, pending int) (int, string) {
	n := max((pending+p.PodsPerNode-1)/p.PodsPerNode, 1)
	return n, fmt.Sprintf("ceil(%d / %d) = %d", pending, p.PodsPerNode, n)
}

// Fitter says whether the pods of nodes that are to go could run on the others.
type Fitter interface {
	// Fits returns "" if all leaving pods fit the others beside what runs there, or else the name of one that does not and why.
	// It alters nothing that it is given.
	Fits(leaving []Pod, others []*Node) (blocker string)
}

// RequestsFit judges by requests alone: CPU, memory and the number of pods.
type RequestsFit struct{}

// Fits places the pods one by one, each onto the first node that still has room.
func (RequestsFit) Fits(leaving []Pod, others []*Node) string {
	free := make([]Resources, len(others))
	for i, n := range others {
		free[i] = n.free()
	}
	for _, p := range leaving {
		for range p.N() {
			if !place(p.Requests, free) {
				return fmt.Sprintf("pod %s (%dm CPU, %d MiB) fits no other node", p.Name, p.Requests.MilliCPU, p.Requests.Memory>>20)
			}
		}
	}
	return ""
}

func place(want Resources, free []Resources) bool {
	for i := range free {
		f := &free[i]
		if f.Pods >= 1 && f.MilliCPU >= want.MilliCPU && f.Memory >= want.Memory {
			f.Pods--
			f.MilliCPU -= want.MilliCPU
			f.Memory -= want.Memory
			return true
		}
	}
	return false
}

func (n *Node) free() Resources {
	f := n.Allocatable
	take := func(r Resources, times int) {
		f.MilliCPU -= r.MilliCPU * int64(times)
		f.Memory -= r.Memory * int64(times)
	}
	take(n.Daemon, 1)
	f.Pods -= n.Daemon.Pods
	for _, p := range n.Pods {
		take(p.Requests, p.N())
		f.Pods -= p.N()
	}
	return f
}
