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

// expect writes the number of workers that there should be.
func expect(ctx context.Context, nc *nats.Conn, group string, n int) error {
	if n < 0 {
		return fmt.Errorf("setting the expected number of workers of %s: %d is negative", group, n)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("setting the expected number of workers of %s: %w", group, err)
	}
	kv, err := js.KeyValue(ctx, Config{Name: group}.bucketMap())
	if err != nil {
		return fmt.Errorf("setting the expected number of workers of %s: %w; provision the group first", group, err)
	}
	if _, err := kv.Put(ctx, expectedKey, record.Encode(record.Expected{Schema: record.Schema, N: n})); err != nil {
		return fmt.Errorf("setting the expected number of workers of %s: %w", group, err)
	}
	return nil
}

// provision does what Group.Provision says. It also returns the streams that it created for a group that was there before.
func provision(ctx context.Context, nc *nats.Conn, given Config) (again []string, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("provisioning %s: %w", given.Name, err)
	}
	cfg := given.resolve()
	if kv, err := js.KeyValue(ctx, cfg.bucketMap()); err == nil {
		if rec, err := recordedLayout(ctx, patientBucket{kv}); err == nil && rec.Settings != nil {
			cfg = fillIn(given, *rec.Settings).resolve()
		}
	}
	lay, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	if again, err = provisionBuckets(ctx, js, cfg, lay); err != nil {
		return again, err
	}
	bucket, err := js.KeyValue(ctx, cfg.bucketMap())
	if err != nil {
		return again, fmt.Errorf("opening bucket %s: %w", cfg.bucketMap(), err)
	}
	kv := patientBucket{bucket} // it was created a moment ago
	switch base, err := checkLayout(ctx, kv, cfg); {
	case err == nil:
		cfg.Slots, lay.base = base, base
		made, err := complete(ctx, js, cfg, lay, base)
		if again = append(again, made...); err != nil {
			return again, err
		}
	case !errors.Is(err, errNotProvisioned):
		return again, err
	case len(again) > 0:
		// The record of the layout is lost, too. Streams that are lost with it begin above all
		// that they had, like the buckets.
		made, err := complete(ctx, js, cfg, lay, cfg.Slots)
		if again = append(again, made...); err != nil {
			return again, err
		}
	}
	if err := provisionStreams(ctx, js, cfg, lay); err != nil {
		return again, err
	}
	if err := provisionGeneration(ctx, js, kv, cfg, lay, missingConsumers); err != nil {
		return again, fmt.Errorf("provisioning the consumers of %s: %w", cfg.Name, err)
	}
	if err := provisionFailed(ctx, js, cfg, lay); err != nil {
		return again, err
	}
	if _, err := kv.Create(ctx, layoutKey, record.Encode(layoutValue(cfg))); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return again, fmt.Errorf("recording the layout in bucket %s: %w", cfg.bucketMap(), err)
	}
	tellOfMapping(ctx, nc, cfg)
	return again, caughtUp(ctx, func() error {
		if _, err := checkLayout(ctx, kv, cfg); err != nil {
			return err
		}
		return agree(ctx, js, kv, cfg, lay, true)
	})
}

// provisionFailed makes the streams for messages that fail, as far as they are turned on.
func provisionFailed(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout) error {
	if !cfg.Retry.Disabled {
		if _, err := provisionRetry(ctx, js, cfg, lay); err != nil {
			return err
		}
	}
	if cfg.Retry.givesUp() {
		return provisionDeadLetters(ctx, js, cfg, lay)
	}
	return nil
}

// tellOfMapping warns of a mapping that the streams would need. It is no error:
// publishers may know the streams.
func tellOfMapping(ctx context.Context, nc *nats.Conn, cfg Config) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	if err := checkMapping(ctx, nc, cfg); err != nil {
		from, to := cfg.Mapping()
		cfg.Logger.Warn("Who publishes without asking PublishSubject is refused; the servers need a subject mapping.", "from", from, "to", to, "err", err)
	}
}

