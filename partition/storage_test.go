package partition_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/internal/component"
	"github.com/muster-dev/muster/partition"
)

// limited is a server for one group that may keep only so many bytes.
func limited(t *testing.T, maxStore int64) servers {
	t.Helper()
	srv, err := broker.Start(broker.Options{Dir: t.TempDir(), MaxStore: maxStore})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	return servers{url: srv.URL(), change: func(c *partition.Config) { c.Name, c.Stream, c.Subject = "worker", "jobs", "jobs.*.*" }}
}

// fill publishes large messages until the servers refuse ten in a row, and returns why.
func (g *group) fill(keys int) error {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	padding := strings.Repeat("x", 50<<10)
	var last error
	for refused, k := 0, 0; refused < 10; k = (k + 1) % keys {
		key := fmt.Sprintf("a%d.b%d", k, k%3)
		n := g.n[key] + 1
		msg := &nats.Msg{Subject: strings.Replace(g.cfg.Subject, "*.*", key, 1), Data: fmt.Append(nil, n), Header: nats.Header{"Padding": {padding}}}
		switch _, err := g.pub.PublishMsg(ctx, msg, jetstream.WithMsgID(fmt.Sprint(key, " ", n))); {
		case err == nil:
			g.n[key], refused = n, 0
		case ctx.Err() != nil:
			g.t.Fatalf("publishing message %d of %s: %v", n, key, err)
		default:
			refused, last = refused+1, err
		}
	}
	return last
}

// lost counts how often a worker could not be sure of its lease.
func (r *recorder) trustLost() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == partition.EventTrustLost {
			n++
		}
	}
	return n
}

// TestFullStorage: publishers fill the storage while handlers are held up.
func TestFullStorage(t *testing.T) {
	t.Parallel()
	component.Using(t, "NATS, embedded", server.VERSION)
	t.Run("the backlog drains by itself, and no lease is lost", func(t *testing.T) {
		t.Parallel()
		g := startGroup(t, limited(t, 64<<20), 0, quickLeases)
		ws := []*runningWorker{g.start("w0"), g.start("w1")}
		eventually(t, "two workers settled", g.settled(ws...))
		held := make(chan struct{})
		g.rec.mu.Lock()
		g.rec.hold = held
		g.rec.mu.Unlock()
		refused := g.fill(40)
		t.Logf("%d messages stored; then: %v", g.published(), refused)
		var api *jetstream.APIError
		if !errors.As(refused, &api) || api.ErrorCode != 10077 {
			t.Errorf("publishers are refused with %v, want that the stream's maximum bytes are exceeded", refused)
		}
		time.Sleep(3 * g.cfg.LeaseTTL) // of the full storage
		if n := g.rec.trustLost(); n > 0 {
			t.Errorf("workers lost their leases %d times while the storage was full", n)
		}
		g.rec.mu.Lock()
		g.rec.hold = nil
		g.rec.mu.Unlock()
		close(held)
		g.check(0)
		g.publish(40, 1)
		g.check(0)
	})
}
