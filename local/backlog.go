package local

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/console/groupview"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
)

// backlog reads what the broker has left of the messages.
type backlog struct {
	conn    *nats.Conn
	streams []string
	retries bool // what fails is queued for retry

	mu      sync.Mutex
	asked   time.Time
	waiting uint64
	oldest  time.Time // when the oldest of them was stored
}

// backlogAge is for how long a reading of the backlog is shown.
const backlogAge = time.Second

// remainder is what the broker has left of messages that are not processed.
type remainder struct {
	waiting uint64 // in the group's streams and in its retry queue
	dead    uint64 // in the stream of dead letters
}

// shown returns how many messages are stored, as it was at most backlogAge ago.
func (b *backlog) shown(ctx context.Context) (waiting uint64, oldest time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.asked) < backlogAge {
		return b.waiting, b.oldest, nil
	}
	t, oldest, err := b.tide(ctx)
	if err != nil {
		return 0, time.Time{}, err
	}
	b.asked, b.waiting, b.oldest = t.At, t.Waiting, oldest
	return b.waiting, b.oldest, nil
}

// tide reads what the streams have stored and what is left of it, with the time at which the oldest message was stored.
func (b *backlog) tide(ctx context.Context) (t groupview.Tide, oldest time.Time, err error) {
	all, err := b.open(ctx)
	if err != nil {
		return t, oldest, fmt.Errorf("reading the backlog: %w", err)
	}
	t.At = time.Now()
	for _, s := range all {
		state := s.CachedInfo().State // it was read just now
		t.Stored += state.LastSeq
		t.Waiting += state.Msgs
		if first := state.FirstTime; state.Msgs > 0 && (oldest.IsZero() || first.Before(oldest)) {
			oldest = first.UTC()
		}
	}
	return t, oldest, nil
}

// open returns the streams of the messages.
func (b *backlog) open(ctx context.Context) ([]jetstream.Stream, error) {
	js, err := jetstream.New(b.conn)
	if err != nil {
		return nil, err
	}
	var all []jetstream.Stream
	for _, name := range b.streams {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("reading stream %s: %w", name, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// counter returns a function that counts the messages that are not processed.
func (b *backlog) counter(ctx context.Context) (func() (uint64, error), error) {
	all, err := b.open(ctx)
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
		if !b.retries {
			return n, nil
		}
		queued, err := partition.Open(b.conn, defender.Group).RetryQueue(ctx)
		return n + uint64(queued.Messages), err
	}, nil
}

// left reads what is left now.
func (b *backlog) left(ctx context.Context) (r remainder, err error) {
	pending, err := b.counter(ctx)
	if err != nil {
		return r, err
	}
	if r.waiting, err = pending(); err != nil {
		return r, err
	}
	js, err := jetstream.New(b.conn)
	if err != nil {
		return r, err
	}
	s, err := js.Stream(ctx, defender.DeadStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("reading stream %s: %w", defender.DeadStream, err)
	}
	r.dead = s.CachedInfo().State.Msgs
	return r, nil
}
