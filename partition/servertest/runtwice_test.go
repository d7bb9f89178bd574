package servertest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/state"
)

// TestRun is about calling Worker.Run in ways that it isn't meant for.
func TestRun(t *testing.T) {
	t.Parallel()
	cfg := partition.Config{Name: "worker", Stream: "jobs", Subject: "jobs.*", Slots: 4, Rebalance: partition.Rebalance{Expected: func() int { return 1 }}}
	t.Run("a second time returns an error, and the first continues", func(t *testing.T) {
		t.Parallel()
		nc, _ := provisioned(t, 0, cfg)
		w, err := partition.New(nc, cfg, partition.HandlerFunc(func(context.Context, partition.Message) error { return nil }))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		await.That(t, "the worker has its slots", func() bool { return len(w.Status().Slots) == 4 })
		ended, end := context.WithCancel(t.Context()) // so that a second call that works would soon end
		end()
		if err := w.Run(ended); !errors.Is(err, partition.ErrRunTwice) {
			t.Errorf("the second call returns %v", err)
		}
		if got := w.Status(); len(got.Slots) != 4 || got.State != state.Stable {
			t.Errorf("the worker is now %+v", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the first call returns %v", err)
		}
		if err := w.Run(ended); !errors.Is(err, partition.ErrRunTwice) {
			t.Errorf("a call after the end returns %v", err)
		}
	})
}
