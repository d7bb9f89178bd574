package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file holds what becomes of a stream or bucket of the group that is gone: deleted
// by an operator, or lost with its volume. Any worker that starts, or that is told by
// the server that there is no such stream, creates it again with the group's settings.
// Several may do so at once: the server creates it once, and the others find it there.
// Without a running worker nothing is created, so a group can be deleted for good.
//
// Revisions and sequences order claims, epochs, maps and messages. In a stream that
// begins at 1 again, all new ones would be older than what the workers have seen, and
// would be rejected. So a stream that is created again begins above all that the one
// before can have had: at the microseconds since record.SequenceEpoch, which outrun its writes.

// sequenceGap is how far above the last sequence that was seen a stream begins at
// least, for a worker whose clock is behind.
const sequenceGap = 1 << 20

func firstSequence(now time.Time, seen uint64) uint64 {
	return max(uint64(max(now.Sub(record.SequenceEpoch).Microseconds(), 0)), seen+sequenceGap)
}

// missingStreams returns the settings of those streams that the server says are not
// there. It repairs what an earlier version provisioned: markers that keep a dead
// leader's lease; and a source that restartSource has left out.
func missingStreams(ctx context.Context, js jetstream.JetStream, all []jetstream.StreamConfig) ([]jetstream.StreamConfig, error) {
	var missing []jetstream.StreamConfig
	for _, want := range all {
		s, err := js.Stream(ctx, want.Name)
		switch {
		case errors.Is(err, jetstream.ErrStreamNotFound):
			missing = append(missing, want)
			continue
		case err != nil:
			return nil, fmt.Errorf("looking for stream %s: %w", want.Name, err)
		}
		if have := s.CachedInfo().Config; len(have.Sources) < len(want.Sources) {
			have.Sources = want.Sources
			if _, err := js.UpdateStream(ctx, have); err != nil {
				return nil, fmt.Errorf("having stream %s take messages of stream %s again: %w", want.Name, want.Sources[0].Name, err)
			}
		}
		if have := s.CachedInfo().Config; want.SubjectDeleteMarkerTTL > 0 && have.SubjectDeleteMarkerTTL != want.SubjectDeleteMarkerTTL {
			have.SubjectDeleteMarkerTTL = want.SubjectDeleteMarkerTTL
			if _, err := js.UpdateStream(ctx, have); err != nil {
				return nil, fmt.Errorf("setting how long stream %s keeps the traces of what expired to %v: %w", want.Name, want.SubjectDeleteMarkerTTL, err)
			}
		}
	}
	return missing, nil
}

// recreate creates what a group that exists has lost, and returns the streams that this
// call created: another worker may be faster. seen is the last sequence that is known of
// a stream.
func recreate(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout, missing []jetstream.StreamConfig, seen func(stream string) uint64) (made []string, err error) {
	var errs []error
	if err := ensureSource(ctx, js, cfg, lay, &sourcePosition{}); err != nil {
		errs = append(errs, err)
	}
	for _, want := range missing {
		want.FirstSeq = firstSequence(time.Now(), seen(want.Name))
		err := createAgain(ctx, js, cfg, lay, want)
		switch {
		case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		case err != nil:
			errs = append(errs, fmt.Errorf("creating %s again: %w", resourceName(want.Name), err))
		default:
			made = append(made, want.Name)
		}
	}
	kv, err := js.KeyValue(ctx, cfg.bucketMap())
	if err != nil {
		return made, errors.Join(append(errs, fmt.Errorf("opening bucket %s: %w", cfg.bucketMap(), err))...)
	}
	if slices.Contains(made, bucketPrefix+cfg.bucketMap()) {
		if _, err := kv.Create(ctx, layoutKey, record.Encode(layoutValue(cfg))); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			errs = append(errs, fmt.Errorf("recording the layout in bucket %s: %w", cfg.bucketMap(), err))
		}
	}
	for shard := range lay.streams() {
		if slices.Contains(made, lay.shardStream(shard)) {
			if err := provisionGeneration(ctx, js, kv, cfg, lay, missingConsumers); err != nil {
				errs = append(errs, fmt.Errorf("creating the consumers of stream %s again: %w", lay.shardStream(shard), err))
			}
		}
	}
	return made, errors.Join(errs...)
}

// goneError reports whether an error of the server may mean that a stream is not there.
// It may also have no leader for the moment, so it is looked for before it is created.
func goneError(err error) bool {
	var api *jetstream.APIError
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrBucketNotFound) || errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound
}

// complete creates what is missing of a group that is provisioned with base slots, for a
// worker that has seen nothing of it yet.
func complete(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout, base int) (made []string, err error) {
	cfg.Slots, lay.base = base, base
	missing, err := missingStreams(ctx, js, groupStreams(cfg, lay))
	if err == nil && len(missing) > 0 {
		made, err = recreate(ctx, js, cfg, lay, missing, func(string) uint64 { return 0 })
	}
	if err == nil {
		reserveExisting(ctx, js, cfg, lay)
	}
	return made, err
}

// The machine's part.

// takeAll has every slot taken from its former owner under the map's version.
func takeAll(a *record.Assignment) {
	for s, owner := range a.Owner {
		if owner != record.None {
			a.Since[s], a.Taking[s] = a.Version, true
		}
	}
}

// firstAfterLoss returns the version of a map if it is the first one after a lost one,
// else 0: every slot with an owner is owned since that version, which a bucket that was
// created again has begun above all earlier ones.
func firstAfterLoss(a *record.Assignment) uint64 {
	if a.Version <= sequenceGap {
		return 0
	}
	for s, owner := range a.Owner {
		if owner != record.None && a.Since[s] != a.Version {
			return 0
		}
	}
	return a.Version
}
