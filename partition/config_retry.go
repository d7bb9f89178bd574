package partition

import "time"

// Retry sets what happens to a message whose handler fails. By default it moves to the retry
// queue, a stream of its own, and so does every later message of its key. The slot's owner
// retries them in order, while the other keys of the slot continue. After Attempts failed
// attempts the message moves to the group's dead-letter stream, "<Stream>-dead", with the last
// error, the stack of a panic, its attempts and its origin. See docs/partition.md, "Retry queue",
// and Group.DeadLetters and Group.Requeue.
type Retry struct {
	// Disabled turns off the retry queue and the dead letters. A failing message is retried
	// without end at the head of its slot, after Delivery.RetryDelay, doubled each time, and
	// the other keys of the slot wait. All workers of a group must have the same setting: a
	// worker with another one does not start while others run.
	Disabled bool
	// KeepFailing retries a message without end, and records no attempts. Default off.
	KeepFailing bool
	// Attempts is the number of failed attempts, including those before the message was
	// queued, after which it becomes a dead letter; 1 to 1,000,000, default 5. With the default
	// Delay the fifth attempt is 15 s after the first.
	//
	// Attempts count for all owners of the message. After the first failure or a takeover each
	// is recorded before it begins, so a message whose workers fail while they handle it is given
	// up, too. An Unavailable error counts no attempt, nor does an interruption by an invalid
	// lease, unless there are ten in a row. After a GiveUp error there is no further attempt.
	// While the dead letter can't be stored, the message is retried: nothing is dropped.
	Attempts int
	// Tries is how often a message is tried at the head of its slot, with Delivery.RetryDelay
	// between, before it is queued for retry; 1 to 1,000, default 1.
	Tries int
	// Delay is the pause before a queued message is retried, doubled up to MaxDelay;
	// default 1 s and 1 minute.
	Delay, MaxDelay time.Duration
	// PerKey and PerSlot are how many messages may be queued, up to 10 million; default
	// 1,000 and 10,000. At a limit, the next message waits at the head of its slot, and the
	// slot with it, until a queued message is done: nothing is dropped, and publishers run
	// into the limits of the stream.
	PerKey, PerSlot int
}

func (r Retry) resolve() Retry {
	defaulted(&r.Tries, 1)
	defaulted(&r.Delay, time.Second)
	defaulted(&r.MaxDelay, max(r.Delay, time.Minute))
	defaulted(&r.PerKey, 1000)
	defaulted(&r.PerSlot, 10000)
	if !r.Disabled && !r.KeepFailing {
		defaulted(&r.Attempts, 5)
	}
	return r
}

func (r Retry) validate(f *faults) {
	if r.Disabled {
		if r.Attempts != 0 || r.KeepFailing {
			f.add("Retry.Disabled is on, so a message is tried without end: leave Retry.Attempts and Retry.KeepFailing out, or turn it off")
		}
		return
	}
	f.within("Retry.Tries", r.Tries, 1000)
	f.positive("Retry.Delay", r.Delay)
	if r.MaxDelay < r.Delay {
		f.add("Retry.MaxDelay is %v: give at least Retry.Delay (%v)", r.MaxDelay, r.Delay)
	}
	f.within("Retry.PerKey", r.PerKey, 10_000_000)
	f.within("Retry.PerSlot", r.PerSlot, 10_000_000)
	switch {
	case !r.KeepFailing:
		f.within("Retry.Attempts", r.Attempts, 1_000_000)
	case r.Attempts != 0:
		f.add("Retry.Attempts is %d and Retry.KeepFailing is on: give one of them", r.Attempts)
	}
}

// givesUp reports whether messages that fail become dead letters.
func (r Retry) givesUp() bool { return !r.Disabled && !r.KeepFailing }
