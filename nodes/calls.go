package nodes

import (
	"context"
	"fmt"
	"time"
)

// callTimeout is how long one external call may take.
const callTimeout = 15 * time.Second

// calls makes the external calls of one run, each within what is left of the run's lease.
type calls struct {
	clock Clock
	lease *lease
}

// do makes one external call. A call that could still be on its way when another process holds the lease is
// not made, and its deadline ends it in time.
func (c calls) do(ctx context.Context, what string, f func(context.Context) error) error {
	validUntil, err := c.lease.keep(ctx)
	withoutClaim := c.lease.renewExpired && c.lease.harmless && !lost(err)
	if err != nil && !withoutClaim {
		return fmt.Errorf("%s: %w", what, err)
	}
	until := c.clock.Now().Add(callTimeout)
	if !withoutClaim && !validUntil.IsZero() {
		until = earlier(until, validUntil)
	}
	return c.within(ctx, until, what, f)
}

// doSafe makes a call that does no harm after a claim has expired: one that only reads, or a write that the
// store refuses to the worker whose claim has passed on. Such a call may take longer than the claim lasts.
// Under the tick's lease it is do.
func (c calls) doSafe(ctx context.Context, what string, f func(context.Context) error) error {
	if !c.lease.renewExpired {
		return c.do(ctx, what, f)
	}
	if _, err := c.lease.keep(ctx); lost(err) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return c.within(ctx, c.clock.Now().Add(callTimeout), what, f)
}

func (c calls) within(ctx context.Context, until time.Time, what string, f func(context.Context) error) error {
	ctx, cancel := c.clock.WithDeadline(ctx, until)
	defer cancel()
	if err := f(ctx); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
