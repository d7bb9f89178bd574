package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// layoutOf returns the layout of a recorded group.
func layoutOf(v record.Layout, group string) (layout, error) {
	p, err := parsePattern(v.Subject)
	if err != nil {
		return layout{}, fmt.Errorf("the recorded layout of group %s: %w", group, err)
	}
	return layout{group: group, base: v.Slots, pattern: p, stream: v.Stream, shards: v.Shards, source: v.Source}, nil
}

// layoutValue is what is recorded of a resolved configuration.
func layoutValue(c Config) record.Layout {
	s := settingsOf(c)
	v := record.Layout{Slots: c.Slots, Stream: c.Stream, Subject: c.Subject, Retry: !c.Retry.Disabled, Settings: &s}
	if c.Shards > 1 {
		v.Shards = c.Shards
	}
	recordSource(&v, c.Source)
	v.Schema = record.LayoutSchemaOf(v)
	return v
}

// recordedRetry returns what the record of a group says of Retry besides the numbers in it.
func recordedRetry(v record.Layout) Retry {
	return Retry{Disabled: !v.Retry, KeepFailing: v.Retry && v.Settings != nil && v.Settings.Retry.Attempts == 0}
}

var errNotProvisioned = errors.New("nothing is provisioned")

// recordedLayout returns what a group was provisioned with.
func recordedLayout(ctx context.Context, kv jetstream.KeyValue) (record.Layout, error) {
	e, err := kv.Get(ctx, layoutKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return record.Layout{}, errNotProvisioned
	}
	if err != nil {
		return record.Layout{}, fmt.Errorf("reading the layout from bucket %s: %w", kv.Bucket(), err)
	}
	have, err := record.DecodeLayout(e.Value())
	if err != nil {
		return record.Layout{}, fmt.Errorf("reading the layout from bucket %s: %w", kv.Bucket(), err)
	}
	return have, nil
}

// recordedInFlight is how Delivery.InFlight is recorded: 1 as in records from before there was
// another number.
func recordedInFlight(n int) int {
	if n == 1 {
		return 0
	}
	return n
}

// settingsOf returns the settings of a resolved configuration in which workers must agree.
func settingsOf(c Config) record.Settings {
	return record.Settings{Replicas: c.Storage.Replicas, MaxAge: record.Duration(c.Storage.MaxAge), MaxBytes: c.Storage.MaxBytes, Duplicates: record.Duration(c.Storage.Duplicates), AckWait: record.Duration(c.Delivery.AckWait), InFlight: recordedInFlight(c.Delivery.InFlight),
		HeartbeatInterval: record.Duration(c.Lease.Heartbeat), LeaseTTL: record.Duration(c.Lease.TTL), LeaseMargin: record.Duration(c.Lease.Margin), IDTTL: record.Duration(c.Lease.IDTTL),
		SuspicionGrace: record.Duration(c.Lease.SuspicionGrace), SuspicionMargin: record.Duration(c.Lease.SuspicionMargin),
		Retry: record.RetrySettings{Tries: c.Retry.Tries, Delay: record.Duration(c.Retry.Delay), MaxDelay: record.Duration(c.Retry.MaxDelay), PerKey: c.Retry.PerKey, PerSlot: c.Retry.PerSlot, Attempts: c.Retry.Attempts}}
}
