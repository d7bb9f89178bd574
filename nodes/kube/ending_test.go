package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodes"
)

// TestViewEnding: of the pods whose deletion has begun, a node shows the one whose grace ends first.
func TestViewEnding(t *testing.T) {
	at := time.Unix(1000, 0)
	told := func(name string, until time.Time, grace int64) *corev1.Pod {
		p := pod(func(p *corev1.Pod) { p.Name, p.Spec.NodeName = name, "one" })
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: until}, &grace
		return p
	}
	v := &view{View: nodes.View{Nodes: []nodes.Node{{}}}, index: map[string]int{"one": 0}, constraints: newConstraints()}
	for _, p := range []*corev1.Pod{told("later", at.Add(time.Minute), 90), told("first", at, 30), told("last", at.Add(time.Hour), 3600)} {
		v.add(p)
	}
	want := nodes.Ending{Pod: "shop/first", Until: at, Grace: 30}
	if got := v.Nodes[0].Ending; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	v.dropPods()
	if got := v.Nodes[0].Ending; got != (nodes.Ending{}) {
		t.Errorf("a list that begins again has %+v", got)
	}
}

// TestNodeOfKubelet: the version of a node's kubelet is shown.
func TestNodeOfKubelet(t *testing.T) {
	n := &corev1.Node{}
	n.Status.NodeInfo.KubeletVersion = "v1.36.3+k3s1"
	if got := nodeOf(n).Kubelet; got != "v1.36.3+k3s1" {
		t.Errorf("got %q", got)
	}
}
