package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	beside "github.com/muster-dev/muster/partition/internal/natstest"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestWorkersOnAnExistingStream gives each test a group that takes its messages from a stream
// which was there before. Publishers publish to that.
func TestWorkersOnAnExistingStream(t *testing.T) {
	t.Parallel()
	promises(t, func(t *testing.T) servers {
		t.Parallel()
		return sourced(t, jetstream.LimitsPolicy)
	})
}

// sourced is a server for one group alone, whose source is there.
func sourced(t *testing.T, retention jetstream.RetentionPolicy) servers {
	t.Helper()
	url := beside.Start(t, beside.Options{})
	existing(t, url, retention)
	return servers{url: url, change: fromExisting}
}

func fromExisting(c *partition.Config) {
	c.Name, c.Stream, c.Subject, c.Source.Stream = "worker", "jobs", "jobs.*.*", "history"
}

// existing creates the stream that a group is to take its messages from.
func existing(t *testing.T, url string, retention jetstream.RetentionPolicy) jetstream.Stream {
	t.Helper()
	js := natstest.JetStream(t, natstest.Connect(t, url))
	s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "history", Subjects: []string{"jobs.>", "other.>"}, Retention: retention})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSourceHistory: two groups work on what was in a stream before they were there, and on what
// comes; the stream keeps all of it.
func TestSourceHistory(t *testing.T) {
	t.Parallel()
	url := beside.Start(t, beside.Options{})
	source := existing(t, url, jetstream.LimitsPolicy)
	js := natstest.JetStream(t, natstest.Connect(t, url))
	on := servers{url: url}
	publish := func(from, to int) {
		for n := from; n <= to; n++ {
			for _, key := range []string{"a.b", "c.d", "e.f"} {
				if _, err := js.Publish(t.Context(), "jobs."+key, fmt.Append(nil, n)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := js.Publish(t.Context(), "other.a.b", []byte("of no group")); err != nil {
				t.Fatal(err)
			}
		}
	}

	publish(1, 20)
	var groups []*group
	for _, name := range []string{"first", "second"} {
		g := startGroup(t, on, 0, func(c *partition.Config) {
			c.Name, c.Stream, c.Subject, c.Source.Stream = name, name, "jobs.*.*", "history"
		})
		g.start("w0")
		g.start("w1")
		groups = append(groups, g)
	}
	publish(21, 40)

	for _, g := range groups {
		await.That(t, "120 messages processed by "+g.cfg.Name, func() bool { return g.processed() == 120 })
		g.rec.mu.Lock()
		for message, times := range g.rec.done {
			if times != 1 {
				t.Errorf("%s: message %s was processed %d times", g.cfg.Name, message, times)
			}
		}
		if len(g.rec.faults) > 0 {
			t.Errorf("%s: %s", g.cfg.Name, strings.Join(g.rec.faults, "; "))
		}
		g.rec.mu.Unlock()
	}
	info, err := source.Info(t.Context())
	if err != nil || info.State.Msgs != 160 {
		t.Errorf("the source has %d messages, %v; want 160", info.State.Msgs, err)
	}
}

// processed returns how many messages were processed, each counted once.
func (g *group) processed() int {
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	return len(g.rec.done)
}

// TestSourceFaults: what can't be a source is refused before the group's stream is created.
func TestSourceFaults(t *testing.T) {
	t.Parallel()
	url := beside.Start(t, beside.Options{})
	existing(t, url, jetstream.LimitsPolicy)
	nc := natstest.Connect(t, url)
	good := partition.Config{Name: "g", Stream: "s", Subject: "jobs.*.*", Slots: 4, Source: partition.Source{Stream: "history"}}
	for name, tt := range map[string]struct {
		change func(*partition.Config)
		want   string
	}{
		"no such stream":      {func(c *partition.Config) { c.Source.Stream = "missing" }, "Source.Stream is missing, and there is no such stream: create it"},
		"other subjects":      {func(c *partition.Config) { c.Subject = "work.*.*" }, "no message of stream history can have Subject work.*.*: it has messages of jobs.>, other.> only"},
		"its own stream":      {func(c *partition.Config) { c.Source.Stream = "s" }, "Source.Stream is Stream itself"},
		"several shards":      {func(c *partition.Config) { c.Shards = 2 }, "Shards is 2 with a Source.Stream: give 1"},
		"no name of a stream": {func(c *partition.Config) { c.Source.Stream = "a.b" }, `Source.Stream is "a.b"`},
		"a time alone": {func(c *partition.Config) { c.Source = partition.Source{Since: time.Now()} },
			"Source.Since is set without a Source.Stream"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			tt.change(&cfg)
			err := partition.Open(nc, cfg.Name).Provision(t.Context(), cfg)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("the error is %v, want one with %q", err, tt.want)
			}
			if _, err := natstest.JetStream(t, nc).Stream(t.Context(), cfg.Stream); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("stream %s: %v, want none", cfg.Stream, err)
			}
		})
	}

	t.Run("another source than the group's", func(t *testing.T) {
		g := partition.Open(nc, "g")
		if err := g.Provision(t.Context(), good); err != nil {
			t.Fatal(err)
		}
		other := good
		other.Source.Stream = ""
		if err := g.Provision(t.Context(), other); err == nil || !strings.Contains(err.Error(), `was provisioned with Source.Stream "history"`) {
			t.Errorf("the error is %v", err)
		}
		if have, err := g.Config(t.Context()); err != nil || have.Source.Stream != "history" {
			t.Errorf("the group's source is %q, %v", have.Source.Stream, err)
		}
	})
}

