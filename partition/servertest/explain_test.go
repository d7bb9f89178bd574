package servertest_test

import (
	"context"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// explainIfFailed has a test that fails log what it was about: which messages were not processed,
// and what the servers say of the group's streams and consumers. Cleanups run in the opposite
// order, so the workers that were started before still run then.
func (g *group) explainIfFailed() {
	g.t.Cleanup(func() {
		if !g.t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		g.explainMessages()
		g.explainStreams(ctx)
	})
}

func (g *group) explainMessages() {
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	g.t.Logf("published %d, processed %d different messages", g.published(), len(g.rec.done))
	for _, e := range g.rec.events {
		g.t.Logf("event: %+v", e)
	}
}

func (g *group) explainStreams(ctx context.Context) {
	streams := g.pub.ListStreams(ctx)
	for s := range streams.Info() {
		if !strings.HasPrefix(s.Config.Name, g.cfg.Stream) {
			continue
		}
		leader := ""
		if s.Cluster != nil {
			leader = s.Cluster.Leader
		}
		g.t.Logf("stream %s, led by %q: %d messages, %d to %d", s.Config.Name, leader, s.State.Msgs, s.State.FirstSeq, s.State.LastSeq)
		for _, from := range s.Sources {
			g.t.Logf("  from %s: %d behind, heard of %v ago", from.Name, from.Lag, from.Active)
		}
		g.explainConsumers(ctx, s.Config.Name)
	}
	if err := streams.Err(); err != nil {
		g.t.Logf("listing the streams failed: %v", err)
	}
}

// explainConsumers logs those consumers that have not delivered or settled everything.
func (g *group) explainConsumers(ctx context.Context, stream string) {
	s, err := g.pub.Stream(ctx, stream)
	if err != nil {
		g.t.Logf("  %v", err)
		return
	}
	consumers := s.ListConsumers(ctx)
	for c := range consumers.Info() {
		if !caughtUp(c) {
			g.t.Logf("  consumer %s: %d to deliver, %d to settle, %d pulls wait, pins %+v", c.Name, c.NumPending, c.NumAckPending, c.NumWaiting, c.PriorityGroups)
		}
	}
	if err := consumers.Err(); err != nil {
		g.t.Logf("  listing the consumers failed: %v", err)
	}
}

func caughtUp(c *jetstream.ConsumerInfo) bool { return c.NumPending == 0 && c.NumAckPending == 0 }
