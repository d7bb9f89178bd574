package partition

import (
	"context"
	"sync"
	"time"
)

// emptyStreams knows which streams of messages were empty a moment ago. One request tells
// that for all the slots of a stream that a worker holds: without it each silent slot would
// ask for its consumer, and an idle group would keep its servers busy with that. Several
// goroutines may use it.
type emptyStreams struct {
	stored func(ctx context.Context, stream string) (messages uint64, err error)
	now    func() time.Time
	fresh  time.Duration // how long what was seen of a stream is used

	mu   sync.Mutex // not held while the server is asked
	seen map[string]*seenStream
}

// seenStream is what was last seen of a stream.
type seenStream struct {
	at     time.Time // when it was asked
	empty  bool
	asking chan struct{} // closed when the server has answered; nil: it is not asked
}

func newEmptyStreams(stored func(ctx context.Context, stream string) (uint64, error), now func() time.Time, fresh time.Duration) *emptyStreams {
	return &emptyStreams{stored: stored, now: now, fresh: fresh, seen: make(map[string]*seenStream)}
}

// empty reports whether a stream had no message at some time within the last fresh. A
// server that does not answer says nothing of the stream.
func (e *emptyStreams) empty(ctx context.Context, stream string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.seen[stream]
	if s == nil {
		s = &seenStream{}
		e.seen[stream] = s
	}

	for s.asking != nil { // others wait for the answer to the one that asks
		answered := s.asking
		e.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
		}
		e.mu.Lock()
		if ctx.Err() != nil {
			return false
		}
	}
	// A stream with messages is not asked for again, either: each slot asks its consumer.
	if at := e.now(); s.at.IsZero() || at.Sub(s.at) >= e.fresh {
		s.asking = make(chan struct{})
		e.mu.Unlock()
		messages, err := e.stored(ctx, stream)
		e.mu.Lock()
		s.at, s.empty = at, err == nil && messages == 0
		close(s.asking)
		s.asking = nil
	}
	return s.empty
}
