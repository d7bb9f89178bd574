package partition

import (
	"context"
	"sync"
)

// interrupts holds the contexts of the running handlers, and ends them all as soon as the
// client reports that the connection is lost.
//
// Neither the worker's loop nor the puller can be relied on for that. A client that reconnects
// holds its lock while it waits for a server, up to nats.Timeout (2 s) for each. Whatever
// publishes meanwhile waits for as long: the puller with its own lock held, and then the loop,
// which needs that lock. But a worker must interrupt its handlers within
// Lease.SuspicionGrace: the leader gives their keys to another worker soon after that.
//
// The two can't be in step: the loop may have told the machine of a loss, and that the
// connection is up again, before lose is called for it. So both count the losses. Only while
// more are lost than were told does the puller suspend the delivery on its own.
type interrupts struct {
	mu     sync.Mutex
	cancel map[handlerCall]context.CancelFunc
	lost   uint64 // losses that ended contexts
	told   uint64 // losses that the machine was told of
}

// handlerCall names a call of the handler: its run, and its number there.
type handlerCall struct{ run, call uint64 }

// lose ends the contexts of all calls. It waits for nothing.
func (i *interrupts) lose() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lost++
	for _, cancel := range i.cancel {
		cancel()
	}
}

// tell notes that the machine is told of more losses, of which lose may yet have to hear. The
// client drops reports that nobody takes in time, so the losses that were counted are told too.
func (i *interrupts) tell(losses int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.told = max(i.told+uint64(losses), i.lost)
}

// ahead reports whether a connection was lost of which the machine was not told yet.
func (i *interrupts) ahead() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lost > i.told
}

// begin adds a call. The connection may have been lost since the delivery let it begin.
func (i *interrupts) begin(c handlerCall, cancel context.CancelFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.cancel == nil {
		i.cancel = make(map[handlerCall]context.CancelFunc)
	}
	i.cancel[c] = cancel
	if i.lost > i.told {
		cancel()
	}
}

// end ends the context of one call, which may have returned just now.
func (i *interrupts) end(c handlerCall) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if cancel := i.cancel[c]; cancel != nil {
		cancel()
	}
}

// returned removes a call.
func (i *interrupts) returned(c handlerCall) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.cancel, c)
}
