package sim

import (
	"cmp"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// Exporters is what node-exporter on every machine and kube-state-metrics would show at one moment.
type Exporters struct {
	At    time.Time
	Nodes []ExportedNode
	Pods  []ExportedPod
}

// ExportedNode is a machine with its Node object.
type ExportedNode struct {
	Name          string
	ProviderID    string
	InternalIP    string
	CreatedAt     time.Time
	Up            bool // the machine runs, so that its node-exporter answers
	Ready         bool
	Unschedulable bool
	ControlPlane  bool
	Foreign       bool // a machine that is no node of the cluster
	CPUs          int
	Load          float64 // utilisation of the CPUs, 0..1
}

// ExportedPod is a pod as kube-state-metrics sees it.
type ExportedPod struct {
	Namespace, Name string
	Node            string // "" while it waits for one
	HostIP          string
	Gated           bool // a scheduling gate keeps it from being scheduled
}

// serverLoad is the utilisation of a machine of the control plane, whatever the workers do.
const serverLoad = 0.08

// exportersOf returns what the exporters show now.
func exportersOf(s *state) Exporters {
	out := Exporters{At: s.time.now, Nodes: make([]ExportedNode, 0, len(s.fleet.nodes)), Pods: make([]ExportedPod, 0, len(s.pods.pods))}
	used := make(map[*node]int64, len(s.fleet.nodes))
	for _, p := range s.pods.pods {
		if p.Kube.Phase == "Succeeded" || p.Kube.Phase == "Failed" {
			continue // nothing that the queries ask for counts it
		}
		e := ExportedPod{Gated: p.Kube.Gated}
		e.Namespace, e.Name = p.Split()
		if p.node != nil {
			used[p.node] += p.MilliCPU
			e.Node, e.HostIP = p.node.Name, p.node.InternalIP
		}
		out.Pods = append(out.Pods, e)
	}
	for _, n := range s.fleet.nodes {
		e := ExportedNode{Name: n.Name, ProviderID: n.ProviderID, InternalIP: n.InternalIP, CreatedAt: n.CreatedAt,
			Up: n.instance.State == nodes.StateRunning, Ready: n.Ready, Unschedulable: n.Unschedulable, ControlPlane: n.ControlPlane,
			CPUs: max(int(n.Allocatable.MilliCPU/1000), 1)}
		switch {
		case n.ControlPlane:
			e.Load = serverLoad
		case s.signals.load >= 0:
			e.Load = min(s.signals.load, 1)
		default:
			e.Load = min(float64(used[n])/float64(cmp.Or(n.Allocatable.MilliCPU, 1)), 1)
		}
		out.Nodes = append(out.Nodes, e)
	}
	return out
}
