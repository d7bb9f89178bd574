package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// This file spreads a group's slots over several streams. What a server does for
// one acknowledgement grows with the consumers of the stream, so a large number of slots in one
// stream is slow, and the same slots in several are not.
//
// Slot s is in shard s modulo Shards. Shards divides the number of slots, in every
// generation, and SlotOf is a hash modulo that number; so a key's shard is SlotOf of
// Shards, whatever the slot count, and no change of the slots moves a message to
// another stream. A stream can't choose messages by a hash: the shard is in the
// subject that it listens to, "defender.shards.4.2.dc.*.*.completion" for the
// third of four. The number of shards is there, too, so that who divides by
// another number finds no stream and is told so, instead of putting messages where
// nobody looks for them.

// provisionedConfig reads what Group.Config returns.
func provisionedConfig(ctx context.Context, nc *nats.Conn, group string) (Config, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return Config{}, fmt.Errorf("reading the layout of %s: %w", group, err)
	}
	rec, err := recordedLayout(ctx, kv)
	if err != nil {
		return Config{}, fmt.Errorf("reading the layout of %s: %w", group, err)
	}
	cfg := Config{Name: group, Stream: rec.Stream, Subject: rec.Subject, Slots: rec.Slots, Shards: max(rec.Shards, 1), Source: sourceOf(rec), Retry: recordedRetry(rec)}
	if rec.Settings != nil {
		cfg = fillIn(cfg, *rec.Settings)
	}
	return cfg, nil
}

// A probe can be stored by no stream: it is expected behind a message that there
// will never be. So the stream that it gets to says only that, and any other that
// it is not the one.
const (
	probeSequence     = "9000000000000000000"
	codeNotThisStream = 10060 // the expected stream is another
)

// MappingError says that messages which are published to a group's subject do not
// all get to the stream of their key.
type MappingError struct {
	Subject string // as published, of an example
	Stream  string // that it should get to
	Reason  string
}

func (e *MappingError) Error() string {
	return fmt.Sprintf("a message that is published to %s does not get to stream %s: %s", e.Subject, e.Stream, e.Reason)
}

// checkMapping probes the stream of each shard; see Group.CheckMapping.
func checkMapping(ctx context.Context, nc *nats.Conn, cfg Config) error {
	if cfg.Shards <= 1 {
		return nil
	}
	p, err := parsePattern(cfg.Subject)
	if err != nil {
		return fmt.Errorf("checking the subject mapping: Subject: %w", err)
	}
	l := layout{group: cfg.Name, pattern: p, stream: cfg.Stream, shards: cfg.Shards}
	for shard := range cfg.Shards {
		if err := probeShard(ctx, nc, l, shard); err != nil {
			return err
		}
	}
	return nil
}

// probeShard publishes to the stream of a shard what no stream can store.
func probeShard(ctx context.Context, nc *nats.Conn, l layout, shard int) error {
	subject, err := l.example(shard)
	if err != nil {
		return fmt.Errorf("checking the subject mapping: %w", err)
	}
	stream := l.shardStream(shard)
	wrong := func(format string, args ...any) error {
		return &MappingError{Subject: subject, Stream: stream, Reason: fmt.Sprintf(format, args...)}
	}
	msg := nats.NewMsg(subject)
	msg.Header.Set(jetstream.ExpectedStreamHeader, stream)
	msg.Header.Set(jetstream.ExpectedLastSeqHeader, probeSequence)
	answer, err := nc.RequestMsgWithContext(ctx, msg)
	if errors.Is(err, nats.ErrNoResponders) {
		return wrong("no stream takes it, the server has no mapping for it or one that divides by another number than %d", l.shards)
	}
	if err != nil {
		return fmt.Errorf("checking the subject mapping with %s: %w", subject, err)
	}
	var ack apiError
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Error == nil {
		return wrong("who answers is no stream that was asked for %s: %.100q", stream, answer.Data)
	}
	if ack.Error.ErrCode == codeNotThisStream {
		return wrong("another stream takes it")
	}
	return nil
}
