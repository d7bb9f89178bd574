package servertest_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestWorkersOnAClusterOfThreeProcesses holds workers to the same promises on three NATS servers, each a process of its own, with
// everything replicated on all of them; and to those that remain when a server is killed.
func TestWorkersOnAClusterOfThreeProcesses(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	promises(t, func(t *testing.T) servers { return c.forOne(t) })
	t.Run("a killed server costs no message and no order", func(t *testing.T) { c.losesAServer(t, c.forOne(t)) })
	t.Run("on an existing stream, a killed server costs no message and no order", func(t *testing.T) {
		c.losesAServer(t, c.fromExisting(t))
	})
	t.Run("several in flight, workers share out and hand over under load", func(t *testing.T) {
		shareOutAndHandOver(t, severalInFlight(c.forOne(t)))
	})
	t.Run("several in flight, a dead worker's slots are taken", func(t *testing.T) {
		deadAreReplaced(t, severalInFlight(c.forOne(t)))
	})
	t.Run("several in flight, a killed server costs no message and no order", func(t *testing.T) {
		c.losesAServer(t, severalInFlight(c.forOne(t)))
	})
}

// cluster is three servers, by name.
type cluster struct {
	url    string
	byName map[string]*natstest.Process
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{byName: map[string]*natstest.Process{}}
	var urls []string
	for _, p := range natstest.StartProcesses(t, 3) {
		urls = append(urls, p.URL)
		c.byName[p.Name] = p
	}
	c.url = strings.Join(urls, ",")
	return c
}

// forOne is the cluster for one test, after which its streams are deleted: each has a group of servers that agree for every slot, which
// costs all of them. Its windows are as long as it may take a worker to join where everything is written three times.
func (c *cluster) forOne(t *testing.T) servers {
	t.Cleanup(func() {
		nc, err := nats.Connect(c.url)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		js := natstest.JetStream(t, nc)
		ctx, cancel := context.WithTimeout(context.Background(), await.Patience)
		defer cancel()
		names := js.StreamNames(ctx)
		for name := range names.Name() {
			if err := js.DeleteStream(ctx, name); err != nil {
				t.Error(err)
			}
		}
		if err := names.Err(); err != nil {
			t.Error(err)
		}
	})
	return servers{url: c.url, change: func(p *partition.Config) {
		p.Storage.Replicas, p.Slots, p.Rebalance.ColdWindow, p.Rebalance.PlannedWindow = 3, 32, 3*time.Second, 3*time.Second
	}}
}

// fromExisting is the cluster for one group that takes its messages from an existing stream.
func (c *cluster) fromExisting(t *testing.T) servers {
	on := c.forOne(t)
	change := on.change
	on.change = func(p *partition.Config) {
		change(p)
		p.Source.Stream = p.Stream + "-source"
		js := natstest.JetStream(t, natstest.Connect(t, c.url))
		if _, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: p.Source.Stream, Subjects: []string{p.Subject}, Replicas: 3}); err != nil {
			t.Fatal(err)
		}
	}
	return on
}

// losesAServer kills, under load, the server that leads the stream, which is the worst one, and starts it again. Messages that were being
// acknowledged may come again, at once and in their order; nothing is lost, nothing runs twice at a time, no key moves.
func (c *cluster) losesAServer(t *testing.T, on servers) {
	g := startGroup(t, on, 5*time.Millisecond)
	var ws []*runningWorker
	for i := range 4 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	await.That(t, "four workers settled", g.settled(ws...))
	before := held(ws)
	g.publish(100, 3)
	victim := c.leader(t, g)
	c.byName[victim].Kill()
	g.publish(100, 3) // goes on as soon as another one leads
	c.byName[victim].Start(t)
	g.publish(100, 3)
	again := g.check(2 * g.cfg.Slots)
	await.That(t, "four workers settled again", g.settled(ws...))
	if after := held(ws); !reflect.DeepEqual(after, before) {
		t.Errorf("keys have moved: slots were %v, are %v", before, after)
	}
	t.Logf("%s was killed; %d messages, %d of them processed again", victim, g.published(), again)
}

// held returns the slots of each worker.
func held(ws []*runningWorker) (slots [][]int) {
	for _, w := range ws {
		slots = append(slots, slices.Sorted(slices.Values(w.Status().Slots)))
	}
	return slots
}

// leader returns the server that leads a group's stream.
func (c *cluster) leader(t *testing.T, g *group) string {
	t.Helper()
	s, err := g.pub.Stream(t.Context(), g.cfg.Stream)
	if err != nil {
		t.Fatal(err)
	}
	info := s.CachedInfo().Cluster
	if info == nil || c.byName[info.Leader] == nil {
		t.Fatalf("stream %s is led by %+v, which is none of ours", g.cfg.Stream, info)
	}
	return info.Leader
}
