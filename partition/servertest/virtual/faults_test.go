//go:build !race

package virtual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/partitiontest/audit"
)

// chaos plays faults to an environment, as a seed decides.
type chaos struct {
	*environment
	rng          *rand.Rand
	coordination bool      // faults roll back or delete what the workers agree by, too
	over         time.Time // when the last fault is
	settled      map[string][]time.Duration
}

// fault is one kind of fault. It returns when it has begun, or when it is over.
type fault struct {
	name         string
	weight       int
	coordination bool
	play         func(*chaos) error
}

var faults = []fault{
	{"kill", 4, false, (*chaos).kill},
	{"stall", 4, false, (*chaos).stall},
	{"cut", 4, false, (*chaos).cut},
	{"join", 4, false, (*chaos).join},
	{"leave", 3, false, (*chaos).leave},
	{"drain", 2, false, (*chaos).drain},
	{"server restarts", 2, false, func(c *chaos) error { return c.outage(c.stopped) }},
	{"server crashes", 2, false, func(c *chaos) error { return c.outage(c.crashed) }},
	{"streams roll back", 3, false, func(c *chaos) error { return c.rollBack(stream, stream+"-retry") }},
	{"stream deleted", 1, false, func(c *chaos) error { return c.deleteStream(stream) }},
	{"retry queue deleted", 1, false, (*chaos).deleteRetryQueue},
	{"leases deleted", 1, false, func(c *chaos) error { return c.deleteBucket("work-heartbeats") }},
	{"names deleted", 1, false, func(c *chaos) error { return c.deleteBucket("stable-ids") }},
	{"map deleted", 1, false, func(c *chaos) error { return c.deleteBucket("work-assignments") }},
	{"everything rolls back", 3, true, func(c *chaos) error { return c.rollBack() }},
}

const (
	// settleBound is how long after the last fault the group may take to be stable again,
	// and to have processed what was published before, beside the time that takes.
	settleBound = 2 * time.Minute
	settlePoll  = 250 * time.Millisecond
)

func (c *chaos) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.rng.Int64N(int64(high-low)+1))
}

// pick returns the next kind of fault.
func (c *chaos) pick() fault {
	sum := 0
	for _, f := range faults {
		if !f.coordination || c.coordination {
			sum += f.weight
		}
	}
	n := c.rng.IntN(sum)
	for _, f := range faults {
		if f.coordination && !c.coordination {
			continue
		}
		if n -= f.weight; n < 0 {
			return f
		}
	}
	panic("unreachable")
}

