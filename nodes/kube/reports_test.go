package kube_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/kube"
)

// reports is a server that has events and pools, and nothing else.
type reports struct {
	mu      sync.Mutex
	events  map[string]*corev1.Event
	pools   map[string]nodes.PoolStatus
	used    map[string]bool // as `kubectl auth can-i` takes it
	changes int
	refuse  int // status of every answer; 0: none
}

func (s *reports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	name := path[len(path)-1]
	answer := func(code int, reason metav1.StatusReason) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Reason: reason, Code: int32(code)})
	}
	if r.Method != http.MethodGet {
		s.changes++
	}
	if s.refuse != 0 {
		answer(s.refuse, metav1.StatusReasonForbidden)
		return
	}
	switch {
	case r.Method == http.MethodPost: // of an event
		s.used["create events"] = true
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			panic(err)
		}
		e := o.(*corev1.Event)
		if s.events[e.Name] != nil {
			answer(http.StatusConflict, metav1.StatusReasonAlreadyExists)
			return
		}
		s.events[e.Name] = e
	case strings.Contains(r.URL.Path, "/events/"):
		s.used["patch events"] = true
		e := s.events[name]
		if e == nil {
			answer(http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		if err := json.Unmarshal(body, e); err != nil {
			panic(err)
		}
	case r.Method == http.MethodGet:
		s.used["list pools.muster.dev"] = true
		var items []any
		for _, n := range slices.Sorted(maps.Keys(s.pools)) {
			items = append(items, map[string]any{"metadata": map[string]any{"name": n}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"items": items})
		return
	case r.Method == http.MethodDelete:
		s.used["delete pools.muster.dev"] = true
		delete(s.pools, name)
	default:
		s.used["create pools.muster.dev"], s.used["patch pools.muster.dev"] = true, true
		if got := r.Header.Get("Content-Type"); got != "application/apply-patch+yaml" {
			panic(got)
		}
		var o struct{ Status nodes.PoolStatus }
		if err := json.Unmarshal(body, &o); err != nil {
			panic(err)
		}
		s.pools[name] = o.Status
	}
	_, _ = fmt.Fprintln(w, "{}")
}

// made returns how many changes were asked for since the last call.
func (s *reports) made() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.changes
	s.changes = 0
	return n
}

// reportClock is a clock that a test sets.
type reportClock struct {
	nodes.SystemClock
	now time.Time
}

func (c *reportClock) Now() time.Time { return c.now }

