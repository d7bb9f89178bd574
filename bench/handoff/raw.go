package handoff

import (
	"context"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
)

// rawGroup is JetStream without any group: work queues with up to 64 consumers each, that keep
// their state in memory, and connections that each pull for its part of them. It has no
// workers that could come and go, so it is the limit for those that have: publish, consume
// and acknowledge, in the order of each key.
type rawGroup struct {
	*natsSender
	env
	drain *modeDrain
}

// rawConsumers is how many consumers a stream has, rawInFlight how many messages of each may
// wait for their acknowledgement. Both are the best of those tried (see Modes).
const (
	rawConsumers = 64
	rawInFlight  = 1000
)

func startRaw(streams, consumers int) func(context.Context, env) (group, error) {
	return func(ctx context.Context, e env) (group, error) {
		g := &rawGroup{env: e}
		g.drain = &modeDrain{
			Mode:  Mode{InFlight: rawInFlight, Shards: streams, Slots: streams * consumers, Replicas: e.replicas},
			batch: rawInFlight, atomic: e.batched, deliver: g.deliver,
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
	if g.batched {
		g.streamOf = func(key int) int { return key % g.drain.Shards }
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

func (g *rawGroup) acknowledged(ctx context.Context) error { return g.drain.booked(ctx) }

func (g *rawGroup) predicted(int) ([]int, error) { return nil, nil }

func (g *rawGroup) change(context.Context, int, func([]int)) error { return nil }

func (g *rawGroup) stop() {
	g.drain.close()
	if g.natsSender != nil {
		g.close()
	}
}
