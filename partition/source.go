package partition

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file lets a group work on an existing stream, its source, that the group did not make and
// does not change. Workers need a work queue whose subjects name slots. So the group has one of
// its own, and the server copies the source's messages there.
//
// A server usually knows how far it has copied by the last copy in its stream. The copies of a
// work queue go when they are processed, and with the last one it would not know any more, and
// begin again. So the group has a durable consumer of the source, which remembers that. The server
// acknowledges a message to it after its copy is stored. After a failure in between it copies
// messages twice: the group handles a message of its source at least once.
//
// Source: NATS ADR-60, "Reliable Stream Sourcing", for durable consumers and the flow-control
// acknowledgements of nats-server 2.14.

// sourcePending is how many messages are on their way from the source.
const sourcePending = 4096

// sourceName is the name of a stream as the servers allow it.
var sourceName = regexp.MustCompile(`^[^\s.*>/\\]{1,255}$`)

func (l layout) sourced() bool { return l.source != "" }

// sourceConsumer is the durable consumer of the source.
func (l layout) sourceConsumer() string { return "muster-" + l.group }

// sourceSubject is where the server sends itself the messages of the source.
func (l layout) sourceSubject() string { return "muster." + l.group + ".source" }

// directPrefix begins the subjects that a sourced group's own stream listens to. A dead letter
// returns by these: by its subject it would come to the source, and to every other group on it.
func (l layout) directPrefix() string { return "muster." + l.group + ".direct." }

// streamSource is the source of a sourced group's stream.
func (l layout) streamSource() *jetstream.StreamSource {
	return &jetstream.StreamSource{
		Name:              l.source,
		SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: l.pattern.subject, Destination: l.transform()}},
		Consumer:          &jetstream.StreamConsumerSource{Name: l.sourceConsumer(), DeliverSubject: l.sourceSubject()},
	}
}

// sameSource reports whether a stream that is there takes messages from where the group's should.
func sameSource(have, want []*jetstream.StreamSource) bool {
	return slices.EqualFunc(have, want, func(a, b *jetstream.StreamSource) bool {
		return a.Name == b.Name && a.Consumer != nil && *a.Consumer == *b.Consumer && slices.Equal(a.SubjectTransforms, b.SubjectTransforms)
	})
}

// consumerOfSource is the durable consumer as it is created.
func (l layout) consumerOfSource() jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:        l.sourceConsumer(),
		Description:    fmt.Sprintf("Copies messages to stream %s for group %s.", l.stream, l.group),
		DeliverSubject: l.sourceSubject(),
		FilterSubject:  l.pattern.subject,
		AckPolicy:      jetstream.AckFlowControlPolicy,
		FlowControl:    true,
		IdleHeartbeat:  time.Second, // which the server asks for
		MaxAckPending:  sourcePending,
	}
}

// sourcePosition is how far the messages of a source are copied, as a worker has seen it last.
type sourcePosition struct {
	created time.Time // of the source, which may be created again; zero: nothing is known
	copied  uint64    // all messages up to this sequence are
}

