package kube

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

// running selects the pods that have not finished. The others hold nothing and block nothing, and on clusters with jobs there are
// many.
const running = "status.phase!=Succeeded,status.phase!=Failed"

// View reads nodes, disruption budgets and pods, in this order, and what is behind volume claims if pods have some. Nodes come first: what is then seen on a node is at least as new as
// the node, and no node looks empty because its pods were listed before it had joined. A pod on a node that has joined since is
// left for the next view.
func (c *Cluster) View(ctx context.Context) (nodes.View, error) {
	v := &view{rules: c.opts.Drain}
	if err := c.listNodes(ctx, v); err != nil {
		return nodes.View{}, err
	}
	if err := c.listBudgets(ctx, v); err != nil {
		return nodes.View{}, err
	}
	c.listBuffers(ctx, v)
	if err := c.listPods(ctx, v); err != nil {
		return nodes.View{}, err
	}
	v.addBuffers()
	var claims fit.Claims
	if v.constraints.claims {
		volumes, err := c.listVolumes(ctx)
		if err != nil {
			return nodes.View{}, err
		}
		claims = volumes.look
		v.blockLocal(volumes)
	}
	if err := v.constraints.write(&v.View, claims); err != nil {
		return nodes.View{}, err
	}
	return v.View, nil
}

// view is a View that is being put together.
type view struct {
	nodes.View
	rules       Rules
	index       map[string]int // of nodes, by name
	budgets     budgets
	constraints *constraints
	claiming    []claiming
	templates   []*corev1.Pod // of the buffers, in their order; nil of one that is ignored
}

// claiming is a pod that a drain would move unless a volume that it claims is local.
type claiming struct {
	node            int // index in the view
	namespace, name string
	volumes         []corev1.Volume
}

func (c *Cluster) listNodes(ctx context.Context, v *view) error {
	return pager[*corev1.NodeList]{
		c: c, what: "listing nodes", of: c.core, name: "nodes",
		begin: func() { v.Nodes, v.index = nil, map[string]int{} },
		add: func(l *corev1.NodeList) error {
			for i := range l.Items {
				v.index[l.Items[i].Name] = len(v.Nodes)
				v.Nodes = append(v.Nodes, nodeOf(&l.Items[i]))
			}
			return nil
		},
	}.run(ctx, metav1.ListOptions{}, func() *corev1.NodeList { return &corev1.NodeList{} })
}

func (c *Cluster) listBudgets(ctx context.Context, v *view) error {
	return pager[*policyv1.PodDisruptionBudgetList]{
		c: c, what: "listing disruption budgets", of: c.policy, name: "poddisruptionbudgets",
		begin: func() { v.budgets = budgets{} },
		add: func(l *policyv1.PodDisruptionBudgetList) error {
			for i := range l.Items {
				if err := v.budgets.add(&l.Items[i]); err != nil {
					return err
				}
			}
			return nil
		},
	}.run(ctx, metav1.ListOptions{}, func() *policyv1.PodDisruptionBudgetList { return &policyv1.PodDisruptionBudgetList{} })
}

// listPods reads the pods into the view. Each page is dropped when the next comes, so that memory holds one page of whole pods.
func (c *Cluster) listPods(ctx context.Context, v *view) error {
	return c.pods("listing pods", v.dropPods, func(l *corev1.PodList) error {
		for i := range l.Items {
			v.add(&l.Items[i])
		}
		return nil
	}).run(ctx, metav1.ListOptions{FieldSelector: running}, newPodList)
}

func (c *Cluster) pods(what string, begin func(), add func(*corev1.PodList) error) pager[*corev1.PodList] {
	return pager[*corev1.PodList]{c: c, what: what, of: c.core, name: "pods", begin: begin, add: add}
}

func newPodList() *corev1.PodList { return &corev1.PodList{} }

func (v *view) dropPods() {
	v.Pending, v.constraints, v.claiming = nil, newConstraints(), nil
	for i := range v.Nodes {
		n := &v.Nodes[i]
		n.Pods, n.Daemon, n.Blocker, n.Ending = nil, nodes.Resources{}, "", nodes.Ending{}
	}
}

// add puts a pod where it belongs.
func (v *view) add(p *corev1.Pod) {
	role, why := v.rules.judge(p)
	if role == finished {
		return
	}
	if p.Spec.NodeName == "" {
		if role == moving || role == blocking {
			v.addPending(p)
		}
		return
	}
	i, ok := v.index[p.Spec.NodeName]
	if !ok {
		return
	}
	n := &v.Nodes[i]
	if role == apart {
		r := fit.Requests(p)
		n.Daemon.MilliCPU += r.MilliCPU
		n.Daemon.Memory += r.Memory
		n.Daemon.Pods++
		return
	}
	v.constraints.add(p, i, len(n.Pods))
	n.Pods = append(n.Pods, nodes.Pod{Name: nameOf(p), Requests: fit.Requests(p)})
	switch role {
	case ending:
		n.Ending = sooner(n.Ending, p)
	case moving:
		why = v.budgets.against(p)
		if v.rules.LocalStorage != Evict && hasClaim(p) {
			v.claiming = append(v.claiming, claiming{i, p.Namespace, p.Name, p.Spec.Volumes})
		}
	}
	if n.Blocker == "" { // of several the first, and lists come in the order of names
		n.Blocker = why
	}
}

