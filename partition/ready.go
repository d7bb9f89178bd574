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
		why := w.notReady()
		switch {
		case why == nil:
			return nil
		case why.ended:
			return fmt.Errorf("waiting for worker of %s: %w", w.cfg.Name, ErrEnded)
		}

		select {
		case <-changed:
		case <-w.ended:
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
		var answer struct {
			Status state.State `json:"status"`
			Reason string      `json:"reason,omitempty"`
			Since  string      `json:"since,omitempty"`
		}
		code := http.StatusOK
		answer.Status = w.Status().State
		if why := w.notReady(); why != nil {
			code = http.StatusServiceUnavailable
			answer.Status, answer.Reason = why.state, why.refused
			if !why.since.IsZero() {
				answer.Since = why.since.UTC().Format(time.RFC3339)
			}
		}

		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(code)
		_ = json.NewEncoder(rw).Encode(answer)
	})
}

// unreadiness is why a worker doesn't take part in its group.
type unreadiness struct {
	state   state.State
	ended   bool      // Run has returned
	refused string    // why the servers refuse the worker's writes; "" if they don't
	since   time.Time // since when they refuse them; zero if they don't
}

func (u *unreadiness) String() string {
	if u.refused == "" {
		return string(u.state)
	}
	return fmt.Sprintf("%s, since its writes are refused: %s", u.state, u.refused)
}

// notReady returns why the worker doesn't take part in its group, nil if it does. A worker
// whose connection was closed ends in whatever state it was in.
func (w *Worker) notReady() *unreadiness {
	select {
	case <-w.ended:
		return &unreadiness{state: state.Shutdown, ended: true}
	default:
		return w.Status().notReady(time.Now())
	}
}

func (s Status) notReady(now time.Time) *unreadiness {
	leaseOver := now.After(s.TrustedUntil)
	switch {
	case !s.RefusedSince.IsZero() && s.State != state.Shutdown && leaseOver:
		return &unreadiness{state: s.State, refused: s.Refused, since: s.RefusedSince}
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
