package servertest_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// handledSince waits until every message that was published after a moment is
// processed. Unlike check it allows what a stream that went back may repeat.
func (g *group) handledSince(before map[string]int) {
	g.t.Helper()
	missing := func() (n int) {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		for key, last := range g.n {
			for i := before[key] + 1; i <= last; i++ {
				if g.rec.done[strings.Replace(key, ".", partition.KeySeparator, 1)+" "+strconv.Itoa(i)] == 0 {
					n++
				}
			}
		}
		return n
	}
	ended := false
	defer func() {
		if !ended {
			waiting := uint64(0)
			for _, name := range g.cfg.Streams() {
				if s, err := g.pub.Stream(g.t.Context(), name); err == nil {
					waiting += s.CachedInfo().State.Msgs
				}
			}
			g.t.Logf("%d messages are not processed, %d are in the stream", missing(), waiting)
		}
	}()
	await.That(g.t, "every message published since is processed", func() bool { return missing() == 0 })
	ended = true
}

// now returns how many messages each key has had.
func (g *group) now() map[string]int {
	out := make(map[string]int, len(g.n))
	for k, n := range g.n {
		out[k] = n
	}
	return out
}

// rollbacks returns what the workers told of streams that went back.
func (g *group) rollbacks() (told []event.Event) {
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	for _, e := range g.rec.events {
		if e.Kind == event.StreamRolledBack {
			told = append(told, e)
		}
	}
	return told
}

// deleteStreams deletes the group's streams, and with them their consumers.
func (g *group) deleteStreams() {
	g.t.Helper()
	for _, name := range g.cfg.Streams() {
		if err := g.pub.DeleteStream(g.t.Context(), name); err != nil {
			g.t.Fatal(err)
		}
	}
}

// TestStreamRecreated: the sequences of a stream that is deleted and made again
// start at 1, and its messages must not be taken for those of the earlier one.
func TestStreamRecreated(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(*group, []jetstream.StreamConfig){
		"provisioned": func(g *group, _ []jetstream.StreamConfig) {
			if err := partition.Open(g.pub.Conn(), g.cfg.Name).Provision(g.t.Context(), g.cfg); err != nil {
				g.t.Fatal(err)
			}
		},
		"without its consumers": func(g *group, configs []jetstream.StreamConfig) {
			for _, c := range configs {
				if _, err := g.pub.CreateStream(g.t.Context(), c); err != nil {
					g.t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, on servers) {
				g := startGroup(t, on, 0, func(c *partition.Config) { c.Slots = 16 })
				ws := []*runningWorker{g.start("w0"), g.start("w1")}
				await.That(t, "two workers settled", g.settled(ws...))
				g.publish(20, 10)
				g.check(0)
				var configs []jetstream.StreamConfig
				for _, name := range g.cfg.Streams() {
					s, err := g.pub.Stream(t.Context(), name)
					if err != nil {
						t.Fatal(err)
					}
					configs = append(configs, s.CachedInfo().Config)
				}
				g.deleteStreams()
				again(g, configs)
				before := g.now()
				g.publish(20, 5)
				g.handledSince(before)
				await.That(t, "the workers tell of it", func() bool { return len(g.rollbacks()) > 0 })
			})
		})
	}
}

// TestServerRolledBack: a server that lost power may come back without its last
// minutes, and gives their sequences to other messages. What it keeps is put back to
// what it was before the messages, as the disk is that of the last sync: the streams
// of the group alone, or everything, the workers' buckets included.
func TestServerRolledBack(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"its streams": "jetstream/$G/streams/jobs-", "everything": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverRolledBack(t, path)
		})
	}
}

// restorable is a server whose store can be put back to what it was.
type restorable struct {
	t           *testing.T
	srv         *natstest.Server
	dir, copied string
}

func startRestorable(t *testing.T) *restorable {
	srv := natstest.Start(t)
	return &restorable{t: t, srv: srv, dir: srv.Dir(), copied: filepath.Join(t.TempDir(), "copy")}
}

func (s *restorable) url() string { return s.srv.URL() }

// restart does something while the server is stopped.
func (s *restorable) restart(between func() error) {
	s.t.Helper()
	s.srv.Restart(s.t, between)
}

// copy keeps a copy of what is under a path of the store, "" for everything.
func (s *restorable) copy(path string) {
	s.t.Helper()
	s.restart(func() error { return os.CopyFS(s.copied, os.DirFS(filepath.Join(s.dir, path))) })
}

