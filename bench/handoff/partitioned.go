package handoff

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker/access"
)

// partitionedGroup is JetStream alone: a work queue that a subject transform divides in
// partitions, with a durable consumer for each. The client library works on what a consumer
// delivers one message at a time, so a partition keeps its order while nothing is redelivered.
// Nothing moves.
type partitionedGroup struct {
	*natsSender
	env
	workers   []*nats.Conn
	consuming []jetstream.ConsumeContext
}

func startPartitioned(ctx context.Context, e env) (group, error) {
	g := &partitionedGroup{env: e}
	if err := g.open(ctx); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

func (g *partitionedGroup) open(ctx context.Context) (err error) {
	if g.natsSender, err = newNATSSender(g.url, subjectOf); err != nil {
		return err
	}
	for worker := range g.Before {
		nc, err := access.Connect(g.url, workerName(worker))
		if err != nil {
			return err
		}
		g.workers = append(g.workers, nc)
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		if worker == 0 {
			if err := g.provision(ctx, js); err != nil {
				return err
			}
		}
		for p := worker; p < g.Slots; p += g.Before {
			if err := g.consume(ctx, js, worker, p); err != nil {
				return fmt.Errorf("consuming partition %d: %w", p, err)
			}
		}
	}
	return nil
}

func (g *partitionedGroup) provision(ctx context.Context, js jetstream.JetStream) error {
	_, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{"dc.*.*.completion"}, Retention: jetstream.WorkQueuePolicy, Replicas: g.replicas,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: "dc.*.*.completion",
			Destination: fmt.Sprintf("{{partition(%d,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}", g.Slots)},
	})
	if err != nil {
		return fmt.Errorf("making stream %s: %w", stream, err)
	}
	return nil
}

func (g *partitionedGroup) consume(ctx context.Context, js jetstream.JetStream, worker, p int) error {
	c, err := js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{Durable: consumer(p), FilterSubject: fmt.Sprintf("%d.>", p),
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: inFlight, MemoryStorage: true})
	if err != nil {
		return err
	}
	consuming, err := c.Consume(func(msg jetstream.Msg) {
		meta, err := msg.Metadata()
		if err != nil {
			g.ledger.fault(err)
			return
		}
		if g.ledger.handle(context.Background(), worker, p, msg.Data(), meta.Timestamp) == nil {
			_ = msg.Ack()
		}
	}, jetstream.PullMaxMessages(inFlight))
	if err != nil {
		return err
	}
	g.consuming = append(g.consuming, consuming)
	return nil
}

func (g *partitionedGroup) predicted(int) ([]int, error) { return nil, nil }

func (g *partitionedGroup) change(context.Context, int, func([]int)) error { return nil }

func (g *partitionedGroup) stop() {
	for _, c := range g.consuming {
		c.Stop()
		<-c.Closed()
	}
	for _, nc := range g.workers {
		nc.Close()
	}
	if g.natsSender != nil {
		g.close()
	}
}
