package kube_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/nodes/sim/kubeapi"
)

// watched is a server that tells a watch of these events and ends it.
type watched []metav1.WatchEvent

func (list watched) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("watch") == "" || q.Get("resourceVersion") != "" || !strings.HasPrefix(q.Get("fieldSelector"), "spec.nodeName=,") || q.Get("timeoutSeconds") == "" {
		http.Error(w, "not the watch that was meant: "+r.URL.String(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	for _, e := range list {
		_ = json.NewEncoder(w).Encode(e)
	}
}

func event(t *testing.T, what string, o any) metav1.WatchEvent {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return metav1.WatchEvent{Type: what, Object: runtime.RawExtension{Raw: raw}}
}

// waiting is a pod that the scheduler could not place at a time.
func waiting(name string, since time.Time, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(since)}}},
	}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestWatchPending(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	new1 := func(p *corev1.Pod) { p.Status.Conditions = nil }
	nominated := func(p *corev1.Pod) { p.Status.NominatedNodeName = "n" }
	gated := func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated }
	daemon := func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }
	for name, c := range map[string]struct {
		events watched
		want   []time.Time
	}{
		"those that wait already":         {watched{event(t, "ADDED", waiting("a", at))}, []time.Time{at}},
		"those that become unschedulable": {watched{event(t, "ADDED", waiting("a", at, new1)), event(t, "MODIFIED", waiting("a", at))}, []time.Time{at}},
		"each once, however often it is tried": {watched{event(t, "ADDED", waiting("a", at)), event(t, "MODIFIED", waiting("a", at)), event(t, "MODIFIED", waiting("a", at)),
			event(t, "ADDED", waiting("b", at.Add(time.Second)))}, []time.Time{at, at.Add(time.Second)}},
		"one that waits again":              {watched{event(t, "ADDED", waiting("a", at)), event(t, "MODIFIED", waiting("a", at, nominated)), event(t, "MODIFIED", waiting("a", at))}, []time.Time{at, at}},
		"one of the same name":              {watched{event(t, "ADDED", waiting("a", at)), event(t, "DELETED", waiting("a", at)), event(t, "ADDED", waiting("a", at))}, []time.Time{at, at}},
		"none for which room is being made": {watched{event(t, "ADDED", waiting("a", at, nominated))}, nil},
		"none that is held back by a gate":  {watched{event(t, "ADDED", waiting("a", at, gated))}, nil},
		"none of a DaemonSet":               {watched{event(t, "ADDED", waiting("a", at, daemon))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewServer(c.events)
			defer web.Close()
			cluster, err := kube.New(&rest.Config{Host: web.URL}, kube.Options{})
			if err != nil {
				t.Fatal(err)
			}
			var got []time.Time
			if err := cluster.WatchPending(t.Context(), func(since time.Time) { got = append(got, since.UTC()) }); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found since %v, want %v", got, c.want)
			}
		})
	}
}

func TestWatchPendingSaysWhatIsWrong(t *testing.T) {
	gone := &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version"}
	web := httptest.NewServer(watched{event(t, "ERROR", gone)})
	defer web.Close()
	cluster, err := kube.New(&rest.Config{Host: web.URL}, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.WatchPending(t.Context(), func(time.Time) {}); err == nil || !strings.Contains(err.Error(), "watching pods: too old resource version") {
		t.Errorf("got %v", err)
	}

	_, api, c := start(t, kube.Rules{}, "a")
	api.Forbid(kubeapi.Use{Verb: "watch", Resource: "pods"})
	if err := c.WatchPending(t.Context(), func(time.Time) {}); err == nil || !strings.Contains(err.Error(), "docs/nodes/deploy.md") {
		t.Errorf("got %v", err)
	}
	checks := c.CheckWatch(t.Context())
	if check := find(t, checks, "watch pods"); check.OK || !strings.Contains(check.Fix, "ClusterRole") {
		t.Errorf("%+v", check)
	}
}

// TestWatchPendingOverTheSimulatedAPI: what it is told of, and that a view says the same of it.
func TestWatchPendingOverTheSimulatedAPI(t *testing.T) {
	w := sim.New(sim.Options{Policy: nodes.DefaultPolicy(), Workers: []string{"a"}})
	c := over(t, kubeapi.New(w.Client("kube", nil)), kube.Options{Clock: w.Clock()})
	for _, check := range c.CheckWatch(t.Context()) {
		if !check.OK {
			t.Errorf("%+v", check)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	found := make(chan time.Time, 100)
	done := make(chan error, 1)
	go func() { done <- c.WatchPending(ctx, func(since time.Time) { found <- since }) }()
	w.AddPods(1, sim.PodSpec{Name: "shop/too-big", MilliCPU: 1 << 30})
	since := <-found
	v, err := c.View(t.Context())
	if err != nil || len(v.Pending) != 1 || !v.Pending[0].Since.Equal(since) || since.IsZero() {
		t.Errorf("found since %s, seen %+v, %v", since, v.Pending, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("its end: %v", err)
	}
	if n := len(found); n != 0 {
		t.Errorf("found %d times more", n)
	}
}
