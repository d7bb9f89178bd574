package kube

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/nodes"
)

// nodeReason is how an event on a node says what becomes of it.
type nodeReason struct{ reason, kind string }

// nodeReasons are the reasons of the events on nodes. They are those of Kubernetes' Cluster Autoscaler and of Karpenter where these have
// one, so that alerts on them keep working.
var nodeReasons = map[nodes.NodeNoticeKind]nodeReason{
	nodes.NodeDrains:      {"ScaleDown", corev1.EventTypeNormal},
	nodes.NodeInterrupted: {"SpotInterrupted", corev1.EventTypeWarning},
	nodes.NodeReplaced:    {"DisruptionLaunching", corev1.EventTypeNormal},
	nodes.NodeKept:        {"ScaleDownFailed", corev1.EventTypeWarning},
	nodes.NodeSpared:      {"ScaleDownCancelled", corev1.EventTypeNormal},
	nodes.NodeBlocked:     {"DisruptionBlocked", corev1.EventTypeNormal},
}

// TellNodes writes an event for each notice, which `kubectl describe node` shows. One with a cause is written once, also by several
// processes; the others follow the rules of TellPods.
func (c *Cluster) TellNodes(ctx context.Context, notices []nodes.NodeNotice) error {
	now := c.opts.Clock.Now()
	return c.post(ctx, now, func(yield func(*corev1.Event, bool) bool) {
		for _, n := range notices {
			if !yield(nodeEvent(n, now), n.Cause != "") {
				return
			}
		}
	})
}

// nodeEvent returns what is written on a node. Events on what is in no namespace are in the one named default.
func nodeEvent(n nodes.NodeNotice, now time.Time) *corev1.Event {
	on := corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: n.Node.Name, UID: types.UID(n.Node.UID)}
	e := eventOn(on, string(n.Kind)+"/"+n.Cause, n.Text, now)
	e.Namespace = metav1.NamespaceDefault
	r := nodeReasons[n.Kind]
	e.Reason, e.Type = r.reason, r.kind
	return e
}
