//go:build !race

package virtual

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition"
)

// auditor knows every message that the server acknowledged, and checks what the workers
// do with them against the promises. It is the workers' result store, too: one result
// a key, which is written only with a fence that is not lower than the last one.
//
// Rules, by the names that violations have:
//
//	lost         a message that the server acknowledged, and that no fault has taken, is processed
//	order        the first results of a key's messages come in the order in which they were published
//	one-handler  no two handlers of a key run at the same time, unless the earlier one's context has ended
//	fence-grows  a handler with a valid context is not rejected for a lower fence, unless the map was
//	             lost when no worker lived who had seen it
//	fence-unique no two workers have the same fence for a key
//	dead-letter  no message is given up: none fails as often as that takes
//	liveness     the group is stable within a bound after the faults, and has processed everything within
//	             that bound and twice the time for which its slot's handlers ran meanwhile: what waits in the
//	             retry queue takes at most half of a slot's time
type auditor struct {
	log *history

	mu         sync.Mutex
	keys       map[string]*keyAccount
	ended      []*call
	violations []string
	counts     counts
}

type counts struct {
	Published, Unknown, Applied, Repeated, Lost, InHand, Rejected, Failed int
}

func (c *counts) add(o counts) {
	c.Published += o.Published
	c.Unknown += o.Unknown
	c.Applied += o.Applied
	c.Repeated += o.Repeated
	c.Lost += o.Lost
	c.InHand += o.InHand
	c.Rejected += o.Rejected
	c.Failed += o.Failed
}

func (c counts) String() string {
	return fmt.Sprintf("%d acknowledged (%d more perhaps stored), %d processed, %d more deliveries of these, %d lost by faults (%d more were in hand), %d late writes rejected, %d attempts failed",
		c.Published, c.Unknown, c.Applied, c.Repeated, c.Lost, c.InHand, c.Rejected, c.Failed)
}

// keyAccount is what is known of one key.
type keyAccount struct {
	messages []*account // by their number, from 0
	last     int        // the highest number with a result, -1 for none
	fence    partition.Fence
	owner    *pod // whose fence that is
	// forgotten is whether nobody but this store knows that fence.
	forgotten bool
	running   []*call
}

// account is what is known of one message.
type account struct {
	published time.Time
	acked     bool
	applied   bool
	taken     string // the fault that has taken it from the server, "" for none
	failures  int    // attempts that are yet to fail
}

// waits reports whether it was published before a moment, and is yet to be processed.
func (m *account) waits(before time.Time) bool {
	return m.acked && !m.applied && m.taken == "" && !m.published.After(before)
}

// call is a handler that runs, or did.
type call struct {
	ctx         context.Context
	pod         *pod
	number      int
	fence       partition.Fence
	slot        int
	began, over time.Time // over is zero while it runs
}

// within is for how long of the time since a moment a call ran.
func (c *call) within(since time.Time) time.Duration {
	began, over := later(c.began, since), c.over
	if over.IsZero() {
		over = time.Now()
	}
	return max(0, over.Sub(began))
}

func newAuditor(log *history) *auditor { return &auditor{log: log, keys: make(map[string]*keyAccount)} }

func (a *auditor) key(key string) *keyAccount {
	k := a.keys[key]
	if k == nil {
		k = &keyAccount{last: -1}
		a.keys[key] = k
	}
	return k
}

// violate notes that a promise was not kept; a.mu is held.
func (a *auditor) violate(rule, format string, args ...any) {
	v := rule + ": " + fmt.Sprintf(format, args...)
	a.violations = append(a.violations, v)
	a.log.add("VIOLATION %s", v)
}

func (a *auditor) violated() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.violations...)
}

// next gives the next message of a key its number. It fails as often as told.
func (a *auditor) next(key string, failures int) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.key(key)
	k.messages = append(k.messages, &account{published: time.Now(), failures: failures})
	return len(k.messages) - 1
}

// acknowledged notes what the server said to a message: nothing, perhaps.
func (a *auditor) acknowledged(key string, number int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.counts.Unknown++
		return
	}
	a.counts.Published++
	a.key(key).messages[number].acked = true
}

// take notes that a fault takes messages from the server: all that are not processed
// and for which lost says so.
func (a *auditor) take(fault string, lost func(key string, number int, published time.Time) bool) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, k := range a.keys {
		for i, m := range k.messages {
			if m.acked && !m.applied && m.taken == "" && lost(key, i, m.published) {
				m.taken = fault
				n++
			}
		}
	}
	return n
}

