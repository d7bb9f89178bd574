package partition

import (
	"fmt"
	"time"
)

// slotMessage is the first message of a lane: it is begun, waits to be begun again, or is
// looked at whether it was settled before. The next of its key follows only when this one
// was settled, put into the retry queue, or returned. The slotRun begins it; slotRetry moves
// it into the retry queue.
type slotMessage struct {
	*lanes

	lane       *lane
	mail       *mail
	working    bool   // a handler works on it
	call       uint64 // which is this one, or was
	recalling  bool   // it is not known yet whether it was settled before
	looks      int    // that did not tell
	generation uint64 // of the memory, when it was recalled
	attempt    int
	failed     bool // it is to be queued for retry
	waited     bool // it has waited for room in the retry queue
	delay      time.Duration

	rest     time.Time // nothing is done with it before
	forLease bool      // it rests until the lease is valid
}

func newSlotMessage(l *lanes, of *lane, m *mail) *slotMessage {
	return &slotMessage{lanes: l, lane: of, mail: m, recalling: true, delay: l.cfg.Delivery.RetryDelay}
}

func (r *slotMessage) restFor(d time.Duration) { r.rest, r.forLease = r.now.Add(d), false }

// recall sees to it that a message which was settled here is not handled again: its
// acknowledgement may have been lost with the state of its consumer.
func (r *slotMessage) recall() {
	m := r.mail
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
			r.remove(r)
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

// lookForCopy settles the message if its copy is in the retry queue. If not, the
// message is handled: a later owner has processed it, or the server went back and has lost
// the copy.
func (r *slotMessage) lookForCopy() {
	m := r.mail
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

// settle settles the message. One of an earlier stream goes back: the server
// goes by its sequence, and delivers what has that now once more.
func (r *slotMessage) settle(how settlement) {
	m := r.mail
	r.remove(r)
	r.settled = m
	if !r.memory.settle(r.slot, m.finest, m.original, r.generation) {
		r.settled, how = nil, settleNak
	}
	r.do(settleEffect{r.place, m, how})
}

// settleQueued settles the message, whose copy has a sequence in the retry queue.
func (r *slotMessage) settleQueued(copied uint64) {
	r.memory.queue(r.slot, r.mail.original, r.generation, copied)
	r.settle(settleAck)
}
