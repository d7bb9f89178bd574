package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// ErrEnded says that a worker's Run has returned.
var ErrEnded = errors.New("the worker has ended")

// Ready waits until the worker takes part in its group: until it has a valid lease, or is one
// of more workers than stable IDs are wanted and stands by. It returns nil at once if it does
// already. Slots may come later: the leader waits for more workers for a moment before it plans.
//
// The error wraps ctx's, with what the worker waits for, or is ErrEnded. Ready may be called
// before Run, and by several goroutines.
func (w *Worker) Ready(ctx context.Context) error {
	for {
		changed := w.ready.watch()
		why := w.Status().notReady(time.Now())
		if why == nil {
			return nil
		}

		select {
		case <-changed:
		case <-w.ended:
			return fmt.Errorf("waiting for worker of %s: %w", w.cfg.Name, ErrEnded)
		case <-ctx.Done():
			return fmt.Errorf("waiting for worker of %s, which is %s: %w", w.cfg.Name, why, ctx.Err())
		}
	}
}

// ReadyHandler answers whether the worker takes part in its group, as Ready means it, in the
// form of a Kubernetes readiness probe: 200, or 503 with the reason. The answer is JSON:
// {"status": "STABLE"}, or {"status": "DEGRADED", "reason": "…", "since": "2026-11-24T01:02:03Z"}
// if the servers refuse the worker's writes.
func (w *Worker) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		why := w.Status().notReady(time.Now())
		answer, code := struct {
			Status state.State `json:"status"`
			Reason string      `json:"reason,omitempty"`
			Since  string      `json:"since,omitempty"`
		}{Status: w.Status().State}, http.StatusOK
		if why != nil {
			code, answer.Status, answer.Reason = http.StatusServiceUnavailable, why.state, why.refused
			if !why.since.IsZero() {
				answer.Since = why.since.UTC().Format(time.RFC3339)
			}
		}

		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(answer)
	})
}

// unreadiness is why a worker doesn't take part.
type unreadiness struct {
	state   state.State
	refused string    // why the servers refuse its writes; "": they don't
	since   time.Time // they do
}

func (u *unreadiness) String() string {
	if u.refused == "" {
		return string(u.state)
	}
	return fmt.Sprintf("%s, since its writes are refused: %s", u.state, u.refused)
}

// notReady returns why the worker doesn't take part in its group, nil if it does.
func (s Status) notReady(now time.Time) *unreadiness {
	leaseOver := now.After(s.TrustedUntil)
	switch {
	case !s.RefusedSince.IsZero() && s.State != state.Shutdown && leaseOver:
		return &unreadiness{s.State, s.Refused, s.RefusedSince}
	case s.State == state.Init, s.State == state.Degraded, s.State == state.Shutdown:
		return &unreadiness{state: s.State}
	case s.State == state.ClaimingID && !s.Standby:
		return &unreadiness{state: s.State}
	}
	return nil
}

// readyWatch wakes those who wait for a worker to be ready. A worker's status changes with
// every step of its loop, and its readiness rarely does.
type readyWatch struct {
	mu      sync.Mutex
	ready   bool
	changed chan struct{} // nil while nobody waits; closed at the next change
}

// note takes in whether the worker is ready now.
func (r *readyWatch) note(ready bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready == ready {
		return
	}
	r.ready = ready
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// watch returns what is closed when the readiness changes next. Who waits calls it before it
// looks at the status, so that no change is missed.
func (r *readyWatch) watch() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}
