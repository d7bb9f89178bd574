package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// received has what a worker's handler was given, by key.
type received struct {
	mu    sync.Mutex
	byKey map[string][]partition.Message
}

func (r *received) Handle(_ context.Context, m partition.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey == nil {
		r.byKey = make(map[string][]partition.Message)
	}
	r.byKey[m.Key] = append(r.byKey[m.Key], m)
	return nil
}

// texts returns the data of a key's messages, in the order in which they were handled.
func (r *received) texts(key string) (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.byKey[key] {
		all = append(all, string(m.Data))
	}
	return all
}

// startWorker runs a worker until the test ends, and waits until it is ready.
func startWorker(t *testing.T, nc *nats.Conn, cfg partition.Config, h partition.Handler) *partition.Worker {
	t.Helper()
	w, err := partition.New(nc, cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		leave()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})

	wait, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := w.Ready(wait); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestPublisher: what is published by key gets to the owner of the key, whatever the number of
// streams, and without a mapping on the servers.
func TestPublisher(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards, " streams"), func(t *testing.T) {
			t.Parallel()
			cfg := jobsIn(shards)
			cfg.Rebalance.Expected = func() int { return 1 }
			nc, _ := provisioned(t, 0, cfg)
			var got received
			startWorker(t, nc, cfg, &got)
			p, err := partition.Open(nc, cfg.Name).Publisher(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			publishOne(t, p, cfg, &got)
			publishMany(t, p, &got)
			publishWrongKeys(t, p)
		})
	}
}

func publishOne(t *testing.T, p *partition.Publisher, cfg partition.Config, got *received) {
	t.Helper()
	key := partition.JoinKey("eu", "10:42") // a token with a separator in it
	header := nats.Header{"Trace": {"7"}}
	m := partition.Outgoing{Key: key, Data: []byte("one"), ID: "id-1", Header: header}
	first, err := p.Publish(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.Publish(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if first.Duplicate || !again.Duplicate || again.Sequence != first.Sequence {
		t.Errorf("acknowledged as %+v and again as %+v", first, again)
	}
	if len(header) != 1 {
		t.Errorf("the caller's header is now %v", header)
	}

	await.That(t, "the message is handled", func() bool { return slices.Equal(got.texts(key), []string{"one"}) })
	handled := got.byKey[key][0]
	if handled.Subject != "jobs.eu.10:42" || handled.Header.Get("Trace") != "7" {
		t.Errorf("handled as %s with %v", handled.Subject, handled.Header)
	}
	if want, err := cfg.Sequence(first.Stream, first.Sequence); err != nil || handled.Sequence != want {
		t.Errorf("it has sequence %d, want %d (%v)", handled.Sequence, want, err)
	}
}

func publishMany(t *testing.T, p *partition.Publisher, got *received) {
	t.Helper()
	const each = 50
	want := make(map[string][]string)
	var futures []jetstream.PubAckFuture
	for i := range each {
		for _, key := range []string{"a:1", "a:2", "b:1"} {
			text := fmt.Sprint(i)
			future, err := p.PublishAsync(partition.Outgoing{Key: key, Data: []byte(text), ID: key + text})
			if err != nil {
				t.Fatal(err)
			}
			futures, want[key] = append(futures, future), append(want[key], text)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			t.Error(err)
		case <-time.After(await.Patience):
			t.Fatal("a message is not acknowledged after Flush")
		}
	}
	for key, texts := range want {
		await.That(t, "all of "+key+" is handled in order", func() bool { return slices.Equal(got.texts(key), texts) })
	}
}

func publishWrongKeys(t *testing.T, p *partition.Publisher) {
	t.Helper()
	for _, key := range []string{"", "a", "a:b:c", "a:x.y", "a:*"} {
		if _, err := p.Publish(t.Context(), partition.Outgoing{Key: key}); err == nil || !strings.Contains(err.Error(), "publishing to group worker") {
			t.Errorf("key %q: the error is %v", key, err)
		}
		if _, err := p.PublishAsync(partition.Outgoing{Key: key}); err == nil {
			t.Errorf("key %q: PublishAsync takes it", key)
		}
	}
}

// TestPublisherOfAFullStream: the error says that the message can be published later, and it can.
func TestPublisherOfAFullStream(t *testing.T) {
	t.Parallel()
	cfg := jobsIn(1)
	cfg.Storage.MaxBytes = 64 << 10
	cfg.Rebalance.Expected = func() int { return 1 }
	nc, _ := provisioned(t, 0, cfg)
	p, err := partition.Open(nc, cfg.Name).Publisher(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	big := partition.Outgoing{Key: "a:b", Data: make([]byte, 8<<10)}
	for range 16 {
		if _, err = p.Publish(t.Context(), big); err != nil {
			break
		}
	}
	if !partition.IsFull(err) || !strings.Contains(err.Error(), "publish it again later") {
		t.Fatalf("the error is %v", err)
	}

	startWorker(t, nc, cfg, partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }))
	await.That(t, "there is room again", func() bool {
		_, err := p.Publish(t.Context(), big)
		return err == nil
	})
}

// TestPublisherWithoutAStream: the error says how the stream is created again.
func TestPublisherWithoutAStream(t *testing.T) {
	t.Parallel()
	cfg := jobsIn(1)
	nc, js := provisioned(t, 0, cfg)
	p, err := partition.Open(nc, cfg.Name).Publisher(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), cfg.Stream); err != nil {
		t.Fatal(err)
	}

	m := partition.Outgoing{Key: "a:b"}
	if _, err := p.Publish(t.Context(), m); !errors.Is(err, jetstream.ErrNoStreamResponse) || !strings.Contains(err.Error(), "Group.Provision") {
		t.Errorf("the error is %v", err)
	}
	future, err := p.PublishAsync(m)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case ack := <-future.Ok():
		t.Errorf("acknowledged as %+v", ack)
	case err := <-future.Err():
		if !errors.Is(err, jetstream.ErrNoStreamResponse) {
			t.Errorf("the future's error is %v", err)
		}
	case <-time.After(await.Patience):
		t.Error("the future says nothing")
	}
}

// TestPublisherWithoutAGroup: the error says that there is no such group.
func TestPublisherWithoutAGroup(t *testing.T) {
	t.Parallel()
	nc, _ := provisioned(t, 0, jobsIn(1))
	if _, err := partition.Open(nc, "others").Publisher(t.Context()); !errors.Is(err, jetstream.ErrBucketNotFound) || !strings.Contains(err.Error(), "others") {
		t.Errorf("the error is %v", err)
	}
}
