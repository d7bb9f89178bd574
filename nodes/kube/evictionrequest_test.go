package kube_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
)

// lifecycleAPI answers what the node plane asks about EvictionRequests, as Kubernetes 1.37 does. Evictions are what a test puts there.
type lifecycleAPI struct {
	*httptest.Server

	mu        sync.Mutex
	pods      []any
	requests  map[string]map[string]any
	evictions []any
	absent    bool // the API is turned off
	deleted   []string

	discovered, listed int // how often
}

func newLifecycleAPI(t *testing.T, pods ...any) (*lifecycleAPI, *kube.Cluster) {
	t.Helper()
	a := &lifecycleAPI{pods: pods, requests: map[string]map[string]any{}}
	mux := http.NewServeMux()
	const api = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/fdc"
	mux.HandleFunc("GET /apis/lifecycle.k8s.io/v1alpha1", a.discover)
	mux.HandleFunc("GET /api/v1/pods", a.listPods)
	mux.HandleFunc("POST "+api+"/evictionrequests", a.create)
	mux.HandleFunc("GET "+api+"/evictionrequests/{name}", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, a.requests[r.PathValue("name")]) })
	mux.HandleFunc("DELETE "+api+"/evictionrequests/{name}", a.remove)
	mux.HandleFunc("GET "+api+"/evictions", a.listEvictions)
	a.Server = httptest.NewServer(locked(&a.mu, mux))
	t.Cleanup(a.Close)
	c, err := kube.New(&rest.Config{Host: a.URL}, kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

func locked(mu *sync.Mutex, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		h.ServeHTTP(w, r)
	})
}

func answer(w http.ResponseWriter, code int, o any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o) // a client that has gone needs no answer
}

func refuse(w http.ResponseWriter, code int, reason string) {
	answer(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason})
}

func (a *lifecycleAPI) discover(w http.ResponseWriter, _ *http.Request) {
	a.discovered++
	if a.absent {
		http.NotFound(w, nil)
		return
	}
	answer(w, 200, map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "lifecycle.k8s.io/v1alpha1"})
}

func (a *lifecycleAPI) listPods(w http.ResponseWriter, r *http.Request) {
	a.listed++
	if got := r.FormValue("fieldSelector"); got != "spec.nodeName=n1" {
		refuse(w, 400, "BadRequest")
		return
	}
	answer(w, 200, map[string]any{"kind": "PodList", "apiVersion": "v1", "items": a.pods})
}

func (a *lifecycleAPI) create(w http.ResponseWriter, r *http.Request) {
	var o map[string]any
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || r.Header.Get("Content-Type") != "application/json" {
		refuse(w, 400, "BadRequest")
		return
	}
	meta := o["metadata"].(map[string]any)
	name := meta["name"].(string)
	if a.requests[name] != nil {
		refuse(w, 409, "AlreadyExists")
		return
	}
	meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	a.requests[name] = o
	answer(w, 201, o)
}

