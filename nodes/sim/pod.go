package sim

import (
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// PodSpec describes a pod. Only Name is necessary. The resources and Selector say on which nodes it may run, Work and Runs how
// long it takes, and the others what keeps a drain from moving it.
type PodSpec struct {
	Name     string
	MilliCPU int64
	Memory   int64         // bytes
	Critical bool          // aborts a drain
	Stuck    bool          // once evicted it never goes away by itself
	Grace    time.Duration // from its eviction until it is gone; 0: 2 s
	Blocked  bool          // a disruption budget forbids its eviction
	Daemon   bool          // of a DaemonSet: no drain moves it
	NeverFit string        // why no node could run it
	Work     time.Duration // a worker that takes this long to give its work away when asked; 0: no worker
	Responds bool          // it names a responder: it gives its work away when its eviction is requested, not when workers are asked
	Runs     time.Duration // how long it runs, once it is on a node, until it has finished and is gone; 0: permanently
	Kube     KubeTraits    // what only the Kubernetes API shows of it

	Selector   map[string]string // labels that its node must have
	Tolerates  []nodes.Taint     // taints that don't keep it away
	Scheduling string            // nodes.Pod's; has to say the same as Selector and Tolerates
}

// Split returns the namespace and the name of a pod; one whose Name has no namespace is in default.
func (s PodSpec) Split() (namespace, name string) {
	if ns, name, ok := strings.Cut(s.Name, "/"); ok {
		return ns, name
	}
	return "default", s.Name
}

// KubeTraits are properties of a pod that only the Kubernetes API shows. The zero value is a running pod of a ReplicaSet. Whether it
// is critical, blocked, stuck or of a DaemonSet the PodSpec says.
type KubeTraits struct {
	Owner         string // kind of its controller; "" is ReplicaSet, "none" none, "Node" makes it a static pod
	Phase         string // "" is Running on a node and Pending without one
	PriorityClass string
	LocalVolume   string // emptyDir, hostPath, claim (of a PersistentVolume on its node) or ""
	VolumeZone    string // zone of a volume that it claims; "" if it claims none
	Annotations   map[string]string
	Labels        map[string]string
	Gated         bool // held back by a scheduling gate
	NotReady      bool // runs, but fails its readiness probe
}

// pod is a pod and where it is.
type pod struct {
	PodSpec
	node  *node
	goes  time.Time // when an evicted pod is gone; zero: not evicted
	began int       // how often it was placed
	since time.Time

	drainAsked   time.Time // when it was asked to give its work away, or its eviction was requested; zero: neither
	drainAskedOn *node     // where it was then: a pod that has moved is another worker
}

// tolerated reports whether no taint of a node keeps the pod away.
func (p *pod) tolerated(n *node) bool {
	return !slices.ContainsFunc(n.keeps, func(t nodes.Taint) bool {
		return t.Effect != "PreferNoSchedule" && !slices.Contains(p.Tolerates, t)
	})
}

// evicted reports whether the pod's deletion has begun.
func (p *pod) evicted() bool { return !p.goes.IsZero() }

// unplace takes the pod off its node, so that it waits for another one.
func (p *pod) unplace(now time.Time) {
	p.node, p.goes, p.since = nil, time.Time{}, now
	p.drainAsked, p.drainAskedOn = time.Time{}, nil // the pod that comes instead is another
}

// occupy counts the pod's requests into what is used of its node.
func (p *pod) occupy() {
	p.node.used.MilliCPU += p.MilliCPU
	p.node.used.Memory += p.Memory
	p.node.used.Pods++
}

// askedHere reports whether the pod was asked to give its work away on the node where it is.
func (p *pod) askedHere() bool { return !p.drainAsked.IsZero() && p.drainAskedOn == p.node }

// holding reports whether the pod is a worker that would lose its work if it were evicted now.
func (p *pod) holding(now time.Time) bool {
	return p.Work > 0 && (!p.askedHere() || now.Sub(p.drainAsked) < p.Work)
}

func (p *pod) requests() nodes.Resources {
	return nodes.Resources{MilliCPU: p.MilliCPU, Memory: p.Memory}
}

// selects reports whether a node has the labels that the pod asks for.
func (p *pod) selects(n *node) bool {
	for name, value := range p.Selector {
		if v, ok := n.Labels[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// room returns which share of a node's CPU and memory, both added up, the pod would leave free; false if it doesn't fit.
func (p *pod) room(n *node) (float64, bool) {
	cpu := n.Allocatable.MilliCPU - n.used.MilliCPU - p.MilliCPU
	mem := n.Allocatable.Memory - n.used.Memory - p.Memory
	if cpu < 0 || mem < 0 || n.used.Pods >= n.Allocatable.Pods {
		return 0, false
	}
	return float64(cpu)/float64(n.Allocatable.MilliCPU) + float64(mem)/float64(n.Allocatable.Memory), true
}

// show adds the pod to its node as a client sees it.
func (p *pod) show(n *nodes.Node) {
	if p.Daemon {
		n.Daemon.MilliCPU += p.MilliCPU
		n.Daemon.Memory += p.Memory
		n.Daemon.Pods++
		return
	}

	n.Pods = append(n.Pods, nodes.Pod{Name: p.Name, Requests: p.requests(), Scheduling: p.Scheduling})
	switch {
	case p.Critical:
		n.Blocker = "pod " + p.Name + ": critical priority"
	case p.Blocked && !p.evicted():
		n.Blocker = "pod " + p.Name + ": its disruption budget allows none"
	}
}
