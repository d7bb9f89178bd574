package nodes

import (
	"context"
	"fmt"
	"time"
)

// closedLifetime is how long a closed interruption is kept, so that an event that is delivered again is known.
const closedLifetime = 7 * 24 * time.Hour

// claimedInterruption is an interruption whose claim this run holds. Everything done about it is written down
// as a fact, under the claim's fence: once another worker has the claim, the store refuses this run's facts.
type claimedInterruption struct {
	*run
	item  Interruption // as the last write returned it
	fence int64        // of the claim
}

// claim takes an interruption to work on it; false without an error means that another worker has it, or that
// it is closed. silent is ClaimInterruption's Silent.
func (c *claimedInterruption) claim(ctx context.Context, instanceID string, silent int64) (bool, error) {
	start, self := c.now(), c.config.self
	i, err := c.state.applyInterruption(ctx, instanceID, ClaimInterruption{
		Owner:   c.id,
		Holder:  self.holder,
		Process: self.process,
		Silent:  silent,
		Now:     start,
		TTL:     claimTenure.ttl,
	})
	if IsRefused(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c.item, c.fence = i, i.Fence
	c.lease.hold(start, claimTenure, true, c.renew)
	return true, nil
}

// renew moves the claim's expiry. The item that the store returns shows events that came meanwhile.
func (c *claimedInterruption) renew(ctx context.Context, now time.Time) error {
	expiry := c.fact("renewClaim", func(i *Interruption) { i.UntilEpoch = now.Add(claimTenure.ttl).Unix() })
	i, err := c.config.Store.ApplyInterruption(ctx, c.item.InstanceID, expiry)
	if err == nil {
		c.item = i
	}
	return err
}

// release gives the claim back, so that the next tick needn't wait until it expires.
func (c *claimedInterruption) release(ctx context.Context) {
	c.lease.stopRenewing()
	if c.lease.taken {
		return
	}
	err := c.step(ctx, "releaseClaim", func(i *Interruption) { i.Owner, i.Holder, i.Process, i.UntilEpoch = "", "", "", 0 })
	if err != nil {
		c.log.fail(ctx, "releasing an interruption", err)
	}
}

func (c *claimedInterruption) fact(step string, change func(*Interruption)) InterruptionStep {
	return InterruptionStep{Step: step, Owner: c.id, Fence: c.fence, Change: change}
}

// step writes a fact. The change may be applied more than once.
func (c *claimedInterruption) step(ctx context.Context, step string, change func(*Interruption)) error {
	i, err := c.state.applyInterruption(ctx, c.item.InstanceID, c.fact(step, change))
	if err == nil {
		c.item = i
	}
	return err
}

// startDrain writes down since when the node is drained, once.
func (c *claimedInterruption) startDrain(ctx context.Context) error {
	if c.item.DrainSince != 0 {
		return nil
	}
	start := c.now().Unix()
	return c.step(ctx, "startDrain", func(i *Interruption) { i.DrainSince = start })
}

// close ends the interruption. One whose kind an event has changed meanwhile is not done: it stays open.
func (c *claimedInterruption) close(ctx context.Context, outcome string, args ...any) error {
	text := fmt.Sprintf(outcome, args...)
	expires := c.now().Add(closedLifetime).Unix()
	kind := c.item.Kind
	err := c.step(ctx, "closeInterruption", func(i *Interruption) {
		if !i.Closed && i.Kind == kind {
			i.Closed, i.Outcome, i.ExpiresEpoch = true, text, expires
		}
	})
	if err == nil && c.item.Closed {
		c.log.report(ctx, "interruption.closed", c.item.InstanceID, "%s", text)
	}
	return err
}