func startReports(t *testing.T) (*reports, *reportClock, func() *kube.Cluster) {
	t.Helper()
	s := &reports{events: map[string]*corev1.Event{}, pools: map[string]nodes.PoolStatus{}, used: map[string]bool{}}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	clock := &reportClock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	return s, clock, func() *kube.Cluster {
		c, err := kube.New(&rest.Config{Host: web.URL}, kube.Options{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

func notices(text string, pods ...string) []nodes.PodNotice {
	n := nodes.PodNotice{Cause: nodes.ReasonMaxWorkers, Text: text, Forever: true}
	for _, p := range pods {
		n.Pods = append(n.Pods, nodes.PodRef{Namespace: "default", Name: p, UID: "uid-of-" + p})
	}
	return []nodes.PodNotice{n}
}

func tell(t *testing.T, c *kube.Cluster, n []nodes.PodNotice) {
	t.Helper()
	if err := c.TellPods(t.Context(), n); err != nil {
		t.Fatal(err)
	}
}

// TestReports shows what was decided to a server that keeps it.
func TestReports(t *testing.T) {
	s, clock, start := startReports(t)
	c := start()
	check := func(what string, changes int) {
		t.Helper()
		if got := s.made(); got != changes {
			t.Errorf("%s: %d requests, want %d", what, got, changes)
		}
	}

	tell(t, c, notices("why", "a", "b"))
	check("two pods are told", 2)
	for _, e := range s.events {
		o := e.InvolvedObject
		if o.Kind != "Pod" || o.Namespace != "default" || string(o.UID) != "uid-of-"+o.Name || e.Message != "why" ||
			e.Reason != kube.ReasonNoLaunch || e.Type != corev1.EventTypeWarning || e.Source.Component != kube.EventSource {
			t.Errorf("%+v", e)
		}
	}
	tell(t, c, notices("why", "a", "b"))
	check("the same again", 0)
	clock.now = clock.now.Add(2 * time.Minute)
	tell(t, c, notices("why", "a", "b"))
	check("the same two minutes later", 0)
	tell(t, c, notices("another why", "a"))
	check("another text", 1)
	tell(t, c, notices("a third why", "a"))
	check("another text at once", 0)
	clock.now = clock.now.Add(21 * time.Minute)
	tell(t, c, notices("another why", "a"))
	check("the same after so long that Kubernetes may delete it", 1)

	tell(t, start(), notices("of another process", "a"))
	check("another process finds the event", 2)
	if len(s.events) != 2 {
		t.Errorf("%d events", len(s.events))
	}
	clear(s.events)
	clock.now = clock.now.Add(21 * time.Minute)
	tell(t, c, notices("another why", "a"))
	check("Kubernetes has deleted the event", 2)
	if len(s.events) != 1 {
		t.Errorf("%d events", len(s.events))
	}

	many := make([]string, 250)
	for i := range many {
		many[i] = fmt.Sprint("pod-", i)
	}
	for _, want := range []int{100, 100, 50, 0} {
		tell(t, c, notices("why", many...))
		check("of 250 pods", want)
	}

	pools := []nodes.PoolStatus{{Name: "x", Nodes: 2}, {Name: "y"}}
	s.pools["former"] = nodes.PoolStatus{}
	for _, want := range []int{3, 0} { // two are written and one is deleted
		if err := c.ShowPools(t.Context(), pools); err != nil {
			t.Fatal(err)
		}
		check("pools", want)
	}
	if got := slices.Sorted(maps.Keys(s.pools)); !slices.Equal(got, []string{"x", "y"}) || s.pools["x"].Nodes != 2 {
		t.Errorf("%+v", s.pools)
	}
	pools[1].Ready = 1
	if err := c.ShowPools(t.Context(), pools); err != nil {
		t.Fatal(err)
	}
	check("one pool has changed", 1)

	var listed []string
	for _, p := range kube.ReportPermissions() {
		listed = append(listed, p.String())
	}
	slices.Sort(listed)
	if used := slices.Sorted(maps.Keys(s.used)); !slices.Equal(used, listed) {
		t.Errorf("used   %v\nlisted %v", used, listed)
	}
}

// TestReports_nodes: a notice with a cause is one event, also if several processes tell it, again and again; one without is kept up to date.
func TestReports_nodes(t *testing.T) {
	s, clock, start := startReports(t)
	c := start()
	tellNodes := func(c *kube.Cluster, kind nodes.NodeNoticeKind, cause, text string, requests int) {
		t.Helper()
		n := nodes.NodeNotice{Node: nodes.NodeRef{Name: "i-1", UID: "uid"}, Kind: kind, Cause: cause, Text: text}
		if err := c.TellNodes(t.Context(), []nodes.NodeNotice{n}); err != nil {
			t.Fatal(err)
		}
		if got := s.made(); got != requests {
			t.Errorf("%s %s %q: %d requests, want %d", kind, cause, text, got, requests)
		}
	}
	var all []string
	tellNodes(c, nodes.NodeDrains, "act-1", "because", 1)
	for _, e := range s.events {
		o := e.InvolvedObject
		if o.Kind != "Node" || o.APIVersion != "v1" || o.Namespace != "" || o.Name != "i-1" || o.UID != "uid" || e.Namespace != "default" ||
			e.Reason != "ScaleDown" || e.Type != corev1.EventTypeNormal || e.Source.Component != kube.EventSource {
			t.Errorf("%+v", e)
		}
	}
	clock.now = clock.now.Add(30 * time.Minute)
	tellNodes(c, nodes.NodeDrains, "act-1", "the next tick", 0)
	tellNodes(start(), nodes.NodeDrains, "act-1", "another process", 1)
	tellNodes(c, nodes.NodeDrains, "act-2", "again", 1)
	tellNodes(c, nodes.NodeKept, "act-2", "it failed", 1)
	tellNodes(c, nodes.NodeBlocked, "", "pod a", 1)
	tellNodes(c, nodes.NodeBlocked, "", "pod a", 0)
	clock.now = clock.now.Add(2 * time.Minute)
	tellNodes(c, nodes.NodeBlocked, "", "pod b", 1)
	clock.now = clock.now.Add(21 * time.Minute)
	tellNodes(c, nodes.NodeBlocked, "", "pod b", 1)

	for _, e := range s.events {
		all = append(all, e.Type+" "+e.Reason+" "+e.Message)
	}
	slices.Sort(all)
	if want := []string{"Normal DisruptionBlocked pod b", "Normal ScaleDown again", "Normal ScaleDown because", "Warning ScaleDownFailed it failed"}; !slices.Equal(all, want) {
		t.Errorf("%q", all)
	}
	for _, kind := range []nodes.NodeNoticeKind{nodes.NodeInterrupted, nodes.NodeReplaced, nodes.NodeSpared} {
		clear(s.events)
		tellNodes(c, kind, "act-3", "text", 1)
		for _, e := range s.events {
			if e.Reason == "" || e.Type == "" {
				t.Errorf("%s has no reason: %+v", kind, e)
			}
		}
	}
}

// TestReports_refused: a server that does not permit it is asked again after ten minutes, and one that has no pools is no error.
func TestReports_refused(t *testing.T) {
	s, clock, start := startReports(t)
	c := start()
	s.refuse = http.StatusForbidden
	err := c.TellPods(t.Context(), notices("why", "a", "b"))
	if err == nil || !strings.Contains(err.Error(), "docs/nodes/deploy.md") {
		t.Errorf("%v", err)
	}
	tell(t, c, notices("why", "a", "b"))
	if got := s.made(); got != 1 {
		t.Errorf("%d requests", got)
	}
	s.refuse = 0
	clock.now = clock.now.Add(11 * time.Minute)
	tell(t, c, notices("why", "a", "b"))
	if len(s.events) != 2 {
		t.Errorf("%d events once it is permitted", len(s.events))
	}

	s.refuse = http.StatusNotFound
	for range 2 {
		if err := c.ShowPools(t.Context(), []nodes.PoolStatus{{Name: "x"}}); err != nil {
			t.Errorf("without the resource: %v", err)
		}
	}
}