// begin notes that a handler is called. The caller calls end afterwards.
func (a *auditor) begin(ctx context.Context, p *pod, m partition.Message, number int) *call {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.key(m.Key)
	c := &call{ctx: ctx, pod: p, number: number, fence: m.Fence, slot: m.Slot, began: time.Now()}
	for _, other := range k.running {
		if other.ctx.Err() == nil && !other.pod.dead.Load() {
			a.violate("one-handler", "%s begins %s %d while %s works on number %d, with fences %v and %v", p.name, m.Key, number, other.pod.name, other.number, m.Fence, other.fence)
		}
	}
	k.running = append(k.running, c)
	return c
}

func (a *auditor) end(key string, c *call) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.key(key)
	for i, other := range k.running {
		if other == c {
			k.running = append(k.running[:i], k.running[i+1:]...)
			c.over = time.Now()
			a.ended = append(a.ended, c)
			return
		}
	}
}

// fails reports whether an attempt is to fail.
func (a *auditor) fails(key string, number int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.message(key, number)
	if m == nil || m.failures == 0 {
		return false
	}
	m.failures--
	a.counts.Failed++
	return true
}

func (a *auditor) message(key string, number int) *account {
	k := a.key(key)
	if number >= len(k.messages) {
		a.violate("lost", "%s %d was never published", key, number)
		return nil
	}
	return k.messages[number]
}

// write stores a message's result, under the handler's fence.
func (a *auditor) write(key string, c *call) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	k, m := a.key(key), a.message(key, c.number)
	if m == nil {
		return nil
	}
	switch order := c.fence.Compare(k.fence); {
	case order < 0:
		a.counts.Rejected++
		if c.ctx.Err() == nil && !k.forgotten {
			a.violate("fence-grows", "%s writes %s %d with fence %v, and %s has written with %v", c.pod.name, key, c.number, c.fence, k.owner.name, k.fence)
		}
		return fmt.Errorf("storing %s %d of %s: %w", key, c.number, c.pod.name, &partition.FencedError{Stored: k.fence})
	case order == 0 && k.owner != nil && k.owner != c.pod:
		a.violate("fence-unique", "%s and %s have fence %v for %s", k.owner.name, c.pod.name, c.fence, key)
	}
	k.fence, k.owner, k.forgotten = c.fence, c.pod, false
	switch {
	case m.applied:
		a.counts.Repeated++
		return nil
	case c.number < k.last:
		a.violate("order", "%s stores %s %d after number %d", c.pod.name, key, c.number, k.last)
	}
	m.applied = true
	k.last = max(k.last, c.number)
	a.counts.Applied++
	if m.taken != "" {
		a.counts.InHand++
	}
	return nil
}

// forget notes that the map is lost, and no worker lives who has seen it. The workers learn
// the fences by being rejected.
func (a *auditor) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.keys {
		k.forgotten = k.owner != nil
	}
}

// abandoned notes that a worker gives a message up.
func (a *auditor) abandoned(p *pod, m partition.Message, number int, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.violate("dead-letter", "%s gives up %s %d after %d attempts: %v", p.name, m.Key, number, m.Attempt, err)
}

// waiting returns how many acknowledged messages of before a moment are yet to be
// processed.
func (a *auditor) waiting(before time.Time) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.keys {
		for _, m := range k.messages {
			if m.waits(before) {
				n++
			}
		}
	}
	return n
}

// overdue returns a message from before a moment that should be processed by now, ""
// if there is none. Its slot had the bound for itself, beside the time for which its
// handlers ran, and as much again.
func (a *auditor) overdue(before time.Time, slots int, bound time.Duration) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	busy := map[int]time.Duration{}
	for _, c := range a.ended {
		busy[c.slot] += c.within(before)
	}
	for _, k := range a.keys {
		for _, c := range k.running {
			busy[c.slot] += c.within(before)
		}
	}
	for key, k := range a.keys {
		slot := partition.SlotOfKey(slots, key)
		if time.Since(before) <= bound+2*busy[slot] {
			continue
		}
		for i, m := range k.messages {
			if m.waits(before) {
				return fmt.Sprintf("%s %d of %v is not processed, and the handlers of slot %d ran for %v since", key, i, a.log.since(m.published), slot, busy[slot].Round(time.Millisecond))
			}
		}
	}
	return ""
}

// close counts what was lost.
func (a *auditor) close() counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.keys {
		for _, m := range k.messages {
			if m.taken != "" && !m.applied {
				a.counts.Lost++
			}
		}
	}
	return a.counts
}
