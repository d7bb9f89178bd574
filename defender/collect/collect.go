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
	"github.com/muster-dev/muster/partition"
)

// Collector publishes contexts.
type Collector struct {
	store     defender.Store
	js        jetstream.JetStream
	group     partition.Config // of the defenders, as far as publishers must know it
	retention time.Duration
}

// New returns a collector whose T-charts are kept as long as a message can wait
// to be processed, 7 days.
func New(store defender.Store, nc *nats.Conn) (*Collector, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("starting the collector: %w", err)
	}
	return &Collector{store: store, js: js, group: defender.Partition(0), retention: 7 * 24 * time.Hour}, nil
}

// For has the collector publish to the streams of a group of defenders, as they
// were provisioned (see partition.Group.Config), before anything is published. It
// is needed where there are several and the servers have no mapping for them.
func (c *Collector) For(group partition.Config) { c.group = group }

// Publish makes a context's encoded T-chart durable and then announces it. It
// returns what Announce does.
func (c *Collector) Publish(ctx context.Context, ref defender.ContextRef, blob []byte) (uint64, error) {
	if err := c.MakeDurable(ctx, ref, blob); err != nil {
		return 0, err
	}
	return c.Announce(ctx, ref, nil)
}

// MakeDurable stores a context's encoded T-chart.
func (c *Collector) MakeDurable(ctx context.Context, ref defender.ContextRef, blob []byte) error {
	if err := ref.Validate(); err != nil {
		return fmt.Errorf("storing T-chart %s: %w", ref.TChart(), err)
	}
	if err := c.store.PutTChart(ctx, ref.TChart(), blob, time.Now().Add(c.retention)); err != nil {
		return fmt.Errorf("storing T-chart %s: %w", ref.TChart(), err)
	}
	return nil
}

// Announce publishes the completion of a context whose T-chart is durable, and
// returns what partition.Message.Sequence will be of the message. A context that is announced again
// within the stream's duplicate window is there once; its sequence is that of the
// first. The header may be nil.
func (c *Collector) Announce(ctx context.Context, ref defender.ContextRef, header nats.Header) (uint64, error) {
	completion := defender.NewCompletion(ref)
	if err := completion.Validate(); err != nil {
		return 0, fmt.Errorf("announcing %s: %w", ref.TChart(), err)
	}
	data, err := json.Marshal(completion)
	if err != nil {
		return 0, fmt.Errorf("announcing %s: %w", ref.TChart(), err)
	}
	subject, err := c.group.PublishSubject(defender.CompletionSubject(ref.Chamber))
	if err != nil {
		return 0, fmt.Errorf("announcing %s: %w", ref.TChart(), err)
	}
	msg := &nats.Msg{Subject: subject, Data: data, Header: header}
	ack, err := c.js.PublishMsg(ctx, msg, jetstream.WithMsgID(ref.TChart().String()))
	if err != nil {
		return 0, fmt.Errorf("announcing %s: %w", ref.TChart(), err)
	}
	seq, err := c.group.Sequence(ack.Stream, ack.Sequence)
	if err != nil {
		return 0, fmt.Errorf("announcing %s: it is stored, but where nobody was told of: %w", ref.TChart(), err)
	}
	return seq, nil
}
