package partition

import (
	"fmt"
	"time"
)

// slotMessage is the message that a slot has in hand: the one that is begun, waits to be
// begun again, or is looked at whether it was settled before. A slot has one at a time,
// which is what keeps the order of its keys: the next is taken out of the box only when
// this one was settled, put into the retry queue, or returned. The slotRun takes it in hand
// and begins it; slotRetry moves it into the retry queue.
type slotMessage struct {
	*runCore

	hand       *mail  // nil: none
	recalling  bool   // it is not known yet whether it was settled before
	looks      int    // that did not tell
	generation uint64 // of the memory, when it was recalled
	attempt    int
	failed     bool // it is to be queued for retry
	waited     bool // it has waited for room in the retry queue
	delay      time.Duration

	rest     time.Time // nothing is done with it before
	forLease bool      // it rests until the lease is valid

	settled *mail // the last message that was settled, if it may be confirmed
}

// take takes a message in hand that was never begun by this run.
func (r *slotMessage) take(m *mail) {
	r.hand, r.recalling, r.looks = m, true, 0
	r.attempt, r.failed, r.waited, r.delay = 0, false, false, r.cfg.Delivery.RetryDelay
}

func (r *slotMessage) restFor(d time.Duration) { r.rest, r.forLease = r.now.Add(d), false }

// recall sees to it that a message which was settled here is not handled again: its
// acknowledgement may have been lost with the state of its consumer.
func (r *slotMessage) recall() {
	m := r.hand
	recalled, generation := r.memory.recall(r.slot, m.finest, m.original)
	switch recalled {
	case recallNothing:
		r.recalling, r.generation = false, generation
		return
	case recallReplaced:
		r.rolledBack(r.slot, generation, fmt.Sprintf("message %d is another one than it was", m.sequence))
		return
	case recallQueued:
		r.lookForCopy()
		return
	case recallSettled:
	}
	r.ask(askStream{}, func(a answer) {
		r.looks++
		switch {
		case a.err == nil && a.what == "":
			r.do(settleEffect{r.place, m, settleAck})
			r.hand = nil
			return
		case a.err == nil && r.looks >= looksToBelieve:
			r.rolledBack(r.slot, generation, a.what)
			return
		}
		// An unanswered question, or an answer to be asked for again: the slot
		// waits, since what is acknowledged by mistake is lost.
		r.restFor(pullRetry)
	})
}

// lookForCopy settles the message in hand if its copy is in the retry queue. If not, the
// message is handled: a later owner has processed it, or the server went back and has lost
// the copy.
func (r *slotMessage) lookForCopy() {
	m := r.hand
	copied := r.memory.copied(r.slot, m.original)
	r.ask(askHead{m.message.Key, max(1, copied)}, func(a answer) {
		switch {
		case a.err != nil:
			r.restFor(pullRetry)
		case a.queued != nil && a.queued.original() == m.original:
			r.settleQueued(a.queued.seq)
		default:
			r.do(warnEffect{"A message was delivered again, and its copy is not in the retry queue; it is handled.", []any{"slot", r.slot, "key", m.message.Key, "sequence", m.sequence}})
			r.memory.dequeue(r.slot, m.original)
			r.recalling, r.generation = false, r.memory.generation(r.slot)
		}
	})
}

// settle settles the message in hand. One of an earlier stream goes back: the server
// goes by its sequence, and delivers what has that now once more.
func (r *slotMessage) settle(how settlement) {
	m := r.hand
	r.hand, r.settled = nil, m
	if !r.memory.settle(r.slot, m.finest, m.original, r.generation) {
		r.settled, how = nil, settleNak
	}
	r.do(settleEffect{r.place, m, how})
}

// settleQueued settles the message in hand, whose copy has a sequence in the retry queue.
func (r *slotMessage) settleQueued(copied uint64) {
	r.memory.queue(r.slot, r.hand.original, r.generation, copied)
	r.settle(settleAck)
}
