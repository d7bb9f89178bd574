package partitiontest

import (
	"context"
	"fmt"

	"github.com/muster-dev/muster/partition"
)

// Call asks the owner of a key once, as a [partition.Caller] does, and returns its answer. It waits
// while a message or another call of the key is handled. Its error wraps [partition.ErrNoOwner]
// while the key moves or its owner has failed, and is a [*partition.CallError] when the handler
// returns an error, or loses the key meanwhile.
func (g *Group) Call(ctx context.Context, key string, data []byte) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.slotOf(key)
	owner := s.owner
	serves := func() bool { return s.open && s.owner == owner && owner != nil && !owner.silent() }
	waitsNoMore := context.AfterFunc(ctx, g.wake)
	defer waitsNoMore()
	for serves() && s.work[key] != nil && ctx.Err() == nil {
		g.changed.Wait()
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("calling key %s: %w", key, ctx.Err())
	case !serves():
		return nil, fmt.Errorf("calling key %s: %w", key, partition.ErrNoOwner)
	}
	h, ok := find[partition.CallHandler](owner.handler)
	if !ok {
		return nil, &partition.CallError{Key: key, Worker: owner.name, Reason: "its handler is no CallHandler"}
	}

	w := &work{owner: owner}
	handling := s.start(owner.ctx, w, key)
	stop := context.AfterFunc(ctx, w.cancel)
	defer stop()
	given := partition.Call{Key: key, Slot: s.number, Data: data, Fence: s.fence}
	var result []byte
	var err error
	g.unlocked(func() {
		err = guarded("HandleCall", func() error {
			result, err = h.HandleCall(handling, given)
			return err
		})
	})
	w.cancel()
	defer g.changed.Broadcast()
	if w.lost {
		return nil, &partition.CallError{Key: key, Worker: owner.name, Served: true, Reason: "it lost the key meanwhile"}
	}
	delete(s.work, key)
	s.dispatch()
	if err != nil {
		return nil, &partition.CallError{Key: key, Worker: owner.name, Served: true, Reason: err.Error()}
	}
	return result, nil
}
