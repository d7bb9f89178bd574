package partition

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// lanes holds what was delivered to a slot and is not settled: a lane for each key, with the
// key's messages in the order in which they came. Only the first message of a lane may be
// begun, which keeps the order of a key and has one handler at a time work on it. Lanes do
// not wait for each other.
//
// The consumer delivers one message at a time as yet, so there is one lane with one message.
// With more in flight the order of a key needs three things that a slot's move does not give
// it yet. TestConsumerModel shows what the server does.
//
//  1. An owner must know that nothing was delivered to anyone else since the consumer was
//     reset for it. A former owner's pull that had no pin yet outlives the handoff, and may
//     get several messages. While these go back one by one, later ones come to the new owner.
//     Deliveries are numbered from 1 after a reset, so a gap in the numbers shows it.
//  2. A handoff must confirm its acknowledgements and then reset the consumer, in this order:
//     the server ignores the acknowledgement of what it has not delivered since a reset.
//     Returns alone do not do: what is on its way to the former owner is not among them.
//  3. What a worker has settled can't be one watermark: a later message of another key is
//     settled first. The sequences below it that are not settled have to be known, too.
type lanes struct {
	*runCore

	byKey   map[string]*lane
	order   []*lane // the lane that is looked at first is the one that has waited longest
	total   int     // messages
	settled *mail   // the last message that was settled, if it may be confirmed
	// claimLost: the retry stream went back to before the claim of this owner, so messages
	// that former owners queued may be lost there.
	claimLost bool
}

// lane is what a slot has in hand of one key.
type lane struct {
	key    string
	first  *slotMessage
	behind []*mail
}

func newLanes(r *runCore) *lanes { return &lanes{runCore: r, byKey: make(map[string]*lane)} }

// full reports whether the slot has as many messages in hand as it may.
func (l *lanes) full() bool { return l.total >= l.cfg.inFlight }

// take takes a message in hand that was never begun by this run.
func (l *lanes) take(m *mail) {
	l.total++
	key := m.message.Key
	if of := l.byKey[key]; of != nil {
		of.behind = append(of.behind, m)
		return
	}
	of := &lane{key: key}
	of.first = newSlotMessage(l, of, m)
	l.byKey[key] = of
	l.order = append(l.order, of)
}

// remove lets go of the first message of a lane. The next one of its key waits behind the
// lanes that wait already, so that a key with many messages keeps no other from its turn.
func (l *lanes) remove(m *slotMessage) {
	of := m.lane
	l.total--
	l.order = slices.DeleteFunc(l.order, func(o *lane) bool { return o == of })
	if len(of.behind) == 0 {
		delete(l.byKey, of.key)
		return
	}
	of.first = newSlotMessage(l, of, of.behind[0])
	of.behind = of.behind[1:]
	l.order = append(l.order, of)
}

// ready returns the message that something can be done with now, nil if there is none.
// Nothing is begun of a key of which a handler has a message of the retry queue.
func (l *lanes) ready(now time.Time, retried *retriedKey) *slotMessage {
	for _, of := range l.order {
		if m := of.first; !m.working && !now.Before(m.rest) && !retried.is(of.key) {
			return m
		}
	}
	return nil
}

// wake returns when the first of the messages that rest is ready, zero for never.
func (l *lanes) wake() (at time.Time) {
	for _, of := range l.order {
		if !of.first.working {
			at = earlier(at, of.first.rest)
		}
	}
	return at
}

// busy reports whether a handler works on a message of a key.
func (l *lanes) busy(key string) bool {
	of := l.byKey[key]
	return of != nil && of.first.working
}

// resting returns the messages that are not worked on.
func (l *lanes) resting() (out []*slotMessage) {
	for _, of := range l.order {
		if !of.first.working {
			out = append(out, of.first)
		}
	}
	return out
}

// leased ends the rest of the messages that have waited for the lease to be valid.
func (l *lanes) leased() {
	for _, of := range l.order {
		if of.first.forLease {
			of.first.rest = time.Time{}
		}
	}
}

// clear lets go of everything and returns it in the order of the stream, without the first
// messages that without names; nil: none.
func (l *lanes) clear(without func(*slotMessage) bool) []*mail {
	var out []*mail
	for _, of := range l.order {
		if without == nil || !without(of.first) {
			out = append(out, of.first.mail)
		}
		out = append(out, of.behind...)
	}
	l.order, l.total = nil, 0
	clear(l.byKey)
	slices.SortStableFunc(out, func(a, b *mail) int { return cmp.Compare(a.sequence, b.sequence) })
	return out
}

// known returns what is in hand of the keys whose first message is known to be new.
func (l *lanes) known() (out []*mail) {
	for _, of := range l.order {
		if !of.first.recalling {
			out = append(out, of.first.mail)
			out = append(out, of.behind...)
		}
	}
	return out
}

// retriedKey is the key whose first queued message is being tried, if there is one.
type retriedKey struct {
	key   string
	tried bool
}

func (r *retriedKey) is(key string) bool { return r != nil && r.tried && r.key == key }

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
	attempt   int
	failed    bool // it is to be queued for retry
	waited    bool // it has waited for room in the retry queue
	delay     time.Duration

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
		if r.cfg.Retry.Enabled {
			r.lookForClaim(forgets)
			return
		}
	case recallSettled:
	}
	r.believe(forgets)
}

// believe settles a message that was settled before, if the stream is the one it was.
func (r *slotMessage) believe(forgets uint64) {
	m := r.mail
	r.ask(askStream{}, func(a answer) {
		r.looks++
		switch {
		case a.err == nil && a.what == "":
			r.do(settleEffect{r.place, m, settleAck})
			r.remove(r)
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
	r.remove(r)
	r.settled = m
	if !r.memory.settle(r.slot, m.finest, m.original, r.forgets, r.fence) {
		r.settled, how = nil, settleNak
	}
	r.do(settleEffect{r.place, m, how})
}
