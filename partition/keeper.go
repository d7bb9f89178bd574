package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/event"
)

// How often a worker looks whether all is there that the group needs. Who reads or
// writes a bucket that is gone learns it at once; of a stream of messages nobody is
// told, so the leader looks often, and the others in case there is none.
const (
	leaderLooks   = 3 * time.Second
	followerLooks = 30 * time.Second
	// followersAsOften is the largest group whose followers look that often. Those of a larger
	// group together make no more requests than those of this one.
	followersAsOften = 200
	// keeperPause is the shortest time between two looks, doubled up to keeperPauses as
	// long as something can't be created.
	keeperPause  = 300 * time.Millisecond
	keeperPauses = 30 * time.Second
)

// keeper creates streams and buckets of a running worker's group again that are gone. It
// works in a goroutine of its own, run. saw and poke may be called by any goroutine. Every
// worker has one, since each may be the only one left. Several may find the same resource
// missing at once: the server creates it once, and the others find it there.
type keeper struct {
	cfg     Config
	layout  layout
	nc      *nats.Conn
	js      jetstream.JetStream
	leading func() bool
	post    func(input)
	poked   chan struct{} // holds one request to look at once
	source  sourcePosition

	mu   sync.Mutex
	seen map[string]uint64 // last sequence by stream
}

func newKeeper(cfg Config, lay layout, nc *nats.Conn, js jetstream.JetStream, leading func() bool, post func(input)) *keeper {
	return &keeper{cfg: cfg, layout: lay, nc: nc, js: js, leading: leading, post: post, poked: make(chan struct{}, 1), seen: make(map[string]uint64)}
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
			if !k.leading() && time.Since(looked) < followersLook(k.cfg.Identity.PoolSize) {
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

// followersLook is how often each follower looks in a group of up to n workers.
func followersLook(n int) time.Duration {
	return followerLooks * time.Duration(max(n, followersAsOften)) / followersAsOften
}

// look creates what is missing, and reports whether all is there. Each of its requests has a
// bound of its own, as the JetStream client has for those without one: together they take
// long where the server is far away.
func (k *keeper) look(ctx context.Context) bool {
	if err := provisionEvents(ctx, k.js, k.cfg); err != nil {
		k.cfg.Logger.Warn("The stream of events can't be made; they are told and not kept.", "stream", eventStreamName(k.cfg.Name), "err", err)
	}
	cfg := k.cfg
	if kv, err := k.js.KeyValue(ctx, cfg.bucketMap()); err == nil {
		if rec, err := recordedLayout(ctx, kv); err == nil && rec.Settings != nil {
			cfg.Storage.MaxAge, cfg.Storage.MaxBytes, cfg.Storage.Duplicates = time.Duration(rec.Settings.MaxAge), rec.Settings.MaxBytes, time.Duration(rec.Settings.Duplicates)
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
	// Before the streams: what is created with them would begin at the source's first message.
	sourceKept := k.keepSource(ctx, cfg)
	if len(missing) == 0 {
		k.post(missingInput{})
		return sourceKept
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

// wentBack returns the buckets whose last revision is below one that this worker has
// seen, with the revisions of both. Followers ask a second time, a while later, so that
// usually one worker acts: the leader.
//
// Revisions of a bucket go back when an older copy of the servers' storage was restored,
// when a server lost power before it synced its disk, or when an operator provisioned the
// group again after everything was lost.
// Revisions order leases, epochs and maps, so what is written now looks older than what
// the workers have seen, or has the revision of another value. A bucket like that is
// worth less than none: what it holds is older than what its workers know. So it is
// deleted, and created again above every revision that was seen, which is the loss that
// recreate makes up for.
func (k *keeper) wentBack(ctx context.Context) (names map[string]string, err error) {
	looks := 1
	if k.cfg.Storage.Replicas > 1 {
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

// reportRecreated has the machine tell what this worker has created again.
func reportRecreated(log *slog.Logger, post func(input), streams []string) {
	for _, s := range streams {
		log.Warn("A part of the group was missing and has been created again.", "resource", resourceName(s))
		post(recreatedInput{name: resourceName(s), mine: true})
	}
}
