package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Cluster is what the node plane needs of a Kubernetes cluster.
type Cluster interface {
	// View reads all nodes with what runs on them, and the pods that wait for one. The number of API calls
	// behind it does not grow with the number of pods. It is complete or the error is not nil.
	View(ctx context.Context) (View, error)
	// Cordon makes a node unschedulable and writes claim beside it, so that a person who finds the node can
	// see who did it and why, and marks the node as to be deleted: DaemonSets start no more pods there, and load
	// balancers send it no more connections. Cordoning again, by the same or another claim, is no error and adds
	// the claim.
	Cordon(ctx context.Context, node NodeRef, claim string) error
	// Uncordon takes claim away. If no other claim is left it takes the mark away, too, also if claim was not
	// there, and makes the node schedulable; one that a person cordoned stays cordoned.
	Uncordon(ctx context.Context, node NodeRef, claim string) error
	// Drain evicts what may be evicted from a cordoned node and waits until it is gone, but not beyond
	// req.Until. It says how far it came; called again it continues from there.
	Drain(ctx context.Context, req DrainRequest) (DrainProgress, error)
	// Remove deletes a Node object, if it still has the UID; a node that is gone or has been replaced is no error.
	Remove(ctx context.Context, node NodeRef) error
}

// NodeRef names one incarnation of a node. The UID is a precondition of every destructive call: a node that
// was deleted and registered again under its old name is another one.
type NodeRef struct {
	Name string `json:"name,omitempty"`
	UID  string `json:"uid,omitempty"`
}

// View is what the Kubernetes API shows at one moment.
type View struct {
	Nodes   []Node `json:"nodes,omitempty"`
	Pending []Pod  `json:"pending,omitempty"` // unschedulable pods; scheduling-gated ones are not among them
	// Buffers are the capacity buffers; none where the cluster has no such API or they are not read. BuffersWhy says why they could not be
	// read: nothing may then be concluded from their absence.
	Buffers    []Buffer `json:"buffers,omitempty"`
	BuffersWhy string   `json:"buffersWhy,omitempty"`
}

// Node is a node as Kubernetes describes it. It is matched to its instance by ProviderID or, where that names none, by InternalIP.
// Claims tell a cordon of the node plane from a person's, which it never takes off. Pods, Daemon, Labels, Taints and Extended are
// what decides whether a pod fits, and Blocker whether the node can be drained.
type Node struct {
	NodeRef
	ProviderID    string            `json:"providerId,omitempty"` // aws:///ZONE/i-..., or k3s://NAME on stock nodes
	InternalIP    string            `json:"internalIp,omitempty"`
	Ready         bool              `json:"ready,omitempty"`
	NotReadySince time.Time         `json:"notReadySince,omitzero"`  // by its Ready condition; zero while it is Ready, or if it does not say
	NotReadyWhy   string            `json:"notReadyWhy,omitempty"`   // what the Ready condition says; "" while it is Ready
	KubeletSilent bool              `json:"kubeletSilent,omitempty"` // the control plane hears nothing of it
	Pressure      string            `json:"pressure,omitempty"`      // what it is short of, as its conditions say; "": of nothing
	DiskFullSince time.Time         `json:"diskFullSince,omitzero"`  // by its DiskPressure condition; zero while it is not under disk pressure
	Ending        Ending            `json:"ending,omitzero"`         // of the pods whose deletion has begun, the one whose grace ends first
	Unschedulable bool              `json:"unschedulable,omitempty"`
	Claims        []string          `json:"claims,omitempty"`      // of those who cordoned it through Cluster.Cordon
	ToBeDeleted   bool              `json:"toBeDeleted,omitempty"` // marked so by Cluster.Cordon; Labels and Taints don't show it
	ControlPlane  bool              `json:"controlPlane,omitempty"`
	Keep          bool              `json:"keep,omitempty"` // annotated against scale-down
	CreatedAt     time.Time         `json:"createdAt,omitzero"`
	Kubelet       string            `json:"kubelet,omitempty"` // its version, as Kubernetes writes it: v1.36.3+k3s1
	Allocatable   Resources         `json:"allocatable,omitzero"`
	Pods          []Pod             `json:"pods,omitempty"`   // running here, DaemonSet and mirror pods left out
	Daemon        Resources         `json:"daemon,omitzero"`  // what DaemonSet and mirror pods ask for here
	Labels        map[string]string `json:"labels,omitempty"` // those that pods' placement can depend on
	Taints        []Taint           `json:"taints,omitempty"`
	Extended      map[string]int64  `json:"extended,omitempty"` // allocatable resources besides CPU, memory and pods, such as nvidia.com/gpu
	Blocker       string            `json:"blocker,omitempty"`  // why a drain would fail now, with the pod's name; "" if it would not
}

// Available reports whether the node counts as a worker that can take work: Ready and closed to no pod.
func (n Node) Available() bool { return n.Ready && !n.Closed() }

// Closed reports whether the scheduler places no more pods on the node: it is cordoned, or a person has uncordoned it that is to be
// deleted, until the drain cordons it again.
func (n Node) Closed() bool { return n.Unschedulable || n.ToBeDeleted }

// Resources is an amount of what pods ask for.
type Resources struct {
	MilliCPU int64 `json:"milliCpu,omitempty"`
	Memory   int64 `json:"memory,omitempty"` // bytes
	Pods     int   `json:"pods,omitempty"`
}

