package partition

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// watches are those of the group's buckets: of the map always, of the leases while this
// worker leads, of the stable IDs while it is a standby. Each runs in a goroutine of its
// own, which posts what it sees. The methods that begin and end them are called by the
// worker's loop only.
type watches struct {
	cfg      Config
	nc       *nats.Conn
	buckets  *buckets
	keeper   *keeper // is told of revisions, and of buckets that seem to be gone
	settings *settingsWatch
	standby  *standbyAnswer
	rejected rejections
	post     func(input)

	endMap    context.CancelFunc // nil: not watched
	endLeases context.CancelFunc
	endNames  context.CancelFunc
}

// execute carries one effect out.
func (w *watches) execute(e effect) {
	switch e := e.(type) {
	case watchLeasesEffect:
		w.watchLeases(e)
	case watchNamesEffect:
		w.watchNames(e.on)
	}
}

func (w *watches) close() {
	stop(&w.endMap)
	stop(&w.endLeases)
	w.watchNames(false)
}

// stop ends a watch, if there is one.
func stop(end *context.CancelFunc) {
	if *end != nil {
		(*end)()
		*end = nil
	}
}

// start follows something in a goroutine of its own, until the returned function is called.
func (w *watches) start(what string, follow func(context.Context) error) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	go w.keepFollowing(ctx, what, follow)
	return cancel
}

// watchMap watches the bucket of the map, again after each reconnect: a server that was
// restarted has forgotten who watched, and the client would find out late. What comes
// twice is old and does nothing.
func (w *watches) watchMap() {
	stop(&w.endMap)
	w.endMap = w.start("the assignment map", w.followMap)
}

func (w *watches) watchLeases(o watchLeasesEffect) {
	stop(&w.endLeases)
	if o.on {
		w.endLeases = w.start("the leases", func(ctx context.Context) error { return w.followLeases(ctx, o.watch) })
	}
}

// watchNames tells a standby when a stable ID becomes free. The machine looks by itself,
// too, so a watch that fails costs a moment.
func (w *watches) watchNames(on bool) {
	stop(&w.endNames)
	w.standby.stop()
	if on {
		w.standby.start()
		w.endNames = w.start("the stable IDs", w.followNames)
	}
}

