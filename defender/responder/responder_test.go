package responder

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
)

// evictionAPI serves the Evictions of one namespace: a list, a watch of changes, and what is reported.
type evictionAPI struct {
	*httptest.Server

	mu      sync.Mutex
	items   []map[string]any
	changes chan map[string]any
	reports []report
	fail    bool // the next list
}

func newEvictionAPI(t *testing.T, items ...map[string]any) *evictionAPI {
	a := &evictionAPI{items: items, changes: make(chan map[string]any)}
	mux := http.NewServeMux()
	const path = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/fdc/evictions"
	mux.HandleFunc("GET "+path, a.get)
	mux.HandleFunc("PATCH "+path+"/{name}/status", a.patch)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.CloseClientConnections) // watches last
	t.Cleanup(a.Close)
	return a
}

func (a *evictionAPI) get(w http.ResponseWriter, r *http.Request) {
	if r.FormValue("labelSelector") != Name || r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	a.mu.Lock()
	fail, items := a.fail, a.items
	a.fail = false
	a.mu.Unlock()
	if fail {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	if r.FormValue("watch") == "" {
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "items": items})
		return
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case c := <-a.changes:
			_ = json.NewEncoder(w).Encode(c)
			w.(http.Flusher).Flush()
		}
	}
}

func (a *evictionAPI) patch(w http.ResponseWriter, r *http.Request) {
	var p struct {
		Status struct {
			Responders []report `json:"responders"`
		} `json:"status"`
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &p) != nil || r.Header.Get("Content-Type") != "application/strategic-merge-patch+json" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reports = append(a.reports, p.Status.Responders...)
}

func (a *evictionAPI) way() API {
	return API{URL: a.URL, Namespace: "fdc", Client: a.Client(), Token: func() (string, error) { return "secret", nil }}
}

// last returns the newest report, the zero one if there is none.
func (a *evictionAPI) last() (r report) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := len(a.reports); n > 0 {
		r = a.reports[n-1]
	}
	return r
}

// crew is a worker whose slots a test takes.
type crew struct {
	mu     sync.Mutex
	slots  []int
	until  time.Time
	drains int
}

func (c *crew) Drain(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = until
	c.drains++
}

func (c *crew) Status() partition.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return partition.Status{Draining: !c.until.IsZero(), Slots: c.slots}
}

func (c *crew) handOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots = nil
}

func (c *crew) draining() bool { return c.Status().Draining }

func evictionOf(uid, state string, conditions ...string) map[string]any {
	var all []any
	for _, c := range conditions {
		all = append(all, map[string]any{"type": c, "status": "True"})
	}
	return map[string]any{
		"metadata": map[string]any{"name": "e", "uid": "e-" + uid},
		"spec":     map[string]any{"target": map[string]any{"pod": map[string]any{"name": "defender-1", "uid": uid}}},
		"status":   map[string]any{"conditions": all, "targetResponders": []any{map[string]any{"name": Name, "state": state}}},
	}
}

// respond runs a responder for the pod of UID u1 until the test ends.
func respond(t *testing.T, a *evictionAPI, c *crew) {
	t.Helper()
	r := New(Config{API: a.way(), Pod: "defender-1", PodUID: "u1", Worker: c, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

func TestResponder(t *testing.T) {
	t.Run("reports its completion once the worker has no slot left", func(t *testing.T) {
		a, c := newEvictionAPI(t), &crew{slots: []int{1, 2}}
		r := New(Config{API: a.way(), Pod: "defender-1", PodUID: "u1", Worker: c, Logger: slog.New(slog.DiscardHandler)})
		var e eviction
		if body, err := json.Marshal(evictionOf("u1", active)); err != nil || json.Unmarshal(body, &e) != nil {
			t.Fatal("that is no eviction")
		}
		now := time.Now()
		step := func(after time.Duration) report {
			t.Helper()
			now = now.Add(after)
			if err := r.step(t.Context(), &e, now); err != nil {
				t.Fatal(err)
			}
			return a.last()
		}
		step(0)
		if got := step(time.Second); got.CompletionTime != "" || got.HeartbeatTime == "" || !c.draining() {
			t.Errorf("with slots left it reports %+v", got)
		}
		if got := step(heartbeat); got.HeartbeatTime != stamp(now) {
			t.Errorf("no heartbeat: %+v", got)
		}
		c.handOff()
		if got := step(time.Second); got.CompletionTime != stamp(now) {
			t.Errorf("without slots it reports %+v", got)
		}
	})
	t.Run("responds to an eviction that comes later", func(t *testing.T) {
		a, c := newEvictionAPI(t), &crew{slots: []int{1}}
		respond(t, a, c)
		a.changes <- map[string]any{"type": "ADDED", "object": evictionOf("u1", active)}
		eventually(t, "it did not drain", c.draining)
	})
	t.Run("waits for its turn", func(t *testing.T) {
		a, c := newEvictionAPI(t, evictionOf("u1", "Inactive")), &crew{slots: []int{1}}
		respond(t, a, c)
		a.changes <- map[string]any{"type": "MODIFIED", "object": evictionOf("u1", "Inactive")}
		if c.draining() {
			t.Error("it drains before its turn")
		}
		a.changes <- map[string]any{"type": "MODIFIED", "object": evictionOf("u1", active)}
		eventually(t, "it did not drain", c.draining)
	})
	t.Run("takes slots again when the request is withdrawn", func(t *testing.T) {
		for name, change := range map[string]map[string]any{
			"cancelled": {"type": "MODIFIED", "object": evictionOf("u1", "Canceled")},
			"failed":    {"type": "MODIFIED", "object": evictionOf("u1", completed, "Failed")},
			"deleted":   {"type": "DELETED", "object": evictionOf("u1", active)},
		} {
			t.Run(name, func(t *testing.T) {
				a, c := newEvictionAPI(t, evictionOf("u1", active)), &crew{slots: []int{1}}
				respond(t, a, c)
				eventually(t, "it did not drain", c.draining)
				a.changes <- change
				eventually(t, "it still drains", func() bool { return !c.draining() })
			})
		}
	})
	t.Run("leaves other pods' evictions alone, also of one of its name", func(t *testing.T) {
		a, c := newEvictionAPI(t, evictionOf("u0", active)), &crew{slots: []int{1}}
		respond(t, a, c)
		a.changes <- map[string]any{"type": "MODIFIED", "object": evictionOf("u0", active)}
		a.changes <- map[string]any{"type": "MODIFIED", "object": evictionOf("u0", active)}
		if c.drains > 0 {
			t.Error("it drained for another pod")
		}
	})
	t.Run("tries again after an error", func(t *testing.T) {
		a, c := newEvictionAPI(t, evictionOf("u1", active)), &crew{slots: []int{1}}
		a.fail = true
		respond(t, a, c)
		eventually(t, "it did not drain", c.draining)
	})
}

func TestInCluster(t *testing.T) {
	env := func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}[name]
	}
	dir := t.TempDir()
	if _, err := inCluster(dir, func(string) string { return "" }); err == nil || !strings.Contains(err.Error(), "in a pod only") {
		t.Errorf("outside of a pod: %v", err)
	}
	if _, err := inCluster(dir, env); err == nil || !strings.Contains(err.Error(), "automountServiceAccountToken") {
		t.Errorf("without an account: %v", err)
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	for name, text := range map[string]string{"ca.crt": "none", "namespace": "fdc\n", "token": "first\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := inCluster(dir, env); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Errorf("without a CA: %v", err)
	}
}
