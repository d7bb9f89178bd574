package local

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
)

// backlogAge is for how long a reading of the backlog is shown.
const backlogAge = time.Second

// backlog reads how many messages are stored and not processed.
type backlog struct {
	mu      sync.Mutex
	asked   time.Time
	waiting uint64
	oldest  time.Time // when the oldest of them was stored
}

// now returns the backlog as it was at most backlogAge ago.
func (b *backlog) now(ctx context.Context, c *Stack) (waiting uint64, oldest time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.asked) < backlogAge {
		return b.waiting, b.oldest, nil
	}
	all, err := c.Streams(ctx)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("reading the backlog: %w", err)
	}
	b.asked, b.waiting, b.oldest = time.Now(), 0, time.Time{}
	for _, s := range all {
		state := s.CachedInfo().State // it was read just now
		b.waiting += state.Msgs
		if first := state.FirstTime; state.Msgs > 0 && (b.oldest.IsZero() || first.Before(b.oldest)) {
			b.oldest = first.UTC()
		}
	}
	return b.waiting, b.oldest, nil
}

// Pending returns a function that counts the messages that are not processed.
func (c *Stack) Pending(ctx context.Context) (func() (uint64, error), error) {
	all, err := c.Streams(ctx)
	if err != nil {
		return nil, err
	}
	return func() (n uint64, err error) {
		for _, s := range all {
			info, err := s.Info(ctx)
			if err != nil {
				return 0, err
			}
			n += info.State.Msgs
		}
		if c.o.RetryAttempts == 0 {
			return n, nil
		}
		queued, err := partition.Open(c.Conn, defender.Group).RetryQueue(ctx)
		return n + uint64(queued.Messages), err
	}, nil
}

// Streams returns the streams of the messages.
func (c *Stack) Streams(ctx context.Context) ([]jetstream.Stream, error) {
	js, err := jetstream.New(c.Conn)
	if err != nil {
		return nil, err
	}
	var all []jetstream.Stream
	for _, name := range c.Partition().Streams() {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("reading stream %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}
