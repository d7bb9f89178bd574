package partition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// This file holds what running workers do about a bucket whose revisions have gone back:
// an older copy of the servers' storage was restored, a server lost power before it
// synced its disk, or somebody provisioned the group again after everything was lost.
// Revisions order leases, epochs and maps, so what is written now looks older than what
// the workers have seen, or has the revision of another value. A bucket like that is
// worth less than none: what it holds is older than what its workers know. So it is
// deleted, and created again above every revision that was seen, which is the loss that
// recreate.go makes up for.

// wentBack returns the buckets whose last revision is below one that this worker has
// seen, with the revisions of both. Followers ask a second time, a while later, so that
// usually one worker acts: the leader.
func (k *keeper) wentBack(ctx context.Context) (names map[string]string, err error) {
	looks := 1
	if k.cfg.Replicas > 1 {
		looks = looksToBelieve // a replica that has just become leader may still be reading what it has
	}
	for try := 1; ; try++ {
		names = make(map[string]string)
		for _, b := range bucketConfigs(k.cfg) {
			stream := bucketPrefix + b.Bucket
			known := k.last(stream)
			s, err := k.js.Stream(ctx, stream)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("looking for stream %s: %w", stream, err)
			}
			if last := s.CachedInfo().State.LastSeq; last < known {
				names[stream] = fmt.Sprintf("its last revision is %d, and was %d or more", last, known)
			}
		}
		pause := keeperPause
		switch {
		case len(names) == 0:
			return nil, nil
		case try > 1 && try >= looks, looks == 1 && k.leading():
			return names, nil
		case try == 1 && !k.leading():
			pause += rand.N(keeperPause)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// deleteWentBack deletes the buckets whose revisions have gone back, so that they are
// missing.
func (k *keeper) deleteWentBack(ctx context.Context) error {
	back, err := k.wentBack(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for stream, what := range back {
		k.cfg.Logger.Error("The revisions of a bucket have gone back: a server was restored, or lost what it had not synced. It is created again above them.", "resource", resourceName(stream), "seen", what)
		if err := k.js.DeleteStream(ctx, stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			errs = append(errs, fmt.Errorf("deleting %s, since %s: %w", resourceName(stream), what, err))
		}
	}
	return errors.Join(errs...)
}

// The machine's part. It is for the map alone: every other key has an end of its own.
