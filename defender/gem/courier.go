package gem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-dev/muster/defender/ingest"
)

// queued is how many finished runs of a tool may wait; then the equipment has to.
const queued = 16

// lastTries is how long a host that ends tries to make runs durable.
const lastTries = 20 * time.Second

// courier gives the finished runs of a tool to the taker, in their order.
type courier struct {
	host  *Host
	fail  func(error) // ends the host
	queue chan Outcome
	done  chan struct{}
}

// newCourier starts one, which goes on for a while after ctx ends.
func newCourier(ctx context.Context, h *Host, fail func(error)) *courier {
	c := &courier{host: h, fail: fail, queue: make(chan Outcome, queued), done: make(chan struct{})}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(lastTries):
			cancel()
		case <-c.done:
		}
	})
	go func() {
		defer cancel()
		defer stop()
		defer close(c.done)
		for o := range c.queue {
			if err := c.deliver(lasting, o); err != nil {
				fail(err)
			}
		}
	}()
	return c
}

// close waits until all runs are delivered.
func (c *courier) close() {
	close(c.queue)
	<-c.done
}

// deliver makes a run durable, or notes why it isn't.
func (c *courier) deliver(ctx context.Context, o Outcome) error {
	if o.Trace == nil {
		return c.host.conclude(o, stateIncomplete, o.Reason)
	}
	// A host that dies between storing and announcing finds the run's end here.
	if err := c.host.config.Ledger.write(entry{State: stateEnded, Ref: o.Ref}); err != nil {
		return err
	}
	return c.host.deliver(ctx, o)
}

// deliver gives a run to the taker and concludes it.
func (h *Host) deliver(ctx context.Context, o Outcome) error {
	receipt, err := h.take(ctx, o)
	switch refusal := new(ingest.Refusal); {
	case err == nil:
		return h.conclude(o, stateTaken, fmt.Sprintf("%d samples of %d sensors", receipt.Rows, receipt.Sensors))
	case errors.As(err, &refusal) && refusal.RetryAfter == 0:
		return h.conclude(o, stateRefused, err.Error())
	default:
		return h.conclude(o, stateIncomplete, "the host ended before the run was durable: "+err.Error())
	}
}

// take gives a run to the taker until it is taken or refused for good, or ctx ends.
func (h *Host) take(ctx context.Context, o Outcome) (ingest.Receipt, error) {
	for {
		receipt, err := h.config.Taker.Take(ctx, &ingest.Run{Ref: o.Ref, Trace: *o.Trace})
		refusal := new(ingest.Refusal)
		if err == nil || !errors.As(err, &refusal) || refusal.RetryAfter == 0 {
			return receipt, err
		}
		h.config.Logger.Warn("run not taken yet", "run", o.Ref.TChart(), "err", err)
		select {
		case <-time.After(refusal.RetryAfter):
		case <-ctx.Done():
			return ingest.Receipt{}, err
		}
	}
}

// conclude notes what became of a run, and then reports it.
func (h *Host) conclude(o Outcome, state, text string) error {
	e := entry{State: state, Ref: o.Ref}
	if state != stateTaken {
		e.Reason = text
	}
	if err := h.config.Ledger.write(e); err != nil {
		return err
	}
	h.config.Report(Report{What: state, Tool: o.Ref.Chamber.Tool, Run: o.Ref.TChart().String(), Text: text})
	return nil
}
