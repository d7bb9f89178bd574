package partition

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

func slotConsumer(cfg Config, lay layout, at place) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{
		Durable:       lay.consumer(at),
		FilterSubject: lay.filter(at),
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       cfg.Delivery.AckWait,
		MaxDeliver:    -1,
		// With one the server keeps the order within a slot, and a message that is not
		// settled yet keeps the next owner waiting.
		MaxAckPending:  cfg.Delivery.InFlight,
		MemoryStorage:  true,
		PriorityPolicy: jetstream.PriorityPolicyPinned,
		PriorityGroups: []string{priorityGroup},
		PinnedTTL:      pinnedTTL,
	}
}

// provisionGeneration makes the consumers of the generation that is in force. One
// that is being changed is the leader's.
func provisionGeneration(ctx context.Context, js jetstream.JetStream, kv jetstream.KeyValue, cfg Config, lay layout, which whichConsumers) error {
	d := lay.firstGeneration()
	e, err := kv.Get(ctx, record.AssignmentKey)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return fmt.Errorf("reading the assignment map: %w", err)
	default:
		a, err := record.DecodeAssignment(e.Value())
		if err != nil {
			return err
		}
		if a.Former != nil {
			return nil
		}
		d = generationOf(a)
	}
	return provisionConsumers(ctx, js, cfg, lay, d, which)
}

// whichConsumers says what provisionConsumers does to consumers that are there.
type whichConsumers bool

const (
	missingConsumers whichConsumers = false // nothing
	setConsumers     whichConsumers = true  // they get the settings
)

func provisionConsumers(ctx context.Context, js jetstream.JetStream, cfg Config, lay layout, d generation, which whichConsumers) error {
	have := make(map[string]bool, d.slots)
	for _, stream := range lay.streams() {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return fmt.Errorf("reading stream %s: %w", stream, err)
		}
		names := s.ConsumerNames(ctx)
		for n := range names.Name() {
			have[n] = true
		}
		if err := names.Err(); err != nil {
			return fmt.Errorf("reading the consumers of stream %s: %w", stream, err)
		}
	}
	return concurrently(ctx, d.slots, 16, func(ctx context.Context, slot int) error {
		if have[lay.consumer(d.place(slot))] && which == missingConsumers {
			return nil
		}
		_, err := js.CreateOrUpdateConsumer(ctx, lay.streamOf(slot), slotConsumer(cfg, lay, d.place(slot)))
		return err
	})
}
