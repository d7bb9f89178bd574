package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// canned is an API server that has encoded its answers beforehand, so that a benchmark measures the client.
type canned struct {
	pages map[string][][]byte
	calls atomic.Int64
}

func (c *canned) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.calls.Add(1)
	n, _ := strconv.Atoi(r.FormValue("continue"))
	pages := c.pages[r.URL.Path]
	if n >= len(pages) {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	_, _ = w.Write(pages[n])
}

func encoded(b *testing.B, gv schema.GroupVersion, o runtime.Object) []byte {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	out, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, gv), o)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// ordinary is a pod the size that pods have: environment, probes, mounts, the service account's token, status, and the managed
// fields that the API server sends with everything.
func ordinary(i, node int) *corev1.Pod {
	yes, grace := true, int64(30)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: fmt.Sprint("team-", i%50), Name: fmt.Sprintf("service-%d-6f5c7d8b9-%05d", i%600, i), UID: "0b7c1f9e-54fd-4cb2-b2a4-1cdf1fe4a3d1",
			Labels:          map[string]string{"app": fmt.Sprint("service-", i%600), "pod-template-hash": "6f5c7d8b9", "version": "v1.2.3"},
			Annotations:     map[string]string{"checksum/config": "01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b", "prometheus.io/scrape": "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("service-%d-6f5c7d8b9", i%600), Controller: &yes, UID: "x"}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 2500))}, {Manager: "kubelet", Operation: "Update", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 1200))}},
		},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprint("node-", node), TerminationGracePeriodSeconds: &grace,
			Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, {Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}},
			Volumes:     []corev1.Volume{{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.42.3.7", ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, Image: "registry.example/app:v1.2.3"}}},
	}
	for _, t := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: t, Status: corev1.ConditionTrue})
	}
	c := corev1.Container{Name: "app", Image: "registry.example/app:v1.2.3", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")}}}
	for e := range 12 {
		c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", e), Value: "some value of ordinary length"})
	}
	p.Spec.Containers = []corev1.Container{c}
	if i%20 == 0 {
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: corev1.DoNotSchedule,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("service-", i%600)}}}}
	}
	return p
}

func large(b *testing.B, nodeCount, podCount, page int) *canned {
	core, policy := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "policy", Version: "v1"}
	s := &canned{pages: map[string][][]byte{}}
	ns := &corev1.NodeList{}
	for i := range nodeCount {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i), UID: "u", Labels: map[string]string{corev1.LabelTopologyZone: "a", corev1.LabelHostname: fmt.Sprint("node-", i)}}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16Gi"), corev1.ResourcePods: resource.MustParse("110")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		ns.Items = append(ns.Items, n)
	}
	s.pages["/api/v1/nodes"] = [][]byte{encoded(b, core, ns)}
	bs := &policyv1.PodDisruptionBudgetList{}
	for i := range 200 {
		bs.Items = append(bs.Items, policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("team-", i%50), Name: fmt.Sprint("service-", i)},
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("service-", i)}}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1}})
	}
	s.pages["/apis/policy/v1/poddisruptionbudgets"] = [][]byte{encoded(b, policy, bs)}
	for from := 0; from < podCount; from += page {
		l := &corev1.PodList{}
		for i := from; i < min(from+page, podCount); i++ {
			l.Items = append(l.Items, *ordinary(i, i%nodeCount))
		}
		if from+page < podCount {
			l.Continue = strconv.Itoa(from/page + 1)
		}
		s.pages["/api/v1/pods"] = append(s.pages["/api/v1/pods"], encoded(b, core, l))
	}
	return s
}

// BenchmarkView reads 1,000 nodes and 30,000 ordinary pods over HTTP.
func BenchmarkView(b *testing.B) {
	api := large(b, 1000, 30000, 1000)
	server := httptest.NewServer(api)
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	size := 0
	for _, pages := range api.pages {
		for _, p := range pages {
			size += len(p)
		}
	}
	api.calls.Store(0)
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		v, err := c.View(b.Context())
		if err != nil || len(v.Nodes) != 1000 || len(v.Nodes[0].Pods) != 30 {
			b.Fatalf("%d nodes, %v", len(v.Nodes), err)
		}
	}
	b.ReportMetric(float64(api.calls.Load())/float64(b.N), "calls/op")
	b.ReportMetric(float64(size)/1e6, "MB-read/op")
}
