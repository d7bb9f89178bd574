package partition

import (
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// This file is what a slotRun does with the messages of its slot that wait in the retry
// queue. All of it happens between two messages of the main stream, so a slot has one
// handler at a time as ever; what takes time are attempts, and lot spaces these.

// lotLooks is after how many times as long as a slot may be silent its messages in the
// retry queue are counted again. A server that went back while this worker's connection
// to another one held may have some again that were removed.
const lotLooks = 12

// slotRetry is the retry queue as a slotRun sees it.
type slotRetry struct {
	lot    *lot
	fails  int       // operations in a row
	at     time.Time // nothing is done before
	lookAt time.Time // when the messages are counted again
}

// retryCounts are of all slots that a worker ever had.
type retryCounts struct{ parked, retries, abandoned atomic.Uint64 }

func newSlotRetry(cfg Retry, at place, f Fence) *slotRetry {
	return &slotRetry{lot: newLot(cfg, at, f)}
}

// wake returns when there is something to do, zero for never.
func (k *slotRetry) wake() time.Time {
	if !k.lot.open() {
		return k.at
	}
	at := earlier(k.lot.wake(), k.lookAt)
	if at.Before(k.at) {
		return k.at
	}
	return at
}

// booked notes whether an operation could be carried out. If not, all wait.
func (r *slotRun) booked(err error) bool {
	k := r.retry
	if err == nil {
		k.fails = 0
		return true
	}
	if k.fails++; k.fails%10 == 1 {
		r.d.do(warnEffect{"The retry stream can't be used; trying again.", []any{"slot", r.slot, "err", err}})
	}
	r.pauseRetries()
	return false
}

func (r *slotRun) pauseRetries() {
	k := r.retry
	pause := pullRetry * time.Duration(max(1, min(k.fails, 10)))
	k.at = r.d.now.Add(pause)
	if r.hand != nil && r.rest.Before(k.at) {
		r.restFor(pause)
	}
}

// advance does a step towards knowing what the retry queue has.
func (r *slotRun) advance() {
	k, l := r.retry, r.retry.lot
	switch l.phase {
	case lotOpen:
	case lotLost:
		// A worker that is not the owner any more is told so; a claim that was wrong
		// may be removed by hand.
		l.reread(true)
		k.fails++
		r.pauseRetries()
	case lotReading:
		r.ask(askSpace{}, func(a answer) {
			if !r.booked(a.err) {
				return
			}
			if l.read(a.sequence, a.claims); l.lost() {
				r.d.do(warnEffect{"A later owner has claimed the retry queue of a slot; nothing of it is begun.", []any{"slot", r.slot, "fence", l.fence}})
			}
		})
	case lotClaiming:
		r.ask(askClaim{l.fence, l.last}, func(a answer) {
			l.claimed(a.sequence, a.outcome)
			if a.outcome != outcomeConflict {
				r.booked(a.err)
			}
		})
	case lotLooking:
		r.ask(askCount{}, func(a answer) {
			if r.booked(a.err) {
				l.looked(r.d.now, a.counts)
				k.lookAt = r.d.now.Add(lotLooks * r.d.cfg.ghostCheck)
			}
		})
	}
}

// queues reports whether a message that has failed that often is to be queued for retry.
// One that failed while the lease was not valid was interrupted.
func (r *slotRun) queues(attempts int) bool {
	return r.retry != nil && attempts >= r.d.cfg.Retry.Tries && r.d.valid()
}

// mayBegin reports whether the message in hand may begin now: nothing of its key waits
// in the retry queue, and it has not failed. If not, it waits, or something is asked,
// or it is done with: what has failed is queued for retry, and so is what comes behind
// a queued message of its key.
func (r *slotRun) mayBegin() bool {
	l, m := r.retry.lot, r.hand
	key := m.message.Key
	if r.waited {
		// What has nothing of its key before it continues as if nothing was ever queued.
		if r.waited = false; !l.parked(key) {
			return true
		}
	}
	l.refence(r.fence)
	if !l.writable() {
		r.advance()
		return false
	}
	switch queued := l.parked(key); {
	case !queued && m.original == l.latest:
		r.settle(settleAck)
	case queued:
		r.ask(askTail{key}, func(a answer) {
			switch {
			case !r.booked(a.err):
			case a.parked == nil:
				l.vanished(key)
			case a.parked.original() == m.original:
				r.settleQueued(a.parked.seq)
			default:
				r.queueIfRoom()
			}
		})
	case !r.failed:
		return true
	default:
		r.queueIfRoom()
	}
	return false
}

// queueIfRoom puts the message in hand into the retry queue. Where that is full, the
// slot waits.
func (r *slotRun) queueIfRoom() {
	l, m := r.retry.lot, r.hand
	key := m.message.Key
	if !l.room(key) {
		r.waited = true
		r.restFor(l.backoff(r.attempt))
		return
	}
	first := !l.parked(key)
	r.ask(askStoreCopy{m, m.message, r.attempt, l.last}, func(a answer) {
		l.stored(key, a.sequence, r.d.now, a.outcome)
		switch {
		case a.outcome == outcomeConflict:
			return
		case !r.booked(a.err):
			if a.outcome == outcomeRefused {
				r.restFor(maxRetryDelay / 5)
			}
			return
		case a.outcome != outcomeDone:
			return
		}
		r.d.retries.parked.Add(1)
		if first {
			r.d.note(event.Event{Kind: event.KeyQueued, Slot: r.slot, Reason: key, Count: r.attempt})
		}
		r.settleQueued(a.sequence)
	})
}

// settleQueued settles the message in hand, whose copy has a sequence in the retry queue.
func (r *slotRun) settleQueued(copied uint64) {
	r.d.memory.queue(r.slot, r.hand.original, r.generation, copied)
	r.settle(settleAck)
}

// workRetries does one thing that is due: a step towards knowing what the retry queue
// has, an attempt, or the removal of what was processed. It returns false if there is
// none.
func (r *slotRun) workRetries() bool {
	k, now := r.retry, r.d.now
	if k == nil || now.Before(k.at) {
		return false
	}
	if !r.d.valid() {
		k.at = now.Add(pullRetry)
		return false
	}
	if k.lot.open() && !now.Before(k.lookAt) {
		k.lot.reread(false)
	}
	if !k.lot.open() {
		k.lot.refence(r.fence)
		r.advance()
		return true
	}
	key, due := k.lot.due(now)
	if !due {
		return false
	}
	if k.lot.keys[key].done != 0 {
		r.removeRetried(key)
		return true
	}
	r.head(key, func(first *parkedMessage) {
		if first == nil {
			r.freed(key)
			return
		}
		r.eraseOriginal(key, first)
	})
	return true
}

// head asks for the first message of a key in the retry queue, and continues with it; nil:
// there is none. If the server does not answer, the key is due again later.
func (r *slotRun) head(key string, then func(first *parkedMessage)) {
	r.ask(askHead{key, 1}, func(a answer) {
		if r.bookedOf(key, a.err) {
			then(a.parked)
		}
	})
}

// bookedOf is booked for an operation for one key.
func (r *slotRun) bookedOf(key string, err error) bool {
	if !r.booked(err) {
		r.retry.lot.postpone(key, r.d.now.Add(pullRetry))
		return false
	}
	return true
}

// eraseOriginal sees to it that a message which is about to be tried is in the main
// stream no more: it would be begun from there, too.
func (r *slotRun) eraseOriginal(key string, head *parkedMessage) {
	k := r.retry
	k.lot.headed(key, head.original(), head.stored)
	generation := r.d.memory.generation(r.slot)
	r.ask(askErase{head.original()}, func(a answer) {
		if a.yes && a.err == nil {
			// It may have been delivered before, and lie here.
			r.d.memory.queue(r.slot, head.original(), generation, head.seq)
			_ = r.d.memory.settle(r.slot, head.finest, head.original(), generation)
			r.settled = nil
		}
		if r.bookedOf(key, a.err) {
			r.tryQueued(key, head)
		}
	})
}

func (r *slotRun) tryQueued(key string, head *parkedMessage) {
	l := r.retry.lot
	if !r.d.valid() {
		l.postpone(key, r.d.now.Add(pullRetry)) // it was lost meanwhile
		return
	}
	of := l.keys[key]
	if of == nil {
		return
	}
	m := head.Message
	m.Delivered = 1
	m.Attempt = head.attempts + of.attempts + 1
	r.d.retries.retries.Add(1)
	began := r.d.now
	r.handle(handleEffect{parked: head, message: m}, func(err error) {
		fenced := isFenced(err)
		if fenced {
			r.fencedOff(err)
		}
		r.abandonOr(m, m.Attempt, err, func(err error) {
			now := r.d.now
			switch {
			case err == nil, isDiscarded(err):
				r.d.memory.dequeue(r.slot, head.original())
				l.processed(key, head, now, now.Sub(began))
				r.removeRetried(key)
			case !r.d.valid():
				l.postpone(key, now)
			case fenced:
				l.fencedOff(key, now, now.Sub(began))
			default:
				l.failed(key, now, now.Sub(began))
			}
		})
	})
}

// abandonOr lets the handler abandon a message that has failed as often as it may, and
// continues with what comes of that.
func (r *slotRun) abandonOr(m Message, attempts int, err error, then func(error)) {
	most := r.d.cfg.Retry.Attempts
	if err == nil || isFenced(err) || isDiscarded(err) || !r.d.abandons || r.retry == nil || most == 0 || attempts < most || !r.d.valid() {
		then(err)
		return
	}
	e := handleEffect{message: m, abandon: true, failure: err}
	r.handle(e, func(err error) {
		if err == nil {
			r.d.retries.abandoned.Add(1)
		}
		then(err)
	})
}

// removeRetried removes the first message of a key, which has been processed. What lies
// at its sequence is looked at before: if the stream was created again, or its server
// was rolled back, it is another message, maybe of another slot.
func (r *slotRun) removeRetried(key string) {
	l := r.retry.lot
	r.head(key, func(first *parkedMessage) {
		if first == nil {
			l.vanished(key)
			return
		}
		seq := first.seq
		l.headed(key, first.original(), first.stored)
		if of := l.keys[key]; of == nil || of.done != seq {
			return
		}
		r.ask(askRemove{seq}, func(a answer) {
			if r.bookedOf(key, a.err) && l.removed(key, seq, r.d.now, a.yes) {
				r.free(key)
			}
		})
	})
}

// free frees a key whose last known message was removed. The server has the last word:
// one that went back may have more of it than were counted.
func (r *slotRun) free(key string) {
	r.head(key, func(first *parkedMessage) {
		if first == nil {
			r.freed(key)
			return
		}
		r.retry.lot.reread(false)
	})
}

// freed follows the server's answer that nothing of a key is in the retry queue.
func (r *slotRun) freed(key string) {
	if r.retry.lot.vanished(key) {
		r.d.note(event.Event{Kind: event.KeyFreed, Slot: r.slot, Reason: key})
	}
}