// restore puts that copy back.
func (s *restorable) restore(path string) {
	s.t.Helper()
	s.restart(func() error {
		if err := os.RemoveAll(filepath.Join(s.dir, path)); err != nil {
			return err
		}
		return os.CopyFS(filepath.Join(s.dir, path), os.DirFS(s.copied))
	})
}

func serverRolledBack(t *testing.T, path string) {
	s := startRestorable(t)
	g := startGroup(t, servers{url: s.url()}, 0, func(c *partition.Config) { c.Slots = 16 })
	if path != "" {
		path += strings.TrimPrefix(g.cfg.Stream, "jobs-")
	}
	ws := []*runningWorker{g.start("w0"), g.start("w1")}
	await.That(t, "two workers settled", g.settled(ws...))
	g.publish(20, 1)
	g.check(0)
	s.copy(path)
	g.publish(20, 10)
	g.check(0)
	s.restore(path)
	before := g.now()
	g.publish(20, 5)
	g.handledSince(before)
	await.That(t, "the workers tell of it", func() bool { return len(g.rollbacks()) > 0 })
}

// TestRetryStreamRecreated: while a queued message is tried its stream is made again,
// and another message has its sequence. That one must not be removed in its place.
func TestRetryStreamRecreated(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), 0, withRetry, func(c *partition.Config) { c.Slots = 1 })
	begun, end := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	failing := true
	g.rec.fails = func(key string, _ uint64, m partition.Message) bool {
		if key == "a0:b0" && m.Queued {
			g.rec.mu.Unlock()
			close(begun)
			<-end
			g.rec.mu.Lock()
			return false
		}
		return failing
	}
	w := g.start("w0")
	await.That(t, "one worker settled", g.settled(w))
	g.publish(2, 1)
	<-begun
	stream, err := g.pub.Stream(t.Context(), g.cfg.Stream+"-retry")
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "both messages are in the retry queue", func() bool { return g.retryQueue().Messages == 2 })
	config := stream.CachedInfo().Config
	var tried, other *jetstream.RawStreamMsg
	for seq := uint64(1); other == nil || tried == nil; seq++ {
		m, err := stream.GetMsg(t.Context(), seq)
		switch {
		case err != nil:
			continue // a claim that was replaced
		case strings.HasSuffix(m.Subject, ".a0.b0"):
			tried = m
		case strings.HasSuffix(m.Subject, ".a1.b1"):
			other = m
		}
	}
	if err := g.pub.DeleteStream(t.Context(), config.Name); err != nil {
		t.Fatal(err)
	}
	config.FirstSeq = tried.Sequence
	if _, err := g.pub.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	again := &nats.Msg{Subject: other.Subject, Header: other.Header, Data: other.Data}
	for name := range again.Header {
		if strings.HasPrefix(name, "Nats-Expected-") {
			delete(again.Header, name)
		}
	}
	if ack, err := g.pub.PublishMsg(t.Context(), again); err != nil || ack.Sequence != tried.Sequence {
		t.Fatalf("the other message has %+v, %v, want sequence %d", ack, err, tried.Sequence)
	}
	g.rec.mu.Lock()
	failing = false
	g.rec.mu.Unlock()
	release()
	g.check(0)
	await.That(t, "the retry queue is empty", func() bool { return g.retryQueue().Messages == 0 })
}

// TestRetryStreamRolledBack: a message is acknowledged when its copy is in the retry queue.
// A server that goes back to before that has the message again and no copy; the worker
// must not take it for settled, nor begin what came behind it first.
func TestRetryStreamRolledBack(t *testing.T) {
	t.Parallel()
	s := startRestorable(t)
	g := startGroup(t, servers{url: s.url()}, 0, withRetry, func(c *partition.Config) { c.Slots = 1 })
	failing, holding := true, true
	g.rec.fails = func(string, uint64, partition.Message) bool { return failing }
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	g.rec.began = func(string) {
		if holding { // until the copy is made
			g.rec.mu.Unlock()
			<-hold
			g.rec.mu.Lock()
		}
	}
	w := g.start("w0")
	await.That(t, "one worker settled", g.settled(w))
	g.publish(1, 3)
	s.copy("")
	g.rec.mu.Lock()
	holding = false
	g.rec.mu.Unlock()
	release()
	await.That(t, "the messages are in the retry queue", func() bool { return g.retryQueue().Messages == 3 })
	s.restore("")
	g.rec.mu.Lock()
	failing = false
	g.rec.mu.Unlock()
	g.publish(1, 1)
	g.check(0)
	await.That(t, "the retry queue is empty", func() bool { return g.retryQueue().Messages == 0 })
}
