package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/nodes"
)

// This file is what a cluster shows and lets happen through the Kubernetes API; package kubeapi puts it on the wire.

// What the Kubernetes adapter writes on a node that it cordons.
const (
	ClaimsAnnotation = "muster.dev/cordoned-by"   // who cordoned it
	ToBeDeletedTaint = "muster.dev/to-be-deleted" // its only effect is NoSchedule
	NotBalanced      = "muster"                   // value of the label by which load balancers leave a node alone
)

// KubeNode is a node as the Kubernetes API shows it.
type KubeNode struct {
	nodes.Node
	Zone        string
	Unbalanced  bool // it has the label of NotBalanced
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

// Kube is the cluster behind the Kubernetes API for the time of one request.
type Kube struct {
	state *state
	actor string
}

// log enters what the request's sender did.
func (k *Kube) log(e Entry) {
	e.Actor = k.actor
	k.state.ledger.record(e)
}

// Halved reports whether lists break off in the middle.
func (k *Kube) Halved() bool {
	_, partial := k.state.outages.of(ClusterPart)
	return partial
}

// Now returns the time.
func (k *Kube) Now() time.Time { return k.state.time.now }

// Replicas returns the number of pods that a deployment is to have, false if there is no such deployment.
func (k *Kube) Replicas(namespace, name string) (int, bool) {
	n, ok := k.state.objects.replicas[namespace+"/"+name]
	return n, ok
}

// Nodes lists the nodes in the order of their names.
func (k *Kube) Nodes() []KubeNode {
	var out []KubeNode
	for _, n := range k.state.fleet.nodes {
		out = append(out, shownNode(n))
	}
	slices.SortFunc(out, func(a, b KubeNode) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func shownNode(n *node) KubeNode {
	out := KubeNode{Node: n.Node, Zone: n.instance.Zone, Unbalanced: n.unbalanced, Annotations: maps.Clone(n.kube.annotations)}
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
	for _, p := range k.state.pods.pods {
		out = append(out, shownPod(p))
	}
	slices.SortFunc(out, func(a, b KubePod) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func shownPod(p *pod) KubePod {
	out := KubePod{PodSpec: p.PodSpec, Since: p.since, UID: fmt.Sprintf("%s@%d", p.Name, p.since.UnixNano())}
	if p.node != nil {
		out.Node = p.node.Name
	}
	if p.evicted() {
		out.GoneAt, out.Stays = p.goes, p.Stuck
	}
	out.Version = fmt.Sprint(p.since.UnixMilli())
	return out
}

// Budgets lists the disruption budgets with how many disruptions each allows now.
func (k *Kube) Budgets() []BudgetStatus {
	out := make([]BudgetStatus, len(k.state.objects.budgets))
	for i, b := range k.state.objects.budgets {
		out[i] = BudgetStatus{Budget: b}
		for _, p := range k.state.pods.pods {
			if b.Covers(p.PodSpec) {
				out[i].Expected++
				if p.node != nil && p.node.Ready && !p.evicted() && !p.Kube.NotReady {
					out[i].Healthy++
				}
			}
		}
	}
	return out
}

// SetNode writes what a patch of a node may change: whether it is schedulable, its marks and its annotations. Claims come and go with
// their annotation and are entered in the ledger as Client.Cordon and Client.Uncordon enter them.
func (k *Kube) SetNode(to KubeNode) {
	ref, annotations := to.NodeRef, to.Annotations
	n := k.state.fleet.findNode(ref)
	if n == nil {
		return
	}
	claims := strings.FieldsFunc(annotations[ClaimsAnnotation], func(r rune) bool { return r == ',' })
	before := n.claims
	n.byHand = n.byHand || n.Unschedulable && len(before) == 0
	n.Unschedulable, n.claims = to.Unschedulable, claims
	n.ToBeDeleted, n.unbalanced = to.ToBeDeleted, to.Unbalanced
	if !to.Unschedulable {
		n.byHand = false
	}
	n.kube.annotations = maps.Clone(annotations)
	delete(n.kube.annotations, ClaimsAnnotation)
	n.kube.changes += 100
	for _, claim := range claims {
		if !slices.Contains(before, claim) {
			k.log(Entry{Kind: Cordoned, Instance: n.instance.ID, Node: ref, Detail: claim, Facts: k.state.fleet.facts(n.instance)})
		}
	}
	for _, claim := range before {
		if !slices.Contains(claims, claim) {
			k.log(Entry{Kind: Uncordoned, Instance: n.instance.ID, Node: ref, Detail: claim})
		}
	}
}

// DeleteNode deletes a Node object.
func (k *Kube) DeleteNode(ref nodes.NodeRef) {
	if n := k.state.fleet.findNode(ref); n != nil {
		k.log(Entry{Kind: NodeRemoved, Instance: n.instance.ID, Node: ref, Facts: k.state.fleet.facts(n.instance)})
		k.state.fleet.removeNode(n)
	}
}

// Evict begins the deletion of a pod. A grace of 0 is the pod's own. One whose deletion has begun gets a shorter grace, if it is
// shorter.
func (k *Kube) Evict(name, uid string, grace time.Duration) {
	now := k.state.time.now
	for _, p := range k.state.pods.pods {
		if p.Name != name || shownPod(p).UID != uid || p.node == nil {
			continue
		}
		if p.evicted() && (grace == 0 || !now.Add(grace).Before(p.goes)) {
			return
		}
		k.state.pods.evict(k.actor, p, grace)
		return
	}
}
