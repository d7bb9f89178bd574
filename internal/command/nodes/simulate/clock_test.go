package simulate

import (
	"context"
	"testing"
	"time"
)

// TestFastClock: deadlines of a context may be told by the machine's clock or by the
// simulated one, which is hours ahead here.
func TestFastClock(t *testing.T) {
	t.Parallel()
	began := time.Now()
	simulator := began.Add(5 * time.Hour)
	c := fastClock{now: func() time.Time { return simulator.Add(10 * time.Since(began)) }, speed: 10}
	lasts := func(ctx context.Context) time.Duration {
		d, ok := ctx.Deadline()
		if !ok {
			t.Fatal("the context has no deadline")
		}
		return d.Sub(c.Now()).Round(time.Second)
	}
	around := func(got, want time.Duration) bool { return got > want-20*time.Second && got <= want }
	t.Run("keeps a parent's deadline of the machine", func(t *testing.T) {
		t.Parallel()
		machine, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ctx, cancel := c.WithDeadline(machine, c.Now().Add(time.Hour))
		defer cancel()
		if err := ctx.Err(); err != nil {
			t.Fatalf("it is over at once: %v", err)
		}
		if got := lasts(ctx); !around(got, 10*time.Minute) { // a minute of the machine
			t.Errorf("it lasts %v of simulated time", got)
		}
		sooner, cancel := c.WithDeadline(machine, c.Now().Add(2*time.Minute))
		defer cancel()
		if got := lasts(sooner); !around(got, 2*time.Minute) {
			t.Errorf("with a sooner one it lasts %v", got)
		}
	})
	t.Run("keeps a parent's simulated deadline", func(t *testing.T) {
		t.Parallel()
		outer, cancel := c.WithDeadline(t.Context(), c.Now().Add(5*time.Minute))
		defer cancel()
		between, cancel := context.WithCancel(outer)
		defer cancel()
		ctx, cancel := c.WithDeadline(between, c.Now().Add(time.Hour))
		defer cancel()
		if got := lasts(ctx); ctx.Err() != nil || !around(got, 5*time.Minute) {
			t.Errorf("it lasts %v, %v", got, ctx.Err())
		}
	})
	t.Run("keeps the machine's deadline of a context within a simulated one", func(t *testing.T) {
		t.Parallel()
		outer, cancel := c.WithDeadline(t.Context(), c.Now().Add(10*time.Hour))
		defer cancel()
		machine, cancel := context.WithTimeout(outer, time.Minute)
		defer cancel()
		ctx, cancel := c.WithDeadline(machine, c.Now().Add(time.Hour))
		defer cancel()
		if got := lasts(ctx); ctx.Err() != nil || !around(got, 10*time.Minute) {
			t.Errorf("it lasts %v, %v", got, ctx.Err())
		}
	})
}
