package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/reserve"
)

// This file holds the group's events as a stream, for those who come later.
// Workers publish without waiting for an answer, as to anybody who listens, and
// the server keeps what it gets: an event costs its worker one write to the
// connection, whether it is kept or not. What is published while the broker is
// away is lost; the map says what came of it.

// The limits of the stream of events: whichever comes first ends the oldest. Where the
// servers have little storage that is not reserved it gets less.
const (
	eventsKept     = 24 * time.Hour
	eventsMaxBytes = 64 << 20
)

// eventStreamName is the stream that keeps the events of a group: a day of them, at
// most 64 MiB.
func eventStreamName(group string) string { return group + "-events" }

// eventSubjects is where the workers of a group publish their events, as JSON:
// the last token is the kind.
func eventSubjects(group string) string { return eventSubject(group, "*") }

func eventSubject(group string, kind event.Kind) string {
	return "muster." + group + ".events." + string(kind)
}

func provisionEvents(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	if _, err := js.Stream(ctx, eventStreamName(cfg.Name)); !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err // nil: its bounds may have been changed on purpose
	}
	_, err := reserve.Stream(ctx, js, eventStream(cfg), eventsMaxBytes, 1)
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil // another worker was faster
	}
	return err
}

// eventStream returns the settings of the stream of events.
func eventStream(cfg Config) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        eventStreamName(cfg.Name),
		Description: fmt.Sprintf("What happened to the workers of %s, for people.", cfg.Name),
		Subjects:    []string{eventSubjects(cfg.Name)},
		Storage:     jetstream.FileStorage,
		Replicas:    cfg.Storage.Replicas,
		MaxAge:      eventsKept,
		Discard:     jetstream.DiscardOld,
		NoAck:       true,
		AllowDirect: true,
	}
}

// readEvents tells of the events of a group that a query selects, in the order
// in which the server had them, until all that are kept have been told, or with
// event.Query.Follow until ctx ends, which is no error then. An error of tell ends
// it and is returned.
func readEvents(ctx context.Context, nc *nats.Conn, group string, q event.Query, tell func(event.Event) error) error {
	it, err := openEvents(ctx, nc, group, q)
	if err != nil {
		return fmt.Errorf("reading the events of %s: %w", group, err)
	}
	if it == nil {
		return nil
	}
	defer it.Stop()
	for {
		msg, err := it.Next(jetstream.NextContext(ctx))
		if err != nil {
			if q.Follow && ctx.Err() != nil {
				return nil //nolint:nilerr // it was to end with ctx
			}
			return fmt.Errorf("reading the events of %s: %w", group, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return fmt.Errorf("reading the events of %s: %w", group, err)
		}
		// What is no event was published by somebody else, and tells nothing.
		var e event.Event
		if json.Unmarshal(msg.Data(), &e) == nil && e.Kind != "" && q.Matches(e) {
			if err := tell(e); err != nil {
				return err
			}
		}
		if meta.NumPending == 0 && !q.Follow {
			return nil
		}
	}
}

// openEvents begins to read the events that a query selects, nil if there are none to
// read.
func openEvents(ctx context.Context, nc *nats.Conn, group string, q event.Query) (jetstream.MessagesContext, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	if !q.Since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &q.Since
	}
	for _, k := range q.Kinds {
		cfg.FilterSubjects = append(cfg.FilterSubjects, eventSubject(group, k))
	}
	c, err := js.OrderedConsumer(ctx, eventStreamName(group), cfg)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("stream %s is not there: is there a group of this name, with workers that keep events?", eventStreamName(group))
	}
	if err != nil {
		return nil, err
	}
	info, err := c.Info(ctx)
	if err != nil {
		return nil, err
	}
	if info.NumPending == 0 && !q.Follow {
		return nil, nil
	}
	return c.Messages()
}
