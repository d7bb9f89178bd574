package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/reserve"
)

// This file holds how a group shares the servers' storage. Once everything that is kept
// there is more than a server's limit, the server refuses every write, a lease's as well
// as a message's:
//
//  1. A backlog fills the storage.
//  2. No lease can be renewed, so no worker may handle a message.
//  3. No message is acknowledged, so the storage stays full, permanently.
//
// So every stream of the group has a limit. The server counts limits as reserved, and
// creates no stream whose limit doesn't fit in; what the streams hold together then stays
// below the server's limit, as long as there is no stream without one. A bucket's limit
// is more than it can need, and the stream of messages gets at most half of the rest.

// The largest default limits.
const (
	messagesMaxBytes = 32 << 30
	retryMaxBytes    = 4 << 30
)

// besideParts is the share of the unreserved storage that the retry queue and the dead letters
// take at most, a sixteenth each: every group has both, and the next group needs room, too.
const besideParts = 8

// IsFull reports whether a message was not published because its stream, or the server,
// holds as much as it may. Nothing is stored of it, and nothing is wrong with it: publish
// it again later, with the same ID. The group's workers make room by handling messages.
func IsFull(err error) bool { return reserve.Full(err) }

// createStream creates a stream or bucket of the group with its limit.
func createStream(ctx context.Context, js jetstream.JetStream, lay layout, want jetstream.StreamConfig) error {
	shards := lay.streams()
	var err error
	switch {
	case want.MaxBytes != 0:
		_, err = js.CreateStream(ctx, want)
		if reserve.NoRoom(err) {
			err = fmt.Errorf("reserving %d bytes: %w: %w", want.MaxBytes, reserve.ErrNoRoom, err)
		}
	case !slices.Contains(shards, want.Name):
		_, err = reserve.Stream(ctx, js, want, retryMaxBytes, besideParts)
	case len(shards) > 1 && want.Name != shards[0]:
		// The first left room for the others, unless another stream took it since.
		if want.MaxBytes, err = reserve.Of(ctx, js, shards[0]); err != nil {
			return fmt.Errorf("reading the limit of stream %s: %w", shards[0], err)
		}
		if _, err = js.CreateStream(ctx, want); reserve.NoRoom(err) {
			_, err = reserve.Stream(ctx, js, want, want.MaxBytes, 1)
		}
	default:
		_, err = reserve.Stream(ctx, js, want, messagesMaxBytes, len(shards))
	}
	return err
}

// createAgain creates a stream or bucket that the group has lost. Working without a
// limit is better then than not working at all.
func createAgain(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout, want jetstream.StreamConfig) error {
	err := createStream(ctx, js, lay, want)
	if !errors.Is(err, reserve.ErrNoRoom) {
		return err
	}
	cfg.Logger.Warn("A part of the group is created again without a limit, since the servers have too little storage that is not reserved; a backlog can stop the group.", "resource", resourceName(want.Name), "err", err)
	want.MaxBytes = -1
	_, err = js.CreateStream(ctx, want)
	return err
}

// reserveExisting gives limits to the streams and buckets of a group that an earlier
// version provisioned without. What can't be reserved stays as it is, with a warning:
// the group works as it did.
func reserveExisting(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout) {
	for _, want := range groupStreams(cfg, lay) {
		if err := reserveOne(ctx, js, lay, want); err != nil {
			cfg.Logger.Warn("A part of the group has too little reserved storage; a backlog can stop the group.", "resource", resourceName(want.Name), "err", err)
		}
	}
}

func reserveOne(ctx context.Context, js jetstream.JetStream, lay layout, want jetstream.StreamConfig) error {
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil // the keeper creates it
	}
	if err != nil {
		return err
	}
	have, holds := s.CachedInfo().Config, int64(s.CachedInfo().State.Bytes)
	_, isBucket := bucketOf(want.Name)
	switch {
	case isBucket:
		// A limit below what it holds would refuse the next lease.
		limit := max(want.MaxBytes, 2*holds)
		if have.MaxBytes >= want.MaxBytes {
			return nil
		}
		have.MaxBytes = limit
		_, err = js.UpdateStream(ctx, have)
	case !reserve.Unlimited(have) || want.MaxBytes != 0:
		return nil // as it was configured
	case slices.Contains(lay.streams(), want.Name):
		_, err = reserve.Limit(ctx, js, have, messagesMaxBytes/int64(len(lay.streams())), 1)
	default:
		have.Discard = jetstream.DiscardNew
		_, err = reserve.Limit(ctx, js, have, retryMaxBytes, besideParts)
	}
	return err
}

// room reports whether messages may be queued for retry. They get half of the retry
// stream: a new owner of a slot has to write its claim there before it can try one, so a
// stream that is full of messages could never become empty. It is asked at most once a
// second; what all workers write in that time fits in the other half.
type room struct {
	turn chan struct{} // holds a token while a goroutine asks, which then owns the other fields
	at   time.Time
	left bool
}

func newRoom() *room { return &room{turn: make(chan struct{}, 1)} }

const roomAge = time.Second

func (r *room) ask(ctx context.Context, stream jetstream.Stream) (bool, error) {
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("asking how full the retry stream is: %w", ctx.Err())
	}
	defer func() { <-r.turn }()
	if time.Since(r.at) < roomAge {
		return r.left, nil
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("asking how full the retry stream is: %w", err)
	}
	r.at, r.left = time.Now(), info.Config.MaxBytes <= 0 || int64(info.State.Bytes) < info.Config.MaxBytes/2
	return r.left, nil
}
