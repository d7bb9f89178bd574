package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// This file is what a world shows and lets happen through the Kubernetes API; package kubeapi puts it on the wire.

// KubeTraits are properties of a pod that only the Kubernetes API shows. The zero value is a running pod of a ReplicaSet. Whether it
// is critical, blocked, stuck or of a DaemonSet the PodSpec says.
type KubeTraits struct {
	Owner         string // kind of its controller; "" is ReplicaSet, "none" none, "Node" makes it a static pod
	Phase         string // "" is Running on a node and Pending without one
	PriorityClass string
	LocalVolume   string // emptyDir, hostPath or ""
	VolumeZone    string // zone of a volume that it claims; "" if it claims none
	Annotations   map[string]string
	Labels        map[string]string
	Gated         bool // held back by a scheduling gate
	NotReady      bool // runs, but fails its readiness probe
}

// kubeNode is what only the Kubernetes API shows of a node.
type kubeNode struct {
	annotations map[string]string
	changes     int // of anything that the API shows of it
}

// Budget is a PodDisruptionBudget over the pods of a namespace whose names begin with Prefix.
type Budget struct {
	Namespace, Name string
	Prefix          string
	MinAvailable    int
}

// ClaimsAnnotation is where a node says who cordoned it, as the Kubernetes adapter writes it.
const ClaimsAnnotation = "muster.dev/cordoned-by"

// SetBudgets replaces the disruption budgets.
func (w *Simulator) SetBudgets(bs ...Budget) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.budgets = bs
}

// MakeStock makes the node of an instance one as K3s registers it without settings of its own: named after the host, with a provider
// ID that says nothing about the instance.
func (w *Simulator) MakeStock(instanceID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.find(instanceID).node; n != nil {
		n.Name = "ip-" + strings.ReplaceAll(n.InternalIP, ".", "-")
		n.ProviderID = "k3s://" + n.Name
	}
}

// AnnotateNode sets an annotation on the node of an instance, as a person would.
func (w *Simulator) AnnotateNode(instanceID, key, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := w.find(instanceID).node; n != nil {
		n.kube.set(key, value)
	}
}

func (k *kubeNode) set(key, value string) {
	if k.annotations == nil {
		k.annotations = map[string]string{}
	}
	k.annotations[key] = value
	k.changes++
}

// KubeNode is a node as the Kubernetes API shows it.
type KubeNode struct {
	nodes.Node
	Zone        string
	Annotations map[string]string
	Version     string // changes with anything that is shown
}

// KubePod is a pod as the Kubernetes API shows it.
type KubePod struct {
	PodSpec
	UID     string
	Node    string    // name of its node, "" while it has none
	Since   time.Time // when it was made, or lost its node
	GoneAt  time.Time // when its deletion ends; zero: it isn't being deleted
	Stays   bool      // it is being deleted and a finalizer holds it
	Version string
}

// Kube makes one request to the Kubernetes API: it takes time, fails during an outage, and effect sees and changes the cluster by k,
// which must not be used afterwards.
func (c *Client) Kube(ctx context.Context, call string, effect func(k *Kube) error) error {
	return c.do(ctx, ClusterPart, "kube."+call, func(context.Context) error { return effect(&Kube{c}) })
}

// Kube is the cluster behind the Kubernetes API for the time of one request.
type Kube struct{ c *Client }

// Halved reports whether lists break off in the middle.
func (k *Kube) Halved() bool {
	o := k.c.w.outageOf(ClusterPart)
	return o != nil && o.partial
}

// Now returns the time.
func (k *Kube) Now() time.Time { return k.c.w.now }

// Replicas returns the number of pods that a deployment is to have, false if there is no such deployment.
func (k *Kube) Replicas(namespace, name string) (int, bool) {
	n, ok := k.c.w.replicas[namespace+"/"+name]
	return n, ok
}

