package local

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Begin starts the first defenders and the traffic, and waits until all share
// all chambers.
func (c *Stack) Begin(ctx context.Context) error {
	if err := c.Assemble(ctx); err != nil {
		return err
	}
	c.Traffic.Rate.Store(int64(c.o.Rate))
	return nil
}

// Assemble starts the first defenders and waits until all share all chambers.
func (c *Stack) Assemble(ctx context.Context) error {
	// The first window must not wait for those who come later, whether or
	// not the scenario lets the number be known then.
	if err := c.SetExpected(ctx, c.o.Defenders); err != nil {
		return err
	}
	kind := "goroutines"
	if c.o.Processes {
		kind = "processes"
	}
	c.Say("Starting %d defenders as %s, %d chambers in %d slots", c.o.Defenders, kind, c.o.Chambers, c.o.Slots)
	if _, err := c.Add(ctx, c.o.Defenders); err != nil {
		return err
	}
	if err := c.Wait(ctx, 2*time.Minute, "all defenders STABLE", func() bool { return c.View.Stable(c.o.Defenders) }); err != nil {
		return err
	}
	a := c.View.Latest()
	c.Say("%d defenders STABLE, assignment map version %d", c.o.Defenders, a.Version)
	return nil
}

// Drain waits until everything that was published is processed.
func (c *Stack) Drain(ctx context.Context) error {
	const within = 3 * time.Minute
	c.Traffic.Rate.Store(0)
	if err := c.Wait(ctx, within, "everything queued published", func() bool { return c.Traffic.Waiting.Load() == 0 }); err != nil {
		return err
	}
	c.Traffic.mu.Lock()
	faults := errors.Join(c.Traffic.faults...)
	c.Traffic.mu.Unlock()
	if faults != nil {
		return fmt.Errorf("the collector could not publish everything: %w", faults)
	}
	js, err := c.Pending(ctx)
	if err != nil {
		return err
	}
	return c.Wait(ctx, within, "everything published processed", func() bool { n, err := js(); return err == nil && n == 0 })
}
