package kube

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pod returns a running pod of a ReplicaSet, changed as asked.
func pod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	of("apps/v1", "ReplicaSet")(p)
	for _, f := range change {
		f(p)
	}
	return p
}

func of(apiVersion, kind string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		yes := true
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "owner", Controller: &yes}}
	}
}

func bare(p *corev1.Pod) { p.OwnerReferences = nil }

func in(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }

func class(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.PriorityClassName = name }
}

func phase(ph corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = ph } }

func annotated(key, value string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{key: value} }
}

func deleted(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }

func gracePeriod(seconds int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.DeletionGracePeriodSeconds = &seconds }
}

func volume(s corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: s}} }
}

func unready(p *corev1.Pod) { p.Status.Conditions = nil }

func TestWhatAPodIsToADrain(t *testing.T) {
	lax := Rules{BarePods: Evict, LocalStorage: Evict}
	strict := Rules{BarePods: Abort, LocalStorage: Abort}
	emptyDir := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	hostPath := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}
	claim := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}
	high := int32(2_000_000_000)
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		rules Rules
		want  role
		why   string // part of it
	}{
		"a Deployment's pod moves":                                 {pod(), strict, moving, ""},
		"a DaemonSet's pod belongs to the node":                    {pod(of("apps/v1", "DaemonSet")), strict, apart, ""},
		"also if it is critical, as K3s' svclb is":                 {pod(of("apps/v1", "DaemonSet"), in("kube-system"), class("system-node-critical")), strict, apart, ""},
		"also if it is being deleted":                              {pod(of("apps/v1", "DaemonSet"), deleted), strict, apart, ""},
		"a DaemonSet of another API group is a controller":         {pod(of("apps.kruise.io/v1alpha1", "DaemonSet")), strict, moving, ""},
		"a static pod belongs to the node":                         {pod(of("v1", "Node"), annotated(corev1.MirrorPodAnnotationKey, "x"), in("kube-system")), strict, apart, ""},
		"a helm-install job that succeeded goes with the node":     {pod(of("batch/v1", "Job"), in("kube-system"), phase(corev1.PodSucceeded)), strict, finished, ""},
		"one that failed too":                                      {pod(of("batch/v1", "Job"), in("kube-system"), phase(corev1.PodFailed)), strict, finished, ""},
		"one that runs blocks":                                     {pod(of("batch/v1", "Job"), in("kube-system")), strict, blocking, "namespace kube-system"},
		"a pod that is ending is waited for":                       {pod(deleted), strict, ending, ""},
		"also when its containers have ended: volumes are mounted": {pod(deleted, phase(corev1.PodFailed), gracePeriod(30)), strict, ending, ""},
		"until the kubelet has deleted it":                         {pod(deleted, phase(corev1.PodFailed), gracePeriod(0)), strict, finished, ""},
		"one that was deleted by force runs":                       {pod(deleted, gracePeriod(0)), strict, ending, ""},
		"also if it is critical: it goes by itself":                {pod(deleted, class("system-cluster-critical")), strict, ending, ""},
		"system-node-critical blocks":                              {pod(class("system-node-critical")), strict, blocking, "shop/web: critical priority system-node-critical"},
		"system-cluster-critical blocks":                           {pod(class("system-cluster-critical")), strict, blocking, "critical priority"},
		"so does the priority without the name":                    {pod(func(p *corev1.Pod) { p.Spec.Priority = &high }), strict, blocking, "critical priority 2000000000"},
		"a class of one's own does not":                            {pod(class("important")), strict, moving, ""},
		"coredns blocks":                                           {pod(in("kube-system")), lax, blocking, "namespace kube-system"},
		"so does a pod that has yet to start there":                {pod(in("kube-system"), phase(corev1.PodPending)), lax, blocking, "namespace kube-system"},
		"do-not-evict blocks":                                      {pod(annotated(DoNotEvictAnnotation, "true")), lax, blocking, DoNotEvictAnnotation},
		"whatever it says but false":                               {pod(annotated(DoNotEvictAnnotation, "")), lax, blocking, DoNotEvictAnnotation},
		"do-not-evict=false does not":                              {pod(annotated(DoNotEvictAnnotation, "false")), lax, moving, ""},
		"Cluster Autoscaler's word for it blocks":                  {pod(annotated(evictLikeClusterAutoscaler, "false")), lax, blocking, "safe-to-evict=false"},
		"and its opposite does not":                                {pod(annotated(evictLikeClusterAutoscaler, "true")), lax, moving, ""},
		"Karpenter's blocks":                                       {pod(annotated(likeKarpenter, "true")), lax, blocking, likeKarpenter},
		"a bare pod blocks":                                        {pod(bare), strict, blocking, "DRAIN_BARE_PODS"},
		"unless settings let it go":                                {pod(bare), lax, moving, ""},
		"an emptyDir blocks":                                       {pod(volume(emptyDir)), strict, blocking, "volume v"},
		"so does a hostPath":                                       {pod(volume(hostPath)), strict, blocking, "volume v"},
		"unless settings let them go":                              {pod(volume(hostPath)), lax, moving, ""},
		"a claim does not: where it can be reached is for the fit": {pod(volume(claim)), strict, moving, ""},
		"settings that say nothing are strict":                     {pod(bare), Rules{}, blocking, ""},
	} {
		got, why := c.rules.judge(c.pod)
		if got != c.want || !strings.Contains(why, c.why) || (why == "") == (got == blocking) {
			t.Errorf("%s: %d %q", name, got, why)
		}
	}
}