// addBuffers adds the pods of buffers to those whose placement is written into the view. It comes after all real pods, of which a list that
// restarts begins again.
func (v *view) addBuffers() {
	for i, p := range v.templates {
		if p != nil {
			v.constraints.add(p, ofBuffer, i)
		}
	}
}

// sooner returns which of two pods whose deletion has begun is killed first. A pod's deletion has the time at
// which its grace ends.
func sooner(one nodes.Ending, p *corev1.Pod) nodes.Ending {
	if one.Pod != "" && !p.DeletionTimestamp.Time.Before(one.Until) {
		return one
	}
	other := nodes.Ending{Pod: nameOf(p), Until: p.DeletionTimestamp.Time}
	if p.DeletionGracePeriodSeconds != nil {
		other.Grace = *p.DeletionGracePeriodSeconds
	}
	return other
}

// blockLocal has pods whose volumes are local block the drains of their nodes.
func (v *view) blockLocal(all *volumes) {
	for _, p := range v.claiming {
		n := &v.Nodes[p.node]
		if local := all.localOf(p.namespace, p.name, p.volumes); local != "" && n.Blocker == "" {
			n.Blocker = isLocal(p.namespace+"/"+p.name, local)
		}
	}
}

// addPending adds a pod if it waits for a node.
func (v *view) addPending(p *corev1.Pod) {
	since, yes := waits(p)
	if !yes {
		return
	}
	v.constraints.add(p, ofPending, len(v.Pending))
	each := []nodes.PodRef{{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}}
	v.Pending = append(v.Pending, nodes.Pod{Name: nameOf(p), Requests: fit.Requests(p), Since: since, Each: each})
}

// waits reports whether a pod waits for a node, and since when the scheduler has not been able to place it. One for which it makes room by
// preemption needs no node.
func waits(p *corev1.Pod) (since time.Time, yes bool) {
	if p.Spec.NodeName != "" || p.Status.NominatedNodeName != "" {
		return since, false
	}
	for i := range p.Status.Conditions {
		c := &p.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return c.LastTransitionTime.Time, true
		}
	}
	return since, false
}

// controlPlaneLabels mark servers: K3s sets the first on every server, the second on older ones, the third on those that run etcd
// alone.
var controlPlaneLabels = [...]string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/etcd"}

func nodeOf(n *corev1.Node) nodes.Node {
	a := n.Status.Allocatable
	labels, taints := lasting(n)
	out := nodes.Node{
		NodeRef:       nodes.NodeRef{Name: n.Name, UID: string(n.UID)},
		ProviderID:    n.Spec.ProviderID,
		Unschedulable: n.Spec.Unschedulable,
		Claims:        claimsOf(n),
		Keep:          keeps(n.Annotations),
		CreatedAt:     n.CreationTimestamp.Time,
		Kubelet:       n.Status.NodeInfo.KubeletVersion,
		Allocatable:   nodes.Resources{MilliCPU: a.Cpu().MilliValue(), Memory: a.Memory().Value(), Pods: int(a.Pods().Value())},
		ToBeDeleted:   departureOf(n).tainted,
		Labels:        labels,
		Extended:      extendedOf(a),
	}
	for _, key := range controlPlaneLabels {
		if v, ok := n.Labels[key]; ok && v != "false" {
			out.ControlPlane = true
		}
	}
	for _, addr := range n.Status.Addresses {
		if addr.Type == corev1.NodeInternalIP {
			out.InternalIP = addr.Address
			break
		}
	}
	for _, cond := range n.Status.Conditions {
		if pressures[cond.Type] && cond.Status == corev1.ConditionTrue {
			out.Pressure = strings.TrimPrefix(out.Pressure+", "+string(cond.Type), ", ")
		}
		if cond.Type == corev1.NodeDiskPressure && cond.Status == corev1.ConditionTrue {
			out.DiskFullSince = cond.LastTransitionTime.Time
		}
		if cond.Type == corev1.NodeReady { // one that is being deleted takes no more work, whatever its kubelet says
			out.Ready = cond.Status == corev1.ConditionTrue && n.DeletionTimestamp == nil
			switch {
			case cond.Status != corev1.ConditionTrue:
				out.NotReadySince, out.NotReadyWhy = cond.LastTransitionTime.Time, cond.Reason+": "+cond.Message
				out.KubeletSilent = cond.Status == corev1.ConditionUnknown
			case n.DeletionTimestamp != nil:
				out.NotReadySince = n.DeletionTimestamp.Time
			}
		}
	}
	for _, t := range taints {
		out.Taints = append(out.Taints, nodes.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	return out
}

// pressures are the conditions of a node that is short of something.
var pressures = map[corev1.NodeConditionType]bool{corev1.NodeDiskPressure: true, corev1.NodeMemoryPressure: true, corev1.NodePIDPressure: true}

// extendedOf returns what a node has beside what every node has, devices and huge pages.
func extendedOf(l corev1.ResourceList) map[string]int64 {
	var out map[string]int64
	for name, q := range l {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage, corev1.ResourceStorage:
		default:
			if out == nil {
				out = map[string]int64{}
			}
			out[string(name)] = q.Value()
		}
	}
	return out
}
