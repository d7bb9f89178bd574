package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// layoutValue is what layoutKey holds.
type layoutValue struct {
	Schema  int    `json:"schema"`
	Slots   int    `json:"slots"` // at first
	Stream  string `json:"stream"`
	Subject string `json:"subject"`
	Shards  int    `json:"shards,omitempty"` // 0: one stream
	Retry   bool   `json:"retry,omitempty"`  // failing messages are queued

	Settings *groupSettings `json:"settings,omitempty"` // nil: of an earlier version
}

// shardedSchema is the schema of a layoutValue with several streams. Versions that
// know of one only refuse it; they would make another stream, and wait there.
const shardedSchema = 2

// settledSchema is the schema of a layoutValue with Settings, which workers that know
// nothing of them would not keep to.
const settledSchema = 3

// layout returns the layout of a recorded group.
func (v layoutValue) layout(group string) (layout, error) {
	p, err := parsePattern(v.Subject)
	if err != nil {
		return layout{}, fmt.Errorf("the recorded layout of group %s: %w", group, err)
	}
	return layout{group: group, base: v.Slots, pattern: p, stream: v.Stream, shards: v.Shards}, nil
}

func (c Config) layoutValue() layoutValue {
	s := c.settings()
	v := layoutValue{Schema: settledSchema, Slots: c.Slots, Stream: c.Stream, Subject: c.Subject, Retry: c.Retry.Enabled, Settings: &s}
	if c.Shards > 1 {
		v.Shards = c.Shards
	}
	return v
}

var errNotProvisioned = errors.New("nothing is provisioned")

// recordedLayout returns what a group was provisioned with.
func recordedLayout(ctx context.Context, kv jetstream.KeyValue) (layoutValue, error) {
	e, err := kv.Get(ctx, layoutKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return layoutValue{}, errNotProvisioned
	}
	if err != nil {
		return layoutValue{}, fmt.Errorf("reading the layout from bucket %s: %w", kv.Bucket(), err)
	}
	have, err := decodeLayout(e.Value())
	if err != nil {
		return layoutValue{}, fmt.Errorf("reading the layout from bucket %s: %w", kv.Bucket(), err)
	}
	return have, nil
}

// decodeLayout reads what a group was provisioned with.
func decodeLayout(data []byte) (layoutValue, error) {
	if err := readSchema(data, valueSchema, settledSchema); err != nil {
		return layoutValue{}, err
	}
	var have layoutValue
	if err := json.Unmarshal(data, &have); err != nil {
		return layoutValue{}, err
	}
	sharded := have.Schema >= shardedSchema && have.Shards > 1 && have.Shards <= maxShards
	if !sharded && (have.Schema == shardedSchema || have.Shards != 0) || (have.Settings != nil) != (have.Schema == settledSchema) || have.Slots < 1 || have.Slots > maxSlots || have.Slots%max(have.Shards, 1) != 0 {
		return layoutValue{}, fmt.Errorf("it is no layout: %.200q", data)
	}
	return have, nil
}

// groupSettings are the settings of a group beside its layout, as they are recorded.
type groupSettings struct {
	Replicas          int           `json:"replicas"`
	MaxAge            duration      `json:"max_age"`
	MaxBytes          int64         `json:"max_bytes"` // 0: the default; see Config.Storage.MaxBytes
	Duplicates        duration      `json:"duplicates"`
	AckWait           duration      `json:"ack_wait"`
	HeartbeatInterval duration      `json:"heartbeat_interval"`
	LeaseTTL          duration      `json:"lease_ttl"`
	LeaseMargin       duration      `json:"lease_margin"`
	IDTTL             duration      `json:"id_ttl"`
	SuspicionGrace    duration      `json:"suspicion_grace"`
	SuspicionMargin   duration      `json:"suspicion_margin"`
	Retry             retrySettings `json:"retry"` // whether it is on is in the layout
}

// settings returns those of a resolved configuration.
func (c Config) settings() groupSettings {
	return groupSettings{Replicas: c.Storage.Replicas, MaxAge: duration(c.Storage.MaxAge), MaxBytes: c.Storage.MaxBytes, Duplicates: duration(c.Storage.Duplicates), AckWait: duration(c.Delivery.AckWait),
		HeartbeatInterval: duration(c.Lease.Heartbeat), LeaseTTL: duration(c.Lease.TTL), LeaseMargin: duration(c.Lease.Margin), IDTTL: duration(c.Lease.IDTTL),
		SuspicionGrace: duration(c.Lease.SuspicionGrace), SuspicionMargin: duration(c.Lease.SuspicionMargin),
		Retry: retrySettings{c.Retry.Tries, duration(c.Retry.Delay), duration(c.Retry.MaxDelay), c.Retry.PerKey, c.Retry.PerSlot, c.Retry.Attempts}}
}

type retrySettings struct {
	Tries    int      `json:"tries"`
	Delay    duration `json:"delay"`
	MaxDelay duration `json:"max_delay"`
	PerKey   int      `json:"per_key"`
	PerSlot  int      `json:"per_slot"`
	Attempts int      `json:"attempts"`
}

// duration is written as "1m30s".
type duration time.Duration

func (d duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}