// TestSourceSince: a group takes messages from a time on.
func TestSourceSince(t *testing.T) {
	t.Parallel()
	url := beside.Start(t, beside.Options{})
	existing(t, url, jetstream.LimitsPolicy)
	js := natstest.JetStream(t, natstest.Connect(t, url))
	publish := func(data string) {
		if _, err := js.Publish(t.Context(), "jobs.a.b", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	publish("before")
	time.Sleep(10 * time.Millisecond)
	since := time.Now()
	time.Sleep(10 * time.Millisecond)
	publish("1")

	g := startGroup(t, servers{url: url, change: fromExisting}, 0, func(c *partition.Config) { c.Source.Since = since })
	if have, err := partition.Open(g.pub.Conn(), "worker").Config(t.Context()); err != nil || !have.Source.Since.Equal(since) {
		t.Errorf("the group takes messages since %v, %v; want %v", have.Source.Since, err, since)
	}
	g.cfg.Source.Since = time.Time{} // a worker need not know
	g.start("w0")
	publish("2")
	await.That(t, "two messages processed", func() bool { return g.rec.handled("a:b 1") && g.rec.handled("a:b 2") })
	if g.rec.done["a:b before"] > 0 {
		t.Error("a message from before was processed")
	}
}

// handled reports whether a message was processed.
func (r *recorder) handled(message string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done[message] > 0
}

// TestSourceDeadLetters: a dead letter says where its message was copied from, and comes back to
// its group alone.
func TestSourceDeadLetters(t *testing.T) {
	t.Parallel()
	var healed atomic.Bool
	r := startLetterRig(t, sourced(t, jetstream.LimitsPolicy), func(m partition.Message) error {
		if isPoison(m) && !healed.Load() {
			return errFails
		}
		return nil
	})
	r.publish(1, 3)
	r.awaitProcessed("a0:b0", "1", "3")

	l := r.awaitLetters(1)[0]
	if l.Source != "history" || l.SourceSequence != 2 || l.Subject != "jobs.a0.b0" {
		t.Errorf("the dead letter is of %s, message %d of stream %s; want jobs.a0.b0, message 2 of history", l.Subject, l.SourceSequence, l.Source)
	}

	healed.Store(true)
	if _, err := r.handle.Requeue(t.Context(), l.Number); err != nil {
		t.Fatal(err)
	}
	r.awaitProcessed("a0:b0", "1", "3", "2")
	source, err := r.pub.Stream(t.Context(), "history")
	if err != nil {
		t.Fatal(err)
	}
	if n := source.CachedInfo().State.Msgs; n != 3 {
		t.Errorf("the source has %d messages, want 3", n)
	}
}

// TestSourceRestart: the server restarts while messages are copied.
func TestSourceRestart(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	existing(t, srv.URL(), jetstream.LimitsPolicy)
	g := startGroup(t, servers{url: srv.URL(), change: fromExisting}, 0)
	g.start("w0")
	g.start("w1")
	for range 4 {
		g.publish(50, 10)
		srv.Restart(t, func() error { return nil })
	}
	g.publish(50, 2)
	again := g.check(1000)
	t.Logf("%d of %d messages were processed again", again, g.published())
}

// TestSourceServerKilled: the server is killed while messages are copied and processed. It may copy
// some again; none is left out, and those of a key come in their order, again from an earlier one on.
func TestSourceServerKilled(t *testing.T) {
	t.Parallel()
	srv := natstest.StartProcesses(t, 1)[0]
	existing(t, srv.URL, jetstream.LimitsPolicy)
	js := natstest.JetStream(t, natstest.Connect(t, srv.URL))
	fill(t, js, 50, 1, 200)
	g := startGroup(t, servers{url: srv.URL, change: fromExisting}, 0)
	copied := func() int {
		var n uint64
		if s, err := js.Stream(t.Context(), g.cfg.Stream); err == nil {
			n = s.CachedInfo().State.LastSeq
		}
		return int(n)
	}
	for before := 0; before < 6000; before = copied() { // in the middle of the copying
		await.That(t, "some more messages copied", func() bool { return copied() > before })
		srv.Kill()
		srv.Start(t)
	}
	t.Logf("%d of 10000 messages were copied when the workers started", copied())

	g.start("w0")
	g.start("w1")
	for kills := range 4 {
		await.That(t, "some more messages processed", func() bool { return g.processed() >= kills*2000+500 })
		srv.Kill()
		srv.Start(t)
	}
	fill(t, js, 50, 201, 210)

	await.That(t, "every message processed", func() bool { return g.processed() == 50*210 })
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	for _, fault := range g.rec.faults {
		if !copiedAgain(fault) {
			t.Error(fault)
		}
	}
	t.Logf("%d of %d messages were processed again", again(g.rec.done), 50*210)
}

// fill publishes the messages from one number to another of each of some keys, without the IDs by
// which a server would recognize a copy.
func fill(t *testing.T, js jetstream.JetStream, keys, from, to int) {
	t.Helper()
	for n := from; n <= to; n++ {
		for k := range keys {
			if _, err := js.PublishAsync(fmt.Sprintf("jobs.a%d.b%d", k, k%3), fmt.Append(nil, n), jetstream.WithRetryAttempts(0), jetstream.WithStallWait(await.Patience)); err != nil {
				t.Fatal(err)
			}
		}
	}
	await.That(t, "all stored", func() bool {
		select {
		case <-js.PublishAsyncComplete():
			return true
		default:
			return false
		}
	})
}

// copiedAgain reports whether a fault of a recorder is that a message came again.
func copiedAgain(fault string) bool { return strings.Contains(fault, " after ") }

func again(done map[string]int) (n int) {
	for _, times := range done {
		n += times - 1
	}
	return n
}

// TestSourceFullStream: what doesn't fit in the group's stream waits in the source.
func TestSourceFullStream(t *testing.T) {
	t.Parallel()
	g := startGroup(t, sourced(t, jetstream.LimitsPolicy), 0, func(c *partition.Config) { c.Storage.MaxBytes = 64 << 10 })
	// Only a few times as many as have room: each time the stream is full, the server waits for seconds before it copies again.
	const total = 50 * 12
	g.publish(50, total/50)
	own, err := g.pub.Stream(t.Context(), g.cfg.Stream)
	if err != nil {
		t.Fatal(err)
	}
	await.That(t, "the group's stream full", func() bool {
		info, err := own.Info(t.Context())
		return err == nil && info.State.Bytes > 60<<10
	})
	if n := own.CachedInfo().State.Msgs; n >= total {
		t.Fatalf("the group's stream has room for %d messages of %d: nothing is shown", n, total)
	}
	v, err := partition.Open(g.pub.Conn(), g.cfg.Name).Inspect(t.Context())
	if err != nil || v.Source != "history" || v.NotCopied == 0 || v.Pending < total-100 { // a few are on their way
		t.Errorf("%d messages wait in stream history and in the group's, and the group shows %d, %d of them not copied from %q; %v", total, v.Pending, v.NotCopied, v.Source, err)
	}
	g.start("w0")
	g.check(0)
}

// keeperLooks is how often a leader looks whether all is there that its group needs.
const keeperLooks = 3 * time.Second

// TestSourceLost: the group's stream and the consumer of its source are deleted while workers run.
func TestSourceLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(jetstream.JetStream, context.Context) error{
		"the group's stream": func(js jetstream.JetStream, ctx context.Context) error { return js.DeleteStream(ctx, "jobs") },
		"the consumer of the source": func(js jetstream.JetStream, ctx context.Context) error {
			return js.DeleteConsumer(ctx, "history", "muster-worker")
		},
		// The stream knows what it has copied, unless it is new, too.
		"both at once": func(js jetstream.JetStream, ctx context.Context) error {
			return errors.Join(js.DeleteStream(ctx, "jobs"), js.DeleteConsumer(ctx, "history", "muster-worker"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGroup(t, sourced(t, jetstream.LimitsPolicy), 0)
			g.start("w0")
			fill(t, g.pub, 20, 1, 5)
			await.That(t, "100 messages processed", func() bool { return g.processed() == 100 })
			await.That(t, "the copies acknowledged", func() bool {
				consumer, err := g.pub.PushConsumer(t.Context(), "history", "muster-worker")
				return err == nil && consumer.CachedInfo().AckFloor.Stream == 100
			})
			time.Sleep(2 * keeperLooks) // until a worker has seen that
			if err := lose(g.pub, t.Context()); err != nil {
				t.Fatal(err)
			}
			fill(t, g.pub, 20, 6, 10)
			await.That(t, "every message processed", func() bool { return g.processed() == 200 })
			g.rec.mu.Lock()
			defer g.rec.mu.Unlock()
			for _, fault := range g.rec.faults {
				if !copiedAgain(fault) {
					t.Error(fault)
				}
			}
			if n := again(g.rec.done); n > 0 {
				t.Errorf("%d messages were processed again", n)
			}
		})
	}
}

// TestSourcePermissions: users with the permissions of their roles provision a group on an existing
// stream, work for it, create its consumer again and requeue a dead letter.
func TestSourcePermissions(t *testing.T) {
	t.Parallel()
	cfg := partition.Config{Slots: 4, Retry: partition.Retry{Attempts: 1}, Rebalance: partition.Rebalance{ColdWindow: 300 * time.Millisecond}}
	fromExisting(&cfg)
	srv := natstest.Start(t, func(o *server.Options) {
		o.Users = append(o.Users, &server.User{Username: "admin", Password: "secret"})
		for _, r := range []role.Role{role.Worker, role.Operator} {
			p, err := cfg.Permissions(r)
			if err != nil {
				t.Fatal(err)
			}
			o.Users = append(o.Users, &server.User{Username: cfg.User(r), Password: "secret", Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{Allow: p.Publish}, Subscribe: &server.SubjectPermission{Allow: p.Subscribe},
				Response: &server.ResponsePermission{MaxMsgs: server.DEFAULT_ALLOW_RESPONSE_MAX_MSGS, Expires: server.DEFAULT_ALLOW_RESPONSE_EXPIRATION}}})
		}
	})
	as := func(user string) *nats.Conn {
		return natstest.Connect(t, srv.URL(), nats.UserInfo(user, "secret"), nats.CustomInboxPrefix("_INBOX."+user),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				if errors.Is(err, nats.ErrPermissionViolation) {
					t.Errorf("%s: %v", user, err)
				}
			}))
	}
	admin := natstest.JetStream(t, as("admin"))
	if _, err := admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: "history", Subjects: []string{"jobs.>"}}); err != nil {
		t.Fatal(err)
	}
	operator := partition.Open(as(cfg.User(role.Operator)), cfg.Name)
	if err := operator.Provision(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}

	var processed, broken atomic.Int64
	broken.Store(1)
	w, err := partition.New(as(cfg.User(role.Worker)), cfg, partition.HandlerFunc(func(context.Context, partition.Message) error {
		if broken.Load() > 0 {
			return errFails
		}
		processed.Add(1)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	publish := func() {
		if _, err := admin.Publish(t.Context(), "jobs.a.b", nil); err != nil {
			t.Fatal(err)
		}
	}

	publish()
	var letters []partition.DeadLetter
	await.That(t, "a dead letter", func() bool {
		letters, err = operator.DeadLetters(t.Context(), 0, 10)
		return err == nil && len(letters) == 1
	})
	broken.Store(0)
	if _, err := operator.Requeue(t.Context(), letters[0].Number); err != nil {
		t.Fatal(err)
	}
	await.That(t, "the dead letter processed", func() bool { return processed.Load() == 1 })
	if err := admin.DeleteConsumer(t.Context(), "history", "muster-worker"); err != nil {
		t.Fatal(err)
	}
	publish()
	await.That(t, "a message processed with a new consumer", func() bool { return processed.Load() >= 2 })
}
