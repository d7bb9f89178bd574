package partition

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/event"
)

// streamWatch looks whether the streams of messages are what they were, and reports when
// one is not. Its methods may be called by any goroutine; one of its own looks.
type streamWatch struct {
	log     *slog.Logger
	layout  layout
	js      jetstream.JetStream
	memory  *memory
	reports *reports
	again   func(slot int)  // has the slots of a stream pulled for again, the stream being that of a slot
	life    context.Context // until the puller is closed

	looking   atomic.Bool // a goroutine looks
	lookAgain atomic.Bool // and starts over when it is done
}

// looksToBelieve is how often in a row a stream has to be seen shorter than it was
// before that is believed: a replica that has just become leader may still be
// reading what it has.
const looksToBelieve = 3

// contradiction asks the stream of a slot what it is, and returns how that
// contradicts what is remembered of it.
func (w *streamWatch) contradiction(ctx context.Context, slot int) (string, error) {
	forgets, last := w.memory.known(slot)
	s, err := w.js.Stream(ctx, w.layout.streamOf(slot))
	if err != nil {
		return "", err
	}
	info := s.CachedInfo()
	return w.memory.saw(slot, forgets, last, info.Created, info.State.LastSeq), nil
}

// rolledBack reports that what was remembered of a slot's stream is forgotten.
func (w *streamWatch) rolledBack(slot int, what string, forgotten int) {
	w.look() // what it is now
	stream := w.layout.streamOf(slot)
	w.log.Error("A stream is not the one that it was: it was made again, or its server has lost messages. What was settled of it is forgotten; messages may be handled again.",
		"stream", stream, "seen", what)
	w.again(slot)
	w.reports.post(noteInput{event.Event{Kind: event.StreamRolledBack, Reason: stream, Err: what, Count: forgotten}})
}

// look looks whether the streams are what they were, without being asked
// by a message: after a reconnect, when a consumer was missing, and when the server
// rejects a pull. Operators want to know, whether or not a message would be mistaken.
func (w *streamWatch) look() {
	// A look that is under way may have seen a stream before what this one is for, so
	// it is followed by another.
	w.lookAgain.Store(true)
	if !w.looking.CompareAndSwap(false, true) {
		return
	}
	go func() {
		for w.lookAgain.Swap(false) {
			for shard := range w.layout.streams() {
				w.lookUntilSure(shard)
			}
		}
		w.looking.Store(false)
		// Asked for between the last Swap and the Store above.
		if w.lookAgain.Load() {
			w.look()
		}
	}()
}

// lookUntilSure looks at the stream of a shard, which is that of the slot of its
// number.
func (w *streamWatch) lookUntilSure(shard int) {
	for try := 1; w.life.Err() == nil; try++ {
		forgets := w.memory.forgets(shard)
		what, err := w.contradiction(w.life, shard)
		pause := pullRetry
		switch {
		case err != nil:
			// It may be deleted, and created again in a moment; or the servers are away.
			try, pause = 0, time.Second
		case what == "":
			return
		case try >= looksToBelieve:
			if forgotten, was := w.memory.forget(shard, forgets); was {
				w.rolledBack(shard, what, forgotten)
			}
			try = 0 // what it is now is to be remembered
		}
		select {
		case <-w.life.Done():
		case <-time.After(pause):
		}
	}
}
