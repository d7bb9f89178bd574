//go:build !race

package virtual

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/audit"
)

type (
	judge    = audit.Auditor[*pod, partition.Fence]
	handling = audit.Handling[*pod, partition.Fence]
)

// auditor knows every message that the server acknowledged, and has package audit check what
// the workers do with them. It is the workers' result store, too: one result per message, which
// is written only with a fence that is not lower than the last one of the key.
//
// One rule is its own:
//
//	liveness     the group is stable within a bound after the faults, and has processed everything within
//	             that bound and twice the time for which its slot's handlers ran meanwhile: what waits in the
//	             retry queue takes at most half of a slot's time
type auditor struct {
	log   *history
	judge *judge

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
	*audit.Key[*pod, partition.Fence]

	slot     *audit.Slot[*pod, partition.Fence]
	messages []*account // by their number, from 1
	running  []*call
}

// account is what is known of one message beside what became of it.
type account struct {
	published time.Time
	failures  int // attempts that are yet to fail
}

// waits reports whether a message was published before a moment, and is yet to be processed.
func (k *keyAccount) waits(n int, before time.Time) bool {
	return k.Waits(n) && !k.messages[n-1].published.After(before)
}

// call is a handler that runs, or did.
type call struct {
	handling

	ctx         context.Context
	slot        int
	began, over time.Time // over is zero while it runs
}

func (c *call) standing() audit.Standing {
	switch {
	case !c.over.IsZero() || c.Worker.dead.Load():
		return audit.Over
	case c.ctx.Err() != nil:
		return audit.Interrupted
	}
	return audit.Valid
}

// within is for how long of the time since a moment a call ran.
func (c *call) within(since time.Time) time.Duration {
	began, over := later(c.began, since), c.over
	if over.IsZero() {
		over = time.Now()
	}
	return max(0, over.Sub(began))
}

func newAuditor(log *history) *auditor {
	a := &auditor{log: log, keys: make(map[string]*keyAccount)}
	a.judge = audit.New[*pod, partition.Fence](func(v audit.Violation) { a.violate(v) })
	return a
}

func (a *auditor) key(key string) *keyAccount {
	k := a.keys[key]
	if k == nil {
		k = &keyAccount{slot: a.judge.Slot(key)}
		k.Key = a.judge.Key(key, k.slot)
		a.keys[key] = k
	}
	return k
}

// violate notes that a promise was not kept; a.mu is held.
func (a *auditor) violate(v audit.Violation) {
	a.violations = append(a.violations, v.String())
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
	return k.Publish()
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
	a.key(key).Acknowledge(number)
}

// take notes that a fault takes messages from the server: all that are not processed
// and for which lost says so.
func (a *auditor) take(lost func(key string, number int, published time.Time) bool) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, k := range a.keys {
		for i, m := range k.messages {
			if k.Waits(i+1) && lost(key, i+1, m.published) {
				k.Take(i + 1)
				n++
			}
		}
	}
	return n
}

// wentBack notes that the server has forgotten what was settled.
func (a *auditor) wentBack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.judge.WentBack()
}

// begin notes that a handler is called. The caller calls end afterwards.
func (a *auditor) begin(ctx context.Context, p *pod, m partition.Message, number int) *call {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.key(m.Key)
	c := &call{ctx: ctx, slot: m.Slot, began: time.Now()}
	c.handling = handling{Worker: p, Fence: m.Fence, Number: number, Standing: c.standing}
	k.running = append(k.running, c)
	if !p.dead.Load() {
		k.slot.Held(p, m.Fence, ctx.Err() == nil)
		k.Begin(&c.handling)
	}
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
	k := a.key(key)
	if number > len(k.messages) || k.messages[number-1].failures == 0 {
		return false
	}
	k.messages[number-1].failures--
	a.counts.Failed++
	return true
}

// write stores a message's result, under the handler's fence.
func (a *auditor) write(key string, c *call) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.key(key)
	switch k.Write(&c.handling) {
	case audit.Rejected:
		a.counts.Rejected++
		return fmt.Errorf("storing %s %d of %v: %w", key, c.Number, c.Worker, &partition.FencedError{Stored: k.slot.Stored()})
	case audit.Repeated:
		a.counts.Repeated++
	case audit.Applied:
		a.counts.Applied++
		if k.Taken(c.Number) {
			a.counts.InHand++
		}
	}
	return nil
}

// forget notes that the map is lost, and no worker lives who has seen it. The workers learn
// the fences by being rejected.
func (a *auditor) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.judge.ForgetFences()
}

// deadLettered notes that a worker has dead-lettered a message. None fails as often as that takes.
func (a *auditor) deadLettered(p *pod, e event.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.violate(audit.Violation{Rule: audit.DeadLetter, Text: fmt.Sprintf("%s: %s", p.name, e.Text())})
}

// waiting returns how many acknowledged messages of before a moment are yet to be
// processed.
func (a *auditor) waiting(before time.Time) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, k := range a.keys {
		for i := range k.messages {
			if k.waits(i+1, before) {
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
			if k.waits(i+1, before) {
				return fmt.Sprintf("%s %d of %v is not processed, and the handlers of slot %d ran for %v since", key, i+1, a.log.since(m.published), slot, busy[slot].Round(time.Millisecond))
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
		for i := range k.messages {
			if k.Taken(i+1) && !k.Done(i+1) {
				a.counts.Lost++
			}
		}
	}
	return a.counts
}
