package partition

import "time"

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
	// Attempts is after how many attempts, those before it was queued included, the handler is
	// asked to dead-letter a message; it must be an Abandoner then. Attempts since the message
	// was queued are forgotten when its slot moves. Up to a million; default 0: it is tried
	// again without end.
	Attempts int
}

func (r Retry) resolve() Retry {
	defaulted(&r.Tries, 1)
	defaulted(&r.Delay, time.Second)
	defaulted(&r.MaxDelay, max(r.Delay, time.Minute))
	defaulted(&r.PerKey, 1000)
	defaulted(&r.PerSlot, 10000)
	return r
}

func (r Retry) validate(f *faults) {
	if !r.Enabled {
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
