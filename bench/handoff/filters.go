package handoff

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"
)

// startFilters is one durable consumer a worker whose filter subjects, one a
// key, are edited when keys move: as the seed of the design describes it and
// parti did until its version 2. On a work queue an update that overlaps with
// another worker's is refused, and asked for again.
func startFilters(retention jetstream.RetentionPolicy) func(context.Context, env) (group, error) {
	return func(ctx context.Context, e env) (group, error) {
		g := &mappedGroup{env: e, units: e.Keys, unitOf: func(key int) int { return key },
			connect: func(w *mappedWorker) client { return &filtersClient{w: w} }}
		if err := g.open(ctx, jetstream.StreamConfig{Retention: retention}); err != nil {
			g.stop()
			return nil, err
		}
		return g, nil
	}
}

type filtersClient struct {
	w         *mappedWorker
	consuming jetstream.ConsumeContext
}

func (c *filtersClient) apply(ctx context.Context, units []int) error {
	if len(units) == 0 {
		return c.leave(ctx)
	}
	filters := make([]string, len(units))
	for i, key := range units {
		filters[i] = subjectOf(key)
	}
	var consumer jetstream.Consumer
	err := untilDone(ctx, retryPause, func(ctx context.Context) (err error) {
		consumer, err = c.w.js.CreateOrUpdateConsumer(ctx, stream, c.w.config(filters))
		return err
	})
	if err != nil || c.consuming != nil {
		return err
	}
	c.consuming, err = c.w.consume(ctx, consumer, func(_ string, m message) int { return m.key })
	return err
}

// leave ends what it has, and takes its consumer away, which on a work queue
// would keep its filters from others.
func (c *filtersClient) leave(ctx context.Context) error {
	if c.consuming == nil {
		return nil
	}
	c.consuming.Drain()
	<-c.consuming.Closed()
	c.consuming = nil
	c.w.queues.wait()
	if err := c.w.flush(); err != nil {
		return err
	}
	return untilDone(ctx, retryPause, func(ctx context.Context) error {
		err := c.w.js.DeleteConsumer(ctx, stream, c.w.consumerName())
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return err
	})
}
