package partition

import "time"

// Retry says what becomes of a message whose handler fails. Without it the
// message is tried again at the head of its slot, and the other keys of the slot
// wait. With it the message, and every later one of its key, is put aside
// ("parked") in a stream of its own, from where the slot's owner tries them again
// in order; see docs/partition.md, "A failing key".
type Retry struct {
	// Enabled turns it on; default off. All workers of a group must have the
	// same: a worker with another setting does not start while others are there.
	Enabled bool
	// Tries is how often a message is tried at the head of its slot, with
	// Config.RetryDelay between, before it is parked; default 1.
	Tries int
	// Delay is the pause before a parked message is tried again, doubled up to
	// MaxDelay; default 1 s and 1 minute.
	Delay, MaxDelay time.Duration
	// PerKey and PerSlot bound how many messages may be parked; default 1,000
	// and 10,000. Where a bound is reached, the next message stays at the head of
	// its slot, and the slot waits, until one of the parked is done: nothing is
	// dropped, and publishers meet the bounds of the stream.
	PerKey, PerSlot int
	// Attempts is after how many attempts, those before it was parked included,
	// the handler is asked to give a message up; it must be an Abandoner then.
	// What was tried since the message was parked is forgotten when its slot
	// moves. Default 0: it is tried for ever.
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
