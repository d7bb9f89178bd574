package nodes

import (
	"fmt"
	"time"
)

// Sizer says how many nodes a scale-up asks for. It is the seam at which another way of sizing comes in: everything around it, the
// batch limit and MAX_WORKERS, is applied to what it returns.
type Sizer interface {
	// Size returns the nodes wanted for pending pods, at least 1, and how it came to the number.
	Size(p Policy, o Observation, pending int) (nodes int, why string)
}

// Planner is a Sizer that also says which kinds of nodes to launch, and may find that none would help.
type Planner interface {
	Sizer
	// Plan returns the nodes wanted for the pending pods that a new node could run. It alters nothing that it is given.
	Plan(q Question) Plan
}

// Question is what a Planner is asked.
type Question struct {
	Policy      Policy
	Observation Observation
	Exhausted   []Exhausted // offerings that can't be had now, of the record
	Now         time.Time
	Pending     int // pods waiting, by the metrics
	Room        int // nodes that may be launched without passing MAX_WORKERS; at least 1
}

// Plan is a Planner's answer.
type Plan struct {
	Nodes []Want
	Why   string // how it came to them
	// Helpless names a pod that no new node would help as things are, and why; "" if there is none.
	Helpless string
}

// Want is one node to launch. The zero Want is a node of any offered type in any zone.
type Want struct {
	Types []string `json:"types,omitempty"` // that would do, most wanted first; nil: INSTANCE_TYPES
	Zones []string `json:"zones,omitempty"` // in one of which it has to be; nil: any
}

// Screener finds pods that no node that could be launched would run.
type Screener interface {
	// Screen returns the pending pods of an observation with NeverFit filled in. It alters nothing that it is given.
	Screen(p Policy, o Observation) []Pod
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
