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

	lane      *lane
	mail      *mail
	working   bool   // a handler works on it
	call      uint64 // which is this one, or was
	recalling bool   // it is not known yet whether it was settled before
	looks     int    // that did not tell
	forgets   uint64 // of the memory, when it was recalled
	attempt   int    // how often it was tried
	former    int    // by former owners, as far as that is recorded
	before    int    // before it came, by this owner, too
	counted   bool   // former is known
	suspect   bool   // the owner before may have failed while it handled the message
	failed    bool   // it is to be queued for retry
	waited    bool   // it has waited for room in the retry queue
	delay     time.Duration

	rest     time.Time // nothing is done with it before
	forLease bool      // it rests until the lease is valid

	// With several messages in flight.
	confirming bool       // it is settled, and the server has yet to confirm that
	how        settlement // in this way
	outOfStep  bool       // the consumer was reset, and it has yet to come again
}

func newSlotMessage(l *lanes, of *lane, m *mail) *slotMessage {
	return &slotMessage{lanes: l, lane: of, mail: m, recalling: true, delay: l.cfg.Delivery.RetryDelay}
}

// begun reports whether a handler works on the message, or has since it came. One that was let
// go of and came again is not begun, though this owner has tried it.
func (r *slotMessage) begun() bool { return r.working || r.attempt > r.before || r.confirming }

// tried reports whether this owner has tried the message.
func (r *slotMessage) tried() bool { return r.attempt > r.former }

// begins notes that an attempt on the message begins.
func (r *slotMessage) begins() {
	r.works(true)
	r.attempt++
	r.suspect = r.suspect || r.suspects.begins(r.mail)
}

// cameAgain takes in that the message was delivered again.
func (r *slotMessage) cameAgain(m *mail) {
	r.mail, r.outOfStep = m, false
	if r.confirming {
		r.confirm()
		return
	}
	r.memory.inHand(r.slot, m.finest, m.original) // which may have been forgotten
}

func (r *slotMessage) restFor(d time.Duration) {
	r.rest, r.forLease = r.now.Add(d), false
	r.changed()
}

// works notes whether a handler works on the message.
func (r *slotMessage) works(working bool) {
	r.working = working
	r.changed()
}

// changed has the message's lane found where it belongs now. It follows every change of working, rest
// and confirming. A message that was let go of is in no lane.
func (r *slotMessage) changed() {
	if r.lane.first == r {
		r.lanes.changed(r.lane)
	}
}

// recall sees to it that a message which was settled here is not handled again: its
// acknowledgement may have been lost with the state of its consumer.
func (r *slotMessage) recall() {
	m := r.mail
	recalled, forgets := r.memory.recall(r.slot, m.finest, m.original)
	switch recalled {
	case recallNothing:
		r.recalling, r.forgets = false, forgets
		return
	case recallReplaced:
		r.rolledBack(r.slot, forgets, fmt.Sprintf("message %d is another one than it was", m.sequence))
		return
	case recallQueued:
		r.lookForCopy()
		return
	case recallFormer:
		if !r.cfg.Retry.Disabled {
			r.lookForClaim(forgets)
			return
		}
	case recallSettled:
	}
	r.believe(forgets)
}

// believe settles a message that was settled before, if the stream is the one it was.
func (r *slotMessage) believe(forgets uint64) {
	r.ask(askStream{}, func(a answer) {
		r.looks++
		switch {
		case a.err == nil && a.what == "":
			r.tellServer(settleAck)
			return
		case a.err == nil && r.looks >= looksToBelieve:
			r.rolledBack(r.slot, forgets, a.what)
			return
		}
		// An unanswered question, or an answer to be asked for again: the slot
		// waits, since what is acknowledged by mistake is lost.
		r.restFor(pullRetry)
	})
}

// lookForCopy settles the message if its copy is in the retry queue. If not, the
// message is handled: a later owner has processed it, or the server went back and has lost
// the copy. That it was queued is remembered until it is settled: it may be returned before
// it begins, and would be taken for processed when it comes again.
func (r *slotMessage) lookForCopy() {
	m := r.mail
	copied := r.memory.copied(r.slot, m.original)
	if copied == 0 {
		r.searchCopy(1) // it is not known where it is
		return
	}
	r.ask(askHead{m.message.Key, copied}, func(a answer) {
		switch {
		case a.err != nil:
			r.restFor(pullRetry)
		case a.queued != nil && a.queued.original() == m.original:
			r.settleQueued(a.queued.seq)
		default:
			r.handleAgain(copyGone)
		}
	})
}

