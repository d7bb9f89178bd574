package nodes

import (
	"context"
	"time"
)

// Clock is where all time comes from.
type Clock interface {
	Now() time.Time
	// Sleep waits for d or until ctx ends, whose error it returns.
	Sleep(ctx context.Context, d time.Duration) error
	// WithDeadline is context.WithDeadline by this clock.
	WithDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc)
}

// SystemClock is the machine's clock. Its readings carry the monotonic time, by which leases are trusted.
type SystemClock struct{}

// Now returns the current time.
func (SystemClock) Now() time.Time { return time.Now() }

// Sleep waits for d or until ctx ends.
func (SystemClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// WithDeadline returns context.WithDeadline's.
func (SystemClock) WithDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, t)
}

// earlier returns the earlier of two times, by the wall clock.
func earlier(a, b time.Time) time.Time {
	if a.UnixNano() < b.UnixNano() {
		return a
	}
	return b
}