// disruption returns a budget over app=web.
func disruption(name string, allowed int32, change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 2, DesiredHealthy: 3},
	}
	for _, f := range change {
		f(b)
	}
	return b
}

func TestWhatBudgetsHaveAgainstAnEviction(t *testing.T) {
	always, ifHealthy := policyv1.AlwaysAllow, policyv1.IfHealthyBudget
	selector := func(s *metav1.LabelSelector) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = s }
	}
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		budgets []*policyv1.PodDisruptionBudget
		why     string // part of it; "" for nothing
	}{
		"no budget":                          {pod(), nil, ""},
		"one that allows none":               {pod(), []*policyv1.PodDisruptionBudget{disruption("a", 0)}, "pod shop/web: disruption budget a allows none"},
		"one that allows one":                {pod(), []*policyv1.PodDisruptionBudget{disruption("a", 1)}, ""},
		"one of another namespace":           {pod(in("other")), []*policyv1.PodDisruptionBudget{disruption("a", 0)}, ""},
		"one that selects others":            {pod(), []*policyv1.PodDisruptionBudget{disruption("a", 0, selector(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}))}, ""},
		"one without a selector is of none":  {pod(), []*policyv1.PodDisruptionBudget{disruption("a", 0, selector(nil))}, ""},
		"one with an empty one is of all":    {pod(), []*policyv1.PodDisruptionBudget{disruption("a", 0, selector(&metav1.LabelSelector{}))}, "allows none"},
		"two, whatever they allow":           {pod(), []*policyv1.PodDisruptionBudget{disruption("a", 1), disruption("b", 1)}, "disruption budgets a and b both cover it"},
		"a pod that has not started":         {pod(phase(corev1.PodPending)), []*policyv1.PodDisruptionBudget{disruption("a", 0), disruption("b", 0)}, ""},
		"an unready pod with too few others": {pod(unready), []*policyv1.PodDisruptionBudget{disruption("a", 0)}, "allows none"},
		"an unready pod that may always go":  {pod(unready), []*policyv1.PodDisruptionBudget{disruption("a", 0, func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &always })}, ""},
		"a ready one may not":                {pod(), []*policyv1.PodDisruptionBudget{disruption("a", 0, func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &always })}, "allows none"},
		"an unready pod beside enough": {pod(unready), []*policyv1.PodDisruptionBudget{disruption("a", 0, func(b *policyv1.PodDisruptionBudget) {
			b.Spec.UnhealthyPodEvictionPolicy, b.Status.CurrentHealthy = &ifHealthy, 3
		})}, ""},
	} {
		bs := budgets{}
		for _, b := range c.budgets {
			if err := bs.add(b); err != nil {
				t.Fatal(err)
			}
		}
		if got := bs.against(c.pod); (got == "") != (c.why == "") || !strings.Contains(got, c.why) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestABudgetWithASelectorThatCantBeReadIsAnError(t *testing.T) {
	b := disruption("a", 0)
	b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "x", Operator: "Near"}}
	if err := (budgets{}).add(b); err == nil || !strings.Contains(err.Error(), "shop/a") {
		t.Errorf("got %v", err)
	}
}
