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

func withDeadLetters(c *partition.Config) {
	withRetry(c)
	c.Slots, c.Retry.KeepFailing, c.Retry.Attempts = 4, false, 3
}

// letterRig is a group of one worker whose handler notes what it has processed.
type letterRig struct {
	*group
	handle *partition.Group

	mu        sync.Mutex
	attempts  map[string]int // by key and data
	processed []string       // key and data
}

// startLetterRig starts a worker whose messages fail as fail says, nil for not at all.
func startLetterRig(t *testing.T, on servers, fail func(m partition.Message) error, changes ...func(*partition.Config)) *letterRig {
	t.Helper()
	r := &letterRig{group: startGroup(t, on, 0, append([]func(*partition.Config){withDeadLetters}, changes...)...), attempts: map[string]int{}}
	r.handle = partition.Open(r.pub.Conn(), r.cfg.Name)
	w := r.startWith("w0", partition.HandlerFunc(func(_ context.Context, m partition.Message) error {
		what := m.Key + " " + string(m.Data)
		r.mu.Lock()
		r.attempts[what]++
		r.mu.Unlock()
		if err := fail(m); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.processed = append(r.processed, what)
		return nil
	}))
	await.That(t, "one worker settled", r.settled(w))
	return r
}

// deadLetters returns what was given up.
func (g *group) deadLetters() []partition.DeadLetter {
	g.t.Helper()
	all, err := partition.Open(g.pub.Conn(), g.cfg.Name).DeadLetters(g.t.Context(), 0, 100)
	if err != nil {
		g.t.Fatal(err)
	}
	return all
}

func (r *letterRig) awaitLetters(n int) []partition.DeadLetter {
	r.t.Helper()
	await.That(r.t, fmt.Sprintf("%d dead letters", n), func() bool { return len(r.deadLetters()) == n })
	return r.deadLetters()
}

func (r *letterRig) awaitProcessed(key string, want ...string) {
	r.t.Helper()
	var got []string
	await.That(r.t, fmt.Sprintf("%v of %s processed, in this order", want, key), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		got = nil
		for _, what := range r.processed {
			if k, data, _ := strings.Cut(what, " "); k == key {
				got = append(got, data)
			}
		}
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		r.t.Errorf("of %s are processed %v, want %v", key, got, want)
	}
}

func isPoison(m partition.Message) bool { return m.Key == "a0:b0" && string(m.Data) == "2" }

// TestDeadLetter: a message that panics is moved to the dead letters after its attempts, with
// what an operator needs to know of it. Its key goes on, and it can be requeued.
func TestDeadLetter(t *testing.T) {
	onEach(t, func(t *testing.T, on servers) {
		var healed sync.Map
		r := startLetterRig(t, on, func(m partition.Message) error {
			if _, ok := healed.Load("yes"); isPoison(m) && !ok {
				panic("boom\nin two lines")
			}
			return nil
		})
		before := time.Now()
		r.publish(3, 4)
		r.awaitProcessed("a0:b0", "1", "3", "4")
		r.awaitProcessed("a1:b1", "1", "2", "3", "4")

		l := r.awaitLetters(1)[0]
		if l.Key != "a0:b0" || l.Subject != strings.Replace(r.cfg.Subject, "*.*", "a0.b0", 1) || string(l.Data) != "2" || l.Attempts != 3 {
			t.Errorf("the dead letter is %+v", l)
		}
		if l.Err != "Handle panicked: boom\nin two lines" || !strings.Contains(l.Stack, "deadletter_test.go") || l.Worker == "" {
			t.Errorf("it says %q of worker %q, with the stack %q", l.Err, l.Worker, l.Stack)
		}
		if l.Published.Before(before.Add(-time.Minute)) || l.Time.Before(l.Published) || l.Sequence == 0 {
			t.Errorf("it was message %d of %v, and moved at %v", l.Sequence, l.Published, l.Time)
		}
		if n := r.retryQueue().Messages; n != 0 {
			t.Errorf("%d messages are still queued", n)
		}

		healed.Store("yes", true)
		again, err := r.handle.Requeue(t.Context(), l.Number)
		if err != nil || again.Number != l.Number {
			t.Fatalf("requeued: %+v, %v", again, err)
		}
		r.awaitProcessed("a0:b0", "1", "3", "4", "2")
		if n := len(r.deadLetters()); n != 0 {
			t.Errorf("%d dead letters once it was requeued", n)
		}
		if _, err := r.handle.Requeue(t.Context(), l.Number); !errors.Is(err, jetstream.ErrMsgNotFound) {
			t.Errorf("requeued twice: %v", err)
		}
	})
}

// TestUndecodableDeadLetter: what can't be decoded goes to the dead letters after one attempt.
func TestUndecodableDeadLetter(t *testing.T) {
	t.Parallel()
	decodes := partition.HandlerOf(func(context.Context, partition.Message, int) error { return nil }, nil)
	r := startLetterRig(t, oneServer(t), func(m partition.Message) error { return decodes.Handle(t.Context(), m) }, func(c *partition.Config) { c.Retry.Attempts = 5 })
	r.publish(1, 1)
	if _, err := r.pub.Publish(t.Context(), strings.Replace(r.cfg.Subject, "*.*", "a0.b0", 1), []byte("two")); err != nil {
		t.Fatal(err)
	}
	r.publish(1, 1)
	r.awaitProcessed("a0:b0", "1", "2")
	if l := r.awaitLetters(1)[0]; l.Attempts != 1 || string(l.Data) != "two" || !strings.Contains(l.Err, "decoding message") {
		t.Errorf("the dead letter is %+v", l)
	}
}

