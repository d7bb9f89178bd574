// Package collect is the data collector: it makes T-charts durable and then
// tells the defenders of them, in this order.
package collect

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
)

// Collector publishes contexts.
type Collector struct {
	store     defender.Store
	js        jetstream.JetStream
	retention time.Duration
}

// New returns a collector whose T-charts are kept as long as a message can wait
// to be processed, 7 days.
func New(store defender.Store, nc *nats.Conn) (*Collector, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("starting the collector: %w", err)
	}
	return &Collector{store: store, js: js, retention: 7 * 24 * time.Hour}, nil
}

// Publish stores a context's encoded T-chart and then publishes its completion.
// It returns the message's sequence in the stream. A context that is published
// again within the stream's duplicate window is stored there once; its sequence
// is that of the first.
func (c *Collector) Publish(ctx context.Context, ref defender.ContextRef, blob []byte) (uint64, error) {
	completion := defender.NewCompletion(ref)
	if err := completion.Validate(); err != nil {
		return 0, fmt.Errorf("publishing %s: %w", ref.TChart(), err)
	}
	if err := c.store.PutTChart(ctx, ref.TChart(), blob, time.Now().Add(c.retention)); err != nil {
		return 0, fmt.Errorf("publishing %s: storing its T-chart: %w", ref.TChart(), err)
	}
	data, err := json.Marshal(completion)
	if err != nil {
		return 0, fmt.Errorf("publishing %s: %w", ref.TChart(), err)
	}
	ack, err := c.js.Publish(ctx, defender.CompletionSubject(ref.Chamber), data, jetstream.WithMsgID(ref.TChart().String()))
	if err != nil {
		return 0, fmt.Errorf("publishing %s: %w", ref.TChart(), err)
	}
	return ack.Sequence, nil
}
