package kube

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDepartureKeepsOthersMarks takes a node through a cordon and back, by the patches that are sent.
func TestDepartureKeepsOthersMarks(t *testing.T) {
	dedicated := corev1.Taint{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	for name, label := range map[string]string{"no label": "", "somebody else's label": "true"} {
		t.Run(name, func(t *testing.T) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{dedicated}}}
			if label != "" {
				n.Labels[corev1.LabelNodeExcludeBalancers] = label
			}
			was := n.DeepCopy()

			c := cordonOf(n)
			c.on = true
			c.leaves.begin()
			applyCordon(t, n, c)
			if !slices.Equal(n.Spec.Taints, []corev1.Taint{dedicated, toBeDeleted()}) {
				t.Errorf("taints %v", n.Spec.Taints)
			}
			want := label
			if want == "" {
				want = notBalanced
			}
			if got := n.Labels[corev1.LabelNodeExcludeBalancers]; got != want {
				t.Errorf("the label says %q, want %q", got, want)
			}
			labels, taints := lasting(n)
			if labels[corev1.LabelNodeExcludeBalancers] != label || !slices.Equal(taints, was.Spec.Taints) {
				t.Errorf("shown of the node's kind: %v %v", labels, taints)
			}
			if n.Labels[corev1.LabelNodeExcludeBalancers] != want {
				t.Error("the node itself was changed")
			}

			c = cordonOf(n)
			c.on = false
			c.leaves.end()
			applyCordon(t, n, c)
			got := n.Labels[corev1.LabelNodeExcludeBalancers]
			if got != label || n.Labels["a"] != "b" || len(n.Labels) != len(was.Labels) || !slices.Equal(n.Spec.Taints, was.Spec.Taints) {
				t.Errorf("afterwards %v %v", n.Labels, n.Spec.Taints)
			}
		})
	}
}

// applyCordon does to a node what the API server does with the patch.
func applyCordon(t *testing.T, n *corev1.Node, c *cordon) {
	t.Helper()
	body, err := c.patch(n)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		Metadata struct{ Labels map[string]*string }
		Spec     struct{ Taints []corev1.Taint }
	}
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	for key, v := range p.Metadata.Labels {
		if v == nil {
			delete(n.Labels, key)
		} else {
			n.Labels[key] = *v
		}
	}
	n.Spec.Taints = p.Spec.Taints
}

func TestAPodThatToleratesADrainCameBack(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tolerates := func(key string, op corev1.TolerationOperator, effect corev1.TaintEffect) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: op, Effect: effect})
		}
	}
	everything := tolerates("", corev1.TolerationOpExists, "")
	late := func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(since.Add(time.Minute)) }
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		since time.Time
		want  bool
	}{
		"everything":                {pod(everything, late), since, true},
		"everything of the effect":  {pod(tolerates("", corev1.TolerationOpExists, corev1.TaintEffectNoSchedule), late), since, true},
		"both taints by name":       {pod(tolerates(ToBeDeletedTaint, corev1.TolerationOpExists, ""), tolerates(corev1.TaintNodeUnschedulable, corev1.TolerationOpExists, ""), late), since, true},
		"one of the taints":         {pod(tolerates(corev1.TaintNodeUnschedulable, corev1.TolerationOpExists, ""), late), since, false},
		"another effect":            {pod(tolerates("", corev1.TolerationOpExists, corev1.TaintEffectNoExecute), late), since, false},
		"nothing":                   {pod(late), since, false},
		"made before the drain":     {pod(everything), since, false},
		"made as the drain began":   {pod(everything, func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(since.Add(returnsAfter)) }), since, false},
		"of a drain without a time": {pod(everything, late), time.Time{}, false},
	} {
		if got := cameBack(c.pod, c.since); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