// TestDeadLettersFull: while there is no room for a dead letter, the message is kept, and tried
// again; then it goes there.
func TestDeadLettersFull(t *testing.T) {
	t.Parallel()
	r := startLetterRig(t, oneServer(t), func(m partition.Message) error {
		if isPoison(m) {
			return errFails
		}
		return nil
	})
	limit := func(bytes int64) {
		t.Helper()
		s, err := r.pub.Stream(t.Context(), r.cfg.Stream+"-dead")
		if err != nil {
			t.Fatal(err)
		}
		c := s.CachedInfo().Config
		c.MaxBytes = bytes
		if _, err := r.pub.UpdateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	limit(1)
	r.publish(1, 3)
	await.That(t, "it is tried again, or its key goes on without it", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.attempts["a0:b0 2"] > 5 || slices.Contains(r.processed, "a0:b0 3")
	})
	if n := len(r.deadLetters()); n != 0 {
		t.Errorf("%d dead letters, without room", n)
	}
	if n := r.retryQueue().Keys["a0:b0"]; n != 2 {
		t.Fatalf("%d messages of its key are queued, want it and the next", n)
	}
	r.awaitProcessed("a0:b0", "1")

	limit(1 << 20)
	r.awaitLetters(1)
	r.awaitProcessed("a0:b0", "1", "3")
}

// TestDeadLetterStreamLost: the stream was deleted, or the group was provisioned without. It is
// created by the worker that needs it, and its numbers go on above those before.
func TestDeadLetterStreamLost(t *testing.T) {
	t.Parallel()
	r := startLetterRig(t, oneServer(t), func(m partition.Message) error {
		if m.Key == "a0:b0" {
			return errFails
		}
		return nil
	})
	r.publish(1, 1)
	first := r.awaitLetters(1)[0]
	if err := r.pub.DeleteStream(t.Context(), r.cfg.Stream+"-dead"); err != nil {
		t.Fatal(err)
	}
	r.publish(1, 1)
	if second := r.awaitLetters(1)[0]; second.Number <= first.Number || string(second.Data) != "2" {
		t.Errorf("dead letter %d follows %d, of message %s", second.Number, first.Number, second.Data)
	}
}

// TestDeadLetterKeepsHeaders: a dead letter has the publisher's headers but for those that are
// for the stream it was published to, and so has the message that is requeued.
func TestDeadLetterKeepsHeaders(t *testing.T) {
	t.Parallel()
	var fails sync.Map
	fails.Store("yes", true)
	seen := make(chan nats.Header, 10)
	r := startLetterRig(t, oneServer(t), func(m partition.Message) error {
		if _, ok := fails.Load("yes"); ok {
			return errFails
		}
		seen <- m.Header
		return nil
	})
	m := &nats.Msg{Subject: strings.Replace(r.cfg.Subject, "*.*", "a0.b0", 1), Data: []byte("1"), Header: nats.Header{"Trace": {"abc", "def"}, "Nats-Msg-Id": {"one"}}}
	if _, err := r.pub.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	l := r.awaitLetters(1)[0]
	if !slices.Equal(l.Header["Trace"], []string{"abc", "def"}) || len(l.Header) != 1 {
		t.Errorf("its headers are %v", l.Header)
	}
	fails.Delete("yes")
	if _, err := r.handle.Requeue(t.Context(), l.Number); err != nil {
		t.Fatal(err)
	}
	select {
	case h := <-seen:
		if !slices.Equal(h["Trace"], []string{"abc", "def"}) {
			t.Errorf("requeued with headers %v", h)
		}
	case <-time.After(await.Patience):
		t.Error("it is not handled again")
	}
}

// TestForeignDeadLetter: what somebody else has written into the dead-letter stream hides no dead
// letter. It is listed with what is wrong with it, and can't be requeued.
func TestForeignDeadLetter(t *testing.T) {
	t.Parallel()
	r := startLetterRig(t, oneServer(t), func(m partition.Message) error {
		if isPoison(m) {
			return errFails
		}
		return nil
	})
	if _, err := r.pub.Publish(t.Context(), "muster."+r.cfg.Name+".dead.letter", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	r.publish(1, 2)
	letters := r.awaitLetters(2)
	if l := letters[0]; l.Attempts != 0 || !strings.Contains(l.Err, "was not written by a worker") {
		t.Errorf("the foreign one is listed as %+v", l)
	}
	if l := letters[1]; l.Attempts != 3 || l.Key != "a0:b0" {
		t.Errorf("the other one is %+v", l)
	}
	if _, err := r.handle.Requeue(t.Context(), letters[0].Number); err == nil || !strings.Contains(err.Error(), "was not written by a worker") {
		t.Errorf("requeueing the foreign one: %v", err)
	}
}
