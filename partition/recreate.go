package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/event"
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
// before can have had: at the microseconds since sequenceEpoch, which outrun its writes.

// sequenceEpoch is from when the first sequences of streams that are created again count.
var sequenceEpoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// sequenceGap is how far above the last sequence that was seen a stream begins at
// least, for a worker whose clock is behind.
const sequenceGap = 1 << 20

func firstSequence(now time.Time, seen uint64) uint64 {
	return max(uint64(max(now.Sub(sequenceEpoch).Microseconds(), 0)), seen+sequenceGap)
}

// missingStreams returns the settings of those streams that the server says are not
// there. It repairs what an earlier version provisioned: markers that keep a dead
// leader's lease.
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
		if _, err := kv.Create(ctx, layoutKey, mustJSON(cfg.layoutValue())); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
			errs = append(errs, fmt.Errorf("recording the layout in bucket %s: %w", cfg.bucketMap(), err))
		}
	}
	for shard := range lay.streams() {
		if slices.Contains(made, lay.shardStream(shard)) {
			if err := provisionDivision(ctx, js, kv, cfg, lay); err != nil {
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

// How often a worker looks whether all is there that the group needs. Who reads or
// writes a bucket that is gone learns it at once; of a stream of messages nobody is
// told, so the leader looks often, and the others in case there is none.
const (
	leaderLooks   = 3 * time.Second
	followerLooks = 30 * time.Second
	// keeperPause is the shortest time between two looks, doubled up to keeperPauses as
	// long as something can't be created.
	keeperPause  = 300 * time.Millisecond
	keeperPauses = 30 * time.Second
)

// keeper creates streams and buckets of a running worker's group again that are gone. It
// works in a goroutine of its own, run. saw and poke may be called by any goroutine.
type keeper struct {
	cfg     Config
	layout  layout
	nc      *nats.Conn
	js      jetstream.JetStream
	leading func() bool
	post    func(input)
	poked   chan struct{} // holds one request to look at once

	mu   sync.Mutex
	seen map[string]uint64 // last sequence by stream
}

func newKeeper(g *openGroup, nc *nats.Conn, leading func() bool, post func(input)) *keeper {
	return &keeper{cfg: g.cfg, layout: g.layout, nc: nc, js: g.js, leading: leading, post: post, poked: make(chan struct{}, 1), seen: make(map[string]uint64)}
}

// saw notes how far a bucket's revisions have come, and looks at once if it seems to be
// gone.
func (k *keeper) saw(bucket string, rev uint64, err error) {
	// A write that meets an older revision than it expects may meet a restored one.
	if err != nil && (goneError(err) || errors.Is(err, errUnderWay)) {
		k.poke()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen[bucketPrefix+bucket] = max(k.seen[bucketPrefix+bucket], rev)
}

func (k *keeper) last(stream string) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen[stream]
}

func (k *keeper) poke() {
	select {
	case k.poked <- struct{}{}:
	default:
	}
}

// reportRecreated has the machine tell what this worker has created again.
func reportRecreated(log *slog.Logger, post func(input), streams []string) {
	for _, s := range streams {
		log.Warn("A part of the group was missing and has been created again.", "resource", resourceName(s))
		post(recreatedInput{name: resourceName(s), mine: true})
	}
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

// run looks until ctx ends.
func (k *keeper) run(ctx context.Context) {
	// What another worker created again has lost our watches and leases.
	alarm, err := k.nc.Subscribe(eventSubject(k.cfg.Name, event.ResourceRecreated), func(msg *nats.Msg) {
		var e event.Event
		if json.Unmarshal(msg.Data, &e) == nil {
			k.post(recreatedInput{name: e.Reason})
		}
	})
	if err == nil {
		defer func() { _ = alarm.Unsubscribe() }()
	}
	pause, looked := keeperPause, time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.poked:
		case <-time.After(leaderLooks):
			if !k.leading() && time.Since(looked) < followerLooks {
				continue
			}
		}
		looked = time.Now()
		if k.look(ctx) {
			pause = keeperPause
		} else {
			pause = min(2*pause, keeperPauses)
			k.poke()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// look creates what is missing, and reports whether all is there.
func (k *keeper) look(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*apiTimeout)
	defer cancel()
	if err := provisionEvents(ctx, k.js, k.cfg); err != nil {
		k.cfg.Logger.Warn("The stream of events can't be made; they are told and not kept.", "stream", eventStreamName(k.cfg.Name), "err", err)
	}
	cfg := k.cfg
	if kv, err := k.js.KeyValue(ctx, cfg.bucketMap()); err == nil {
		if rec, err := recordedLayout(ctx, kv); err == nil && rec.Settings != nil {
			cfg.MaxAge, cfg.MaxBytes, cfg.Duplicates = time.Duration(rec.Settings.MaxAge), rec.Settings.MaxBytes, time.Duration(rec.Settings.Duplicates)
		}
	}
	if err := k.deleteWentBack(ctx); err != nil {
		k.cfg.Logger.Warn("Looking for buckets whose revisions have gone back failed; retrying.", "err", err)
		return false
	}
	missing, err := missingStreams(ctx, k.js, groupStreams(cfg, k.layout))
	if err != nil {
		return false // the servers don't answer, which tells nothing of what is there
	}
	if len(missing) == 0 {
		k.post(missingInput{})
		return true
	}
	made, err := recreate(ctx, k.js, cfg, k.layout, missing, k.last)
	reportRecreated(k.cfg.Logger, k.post, made)
	if err == nil {
		k.post(missingInput{})
		return true
	}
	names := make([]string, len(missing))
	for i, m := range missing {
		names[i] = resourceName(m.Name)
	}
	k.cfg.Logger.Error("A part of the group is missing and can't be created again; retrying.", "missing", names, "err", err)
	k.post(missingInput{names})
	return false
}

// The machine's part.

// takeAll has every slot taken from its former owner under the map's version.
func (a *Assignment) takeAll() {
	for s, owner := range a.Owner {
		if owner != none {
			a.Since[s], a.Taking[s] = a.Version, true
		}
	}
}

// firstAfterLoss returns the version of a map if it is the first one after a lost one,
// else 0: every slot with an owner is owned since that version, which a bucket that was
// created again has begun above all earlier ones.
func (a *Assignment) firstAfterLoss() uint64 {
	if a.Version <= sequenceGap {
		return 0
	}
	for s, owner := range a.Owner {
		if owner != none && a.Since[s] != a.Version {
			return 0
		}
	}
	return a.Version
}
