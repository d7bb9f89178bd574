package partition

import "time"

// Retry says what becomes of a message whose handler fails. Without it the
// message is tried again at the head of its slot, and the other keys of the slot
// wait. With it the message, and every later one of its key, is put
// into the retry queue, a stream of its own, from where the slot's owner tries them again
// in order; see docs/partition.md, "Retry queue".
type Retry struct {
	// Enabled turns it on; default off. All workers of a group must have the
	// same: a worker with another setting does not start while others are there.
	Enabled bool
	// Tries is how often a message is tried at the head of its slot, with
	// Config.RetryDelay between, before it is queued; default 1.
	Tries int
	// Delay is the pause before a queued message is tried again, doubled up to
	// MaxDelay; default 1 s and 1 minute.
	Delay, MaxDelay time.Duration
	// PerKey and PerSlot bound how many messages may be queued; default 1,000
	// and 10,000. Where a bound is reached, the next message stays at the head of
	// its slot, and the slot waits, until one of the queued ones is processed: nothing is
	// dropped, and publishers meet the bounds of the stream.
	PerKey, PerSlot int
	// Attempts is after how many attempts, those before it was queued included,
	// the handler is asked to give a message up; it must be an Abandoner then.
	// What was tried since the message was queued is forgotten when its slot
	// moves. Default 0: it is tried without end.
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
