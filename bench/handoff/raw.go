package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// rawGroup is JetStream without any group: work queues with 64 consumers each, that keep
// their state in memory, and connections that each pull for its part of them. It has no
// workers that could come and go, so it is the limit for those that have: publish, consume
// and acknowledge, in the order of each key.
type rawGroup struct {
	*natsSender
	env
	drain   *modeDrain
	batched bool // publishes in atomic batches
}

// rawConsumers is how many consumers a stream has, rawInFlight how many messages of each may
// wait for their acknowledgement. Both are the best of those tried (see Modes).
const (
	rawConsumers = 64
	rawInFlight  = 1000
)

func startRaw(streams int, batched bool) func(context.Context, env) (group, error) {
	return func(ctx context.Context, e env) (group, error) {
		g := &rawGroup{env: e, batched: batched}
		g.drain = &modeDrain{
			Mode:  Mode{InFlight: rawInFlight, Shards: streams, Slots: streams * rawConsumers, Replicas: e.replicas},
			batch: rawInFlight, atomic: batched, deliver: g.deliver,
		}
		if err := g.open(ctx); err != nil {
			g.stop()
			return nil, err
		}
		return g, nil
	}
}

func (g *rawGroup) open(ctx context.Context) (err error) {
	g.natsSender, err = newNATSSender(g.url, func(key int) string {
		return g.drain.subject(key%g.drain.Slots) + strconv.Itoa(key)
	})
	if err != nil {
		return err
	}
	if err := g.drain.open(g.url); err != nil {
		return err
	}
	return g.drain.provision(ctx)
}

// deliver works on a message and acknowledges it, as a connection's messages come.
func (g *rawGroup) deliver(connection, slot int, msg *nats.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		g.ledger.fault(err)
		return
	}
	if g.ledger.handle(context.Background(), connection, slot, msg.Data, meta.Timestamp) == nil {
		_ = msg.Ack()
	}
}

// hold ends pulling until release begins it again.
func (g *rawGroup) hold() (release func()) {
	if err := g.drain.end(); err != nil {
		g.ledger.fault(err)
	}
	return sync.OnceFunc(func() {
		if err := g.drain.begin(); err != nil {
			g.ledger.fault(err)
		}
	})
}

// batchSize is how many messages are in an atomic batch. Servers allow 1,000.
const batchSize = 500

// fill waits for the confirmation of one batch before the next, on each connection.
func (g *rawGroup) fill(ctx context.Context, ms []message) error {
	if !g.batched {
		return g.natsSender.fill(ctx, ms)
	}
	errs := make([]error, len(g.conns))
	var all sync.WaitGroup
	for i, nc := range g.conns {
		own := slices.DeleteFunc(slices.Clone(ms), func(m message) bool { return m.key%len(g.conns) != i })
		all.Go(func() {
			for batch := range slices.Chunk(own, batchSize) {
				if errs[i] = g.publishBatch(ctx, nc, batch); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// publishBatch publishes messages of one stream of which all are stored or none.
//
// Source: ADR-50 of nats-architecture-and-design, "JetStream Batch Publishing".
func (g *rawGroup) publishBatch(ctx context.Context, nc *nats.Conn, batch []message) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	id := nats.NewInbox()
	for i, m := range batch {
		msg := &nats.Msg{Subject: g.subjectOf(m.key), Data: m.encode(), Header: nats.Header{}}
		msg.Header.Set("Nats-Batch-Id", id)
		msg.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i < len(batch)-1 {
			if err := nc.PublishMsg(msg); err != nil {
				return err
			}
			continue
		}

		msg.Header.Set("Nats-Batch-Commit", "1")
		answer, err := nc.RequestMsgWithContext(ctx, msg)
		if err != nil {
			return fmt.Errorf("publishing a batch: %w", err)
		}
		var stored struct {
			Count int `json:"count"`
		}
		if err := json.Unmarshal(answer.Data, &stored); err != nil || stored.Count != len(batch) {
			return fmt.Errorf("publishing a batch of %d: the server answers %s", len(batch), answer.Data)
		}
	}
	return nil
}

func (g *rawGroup) acknowledged(ctx context.Context) error { return g.drain.booked(ctx) }

func (g *rawGroup) predicted(int) ([]int, error) { return nil, nil }

func (g *rawGroup) change(context.Context, int, func([]int)) error { return nil }

func (g *rawGroup) stop() {
	g.drain.close()
	if g.natsSender != nil {
		g.close()
	}
}
