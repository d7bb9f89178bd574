package kube

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

// ToBeDeletedTaint is the taint of a node that Muster means to delete. A cordon alone keeps DaemonSet pods off no node, because they
// tolerate it; those that are there stay in spite of the taint. It is a protocol, as the annotations are.
const ToBeDeletedTaint = "muster.dev/to-be-deleted"

// notBalanced is the value that Muster gives the label corev1.LabelNodeExcludeBalancers, by which load balancers send a node no new
// connections. What another value says is left alone. Balancers that read a boolean take it for yes.
const notBalanced = "muster"

// returnsAfter is how long after a drain's beginning a pod must have been created to have come back. The clocks of Muster and the API
// server differ, and a pod that is evicted again soon may find another node then.
const returnsAfter = 15 * time.Second

func toBeDeleted() corev1.Taint {
	return corev1.Taint{Key: ToBeDeletedTaint, Effect: corev1.TaintEffectNoSchedule}
}

// departure is what a node carries beside its cordon while it is to be deleted. Both parts are written in one request with the cordon, so
// that no crash leaves one without the other.
type departure struct {
	tainted bool
	labeled bool // by Muster or somebody else
	own     bool // the label is Muster's
}

func departureOf(n *corev1.Node) departure {
	value, labeled := n.Labels[corev1.LabelNodeExcludeBalancers]
	return departure{
		tainted: slices.ContainsFunc(n.Spec.Taints, isToBeDeleted),
		labeled: labeled,
		own:     labeled && value == notBalanced,
	}
}

func isToBeDeleted(t corev1.Taint) bool { return t.Key == ToBeDeletedTaint }

// begin marks the node. A label that somebody else gave it stays theirs.
func (d *departure) begin() {
	d.tainted = true
	if !d.labeled {
		d.labeled, d.own = true, true
	}
}

// end takes the marks off, but for somebody else's label.
func (d *departure) end() {
	d.tainted = false
	if d.own {
		d.labeled, d.own = false, false
	}
}

// taints returns what the node's taints are to be. A merge patch replaces them all, and is safe because it names the version that they
// were read from.
func (d departure) taints(n *corev1.Node) []corev1.Taint {
	out := slices.DeleteFunc(slices.Clone(n.Spec.Taints), isToBeDeleted)
	if d.tainted {
		out = append(out, toBeDeleted())
	}
	return out
}

// label returns what a merge patch says of the label: nil takes it off.
func (d departure) label() any {
	if d.own {
		return notBalanced
	}
	return nil
}

// lasting returns the labels and taints of a node without the marks of its departure, which say nothing about nodes of its kind.
func lasting(n *corev1.Node) (map[string]string, []corev1.Taint) {
	labels, taints := n.Labels, n.Spec.Taints
	d := departureOf(n)
	if d.own {
		labels = maps.Clone(labels)
		delete(labels, corev1.LabelNodeExcludeBalancers)
	}
	if d.tainted {
		taints = slices.DeleteFunc(slices.Clone(taints), isToBeDeleted)
	}
	return labels, taints
}

// drained are the taints of a node that is drained: the node controller adds the first to a cordoned node.
var drained = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, toBeDeleted()}

// toleratesDrain reports whether the scheduler may place a pod on a node that is drained. Nothing keeps such a pod off: it tolerates
// everything, or these two taints by name.
func toleratesDrain(p *corev1.Pod) bool {
	if len(p.Spec.Tolerations) == 0 {
		return false
	}
	_, kept := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, drained, p.Spec.Tolerations, nil, false)
	return !kept
}

// cameBack reports whether a pod was made during a drain and placed on the drained node. Evicting it again would go on until the drain's
// time is over, since the emptiest node is often the one that the scheduler likes best.
func cameBack(p *corev1.Pod, since time.Time) bool {
	return !since.IsZero() && p.CreationTimestamp.Sub(since) > returnsAfter && toleratesDrain(p)
}