// start sets where a new consumer of a source begins: behind what is known to be copied, or at a
// time, or with the first message.
func (p sourcePosition) start(c *jetstream.ConsumerConfig, created, since time.Time) {
	switch {
	case p.copied > 0 && p.created.Equal(created):
		c.DeliverPolicy, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, p.copied+1
	case !since.IsZero():
		c.DeliverPolicy, c.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
}

// see notes how far a consumer that is there has come.
func (p *sourcePosition) see(ctx context.Context, js jetstream.JetStream, lay layout, have *jetstream.ConsumerInfo) error {
	if p.created.IsZero() {
		s, err := js.Stream(ctx, lay.source)
		if err != nil {
			return fmt.Errorf("reading stream %s, the source: %w", lay.source, err)
		}
		p.created = s.CachedInfo().Created
	}
	p.copied = have.AckFloor.Stream
	return lay.checkSourceConsumer(have.Config)
}

// ensureSource creates the durable consumer of the group's source if it is missing, and notes how
// far it has come. A group without a source needs none.
func ensureSource(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout, position *sourcePosition) error {
	if !lay.sourced() {
		return nil
	}
	have, err := js.PushConsumer(ctx, lay.source, lay.sourceConsumer())
	switch {
	case err == nil:
		return position.see(ctx, js, lay, have.CachedInfo())
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("Source.Stream is %s, and there is no such stream: create it, or give the name of the one that has the messages of %s: %w", lay.source, lay.pattern.subject, err)
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return fmt.Errorf("looking for consumer %s of stream %s: %w", lay.sourceConsumer(), lay.source, err)
	}

	created, err := lay.checkSource(ctx, js)
	if err != nil {
		return err
	}
	since, err := sourceSince(ctx, js, cfg)
	if err != nil {
		return err
	}
	consumer := lay.consumerOfSource()
	position.start(&consumer, created, since)
	if _, err = js.CreatePushConsumer(ctx, lay.source, consumer); err != nil {
		return fmt.Errorf("creating consumer %s of stream %s, which needs nats-server 2.14 or later: %w", lay.sourceConsumer(), lay.source, err)
	}
	position.created = created
	return lay.restartSource(ctx, js)
}

// restartSource has the server begin to copy again, if the group's stream is there. A server whose
// consumer was deleted takes the first messages of the next one for some that it had before: it
// goes by how many were delivered. Without the source it forgets that, and where it fails in
// between, missingStreams adds the source again.
func (l layout) restartSource(ctx context.Context, js jetstream.JetStream) error {
	s, err := js.Stream(ctx, l.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading stream %s: %w", l.stream, err)
	}
	for _, sources := range [][]*jetstream.StreamSource{nil, {l.streamSource()}} {
		next := s.CachedInfo().Config
		next.Sources = sources
		if _, err := js.UpdateStream(ctx, next); err != nil {
			return fmt.Errorf("having stream %s take messages of stream %s again: %w", l.stream, l.source, err)
		}
	}
	return nil
}

// keepSource creates the consumer of the group's source again if it is gone, and reports whether it
// is there. Messages that were copied before are processed without it.
func (k *keeper) keepSource(ctx context.Context, cfg Config) bool {
	if err := ensureSource(ctx, k.js, cfg, k.layout, &k.source); err != nil {
		k.cfg.Logger.Error("No messages are taken from the source of the group; retrying.", "source", k.layout.source, "err", err)
		return false
	}
	return true
}

// sourceState is how the copying from a group's source stands.
type sourceState struct {
	waiting uint64 // messages that are not copied yet, and those that the server has just copied
	fault   string // why the server copies none; empty: it does
}

// readSourceState asks the consumer of the source. The lag that the server tells of the group's
// stream is that of the last message that came there, and does not grow while that is full.
func readSourceState(ctx context.Context, js jetstream.JetStream, lay layout, own *jetstream.StreamInfo) (s sourceState, err error) {
	for _, source := range own.Sources {
		if source.Error != nil {
			s.fault = source.Error.Description
		}
	}
	consumer, err := js.PushConsumer(ctx, lay.source, lay.sourceConsumer())
	switch {
	case errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrStreamNotFound):
		s.fault = fmt.Sprintf("consumer %s of stream %s is not there", lay.sourceConsumer(), lay.source)
		return s, nil
	case err != nil:
		return s, fmt.Errorf("reading consumer %s of stream %s: %w", lay.sourceConsumer(), lay.source, err)
	}
	info := consumer.CachedInfo()
	s.waiting = info.NumPending + uint64(info.NumAckPending)
	return s, nil
}

