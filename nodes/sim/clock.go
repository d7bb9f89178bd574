package sim

import (
	"context"
	"time"
)

// Clock is the simulator's virtual time; it implements nodes.Clock. It moves only when something takes time.
type Clock struct{ state *state }

// Now returns the virtual time.
func (c Clock) Now() time.Time {
	c.state.mu.Lock()
	defer c.state.mu.Unlock()
	return c.state.time.now
}

// Sleep lets d pass.
func (c Clock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.state.mu.Lock()
	c.state.time.advance(c.state.time.now.Add(d))
	c.state.mu.Unlock()
	return ctx.Err()
}

// WithDeadline returns a context that is over when the virtual time has reached t. Its Done channel does not close by itself: in
// virtual time nobody waits for it, every call asks Err.
func (c Clock) WithDeadline(ctx context.Context, t time.Time) (context.Context, context.CancelFunc) {
	if d, ok := ctx.Deadline(); ok && d.Before(t) {
		t = d
	}
	return deadlined{ctx, c, t}, func() {}
}

// deadlined is a context with a deadline in virtual time.
type deadlined struct {
	context.Context
	clock    Clock
	deadline time.Time
}

func (d deadlined) Deadline() (time.Time, bool) { return d.deadline, true }

func (d deadlined) Err() error {
	if err := d.Context.Err(); err != nil {
		return err
	}
	if !d.clock.Now().Before(d.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}
