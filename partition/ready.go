package partition

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition/state"
)

// ErrEnded says that a worker's Run has returned.
var ErrEnded = errors.New("the worker has ended")

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
