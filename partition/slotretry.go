package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// recountAfter times the interval of the checks for silence is how often the messages in the
// retry queue are counted again. A server that was rolled back, while this worker stayed
// connected to another one, may have some again that were removed.
const recountAfter = 12

// slotRetry is the part of a slotRun that moves failing messages to the retry queue and retries
// those in it. It tries one message at a time, and the queue spaces the attempts. The run calls
// mayBegin before it begins a message, and work when it has none to begin.
type slotRetry struct {
	*lanes

	queue    *retryQueue
	attempts *slotAttempts
	tried    retriedKey // the key whose queued message a handler works on
	fails    int        // failed operations in a row
	at       time.Time  // earliest time of the next operation
	lookAt   time.Time  // when the messages are counted again
}

func newSlotRetry(l *lanes) *slotRetry {
	k := &slotRetry{lanes: l, queue: newRetryQueue(l.cfg.Retry, l.place, l.fence)}
	k.attempts = newSlotAttempts(l.runCore, k.queue, k.booked)
	return k
}

// wake returns when there is something to do, zero for never.
func (k *slotRetry) wake() time.Time {
	if k.tried.tried {
		return time.Time{}
	}
	if !k.queue.open() || k.attempts.records.pending(k.queue.last) {
		return k.at
	}
	at := earlier(k.queue.wake(), k.lookAt)
	if at.Before(k.at) {
		return k.at
	}
	return at
}

// booked reports whether an operation on the retry stream succeeded. After a failure all further
// ones wait.
func (k *slotRetry) booked(err error) bool {
	if err == nil {
		k.fails = 0
		return true
	}
	if k.fails++; k.fails%10 == 1 {
		k.do(warnEffect{"The retry stream can't be used; trying again.", []any{"slot", k.slot, "err", err}})
	}
	k.pauseRetries()
	return false
}

func (k *slotRetry) pauseRetries() {
	pause := pullRetry * time.Duration(max(1, min(k.fails, 10)))
	k.at = k.now.Add(pause)
	for _, m := range k.resting() {
		if m.rest.Before(k.at) {
			m.restFor(pause)
		}
	}
}

// advance does one step of opening the retry queue: read the claims, write this owner's, count
// the messages.
func (k *slotRetry) advance() {
	q := k.queue
	switch q.phase {
	case queueOpen:
	case queueLost:
		// A later owner's claim is there. If this worker has lost the slot it will be
		// told so; a wrong claim may be removed by an operator. So look again later.
		q.reread(true)
		k.fails++
		k.pauseRetries()
	case queueReading:
		k.ask(askSpace{}, func(a answer) {
			if !k.booked(a.err) {
				return
			}
			q.read(a.sequence, a.claims)
			k.claimLost = k.claimLost || q.claimLost
			if q.lost() {
				k.do(warnEffect{"A later owner has claimed the retry queue of a slot; nothing of it is begun.", []any{"slot", k.slot, "fence", q.fence}})
			}
		})
	case queueClaiming:
		k.ask(askClaim{q.fence, q.last}, func(a answer) {
			q.claimed(a.sequence, a.outcome)
			if a.outcome != outcomeConflict {
				k.booked(a.err)
			}
		})
	case queueCounting:
		k.ask(askCount{}, func(a answer) {
			if k.booked(a.err) {
				q.looked(k.now, a.counts)
				k.attempts.counted(a.recorded)
				k.lookAt = k.now.Add(recountAfter * k.cfg.stalePinCheck)
			}
		})
	}
}

// mayBegin reports whether a message may begin now: no message of its key waits in the retry
// queue, and it has not failed. Otherwise the message is queued for retry, because it has failed
// or follows a queued message of its key, or it waits until that is possible.
func (k *slotRetry) mayBegin(m *slotMessage) bool {
	q := k.queue
	key := m.mail.message.Key
	if m.waited {
		// The queue was full. If nothing of the key is queued any more, the message begins.
		if m.waited = false; !q.has(key) {
			return k.attempts.mayTry(m)
		}
	}
	q.refence(k.fence)
	if !q.writable() {
		k.advance()
		return false
	}
	switch queued := q.has(key); {
	case !queued && m.mail.original == q.latest:
		m.settle(settleAck)
	case queued:
		k.ask(askTail{key}, func(a answer) {
			switch {
			case !k.booked(a.err):
			case a.queued == nil:
				q.vanished(key)
			case a.queued.original() == m.mail.original:
				m.settleQueued(a.queued.seq)
			case k.several() && a.queued.Sequence >= m.mail.sequence:
				k.searchQueued(m, 1)
			default:
				k.queueIfRoom(m)
			}
		})
	case !m.failed:
		return k.attempts.mayTry(m)
	default:
		k.queueIfRoom(m)
	}
	return false
}

