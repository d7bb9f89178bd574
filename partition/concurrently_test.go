package partition

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
)

func TestConcurrently(t *testing.T) {
	t.Parallel()
	t.Run("every index, at most the limit at a time", func(t *testing.T) {
		t.Parallel()
		var running, most, sum atomic.Int64
		err := concurrently(t.Context(), 100, 4, func(_ context.Context, i int) error {
			now := running.Add(1)
			defer running.Add(-1)
			for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
			}
			sum.Add(int64(i))
			return nil
		})
		if err != nil || sum.Load() != 4950 || most.Load() > 4 {
			t.Errorf("error %v, sum of the indices %d, at most %d at a time", err, sum.Load(), most.Load())
		}
	})

	t.Run("the first error ends the others", func(t *testing.T) {
		t.Parallel()
		boom := errors.New("boom")
		var began atomic.Int64
		err := concurrently(t.Context(), 1000, 2, func(ctx context.Context, i int) error {
			began.Add(1)
			if i == 1 {
				return boom
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, boom) {
			t.Errorf("the error is %v, want the first one", err)
		}
		if n := began.Load(); n > 3 {
			t.Errorf("%d calls began", n)
		}
	})

	t.Run("an ended context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := concurrently(ctx, 10, 2, func(context.Context, int) error {
			t.Error("a call began")
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
	})
}