// keepFollowing follows something until ctx ends, again when it fails.
func (w *watches) keepFollowing(ctx context.Context, what string, follow func(context.Context) error) {
	for ctx.Err() == nil {
		// The client says "connected" before it has subscribed again for
		// everything; a subscription made meanwhile is made twice, and a
		// consumer that delivers to it may find nobody.
		err := w.flush(ctx)
		if err == nil {
			err = follow(ctx)
		}
		if ctx.Err() != nil {
			return
		}
		w.cfg.Logger.Warn("Watching failed; again.", "what", what, "err", err)
		if goneError(err) {
			w.keeper.poke()
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

func (w *watches) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return w.nc.FlushWithContext(ctx)
}

// quietTooLong is how long nothing may change in a bucket where a leader, or every
// worker, renews something each Lease.Heartbeat. A watch that is silent for longer is
// begun again: its consumer may be with a replica that does not follow the others any
// more.
func (w *watches) quietTooLong() time.Duration { return 2 * w.cfg.Lease.TTL }

// follow tells of everything in a bucket, of nil when all that was there has been
// told, and then of what changes, until ctx or the watch ends, or nothing changes for
// as long as quiet, if that is not 0.
func follow(ctx context.Context, kv jetstream.KeyValue, quiet time.Duration, tell func(jetstream.KeyValueEntry), opts ...jetstream.WatchOpt) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// A server that has just started may not answer, and then nobody ever does.
	silence := time.AfterFunc(apiTimeout, cancel)
	defer silence.Stop()
	kw, err := kv.WatchAll(ctx, opts...)
	if err != nil {
		return err
	}
	defer func() { _ = kw.Stop() }()
	if len(opts) > 0 {
		silence.Stop() // nothing is told that was there before
	}
	for {
		select {
		case <-ctx.Done():
			return errors.New("the server tells nothing")
		case e, ok := <-kw.Updates():
			if !ok {
				return errors.New("the watch ended")
			}
			if quiet > 0 {
				silence.Reset(quiet)
			} else {
				silence.Stop()
			}
			tell(e)
		}
	}
}

func (w *watches) followMap(ctx context.Context) error {
	led := false
	var maps record.MapReader
	return follow(ctx, w.buckets.kvs[w.cfg.bucketMap()], w.quietTooLong(), func(e jetstream.KeyValueEntry) {
		if e == nil {
			w.post(mapSyncedInput{led})
			return
		}
		led = led || e.Key() == leaderKey
		w.keeper.saw(w.cfg.bucketMap(), e.Revision(), nil)
		w.mapBucketChanged(e, &maps)
	})
}

// mapBucketChanged reads a record of the bucket of the map. One that was deleted has its
// zero value.
func (w *watches) mapBucketChanged(e jetstream.KeyValueEntry, maps *record.MapReader) {
	there := e.Operation() == jetstream.KeyValuePut
	switch e.Key() {
	case record.AssignmentKey:
		if !there {
			return // deleted by hand: the workers keep to what they have
		}
		a, err := maps.Decode(e.Value())
		if err != nil {
			w.post(badMapInput{e.Revision(), err})
			return
		}
		w.post(mapInput{a, e.Revision()})
	case leaderKey:
		in := leaderInput{rev: e.Revision()}
		if there {
			v, err := record.DecodeLeader(e.Value())
			in.leader, in.err = record.Process{ID: v.ID, Claim: v.Claim}, err
		}
		w.post(in)
	case layoutKey:
		if there {
			w.settings.changed(e.Value())
		}
	case expectedKey:
		if v, ok := readRecord(w, e, recordExpected, record.DecodeExpected); ok {
			w.post(expectedInput{v.N, e.Revision()})
		}
	case wantedKey:
		if v, ok := readRecord(w, e, recordWanted, record.DecodeWanted); ok {
			w.post(wantedInput{v.Slots, e.Revision()})
		}
	case overridesKey:
		if overrides, ok := readRecord(w, e, recordOverrides, decodeOverrides); ok {
			w.post(overridesInput{overrides: overrides, rev: e.Revision()})
		}
	}
}

// readRecord reads what operators have set. It reports whether that is valid; the zero
// value is, of a record that was deleted.
func readRecord[V any](w *watches, e jetstream.KeyValueEntry, kind string, decode func([]byte) (V, error)) (v V, ok bool) {
	if e.Operation() != jetstream.KeyValuePut {
		return v, true
	}
	v, err := decode(e.Value())
	if err != nil {
		w.rejected.report(kind, e.Key(), err)
		return v, false
	}
	return v, true
}

func (w *watches) followLeases(ctx context.Context, watch uint64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err := follow(ctx, w.buckets.kvs[w.cfg.bucketLeases()], w.quietTooLong(), func(e jetstream.KeyValueEntry) {
		if e == nil {
			// After the list: it is of this bucket, or of one before it.
			age, err := w.buckets.age(ctx, w.cfg.bucketLeases())
			if err != nil {
				cancel(err)
				return
			}
			w.post(leasesSyncedInput{watch, age})
			return
		}
		w.keeper.saw(w.cfg.bucketLeases(), e.Revision(), nil)
		in := leaseInput{id: e.Key(), rev: e.Revision(), at: e.Created(), deleted: e.Operation() != jetstream.KeyValuePut, watch: watch}
		if !in.deleted {
			in.value, in.err = record.DecodeHeartbeat(e.Key(), e.Value())
		}
		w.post(in)
	})
	return cmp.Or(context.Cause(ctx), err)
}

func (w *watches) followNames(ctx context.Context) error {
	return follow(ctx, w.buckets.kvs[w.cfg.bucketIDs()], 0, func(e jetstream.KeyValueEntry) {
		if e != nil && e.Operation() != jetstream.KeyValuePut {
			w.post(nameFreedInput{e.Key()})
		}
	}, jetstream.UpdatesOnly())
}