// searchQueued looks for a copy of a message among the queued ones of its key, from a sequence
// on, and queues the message if there is none. With several messages in flight the server may
// deliver a queued message again after later ones of its key were queued.
func (k *slotRetry) searchQueued(m *slotMessage, from uint64) {
	k.ask(askHead{m.mail.message.Key, from}, func(a answer) {
		switch {
		case !k.booked(a.err):
		case a.queued == nil:
			k.queueIfRoom(m)
		case a.queued.original() == m.mail.original:
			m.settleQueued(a.queued.seq)
		default:
			k.searchQueued(m, a.queued.seq+1)
		}
	})
}

// queueIfRoom copies a message to the retry queue. If the queue is full, the message waits at the
// head of the slot.
func (k *slotRetry) queueIfRoom(m *slotMessage) {
	q := k.queue
	key := m.mail.message.Key
	if !q.room(key) {
		m.waited = true
		m.restFor(q.backoff(m.attempt))
		return
	}
	first := !q.has(key)
	k.ask(askStoreCopy{m.mail, m.mail.message, m.attempt, q.last}, func(a answer) {
		q.stored(key, a.sequence, k.now, a.outcome)
		switch {
		case a.outcome == outcomeConflict:
			return
		case !k.booked(a.err):
			if a.outcome == outcomeRefused {
				m.restFor(maxRetryDelay / 5)
			}
			return
		case a.outcome != outcomeDone:
			return
		}
		k.retries.queued.Add(1)
		delete(k.attempts.records.failed, key)
		if first {
			q.began(key, m.mail.original, m.tried())
			k.note(event.Event{Kind: event.KeyQueued, Slot: k.slot, Reason: key, Count: m.attempt})
		}
		m.settleQueued(a.sequence)
	})
}

// recordAttempts brings the records of attempts up to date for the next owner, one step per call:
// it records the attempts on messages that have failed at the head of the slot, and takes back
// those that don't count. It returns false if there is nothing to do, or if that is impossible
// now, because a handoff must not wait for an outage to end.
func (k *slotRetry) recordAttempts() bool {
	if k.now.Before(k.at) || k.queue.lost() || !k.valid() {
		return false
	}
	failed := k.attempts.failedUnrecorded(k.lanes)
	excused, found := k.attempts.toTakeBack()
	if failed == nil && !found {
		return false
	}
	k.queue.refence(k.fence)
	if !k.queue.writable() {
		k.advance()
		return true
	}
	if failed == nil {
		k.attempts.takeBack(excused)
		return true
	}
	key, m := failed.mail.message.Key, failed.mail
	k.attempts.write(key, m.original, failed.attempt, func() { k.attempts.records.begins(key) })
	return true
}

// work does one step that is due: of opening the queue, an attempt, or the removal of a processed
// message. It returns false if there is none.
func (k *slotRetry) work() bool {
	now := k.now
	if k.tried.tried || now.Before(k.at) {
		return false
	}
	if !k.valid() {
		k.at = now.Add(pullRetry)
		return false
	}
	if k.queue.open() && !now.Before(k.lookAt) {
		k.queue.reread(false)
		k.attempts.sweep = true
	}
	if !k.queue.open() {
		k.queue.refence(k.fence)
		k.advance()
		return true
	}
	if k.attempts.tidy() {
		return true
	}
	key, due := k.queue.due(now)
	if !due {
		return false
	}
	if k.queue.keys[key].done != 0 {
		k.removeRetried(key)
		return true
	}
	if k.busy(key) { // a handler had begun a message of the key before this copy was counted
		k.queue.postpone(key, now.Add(pullRetry))
		return true
	}
	if !k.admitted() {
		return false
	}
	k.head(key, func(first *queuedMessage) {
		if first == nil {
			k.freed(key)
			return
		}
		k.eraseOriginal(key, first)
	})
	return true
}