// play plays faults for a time, in groups of one to three that may overlap. After each
// group the workers must come to rest.
func (c *chaos) play(d time.Duration) {
	c.settled = make(map[string][]time.Duration)
	for range 1 + c.rng.IntN(c.options.pods) {
		c.must(c.join())
	}
	c.over = time.Now()
	c.settle("cold start")
	for end := time.Now().Add(d); time.Now().Before(end) && len(c.audit.violated()) == 0; {
		time.Sleep(c.between(time.Second, 20*time.Second))
		if c.rng.IntN(2) == 0 {
			c.save()
		}
		time.Sleep(c.between(0, 20*time.Second))
		var names []string
		for range 1 + c.rng.IntN(3) {
			f := c.pick()
			if err := f.play(c); err != nil {
				c.t.Fatalf("%s: %v", f.name, err)
			}
			names = append(names, f.name)
			c.over = later(c.over, time.Now())
			time.Sleep(c.between(0, 6*time.Second))
		}
		if len(names) > 1 {
			names = []string{"several"}
		}
		c.settle(names[0])
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// settle waits until the faults are over and the workers at rest.
func (c *chaos) settle(after string) {
	time.Sleep(time.Until(c.over))
	for ; ; time.Sleep(settlePoll) {
		if len(c.live()) == 0 { // the last has left, perhaps a while after it was told to
			c.over = time.Now()
			c.must(c.join())
		}
		if len(c.audit.violated()) > 0 {
			return
		}
		why := c.unstable()
		if why == "" && c.audit.waiting(c.over) == 0 {
			break
		}
		if why == "" {
			why = c.audit.overdue(c.over, c.options.config.Slots, settleBound)
		}
		if why != "" && time.Since(c.over) > settleBound {
			c.audit.mu.Lock()
			c.audit.violate(audit.Violation{Rule: "liveness", Text: fmt.Sprintf("not at rest %v after the last fault: %s", time.Since(c.over).Round(time.Second), why)})
			c.audit.mu.Unlock()
			return
		}
	}
	c.settled[after] = append(c.settled[after], time.Since(c.over))
	c.log.add("at rest, %v after the last fault", time.Since(c.over).Round(time.Millisecond))
}

// save makes a copy of the store between two messages, so that each is known to be in
// it or not.
func (c *chaos) save() {
	c.publishing <- struct{}{}
	defer func() { <-c.publishing }()
	if c.broker.running() == nil {
		return
	}
	c.log.add("copy of the store")
	c.must(c.broker.save())
}

// The faults of a worker.

func (c *chaos) one() *pod {
	live := c.live()
	if len(live) == 0 {
		return nil
	}
	return live[c.rng.IntN(len(live))]
}

func (c *chaos) kill() error {
	if p := c.one(); p != nil {
		c.log.fault("kill %s", p.name)
		p.kill()
	}
	return nil
}

func (c *chaos) stall() error {
	if p := c.one(); p != nil {
		d := c.between(50*time.Millisecond, 20*time.Second)
		c.log.fault("stall %s for %v", p.name, d)
		p.link.freeze(d)
		c.over = later(c.over, time.Now().Add(d))
	}
	return nil
}

func (c *chaos) cut() error {
	if p := c.one(); p != nil {
		d := c.between(10*time.Millisecond, 20*time.Second)
		c.log.fault("cut %s off for %v", p.name, d)
		p.link.cut(true)
		time.AfterFunc(d, func() {
			if !p.dead.Load() {
				p.link.cut(false)
			}
		})
		c.over = later(c.over, time.Now().Add(d))
	}
	return nil
}

func (c *chaos) join() error {
	if len(c.live()) >= c.options.pods {
		return nil
	}
	p, err := c.begin()
	if err != nil {
		return err
	}
	c.log.fault("join %s", p.name)
	return nil
}

func (c *chaos) leave() error {
	if p := c.one(); p != nil && len(c.live()) > 1 {
		c.log.fault("leave %s", p.name)
		p.leave()
		c.over = later(c.over, time.Now().Add(c.options.config.Rebalance.LeaveTimeout))
	}
	return nil
}

func (c *chaos) drain() error {
	if p := c.one(); p != nil && len(c.live()) > 1 {
		d := c.between(time.Second, 30*time.Second)
		c.log.fault("drain %s for %v", p.name, d)
		p.worker.Drain(time.Now().Add(d))
		c.over = later(c.over, time.Now().Add(d))
	}
	return nil
}

// The faults of the server.

func (c *chaos) stopped() error {
	c.broker.stop()
	return nil
}

// crashed has the server forget what it has not written, such as what was acknowledged last.
func (c *chaos) crashed() error {
	defer c.audit.wentBack()
	return c.broker.crash()
}

// outage has the server away for a while. A worker may join, leave or die meanwhile.
func (c *chaos) outage(stop func() error) error {
	d := c.between(0, 15*time.Second)
	if c.rng.IntN(4) == 0 {
		d = 0
	}
	c.log.fault("the server is stopped, and starts in %v", d)
	if err := stop(); err != nil {
		return err
	}
	time.Sleep(d / 2)
	if c.rng.IntN(4) == 0 {
		if err := []func(*chaos) error{(*chaos).kill, (*chaos).join, (*chaos).leave}[c.rng.IntN(3)](c); err != nil {
			return err
		}
	}
	time.Sleep(d - d/2)
	return c.broker.start()
}

// rollBack restarts the server with streams as they were in an earlier copy, or all.
func (c *chaos) rollBack(streams ...string) error {
	if len(c.broker.copies) == 0 {
		return nil
	}
	at := c.broker.copies[c.rng.IntN(len(c.broker.copies))]
	c.log.fault("the server goes back to %v: %v", c.log.since(at.at), streams)
	return c.outage(func() error {
		c.broker.cutOff()
		n := c.audit.take(func(_ string, _ int, published time.Time) bool { return published.After(at.at) })
		c.audit.wentBack()
		c.log.add("%d messages are lost, or in hand", n)
		return c.broker.restore(at, streams...)
	})
}

// deleteStream deletes a stream of messages. Copies of before would bring back what is
// lost, so they are forgotten.
func (c *chaos) deleteStream(name string) error {
	c.publishing <- struct{}{}
	defer func() { <-c.publishing }()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		return ignoreMissing(err)
	}
	synctest.Wait()
	there, err := contents(ctx, s)
	if err != nil {
		return err
	}
	n := c.audit.take(func(key string, number int, _ time.Time) bool { return there[key+" "+strconv.Itoa(number)] })
	c.log.fault("stream %s is deleted, with %d messages that are lost, or in hand", name, n)
	for _, copied := range slices.Clone(c.broker.copies) {
		if err := c.broker.forget(copied); err != nil {
			return err
		}
	}
	return ignoreMissing(c.js.DeleteStream(ctx, name))
}

func ignoreMissing(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil
	}
	return err
}

func (c *chaos) deleteRetryQueue() error {
	if c.options.config.Retry.Disabled {
		return nil
	}
	return c.deleteStream(stream + "-retry")
}

// contents returns what each message of a stream holds.
func contents(ctx context.Context, s jetstream.Stream) (map[string]bool, error) {
	out := make(map[string]bool)
	for seq := uint64(1); ; seq++ {
		m, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading a stream: %w", err)
		}
		out[strings.TrimSpace(string(m.Data))] = true
		seq = m.Sequence
	}
}

func (c *chaos) deleteBucket(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c.log.fault("bucket %s is deleted", name)
	if name == "work-assignments" && len(c.live()) == 0 {
		c.audit.forget()
	}
	return ignoreMissing(c.js.DeleteKeyValue(ctx, name))
}