// Nodes lists the nodes in the order of their names.
func (k *Kube) Nodes() []KubeNode {
	var out []KubeNode
	for _, n := range k.c.w.nodes {
		out = append(out, n.shown())
	}
	slices.SortFunc(out, func(a, b KubeNode) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (n *node) shown() KubeNode {
	out := KubeNode{Node: n.Node, Zone: n.instance.Zone, Annotations: maps.Clone(n.kube.annotations)}
	out.Claims = slices.Clone(n.claims)
	if len(n.claims) > 0 {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[ClaimsAnnotation] = strings.Join(n.claims, ",")
	}
	out.Version = fmt.Sprint(1000 + n.kube.changes + 2*len(n.claims)) // a claim may have been added beside the API
	return out
}

// Pods lists the pods in the order of namespace and name.
func (k *Kube) Pods() []KubePod {
	var out []KubePod
	for _, p := range k.c.w.pods {
		out = append(out, p.shown())
	}
	slices.SortFunc(out, func(a, b KubePod) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (p *pod) shown() KubePod {
	out := KubePod{PodSpec: p.PodSpec, Since: p.since, UID: fmt.Sprintf("%s@%d", p.Name, p.since.UnixNano())}
	if p.node != nil {
		out.Node = p.node.Name
	}
	if !p.goes.IsZero() {
		out.GoneAt, out.Stays = p.goes, p.Stuck
	}
	out.Version = fmt.Sprint(p.since.UnixMilli())
	return out
}

// Budgets lists the disruption budgets with how many disruptions each allows now.
func (k *Kube) Budgets() []BudgetStatus {
	out := make([]BudgetStatus, len(k.c.w.budgets))
	for i, b := range k.c.w.budgets {
		out[i] = BudgetStatus{Budget: b}
		for _, p := range k.c.w.pods {
			if b.covers(p.PodSpec) {
				out[i].Expected++
				if p.node != nil && p.node.Ready && p.goes.IsZero() && !p.Kube.NotReady {
					out[i].Healthy++
				}
			}
		}
	}
	return out
}

// BudgetStatus is a budget with what it counts.
type BudgetStatus struct {
	Budget
	Expected, Healthy int
}

// Allowed returns how many pods may be disrupted now.
func (b BudgetStatus) Allowed() int { return max(0, b.Healthy-b.MinAvailable) }

func (b Budget) covers(s PodSpec) bool {
	ns, name := s.Split()
	return ns == b.Namespace && strings.HasPrefix(name, b.Prefix)
}

// Covers reports whether the budget is about a pod.
func (b Budget) Covers(p KubePod) bool { return b.covers(p.PodSpec) }

// Split returns the namespace and the name of a pod; one whose Name has no namespace is in default.
func (s PodSpec) Split() (namespace, name string) {
	if ns, name, ok := strings.Cut(s.Name, "/"); ok {
		return ns, name
	}
	return "default", s.Name
}

// SetNode writes what a patch of a node may change: whether it is schedulable and its annotations. Claims come and go with their
// annotation and are entered in the ledger as Client.Cordon and Client.Uncordon enter them.
func (k *Kube) SetNode(ref nodes.NodeRef, unschedulable bool, annotations map[string]string) {
	w := k.c.w
	n := w.findNode(ref)
	if n == nil {
		return
	}
	claims := strings.FieldsFunc(annotations[ClaimsAnnotation], func(r rune) bool { return r == ',' })
	before := n.claims
	n.byHand = n.byHand || n.Unschedulable && len(before) == 0
	n.Unschedulable, n.claims = unschedulable, claims
	if !unschedulable {
		n.byHand = false
	}
	n.kube.annotations = maps.Clone(annotations)
	delete(n.kube.annotations, ClaimsAnnotation)
	n.kube.changes += 100
	for _, claim := range claims {
		if !slices.Contains(before, claim) {
			k.c.log(Entry{Kind: Cordoned, Instance: n.instance.ID, Node: ref, Detail: claim, Facts: w.facts(n.instance)})
		}
	}
	for _, claim := range before {
		if !slices.Contains(claims, claim) {
			k.c.log(Entry{Kind: Uncordoned, Instance: n.instance.ID, Node: ref, Detail: claim})
		}
	}
}

// DeleteNode deletes a Node object.
func (k *Kube) DeleteNode(ref nodes.NodeRef) {
	w := k.c.w
	if n := w.findNode(ref); n != nil {
		k.c.log(Entry{Kind: NodeRemoved, Instance: n.instance.ID, Node: ref, Facts: w.facts(n.instance)})
		w.removeNode(n)
	}
}

// Evict begins the deletion of a pod. A grace of 0 is the pod's own. One whose deletion has begun gets a shorter grace, if it is
// shorter.
func (k *Kube) Evict(name, uid string, grace time.Duration) {
	w := k.c.w
	for _, p := range w.pods {
		if p.Name != name || p.shown().UID != uid || p.node == nil {
			continue
		}
		if !p.goes.IsZero() && (grace == 0 || !w.now.Add(grace).Before(p.goes)) {
			return
		}
		k.c.evict(p, grace)
		return
	}
}