func (a *lifecycleAPI) remove(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if a.requests[name] == nil {
		refuse(w, 404, "NotFound")
		return
	}
	delete(a.requests, name)
	a.deleted = append(a.deleted, name)
	answer(w, 200, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

func (a *lifecycleAPI) listEvictions(w http.ResponseWriter, r *http.Request) {
	switch {
	case a.absent:
		refuse(w, 404, "NotFound")
	case r.FormValue("labelSelector") != kube.Requester:
		refuse(w, 400, "BadRequest")
	default:
		answer(w, 200, map[string]any{"kind": "EvictionList", "items": a.evictions})
	}
}

// podOf returns a pod of a ReplicaSet that names responders.
func podOf(name string, responders ...string) map[string]any {
	var named []any
	for _, r := range responders {
		named = append(named, map[string]any{"name": r, "priority": 10000})
	}
	return map[string]any{
		"metadata": map[string]any{"name": name, "namespace": "fdc", "uid": "uid-" + name, "ownerReferences": []any{
			map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}}},
		"spec":   map[string]any{"nodeName": "n1", "evictionResponders": named},
		"status": map[string]any{"phase": "Running"},
	}
}

const worker = "muster.dev/worker"

// evictionOf returns the Eviction of a pod: its responders' states, in the form NAME=STATE, and when they last reported.
func evictionOf(pod string, heard time.Time, states ...string) map[string]any {
	var targets, said []any
	for _, s := range states {
		name, state, _ := strings.Cut(s, "=")
		targets = append(targets, map[string]any{"name": name, "priority": 10000, "state": state})
		said = append(said, map[string]any{"name": name, "startTime": heard.Add(-time.Hour).UTC().Format(time.RFC3339), "heartbeatTime": heard.UTC().Format(time.RFC3339)})
	}
	return map[string]any{"spec": map[string]any{"target": map[string]any{"pod": map[string]any{"name": pod, "uid": "uid-" + pod}}},
		"status": map[string]any{"targetResponders": targets, "responders": said}}
}

var leavingNode = nodes.NodeRef{Name: "n1", UID: "n1"}

func responding(t *testing.T, c *kube.Cluster) int {
	t.Helper()
	n, err := c.RequestEvictions(t.Context(), leavingNode)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestRequestEvictions(t *testing.T) {
	t.Run("asks for the pods that name a responder and would be moved, once each", func(t *testing.T) {
		daemon := podOf("daemon", worker)
		daemon["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)["kind"] = "DaemonSet"
		ending := podOf("ending", worker)
		ending["metadata"].(map[string]any)["deletionTimestamp"] = "2026-11-27T20:00:00Z"
		a, c := newLifecycleAPI(t, podOf("a", worker), podOf("plain"), daemon, ending)
		if n := responding(t, c); n != 1 {
			t.Errorf("%d are at work", n)
		}
		if n := responding(t, c); n != 1 {
			t.Errorf("%d are at work when asked again", n)
		}
		if len(a.requests) != 1 {
			t.Fatalf("requests: %v", a.requests)
		}
		got, err := json.Marshal(a.requests["muster-uid-a"]["spec"])
		if want := `{"intent":"Eviction","requester":"muster.dev/nodes","target":{"pod":{"name":"a","uid":"uid-a"}}}`; err != nil || string(got) != want {
			t.Errorf("got %s, %v", got, err)
		}
	})
	t.Run("asks nothing of a server that hasn't the API, as before 1.37, and remembers that", func(t *testing.T) {
		a, c := newLifecycleAPI(t, podOf("a", worker))
		a.absent = true
		for range 3 {
			if n := responding(t, c); n != 0 {
				t.Errorf("%d at work", n)
			}
		}
		if len(a.requests) != 0 || a.listed != 0 || a.discovered != 1 {
			t.Errorf("requests %v, pods listed %d times, asked for the API %d times", a.requests, a.listed, a.discovered)
		}
	})
	t.Run("does not wait for an API that was turned off since it was seen", func(t *testing.T) {
		a, c := newLifecycleAPI(t, podOf("a", worker))
		responding(t, c)
		a.absent = true
		if n := responding(t, c); n != 0 {
			t.Errorf("%d at work", n)
		}
	})
	t.Run("does not wait for a controller that isn't there", func(t *testing.T) {
		a, c := newLifecycleAPI(t, podOf("a", worker))
		responding(t, c)
		a.requests["muster-uid-a"]["metadata"].(map[string]any)["creationTimestamp"] = time.Now().Add(-6 * time.Second).UTC().Format(time.RFC3339)
		if n := responding(t, c); n != 0 {
			t.Errorf("%d at work", n)
		}
	})
	now := time.Now()
	const last = "imperative-eviction.k8s.io/evictor"
	for name, tc := range map[string]struct {
		eviction map[string]any
		want     int
	}{
		"waits for one that is at work":             {evictionOf("a", now, worker+"=Active", last+"=Inactive"), 1},
		"waits for one whose turn is still to come": {evictionOf("a", now, "other.io/x=Completed", worker+"=Inactive", last+"=Inactive"), 1},
		"waits until the responders are listed":     {evictionOf("a", now), 1},
		"does not wait for one that is silent":      {evictionOf("a", now.Add(-2*time.Minute), worker+"=Active", last+"=Inactive"), 0},
		"goes on when it has completed":             {evictionOf("a", now, worker+"=Completed", last+"=Active"), 0},
		"goes on when it was cancelled":             {evictionOf("a", now, worker+"=Canceled", last+"=Inactive"), 0},
		"goes on when it was interrupted":           {evictionOf("a", now, worker+"=Interrupted", last+"=Active"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			a, c := newLifecycleAPI(t, podOf("a", worker))
			a.evictions = []any{tc.eviction}
			if n := responding(t, c); n != tc.want {
				t.Errorf("%d at work, want %d", n, tc.want)
			}
		})
	}
}

func TestWithdrawEvictions(t *testing.T) {
	a, c := newLifecycleAPI(t, podOf("a", worker), podOf("b", worker), podOf("plain"))
	responding(t, c)
	if err := c.WithdrawEvictions(t.Context(), leavingNode); err != nil {
		t.Fatal(err)
	}
	slices.Sort(a.deleted)
	if got := fmt.Sprint(a.deleted); got != "[muster-uid-a muster-uid-b]" {
		t.Errorf("deleted %s", got)
	}
	if err := c.WithdrawEvictions(t.Context(), leavingNode); err != nil {
		t.Errorf("again: %v", err)
	}
}
