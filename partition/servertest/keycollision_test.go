package servertest_test

import (
	"context"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// TestKeys has a group whose name is the first token of its subject, with a retry
// queue, and two keys that differ only in where their colons are.
func TestKeys(t *testing.T) {
	t.Parallel()
	t.Run("with colons in their tokens stay apart", func(t *testing.T) {
		t.Parallel()
		cfg := partition.Config{Name: "big", Stream: "BIG", Subject: "big.*.*", Slots: 64,
			Rebalance: partition.Rebalance{Expected: func() int { return 1 }}}
		nc, js := provisioned(t, 0, cfg)
		var mu sync.Mutex
		got := map[string]partition.Message{} // by subject
		w, err := partition.New(nc, cfg, partition.HandlerFunc(func(_ context.Context, m partition.Message) error {
			mu.Lock()
			defer mu.Unlock()
			got[m.Subject] = m
			return nil
		}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		for _, subject := range []string{"big.a:b.c", "big.a.b:c", "big.a%3Ab.c"} {
			if _, err := js.Publish(t.Context(), subject, nil, jetstream.WithExpectStream("BIG")); err != nil {
				t.Fatal(err)
			}
		}
		await.That(t, "all are handled", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(got) == 3
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		keys := map[string]string{}
		for subject, m := range got {
			if other, ok := keys[m.Key]; ok {
				t.Errorf("%s and %s have the same key %q", subject, other, m.Key)
			}
			keys[m.Key] = subject
			if at := partition.SlotOfKey(64, m.Key); at != m.Slot {
				t.Errorf("%s: key %q is in slot %d, the message in %d", subject, m.Key, at, m.Slot)
			}
		}
	})
}
