package kube

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/fit"
)

// drawn returns a pod with some of everything that placement depends on.
func drawn(r *rand.Rand, i int) *corev1.Pod {
	apps := []string{"web", "db", "cache"}
	app := apps[r.IntN(len(apps))]
	p := pod(in([]string{"shop", "lab"}[r.IntN(2)]))
	p.Name = fmt.Sprint("pod-", i)
	p.Labels = map[string]string{"app": app, "tier": []string{"front", "back"}[r.IntN(2)], "unique": p.Name}
	term := corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": apps[r.IntN(len(apps))]}}}
	switch r.IntN(8) {
	case 0:
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	case 1:
		term.Namespaces = []string{"lab"}
		p.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
	case 2:
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}}}
	case 3:
		p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
	case 4:
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c" + fmt.Sprint(r.IntN(3))}}}}
	case 5:
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	case 6:
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
	}
	return p
}

func TestReadingPodsByPagesSaysTheSameAsReadingThemAllAtOnce(t *testing.T) {
	claims := func(_, name string) fit.Claim {
		switch name {
		case "c0":
			return fit.Claim{}
		case "c1":
			return fit.Claim{Affinity: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}}
		}
		return fit.Claim{Problem: name + " is not there"}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		pods := make([]*corev1.Pod, r.IntN(12))
		c := newConstraints()
		v := nodes.View{Nodes: []nodes.Node{{}}}
		for i := range pods {
			pods[i] = drawn(r, i)
			c.add(pods[i], 0, i)
			v.Nodes[0].Pods = append(v.Nodes[0].Pods, nodes.Pod{})
		}
		if err := c.write(&v, claims); err != nil {
			t.Fatal(err)
		}
		e := fit.NewEncoder(slices.Values(pods), claims)
		for i, p := range pods {
			if got, want := v.Nodes[0].Pods[i].Scheduling, e.Encode(p); got != want {
				t.Fatalf("round %d, pod %d of %d:\ngot  %s\nwant %s", round, i, len(pods), got, want)
			}
		}
	}
}

func TestWhatIsBehindAVolumeClaim(t *testing.T) {
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	zonal := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelTopologyZone: "a__b"}}}
	v := &volumes{
		claims: map[string]claim{
			"s/bound": {volume: "zonal"}, "s/everywhere": {volume: "nfs"}, "s/lost": {volume: "gone"}, "s/later": {class: "local-path"},
			"s/now": {class: "immediate"}, "s/none": {}, "s/manual": {class: "manual"}, "s/topology": {class: "topology"},
		},
		volumes: map[string]*corev1.NodeSelector{"zonal": reachableFrom(zonal), "nfs": reachableFrom(&corev1.PersistentVolume{})},
		classes: map[string]storageClass{
			"local-path": classOf(&storagev1.StorageClass{Provisioner: "rancher.io/local-path", VolumeBindingMode: &waits}),
			"immediate":  classOf(&storagev1.StorageClass{Provisioner: "ebs.csi.aws.com"}),
			"manual":     classOf(&storagev1.StorageClass{Provisioner: "kubernetes.io/no-provisioner", VolumeBindingMode: &waits}),
			"topology": classOf(&storagev1.StorageClass{Provisioner: "ebs.csi.aws.com", VolumeBindingMode: &waits, AllowedTopologies: []corev1.TopologySelectorTerm{
				{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"a"}}}}}}),
		},
	}
	for name, want := range map[string]struct{ problem, value string }{
		"bound": {"", "b"}, "everywhere": {}, "later": {}, "topology": {"", "a"},
		"lost": {"volume gone", ""}, "now": {"not bound yet", ""}, "none": {"does not exist", ""}, "manual": {"makes no volumes", ""}, "unknown": {"does not exist", ""},
	} {
		got := v.look("s", name)
		if (got.Problem == "") != (want.problem == "") || !strings.Contains(got.Problem, want.problem) {
			t.Errorf("%s: %q", name, got.Problem)
		}
		if (got.Affinity == nil) != (want.value == "") || got.Affinity != nil && !slices.Contains(got.Affinity.NodeSelectorTerms[0].MatchExpressions[0].Values, want.value) {
			t.Errorf("%s: %+v", name, got.Affinity)
		}
	}
}

func TestATextThatFitCantReadIsAnError(t *testing.T) {
	if _, err := together("{", "{}"); err == nil {
		t.Error("the pod's own")
	}
	if _, err := together("{}", "{"); err == nil {
		t.Error("what was seen among others")
	}
}