// checkSourceConsumer compares a consumer of the source that is there with the group's.
func (l layout) checkSourceConsumer(have jetstream.ConsumerConfig) error {
	want := l.consumerOfSource()
	same := have.DeliverSubject == want.DeliverSubject && have.FilterSubject == want.FilterSubject && have.AckPolicy == want.AckPolicy
	if !same {
		return fmt.Errorf("consumer %s of stream %s is not the one of group %s: it sends %q to %q, want %q to %q: remove it, or give the group another Name",
			l.sourceConsumer(), l.source, l.group, have.FilterSubject, have.DeliverSubject, want.FilterSubject, want.DeliverSubject)
	}
	return nil
}

// checkSource reports what is wrong with a source that the group has no consumer of, and when it was
// created.
func (l layout) checkSource(ctx context.Context, js jetstream.JetStream) (created time.Time, err error) {
	s, err := js.Stream(ctx, l.source)
	if err != nil {
		return time.Time{}, fmt.Errorf("reading stream %s, the source: %w", l.source, err)
	}
	have, created := s.CachedInfo().Config, s.CachedInfo().Created
	if transform := have.SubjectTransform; transform != nil && transform.Destination != "" {
		return created, nil // its messages have other subjects than it listens to
	}
	if len(have.Subjects) > 0 && !slices.ContainsFunc(have.Subjects, func(s string) bool { return subjectsOverlap(s, l.pattern.subject) }) {
		return time.Time{}, fmt.Errorf("no message of stream %s can have Subject %s: it has messages of %s only: correct Subject or Source.Stream", l.source, l.pattern.subject, strings.Join(have.Subjects, ", "))
	}
	return created, nil
}

// subjectsOverlap reports whether a subject can match both of two with wildcards.
func subjectsOverlap(a, b string) bool {
	left, right := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(left), len(right)) {
		if left[i] == ">" || right[i] == ">" {
			return true
		}
		if left[i] != right[i] && left[i] != "*" && right[i] != "*" {
			return false
		}
	}
	return len(left) == len(right)
}

// sourceSince returns the time from which on a group takes messages from its source: what it was
// provisioned with, or is being provisioned with. The configuration of a worker that starts later
// need not say it.
func sourceSince(ctx context.Context, js jetstream.JetStream, cfg Config) (time.Time, error) {
	kv, err := js.KeyValue(ctx, cfg.bucketMap())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return cfg.Source.Since, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("opening bucket %s: %w", cfg.bucketMap(), err)
	}
	rec, err := recordedLayout(ctx, patientBucket{kv})
	if errors.Is(err, errNotProvisioned) {
		return cfg.Source.Since, nil
	}
	return sourceOf(rec).Since, err
}

// sourceOf returns the source of a recorded group.
func sourceOf(v record.Layout) Source {
	s := Source{Stream: v.Source}
	if v.SourceSince != 0 {
		s.Since = time.Unix(0, v.SourceSince)
	}
	return s
}

// recordSource notes the source of a group in its record.
func recordSource(v *record.Layout, s Source) {
	v.Source = s.Stream
	if !s.Since.IsZero() {
		v.SourceSince = s.Since.UnixNano()
	}
}

// headerSourced is the header by which a server says where it has copied a message from:
// "<stream>[:<more>] <sequence> <filter> <destination> <subject>".
//
// Source: NATS ADR-60, and genSourceHeader in nats-server's stream.go.
const headerSourced = "Nats-Stream-Source"

// Origin returns the stream that a message was copied from and its sequence there, if its group
// has a Source. Other messages, a dead letter that was requeued among them, have none.
func (m Message) Origin() (stream string, sequence uint64, found bool) {
	return originIn(m.Header.Get(headerSourced))
}

// originIn reads the beginning of a header, "<stream>[:<more>] <sequence>".
func originIn(header string) (stream string, sequence uint64, found bool) {
	tokens := strings.Fields(header)
	if len(tokens) < 2 {
		return "", 0, false
	}
	stream, _, _ = strings.Cut(tokens[0], ":")
	sequence, err := strconv.ParseUint(tokens[1], 10, 64)
	return stream, sequence, err == nil
}
