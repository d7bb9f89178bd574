package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

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

// mapping returns the destination of the servers' subject mapping, whose source is
// the published subject.
func (l layout) mapping() string {
	tokens := append([]string(nil), l.pattern.tokens...)
	for i, at := range l.pattern.wild {
		tokens[at] = fmt.Sprintf("{{wildcard(%d)}}", i+1)
	}
	return l.shardPrefix(l.hashed(l.shards)) + strings.Join(tokens, ".")
}

// publish returns the subject that a message goes to which is published as the
// given one.
func (l layout) publish(subject string) (string, error) {
	key, err := l.pattern.key(subject)
	if err != nil || l.shards <= 1 {
		return subject, err
	}
	return l.shardPrefix(strconv.Itoa(SlotOf(l.shards, key...))) + subject, nil
}

// sequence returns what tells a message from all others of the group: its
// sequence in its stream, and if there are several the shard, too.
func (l layout) sequence(slot int, inStream uint64) uint64 {
	n := max(l.shards, 1)
	return inStream*uint64(n) + uint64(slot%n)
}

// key returns the tokens of a subject that fit the wildcards.
func (p pattern) key(subject string) ([]string, error) {
	tokens := strings.Split(subject, ".")
	fits := len(tokens) == len(p.tokens)
	for i := 0; fits && i < len(tokens); i++ {
		fits = checkToken(tokens[i]) == nil && (p.tokens[i] == "*" || p.tokens[i] == tokens[i])
	}
	if !fits {
		return nil, fmt.Errorf("subject %q is none that %q stands for", subject, p.subject)
	}
	key := make([]string, len(p.wild))
	for i, at := range p.wild {
		key[i] = tokens[at]
	}
	return key, nil
}

// Streams returns the names of the streams with the group's messages, by shard.
func (c Config) Streams() []string { return layout{stream: c.Stream, shards: c.Shards}.streams() }

// PublishSubject returns the subject to publish a message to whose subject is one
// that Config.Subject stands for: the same one, or with Shards the one that its
// stream listens to. It needs Name, Subject and Shards, and asks nobody; the error
// says that the subject is of no key. Who can't call it publishes to the subject
// itself, and leaves the rest to the servers: see Mapping.
func (c Config) PublishSubject(subject string) (string, error) {
	p, err := parsePattern(c.Subject)
	if err != nil {
		return "", fmt.Errorf("finding the stream of %q: %w", subject, err)
	}
	to, err := layout{group: c.Name, pattern: p, shards: c.Shards}.publish(subject)
	if err != nil {
		return "", fmt.Errorf("finding the stream of %q: %w", subject, err)
	}
	return to, nil
}

// Mapping returns the subject mapping that lets publishers know nothing of Shards:
// the servers change the one subject to the other, which names the key's shard. It
// belongs in the configuration of every server of the cluster that publishers
// connect to, in the account's mappings. Both are empty where there is one stream,
// and where Subject is not valid.
//
// Source: NATS documentation, "Subject Mapping and Partitioning".
func (c Config) Mapping() (from, to string) {
	p, err := parsePattern(c.Subject)
	if err != nil || c.Shards <= 1 {
		return "", ""
	}
	return c.Subject, layout{group: c.Name, pattern: p, shards: c.Shards}.mapping()
}

// Sequence returns what Message.Sequence will be of a message that a stream of the
// group has acknowledged to its publisher under a sequence.
func (c Config) Sequence(stream string, inStream uint64) (uint64, error) {
	l := layout{stream: c.Stream, shards: c.Shards}
	for shard, name := range l.streams() {
		if name == stream {
			return l.sequence(shard, inStream), nil
		}
	}
	return 0, fmt.Errorf("stream %q is none of the group's, which are %q", stream, l.streams())
}

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
	cfg := Config{Name: group, Stream: rec.Stream, Subject: rec.Subject, Slots: rec.Slots, Shards: max(rec.Shards, 1), Retry: Retry{Enabled: rec.Retry}}
	if rec.Settings != nil {
		cfg = cfg.fill(*rec.Settings)
	}
	return cfg, nil
}

// A probe can be stored by no stream: it is expected behind a message that there
// will never be. So the stream that it gets to says only that, and any other that
// it is not the one.
const (
	probeSequence     = "9000000000000000000"
	codeNotThisStream = 10060 // the expected stream is another
	probeTries        = 1 << 14
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
		if err := l.probe(ctx, nc, shard); err != nil {
			return err
		}
	}
	return nil
}

// example returns a subject as it is published of which the key is in a shard. Its
// tokens differ: the last bits of the hash of a token twice are always the same.
func (l layout) example(shard int) (string, error) {
	tokens := append([]string(nil), l.pattern.tokens...)
	key := make([]string, len(l.pattern.wild))
	for n := range probeTries {
		for i, at := range l.pattern.wild {
			key[i] = "muster-probe-" + strconv.Itoa(n>>(7*i))
			tokens[at] = key[i]
		}
		if SlotOf(l.shards, key...) == shard {
			return strings.Join(tokens, "."), nil
		}
	}
	return "", fmt.Errorf("none of %d keys is in shard %d of %d", probeTries, shard, l.shards)
}

func (l layout) probe(ctx context.Context, nc *nats.Conn, shard int) error {
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
