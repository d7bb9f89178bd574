package partitiontest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime/debug"
	"time"

	"github.com/muster-dev/muster/partition"
)

// guarded calls what the user has given, and makes a panic its error.
func guarded(callback string, f func() error) (err error) {
	returned := false
	defer func() {
		if value := recover(); !returned {
			err = &partition.PanicError{Callback: callback, Value: value, Stack: debug.Stack()}
		}
	}()
	err = f()
	returned = true
	return err
}

// find returns what implements T in a handler or in what it wraps, from the outside in.
func find[T any](h partition.Handler) (found T, ok bool) {
	for h != nil {
		if found, ok = h.(T); ok {
			return found, true
		}
		if m, wraps := h.(interface{ Middleware() partition.Handler }); wraps {
			if found, ok = find[T](m.Middleware()); ok {
				return found, true
			}
		}
		inner, wraps := h.(interface{ Unwrap() partition.Handler })
		if !wraps {
			break
		}
		h = inner.Unwrap()
	}
	return found, false
}

// unlocked calls f without the group's lock.
func (g *Group) unlocked(f func()) {
	g.mu.Unlock()
	defer g.mu.Lock()
	f()
}

func (g *Group) theSlots(numbers ...int) partition.Slots {
	return partition.Slots{Of: len(g.slots), Slots: numbers}
}

// prepare calls Prepare. Its error changes nothing.
func prepare(h partition.Handler, slots partition.Slots) {
	p, ok := find[partition.Preparer](h)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), prepareTimeout)
	defer cancel()
	_ = guarded("Prepare", func() error { return p.Prepare(ctx, slots) })
}

// release calls Released.
func release(h partition.Handler, slots partition.Slots) {
	if r, ok := find[partition.Releaser](h); ok {
		_ = guarded("Released", func() error { r.Released(slots); return nil })
	}
}

// moveState releases a slot, and lets its state go to the handler that gets it, or has that prepare it.
func moveState(from, to partition.Handler, slots partition.Slots) {
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	exporter, exports := find[partition.StateMover](from)
	importer, imports := find[partition.StateMover](to)
	var state []byte
	failed := errors.New("the old owner's handler has no state that moves")
	if exports && imports {
		failed = guarded("Export", func() (err error) {
			state, err = export(ctx, exporter, slots)
			return err
		})
	}

	release(from, slots)
	if !imports {
		return
	}
	if failed == nil {
		failed = guarded("Import", func() error { return importer.Import(ctx, slots, bytes.NewReader(state)) })
	}
	if failed != nil {
		prepare(to, slots)
	}
}

func export(ctx context.Context, from partition.StateMover, slots partition.Slots) ([]byte, error) {
	state, err := from.Export(ctx, slots)
	if err != nil {
		return nil, err
	}
	if c, ok := state.(io.Closer); ok {
		defer func() { _ = c.Close() }()
	}
	return io.ReadAll(state)
}

// handlerOf returns a worker's handler, nil for no worker.
func handlerOf(w *worker) partition.Handler {
	if w == nil {
		return nil
	}
	return w.handler
}

// pause is how long a slot waits after a number of errors in a row that say nothing of the message.
func pause(n int) time.Duration { return doubled(unavailableDelay, n-1, longestPause) }
