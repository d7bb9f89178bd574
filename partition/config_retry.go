package partition

import (
	"errors"
	"fmt"
	"time"
)

// Retry sets what happens to a message whose handler fails. Without it the message is tried
// again at the head of its slot, and the other keys of the slot wait. With it the message, and
// every later one of its key, goes to the retry queue, a stream of its own, from where the
// slot's owner tries them again in order; see docs/partition.md, "Retry queue".
type Retry struct {
	// Enabled turns it on; default off. All workers of a group must have the same: a worker
	// with another setting does not start while others are there.
	Enabled bool
	// Tries is how often a message is tried at the head of its slot, with Delivery.RetryDelay
	// between, before it is queued for retry; 1 to 1,000, default 1.
	Tries int
	// Delay is the pause before a queued message is tried again, doubled up to MaxDelay;
	// default 1 s and 1 minute.
	Delay, MaxDelay time.Duration
	// PerKey and PerSlot bound how many messages may be queued, up to 10 million; default
	// 1,000 and 10,000. Where a bound is reached, the next message stays at the head of its
	// slot, and the slot waits, until one of the queued is done: nothing is dropped, and
	// publishers meet the bounds of the stream.
	PerKey, PerSlot int
	// Attempts is after how many attempts, those before it was queued included, a message is
	// given up. DeadLetters says what becomes of it; without that the handler must be an
	// Abandoner. They are recorded before they begin, and counted by all owners of the message:
	// one whose workers fail while they handle it is given up, too. Up to a million; default 5
	// with DeadLetters, otherwise 0: it is tried again without end, and nothing is recorded.
	Attempts int
	// DeadLetters has the worker move a message that is given up to the group's dead-letter
	// stream, "<Stream>-dead", with the last error, the stack of a panic, its attempts and
	// where it came from. See Group.DeadLetters and Group.Requeue. A message that HandlerOf can't
	// decode goes there after its first attempt. While the dead letter can't be stored, the
	// message is tried again: nothing is dropped. The handler must not be an Abandoner. Default
	// off.
	DeadLetters bool
}

func (r Retry) resolve() Retry {
	defaulted(&r.Tries, 1)
	defaulted(&r.Delay, time.Second)
	defaulted(&r.MaxDelay, max(r.Delay, time.Minute))
	defaulted(&r.PerKey, 1000)
	defaulted(&r.PerSlot, 10000)
	if r.DeadLetters {
		defaulted(&r.Attempts, 5)
	}
	return r
}

func (r Retry) validate(f *faults) {
	if !r.Enabled {
		if r.DeadLetters {
			f.add("Retry.DeadLetters is on and Retry.Enabled is off: turn that on, too")
		}
		return
	}
	f.within("Retry.Tries", r.Tries, 1, 1000)
	f.positive("Retry.Delay", r.Delay)
	if r.MaxDelay < r.Delay {
		f.add("Retry.MaxDelay is %v: give at least Retry.Delay (%v)", r.MaxDelay, r.Delay)
	}
	f.within("Retry.PerKey", r.PerKey, 1, 10_000_000)
	f.within("Retry.PerSlot", r.PerSlot, 1, 10_000_000)
	f.within("Retry.Attempts", r.Attempts, 0, 1_000_000)
}

// fits reports whether a handler can do what r asks of it.
func (r Retry) fits(h Handler) error {
	_, abandons := find[Abandoner](h)
	switch {
	case r.DeadLetters && abandons:
		return errors.New("partition: Retry.DeadLetters is on and the handler is an Abandoner, which does that itself: turn one of them off")
	case r.Attempts > 0 && !r.DeadLetters && !abandons:
		return fmt.Errorf("partition: Retry.Attempts is %d and nothing gives a message up: turn Retry.DeadLetters on, implement Abandoner, or leave it at 0", r.Attempts)
	}
	return nil
}