// head asks for the first message of a key in the retry queue, and continues with it; nil:
// there is none. If the server does not answer, the key is due again later.
func (k *slotRetry) head(key string, then func(first *queuedMessage)) {
	k.ask(askHead{key, 1}, func(a answer) {
		if k.bookedOf(key, a.err) {
			then(a.queued)
		}
	})
}

// bookedOf is booked for an operation for one key.
func (k *slotRetry) bookedOf(key string, err error) bool {
	if !k.booked(err) {
		k.queue.postpone(key, k.now.Add(pullRetry))
		return false
	}
	return true
}

// eraseOriginal deletes the original of a queued message from the main stream before the queued
// copy is tried. Otherwise the original could be begun from there, too.
func (k *slotRetry) eraseOriginal(key string, head *queuedMessage) {
	k.queue.headed(key, head.original(), head.stored)
	k.ask(askErase{head.original()}, func(a answer) {
		if a.yes && a.err == nil {
			// It may have been delivered already, and be in hand.
			k.memory.queue(k.slot, head.original(), head.seq)
			k.memory.erase(k.slot, head.original())
			k.settled = nil
		}
		if k.bookedOf(key, a.err) {
			k.attempts.beforeRetry(key, head, func() { k.tryQueued(key, head) })
		}
	})
}

func (k *slotRetry) tryQueued(key string, head *queuedMessage) {
	q := k.queue
	if !k.valid() {
		q.postpone(key, k.now.Add(pullRetry)) // the lease was lost meanwhile
		return
	}
	of := q.keys[key]
	if of == nil {
		return
	}
	m := head.Message
	m.Delivered = 1
	begun := head.attempts + of.attempts
	k.tried = retriedKey{key, true}
	if k.attempts.exhausted(begun, of.tried) {
		m.Attempt = begun
		k.abandon(m, errUnfinished, func(err error) { k.triedQueued(key, head, k.now, err) })
		return
	}

	m.Attempt = begun + 1
	k.retries.retries.Add(1)
	began := k.now
	of.tried = true
	k.attempts.records.begins(key)
	k.handle(handleEffect{queued: head, message: m}, func(err error) {
		err = k.attempts.ended(m, head.original(), err)
		if isUncounted(err) {
			k.fencedOff(err)
		}
		k.abandonOr(m, m.Attempt, err, func(err error) { k.triedQueued(key, head, began, err) })
	})
}

// triedQueued handles the end of an attempt on the first queued message of a key, or of giving the
// message up without one.
func (k *slotRetry) triedQueued(key string, head *queuedMessage, began time.Time, err error) {
	k.tried = retriedKey{}
	q, now := k.queue, k.now
	of := q.keys[key]
	switch {
	case err == nil, isDiscarded(err):
		k.memory.dequeue(k.slot, head.original())
		q.processed(key, head, now, now.Sub(began))
		k.removeRetried(key)
	case !k.valid():
		q.postpone(key, now)
	case isUncounted(err), of != nil && !of.tried:
		q.refused(key, now, now.Sub(began))
	default:
		q.failed(key, now, now.Sub(began))
	}
}

// removeRetried removes the first message of a key, which has been processed. It first reads the
// message at that sequence: if the stream was re-created or rolled back, it is another one, maybe
// of another slot.
func (k *slotRetry) removeRetried(key string) {
	q := k.queue
	k.head(key, func(first *queuedMessage) {
		if first == nil {
			q.vanished(key)
			return
		}
		seq, o := first.seq, first.original()
		q.headed(key, o, first.stored)
		if of := q.keys[key]; of == nil || of.done != seq {
			return
		}
		k.ask(askRemove{seq}, func(a answer) {
			if !k.bookedOf(key, a.err) {
				return
			}
			k.attempts.records.settled(key, o)
			if q.removed(key, seq, k.now, a.yes) {
				k.free(key)
			}
		})
	})
}

// free frees a key whose last known message was removed, if the server confirms that none is
// left: after a rollback it may have more than were counted.
func (k *slotRetry) free(key string) {
	k.head(key, func(first *queuedMessage) {
		if first == nil {
			k.freed(key)
			return
		}
		k.queue.reread(false)
	})
}

// freed handles the server's answer that no message of a key is in the retry queue.
func (k *slotRetry) freed(key string) {
	if k.queue.vanished(key) {
		k.note(event.Event{Kind: event.KeyFreed, Slot: k.slot, Reason: key})
	}
}
