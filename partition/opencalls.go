package partition

import (
	"context"
	"errors"
	"sync"

	"github.com/muster-dev/muster/partition/internal/record"
)

// openCalls are the calls that wait for their answers. A call of a worker that the map names no
// more would wait until its context ends.
type openCalls struct {
	mu    sync.Mutex
	last  uint64
	calls map[uint64]openCall
}

type openCall struct {
	owner  record.Process
	cancel context.CancelCauseFunc
}

var errOwnerLeft = errors.New("it failed or left before it answered")

// add returns the context of a call, and what to call when the call is over.
func (o *openCalls) add(ctx context.Context, owner record.Process) (of context.Context, over func()) {
	of, cancel := context.WithCancelCause(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls == nil {
		o.calls = make(map[uint64]openCall)
	}
	o.last++
	number := o.last
	o.calls[number] = openCall{owner, cancel}
	return of, func() {
		o.mu.Lock()
		delete(o.calls, number)
		o.mu.Unlock()
		cancel(nil)
	}
}

// left ends the calls of workers that a new map doesn't name.
func (o *openCalls) left(a *record.Assignment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.calls) == 0 {
		return
	}
	there := make(map[record.Process]bool, len(a.Workers))
	for _, w := range a.Workers {
		there[w] = true
	}
	for _, c := range o.calls {
		if !there[c.owner] {
			c.cancel(errOwnerLeft)
		}
	}
}