// searchCopy is lookForCopy among the queued messages of the key from a sequence on.
func (r *slotMessage) searchCopy(from uint64) {
	r.ask(askHead{r.mail.message.Key, from}, func(a answer) {
		switch {
		case a.err != nil:
			r.restFor(pullRetry)
		case a.queued == nil:
			r.handleAgain(copyGone)
		case a.queued.original() == r.mail.original:
			r.settleQueued(a.queued.seq)
		default:
			r.searchCopy(a.queued.seq + 1)
		}
	})
}

// copyGone is told of a message that is handled again.
const copyGone = "A message was delivered again, and its copy is not in the retry queue; it is handled."

// lookForClaim settles the message, which a former owner has settled, if the claim of this
// owner is in the retry stream as it was: then so are the copies of former owners, which are
// older. If not, the message is handled.
func (r *slotMessage) lookForClaim(forgets uint64) {
	r.ask(askSpace{}, func(a answer) {
		switch {
		case a.err != nil:
			r.restFor(pullRetry)
		case !r.claimLost && claimedBy(a.claims, r.place, r.fence):
			r.believe(forgets)
		default:
			r.claimLost = true
			r.handleAgain("A message of a former owner was delivered again, and the retry queue has gone back; it is handled.")
		}
	})
}

func (r *slotMessage) handleAgain(why string) {
	r.do(warnEffect{why, []any{"slot", r.slot, "key", r.mail.message.Key, "sequence", r.mail.sequence}})
	r.recalling, r.forgets = false, r.memory.forgets(r.slot)
}

// settle settles the message, which is not in the retry queue.
func (r *slotMessage) settle(how settlement) {
	r.memory.dequeue(r.slot, r.mail.original)
	r.leave(how)
}

// settleQueued settles the message, whose copy has a sequence in the retry queue.
func (r *slotMessage) settleQueued(copied uint64) {
	r.memory.queue(r.slot, r.mail.original, copied)
	r.leave(settleAck)
}

// leave settles the message. One of an earlier stream goes back: the server
// goes by its sequence, and delivers what has that now once more.
func (r *slotMessage) leave(how settlement) {
	m := r.mail
	r.settled = m
	if !r.memory.settle(r.slot, m.finest, m.original, r.forgets, r.fence) {
		r.settled, how = nil, settleNak
	}
	r.tellServer(how)
}

// tellServer tells the server what became of the message, and lets go of it. With several messages
// in flight it stays in hand, and keeps the next one of its key from beginning, until the
// server has confirmed that.
func (r *slotMessage) tellServer(how settlement) {
	switch {
	case !r.several():
		r.remove(r)
		r.do(settleEffect{r.place, r.mail, how})
	case how == settleNak: // the reset brings it back, with all that is behind it
		r.remove(r)
		r.order.lost = true
	case r.outOfStep: // if it comes again, it is known to be settled
		r.remove(r)
	default:
		r.confirming, r.how = true, how
		r.unconfirmed[r.mail.original] = r
		r.confirm()
	}
}

// confirm acknowledges or terminates the message. While the lease is invalid the worker may
// have no connection, and what it sends would wait for the next one.
func (r *slotMessage) confirm() {
	if !r.valid() {
		r.restFor(pullRetry)
		return
	}
	r.restFor(confirmTimeout)
	r.do(confirmEffect{r.place, r.number, r.mail, r.how})
}

// confirmAgain follows a confirmation that did not come. The server goes by the sequence, and
// after it went back another message may have that. So the stream is asked first.
func (r *slotMessage) confirmAgain() {
	r.ask(askStored{r.mail.original}, func(a answer) {
		switch {
		case !r.confirming: // it was confirmed meanwhile
		case a.err != nil:
			r.restFor(pullRetry)
		case a.yes:
			r.confirm()
		case a.what != "":
			r.rolledBack(r.slot, r.forgets, a.what)
			r.remove(r)
			r.order.lost = true
		default: // it is settled, or lost
			r.remove(r)
		}
	})
}
