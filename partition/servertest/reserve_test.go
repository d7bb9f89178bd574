package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/reserve"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

const gib = 1 << 30

// room is a server with so much storage beside the stream of turns, and clients of it.
func room(t *testing.T, bytes int64, clients int) []jetstream.JetStream {
	t.Helper()
	srv := natstest.Start(t, natstest.MaxStore(bytes+reserve.Least))
	var all []jetstream.JetStream
	for range clients {
		nc, err := nats.Connect(srv.URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		js := natstest.JetStream(t, nc)
		all = append(all, js)
	}
	return all
}

// TestConcurrentReservations: several processes provision one stream at once, as the
// workers of a group do that start together. The server would count the limit once for
// each of two updates at the same time.
func TestConcurrentReservations(t *testing.T) {
	t.Parallel()
	clients := room(t, 33*gib, 4)
	for round := range 50 {
		name := fmt.Sprint("jobs-", round)
		var wg sync.WaitGroup
		for i, js := range clients {
			wg.Go(func() {
				want := jetstream.StreamConfig{Name: name, Subjects: []string{name}}
				_, err := reserve.Stream(t.Context(), js, want, 32*gib, 1)
				if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
					t.Errorf("round %d, client %d: %v", round, i, err)
				}
			})
		}
		wg.Wait()
		s, err := clients[0].Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if c := s.CachedInfo().Config; c.MaxBytes != 16*gib || reserve.Unlimited(c) {
			t.Errorf("round %d: the limit is %d, want %d", round, c.MaxBytes, 16*gib)
		}
		if err := clients[0].DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
	}
}

// TestReservationsOfMany: groups of their own provision at once.
func TestReservationsOfMany(t *testing.T) {
	t.Parallel()
	clients := room(t, 33*gib, 6)
	for round := range 50 {
		var wg sync.WaitGroup
		for i, js := range clients {
			wg.Go(func() {
				name := fmt.Sprint("jobs-", round, "-", i)
				want := jetstream.StreamConfig{Name: name, Subjects: []string{name}}
				if _, err := reserve.Stream(t.Context(), js, want, 32*gib, 1); err != nil {
					t.Errorf("round %d, client %d: %v", round, i, err)
				}
			})
		}
		wg.Wait()
		for i := range clients {
			if err := clients[0].DeleteStream(t.Context(), fmt.Sprint("jobs-", round, "-", i)); err != nil {
				t.Fatal(err)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// TestTurnOfADeadProcess: a process that fails during its turn blocks the others for seconds only.
func TestTurnOfADeadProcess(t *testing.T) {
	t.Parallel()
	js := room(t, 33*gib, 1)[0]
	for i, name := range []string{"jobs-1", "jobs-2"} {
		if _, err := reserve.Stream(t.Context(), js, jetstream.StreamConfig{Name: name}, gib, 1); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := js.Publish(t.Context(), reserve.TurnStream, nil); err != nil { // as if a process had taken a turn
				t.Fatal(err)
			}
		}
	}
}

// TestTurnOfADeadProcessInShortTries: a process that gives up before it could have watched a
// turn get stale, and tries again, gets its turn, too. That is how a worker creates streams
// that were lost.
func TestTurnOfADeadProcessInShortTries(t *testing.T) {
	t.Parallel()
	js := room(t, 33*gib, 1)[0]
	if _, err := reserve.Stream(t.Context(), js, jetstream.StreamConfig{Name: "jobs-1"}, gib, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), reserve.TurnStream, nil); err != nil { // as if a process had taken a turn
		t.Fatal(err)
	}
	await.Within(t, 30*time.Second, "a stream created in tries of a second", func() bool {
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := reserve.Stream(ctx, js, jetstream.StreamConfig{Name: "jobs-2"}, gib, 1)
		return err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse)
	})
}