// checkLayout compares a configuration with what is provisioned, and returns the
// number of slots that was provisioned: the configuration may name another one
// that they can be divided in.
func checkLayout(ctx context.Context, kv jetstream.KeyValue, cfg Config) (base int, err error) {
	have, err := recordedLayout(ctx, kv)
	if err != nil {
		return 0, err
	}
	want := layoutValue(cfg)
	// Those are for agree.
	want.Retry, want.Settings, have.Settings, have.Schema = have.Retry, nil, nil, want.Schema
	want.SourceSince = have.SourceSince // which the first to provision chose
	if choices := (layout{base: have.Slots}).slotCounts(); slices.Contains(choices, want.Slots) {
		want.Slots = have.Slots
	}
	if have.Shards != want.Shards {
		return 0, fmt.Errorf("group %s was provisioned with Shards %d, and is configured for %d here: give the same number, which can't be changed while there are streams; a group of another Name and Stream can have another", cfg.Name, max(have.Shards, 1), cfg.Shards)
	}
	if have.Source != want.Source {
		return 0, fmt.Errorf("group %s was provisioned with Source.Stream %q, and is configured for %q here: give the same, or another Name and Stream", cfg.Name, have.Source, want.Source)
	}
	if have != want {
		return 0, fmt.Errorf("group %s was provisioned with Slots %d, Stream %s and Subject %s, and is configured for Slots %d, Stream %s and Subject %s here: give the same, or another Name", cfg.Name, have.Slots, have.Stream, have.Subject, want.Slots, want.Stream, want.Subject)
	}
	return have.Slots, nil
}

// provisionStreams makes the streams of messages, and before them what they copy from a source by.
func provisionStreams(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout) error {
	if err := ensureSource(ctx, js, cfg, lay, &sourcePosition{}); err != nil {
		return fmt.Errorf("provisioning %s: %w", cfg.Name, err)
	}
	for shard, stream := range lay.streams() {
		if err := provisionStream(ctx, js, cfg, lay, shard); err != nil {
			return fmt.Errorf("provisioning stream %s: %w", stream, err)
		}
	}
	return nil
}

func provisionStream(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout, shard int) error {
	slots, want := lay.finest()/cfg.Shards, slotStream(cfg, lay, shard)
	err := createStream(ctx, js, lay, want)
	if err == nil {
		return nil
	}
	if !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return err
	}
	s, err := js.Stream(ctx, want.Name)
	if err != nil {
		return err
	}
	have := s.CachedInfo().Config
	switch {
	case have.SubjectTransform == nil || *have.SubjectTransform != *want.SubjectTransform:
		return fmt.Errorf("it exists and transforms subjects by %+v, want %+v: give another Stream", have.SubjectTransform, *want.SubjectTransform)
	case !sameSource(have.Sources, want.Sources):
		return fmt.Errorf("it exists and takes messages from other streams than Source.Stream %q: give another Stream", cfg.Source.Stream)
	case have.Retention != want.Retention:
		return fmt.Errorf("it exists with %v retention, want %v: give another Stream", have.Retention, want.Retention)
	case have.MaxConsumers > 0 && have.MaxConsumers < slots:
		return fmt.Errorf("it allows %d consumers, want at least one for each of the %d slots there may be: raise its max consumers", have.MaxConsumers, slots)
	}
	return nil
}

// provisionBuckets makes the group's buckets, and returns those of them that the group
// has lost: it has a record of its layout, or other streams without the bucket of that
// record. A group that is provisioned first has its buckets before all else.
func provisionBuckets(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout) (again []string, err error) {
	var all []jetstream.StreamConfig
	for _, b := range bucketConfigs(cfg) {
		all = append(all, bucketStream(b, bucketConsumers(cfg)))
	}
	missing, err := missingStreams(ctx, js, all)
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	before := false
	if slices.ContainsFunc(missing, func(c jetstream.StreamConfig) bool { return c.Name == bucketPrefix+cfg.bucketMap() }) {
		if before, err = remains(ctx, js, cfg, lay); err != nil {
			return nil, err
		}
	} else if kv, err := js.KeyValue(ctx, cfg.bucketMap()); err == nil {
		_, err = recordedLayout(ctx, patientBucket{kv})
		if err != nil && !errors.Is(err, errNotProvisioned) {
			return nil, err // a stream that is taken for a new one would begin at 1
		}
		before = err == nil
	}
	for _, want := range missing {
		if before {
			want.FirstSeq = firstSequence(time.Now(), 0)
		}
		err := createStream(ctx, js, lay, want)
		switch {
		case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		case err != nil:
			return again, fmt.Errorf("provisioning %s: %w", resourceName(want.Name), err)
		case before:
			again = append(again, want.Name)
		}
	}
	return again, nil
}

// remains reports whether there is anything of the group that is made after its buckets: then
// these were there, too. Each of these streams may have fences of the group's earlier maps.
func remains(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout) (bool, error) {
	for _, name := range append(lay.streams(), retryStreamName(cfg.Stream), eventStreamName(cfg.Name)) {
		_, err := js.Stream(ctx, name)
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return false, fmt.Errorf("looking for stream %s: %w", name, err)
		}
	}
	return false, nil
}
