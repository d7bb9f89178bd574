package partition

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/state"
)

func newIdleWorker(t *testing.T) *Worker {
	t.Helper()
	w, err := New(new(nats.Conn), Config{Name: "orders", Stream: "orders", Subject: "orders.*"}, HandlerFunc(nil))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// become gives a worker a status, as its loop does.
func (w *Worker) become(s Status) {
	w.status.Store(&s)
	w.ready.note(s.notReady(time.Now()) == nil)
}

func TestReady(t *testing.T) {
	stable := Status{State: state.Stable}

	t.Run("it waits until the worker takes part", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := newIdleWorker(t)
			ready := make(chan error)
			for range 3 {
				go func() { ready <- w.Ready(t.Context()) }()
			}
			for _, s := range []state.State{state.Init, state.ClaimingID, state.Degraded} {
				w.become(Status{State: s})
				synctest.Wait()
				select {
				case err := <-ready:
					t.Fatalf("%s: it has returned %v", s, err)
				default:
				}
			}
			w.become(stable)
			for range 3 {
				if err := <-ready; err != nil {
					t.Error(err)
				}
			}
		})
	})
	t.Run("a worker that lost its lease is not ready again by having been", func(t *testing.T) {
		w := newIdleWorker(t)
		w.become(stable)
		w.become(Status{State: state.Degraded})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := w.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it returns %v", err)
		}
	})
	t.Run("a standby is ready", func(t *testing.T) {
		w := newIdleWorker(t)
		w.become(Status{State: state.ClaimingID, Standby: true})
		if err := w.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("the error names what is waited for", func(t *testing.T) {
		w := newIdleWorker(t)
		w.become(Status{State: state.ClaimingID, RefusedSince: time.Now(), Refused: "insufficient storage"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		const want = "waiting for worker of orders, which is CLAIMING_ID, since its writes are refused: insufficient storage: context canceled"
		if err := w.Ready(ctx); err == nil || err.Error() != want {
			t.Errorf("it is %v, want %s", err, want)
		}
	})
	t.Run("a worker that has ended never is, whatever it was before", func(t *testing.T) {
		w := newIdleWorker(t)
		w.become(stable)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Run(ctx); err == nil {
			t.Fatal("it ran without a connection")
		}
		if err := w.Ready(t.Context()); !errors.Is(err, ErrEnded) {
			t.Errorf("it returns %v", err)
		}
		got := httptest.NewRecorder()
		w.ReadyHandler().ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		if got.Code != http.StatusServiceUnavailable {
			t.Errorf("the readiness probe gets %d", got.Code)
		}
	})
}

func TestReadyHandler(t *testing.T) {
	since := time.Date(2026, 11, 24, 1, 2, 3, 0, time.UTC)
	tests := map[string]struct {
		status Status
		code   int
		want   map[string]string
	}{
		"taking part":             {Status{State: state.Stable, TrustedUntil: time.Now().Add(time.Hour)}, http.StatusOK, map[string]string{"status": "STABLE"}},
		"no lease":                {Status{State: state.Degraded}, http.StatusServiceUnavailable, map[string]string{"status": "DEGRADED"}},
		"leaving":                 {Status{State: state.Shutdown}, http.StatusServiceUnavailable, map[string]string{"status": "SHUTDOWN"}},
		"writes refused":          {Status{State: state.Degraded, RefusedSince: since, Refused: "full"}, http.StatusServiceUnavailable, map[string]string{"status": "DEGRADED", "reason": "full", "since": "2026-11-24T01:02:03Z"}},
		"refused, with its lease": {Status{State: state.Stable, RefusedSince: since, Refused: "full", TrustedUntil: time.Now().Add(time.Hour)}, http.StatusOK, map[string]string{"status": "STABLE"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := newIdleWorker(t)
			w.become(tt.status)
			got := httptest.NewRecorder()
			w.ReadyHandler().ServeHTTP(got, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
			if got.Code != tt.code {
				t.Errorf("code %d, want %d", got.Code, tt.code)
			}
			var answer map[string]string
			if err := json.Unmarshal(got.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"status", "reason", "since"} {
				if answer[field] != tt.want[field] {
					t.Errorf("%s is %q, want %q", field, answer[field], tt.want[field])
				}
			}
		})
	}
}
