package record

import (
	"encoding/json"
	"fmt"
	"time"
)

// Layout is what layoutKey holds.
type Layout struct {
	Schema  int    `json:"schema"`
	Slots   int    `json:"slots"` // at first
	Stream  string `json:"stream"`
	Subject string `json:"subject"`
	Shards  int    `json:"shards,omitempty"` // 0: one stream
	Retry   bool   `json:"retry,omitempty"`  // failing messages are queued
	Source  string `json:"source,omitempty"` // an existing stream that messages are taken from
	// SourceSince is from when on they are, in nanoseconds since 1970; 0: all of them.
	SourceSince int64 `json:"source_since,omitempty"`

	Settings *Settings `json:"settings,omitempty"` // nil: of an earlier version
}

// shardedSchema is the schema of a Layout with several streams. Versions that
// know of one only refuse it; they would make another stream, and wait there.
const shardedSchema = 2

// settingsSchema is the schema of a Layout with Settings, which workers that know
// nothing of them would not keep to.
const settingsSchema = 3

// packedSchema is the schema of the Layout of a group whose assignment map is a packedMap.
// A worker that can't read that would take a lease and neither work nor end.
const packedSchema = 4

// inFlightSchema is the schema of the Layout of a group that has several messages of a slot in
// flight. A worker that knows nothing of them would handle the messages of a key out of order.
const inFlightSchema = 5

// LayoutSchema is the schema of the Layout of a group that takes its messages from an existing
// stream. A worker that knows nothing of that would create the group's stream, if that was lost,
// so that publishers' messages go there.
const LayoutSchema = 6

// LayoutSchemaOf returns the least schema that says what a group with this layout has.
func LayoutSchemaOf(v Layout) int {
	switch {
	case v.Source != "":
		return LayoutSchema
	case v.Settings != nil && v.Settings.InFlight > 1:
		return inFlightSchema
	}
	return packedSchema
}

// DecodeLayout reads what a group was provisioned with.
func DecodeLayout(data []byte) (Layout, error) {
	if _, err := readSchema(data, Schema, LayoutSchema); err != nil {
		return Layout{}, err
	}
	var have Layout
	if err := json.Unmarshal(data, &have); err != nil {
		return Layout{}, err
	}
	sharded := have.Schema >= shardedSchema && have.Shards > 1 && have.Shards <= MaxShards
	shardsAgree := sharded || have.Schema != shardedSchema && have.Shards == 0
	settingsAgree := (have.Settings != nil) == (have.Schema >= settingsSchema)
	inFlightAgrees := have.Settings == nil || have.Settings.InFlight == 0 || have.Settings.InFlight > 1 && have.Schema >= inFlightSchema
	sourceAgrees := have.Source == "" && have.SourceSince == 0 || have.Source != "" && have.Schema >= LayoutSchema
	slotsAgree := have.Slots >= 1 && have.Slots <= MaxSlots && have.Slots%max(have.Shards, 1) == 0
	if !shardsAgree || !settingsAgree || !inFlightAgrees || !sourceAgrees || !slotsAgree {
		return Layout{}, fmt.Errorf("it is no layout: %.200q", data)
	}
	return have, nil
}

// Settings are the settings of a group beside its layout, as they are recorded. Workers must
// agree in them: one with other settings does not join while others work, since it would wait
// for leases that end later, or create a stream with other limits. What each means is said in
// the Config of package partition.
type Settings struct {
	Replicas          int           `json:"replicas"`
	MaxAge            Duration      `json:"max_age"`
	MaxBytes          int64         `json:"max_bytes"` // 0: the default; see Config.Storage.MaxBytes
	Duplicates        Duration      `json:"duplicates"`
	AckWait           Duration      `json:"ack_wait"`
	InFlight          int           `json:"in_flight,omitempty"` // 0: 1
	HeartbeatInterval Duration      `json:"heartbeat_interval"`
	LeaseTTL          Duration      `json:"lease_ttl"`
	LeaseMargin       Duration      `json:"lease_margin"`
	IDTTL             Duration      `json:"id_ttl"`
	SuspicionGrace    Duration      `json:"suspicion_grace"`
	SuspicionMargin   Duration      `json:"suspicion_margin"`
	Retry             RetrySettings `json:"retry"` // whether it is on is in the layout
}

// RetrySettings are those of Config.Retry that workers must agree in.
type RetrySettings struct {
	Tries    int      `json:"tries"`
	Delay    Duration `json:"delay"`
	MaxDelay Duration `json:"max_delay"`
	PerKey   int      `json:"per_key"`
	PerSlot  int      `json:"per_slot"`
	Attempts int      `json:"attempts"`
}

// Duration is written as "1m30s".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
