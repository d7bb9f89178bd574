package partition

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// callbacks calls what the user has given beside Handle, which is the delivery's: Weights,
// Strategy, Prepare and Observe. What may take time runs in a goroutine of its own and
// comes back as an input.
type callbacks struct {
	cfg     Config
	layout  layout
	nc      *nats.Conn
	handler Handler
	guard   guard // of the first three
	events  *eventCounts
	post    func(input)
}

// execute carries one effect out.
func (c *callbacks) execute(e effect) {
	switch e := e.(type) {
	case weightsEffect:
		go c.loadWeights()
	case planEffect:
		go c.plan(e.job)
	case prepareEffect:
		go c.prepare(e)
	case emitEffect:
		c.emit(e.event)
	}
}

func (c *callbacks) loadWeights() {
	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Rebalance.PrepareTimeout)
	defer cancel()
	var byKey map[string]uint64
	err := c.guard.call("Weights", func() (err error) {
		byKey, err = c.cfg.Rebalance.Weights(ctx)
		return err
	})
	in := weightsInput{err: err}
	if err == nil {
		n := c.layout.finest()
		in.finest, in.keys = make([]uint64, n), make([]uint64, n)
		for k, v := range byKey {
			s := SlotOfKey(n, k)
			in.finest[s] += v
			in.keys[s]++
		}
	}
	c.post(in)
}

func (c *callbacks) plan(job *planJob) {
	start := time.Now()
	err := c.guard.call("Strategy", func() (err error) {
		job.result, err = c.cfg.Rebalance.Strategy.Plan(job.problem)
		return err
	})
	job.took = time.Since(start)
	c.post(plannedInput{job, err})
}

// prepare calls Prepare, if the handler has it. A Prepare that does not return in time is
// not waited for.
func (c *callbacks) prepare(e prepareEffect) {
	h, ok := find[Preparer](c.handler)
	// The old owner of a StateMover's slot still changes what Prepare would read.
	if _, later := find[StateMover](c.handler); !ok || later {
		c.post(preparedInput{e.generation, e.slots, nil})
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), c.cfg.Rebalance.PrepareTimeout)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		done <- c.guard.call("Prepare", func() error { return h.Prepare(ctx, Slots{e.generation.slots, e.slots}) })
	}()
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = fmt.Errorf("preparing %d slots: %w", len(e.slots), ctx.Err())
	}
	c.post(preparedInput{e.generation, e.slots, err})
}

// emit counts an event, shows it to an Observer and publishes it, in the loop: an Observer
// sees events in their order.
func (c *callbacks) emit(e event.Event) {
	c.events.count(e)
	if o, ok := find[Observer](c.handler); ok {
		// An event of its panic would be its next one, so it is only counted.
		quiet := guard{c.cfg.Logger, c.events.count}
		_ = quiet.call("Observe", func() error { o.Observe(e); return nil })
	}
	_ = c.nc.Publish(eventSubject(c.cfg.Name, e.Kind), record.Encode(e))
}
