package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// statePrepares has the handler of a StateMover prepare for slots whose states don't come from an
// old owner. Slots that come at about the same time, as at the start or after a crash, are prepared
// by one call: a handler may have to read all of a table for one slot.
type statePrepares struct {
	preparer Preparer // nil: the handler has none
	guard    guard
	timeout  time.Duration
	gather   time.Duration // for how long slots are gathered for one call
	note     func(event.Event)

	mu      sync.Mutex
	waiting []*statePrepare // for the next call
}

// prepareGather is how long slots are gathered for one call in a worker. The holds of one map come in
// microseconds, and a takeover takes hundreds of times longer.
const prepareGather = time.Millisecond

// statePrepare is a slot that waits for Prepare.
type statePrepare struct {
	place
	ctx  context.Context // ends when the slot goes elsewhere
	done chan error
}

// prepare has the handler prepare for a slot, if it can, and reports whether it has.
func (b *statePrepares) prepare(ctx context.Context, at place) bool {
	if b.preparer == nil || ctx.Err() != nil {
		return ctx.Err() == nil
	}
	p := &statePrepare{at, ctx, make(chan error, 1)}
	b.mu.Lock()
	b.waiting = append(b.waiting, p)
	if len(b.waiting) == 1 {
		time.AfterFunc(b.gather, b.callAll)
	}
	b.mu.Unlock()
	return <-p.done == nil
}

// callAll calls Prepare for what waits. Only while the group is resharded that may be of two
// generations.
func (b *statePrepares) callAll() {
	b.mu.Lock()
	waiting := b.waiting
	b.waiting = nil
	b.mu.Unlock()
	byGeneration := make(map[generation][]*statePrepare)
	for _, p := range waiting {
		byGeneration[p.generation] = append(byGeneration[p.generation], p)
	}
	for of, all := range byGeneration {
		go b.call(of, all)
	}
}

// call calls Prepare once. Its context ends early if none of its slots is of use any more.
func (b *statePrepares) call(of generation, all []*statePrepare) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	var left atomic.Int64
	left.Store(int64(len(all)))
	slots := Slots{Of: of.slots}
	for _, p := range all {
		slots.Slots = append(slots.Slots, p.slot)
		stop := context.AfterFunc(p.ctx, func() {
			if left.Add(-1) == 0 {
				cancel()
			}
		})
		defer stop()
	}
	slices.Sort(slots.Slots)

	err := b.guard.call("Prepare", func() error { return b.preparer.Prepare(ctx, slots) })
	if err != nil && left.Load() > 0 {
		b.note(event.Event{Kind: event.PrepareFailed, Err: fmt.Sprintf("preparing %d slots: %v", len(all), err)})
	}
	for _, p := range all {
		p.done <- err
	}
}