// Taint keeps pods that don't tolerate it off a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"` // NoSchedule, PreferNoSchedule or NoExecute
}

// String returns the taint as kubectl writes it.
func (t Taint) String() string {
	if t.Value == "" {
		return t.Key + ":" + t.Effect
	}
	return t.Key + "=" + t.Value + ":" + t.Effect
}

// Pod is a pod, or several that are alike, as far as placement goes.
type Pod struct {
	Name     string    `json:"name"`               // namespace/name
	Count    int       `json:"count,omitempty"`    // how many alike; 0 means 1
	Requests Resources `json:"requests,omitzero"`  // of one of them; Pods is ignored
	NeverFit string    `json:"neverFit,omitempty"` // why no node that could be launched would run it; "" if one would
	// Since is since when the scheduler has not been able to place it, by its own condition, of several the first; zero if it
	// runs or does not say.
	Since time.Time `json:"since,omitzero"`
	// Scheduling is what else placement depends on (labels, selectors, affinity, tolerations, topology
	// spread, volumes, extended resources), in the canonical form that package fit writes and reads; "" if
	// nothing does. Two pods that are placed alike have the same text.
	Scheduling string `json:"scheduling,omitempty"`
	// Buffer is the capacity buffer that keeps room for it, namespace/name; "" for a pod that is there. Those that are there are placed first.
	Buffer string `json:"buffer,omitempty"`
	// Each are the pods that it stands for, if they wait for a node, for notices to them. They are not logged.
	Each []PodRef `json:"-"`
}

// N returns how many pods p stands for.
func (p Pod) N() int { return max(p.Count, 1) }

// DrainRequest asks for a drain or for its continuation.
type DrainRequest struct {
	Node  NodeRef
	Until time.Time // return by then with what has been reached
	// Since is when the drain began. A pod that was made after it and placed on the node in spite of it blocks the drain: it
	// would come back whenever it is evicted. Zero: such pods are evicted as others are.
	Since    time.Time
	MaxGrace time.Duration // cap on every pod's own grace period; 0: none
	// SkipCritical leaves pods alone that would otherwise abort the drain: on a node that will be taken away
	// anyway, saving most pods beats saving none.
	SkipCritical bool
}

// DrainProgress tells how far a drain came.
type DrainProgress struct {
	Done bool   // nothing is left that a drain moves
	Left int    // pods still there
	Why  string // what the drain waits for, with a pod's name
}

// DrainBlockedError says that a drain can't succeed and should not be continued, for instance because of a
// critical pod.
type DrainBlockedError struct {
	Node string
	Why  string
}

// Error names the node and the cause.
func (e *DrainBlockedError) Error() string {
	return fmt.Sprintf("drain of %s is blocked: %s", e.Node, e.Why)
}

// IsDrainBlocked reports whether err says that a drain can't succeed, and why.
func IsDrainBlocked(err error) (why string, ok bool) {
	var b *DrainBlockedError
	if errors.As(err, &b) {
		return b.Why, true
	}
	return "", false
}

// WorkerPlane is what the node plane asks of an application whose workers run on the nodes. It is optional.
type WorkerPlane interface {
	// Cost tells what taking a node away costs; less is better. Nodes without workers may be absent.
	Cost(ctx context.Context, nodes []string) (map[string]float64, error)
	// DrainWorkers asks the workers on a node to give their work away and to take none before until, and returns
	// how much they still hold, in any unit; 0 is nothing. It does not wait: called again it tells how far
	// they are. The request ends by itself at until, so that workers whose node was kept after all work again
	// even if no process is left to tell them.
	DrainWorkers(ctx context.Context, node string, until time.Time) (left int, err error)
	// TakeBack ends a request before its time: the node stays.
	TakeBack(ctx context.Context, node string) error
}

// EvictionRequester lets the pods on a node respond before they are evicted. It is optional: clusters have it from
// Kubernetes 1.37 on, as EvictionRequests, and only pods that name a responder are asked.
type EvictionRequester interface {
	// RequestEvictions asks the responders of the pods on a node to get ready for their eviction, and returns how
	// many pods have one at work. It does not wait: called again it tells how far they are. A responder that is
	// done, was cancelled or doesn't report is not at work.
	RequestEvictions(ctx context.Context, n NodeRef) (responding int, err error)
	// WithdrawEvictions takes the requests back: the node stays.
	WithdrawEvictions(ctx context.Context, n NodeRef) error
}

// InstanceID returns the ID of the instance that the node says it runs on, "" if it does not say.
func (n Node) InstanceID() string {
	if rest, ok := strings.CutPrefix(n.ProviderID, "aws:///"); ok {
		if i := strings.LastIndexByte(rest, '/'); i >= 0 {
			return rest[i+1:]
		}
	}
	if strings.HasPrefix(n.Name, "i-") {
		return n.Name
	}
	return ""
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

// notReadySince returns since when a node has not been Ready, as its own condition says, which outlives every
// restart of Muster. Of a node that says nothing it is now: nothing is concluded from that.
func (n Node) notReadySince(now time.Time) time.Time {
	switch {
	case !n.NotReadySince.IsZero():
		return n.NotReadySince
	case !n.CreatedAt.IsZero():
		return n.CreatedAt
	}
	return now
}

func (r Resources) holds(want Resources) bool {
	return r.Pods >= 1 && r.MilliCPU >= want.MilliCPU && r.Memory >= want.Memory
}
