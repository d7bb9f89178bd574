package partition

import (
	"cmp"
	"slices"
	"time"
)

// lanes holds what was delivered to a slot and is not settled: a lane for each key, with the
// key's messages in the order of the stream. Only the first message of a lane may be begun,
// which keeps the order of a key and has one handler at a time work on it. Lanes do not wait
// for each other. deliveryorder.go says how this holds when the slot moves.
//
// A slot may have a thousand messages in hand, so no step searches all lanes. Each lane is, by its
// first message, in one of these places:
//
//   - A handler works on the message: in none.
//   - It rests: in rests, by when that ends.
//   - Its rest has ended, or it had none: in due, or if it is to be confirmed in overdue, by turn.
//     One that has rested is in ended, too, because wake still returns its time.
//
// slotMessage.changed moves a lane on. Where only time has passed, ready does.
type lanes struct {
	*runCore

	byKey   map[string]*lane
	turns   turnList // all of them: the first has waited longest
	turn    uint64   // the latest that was given
	total   int      // messages
	settled *mail    // the last message that was settled, if it may be confirmed
	// claimLost: the retry stream went back to before the claim of this owner, so messages
	// that former owners queued may be lost there.
	claimLost bool

	due, overdue turnList
	rests, ended restHeap

	suspects suspects

	// unconfirmed are the messages that the server has yet to confirm as settled. ahead is the
	// highest sequence that is confirmed, and confirmedAt when the last one was. All three are
	// of several messages in flight.
	unconfirmed map[original]*slotMessage
	ahead       uint64
	confirmedAt time.Time
}

func newLanes(r *runCore) *lanes {
	return &lanes{runCore: r, byKey: make(map[string]*lane), unconfirmed: make(map[original]*slotMessage)}
}

// full reports whether the slot takes no more messages in hand. With several in flight the
// server counts them, and what comes may be one that is in hand, so nothing is left to wait.
func (l *lanes) full() bool { return !l.several() && l.total > 0 }

// take takes a message in hand that was never begun by this run.
func (l *lanes) take(m *mail) {
	l.total++
	l.suspects.came(m)
	key := m.message.Key
	if of := l.byKey[key]; of != nil {
		of.insert(m)
		return
	}
	of := newLane(key)
	of.first = newSlotMessage(l, of, m)
	l.byKey[key] = of
	l.enqueue(of)
}

// enqueue puts a lane behind those that wait.
func (l *lanes) enqueue(of *lane) {
	l.turn++
	of.turn = l.turn
	l.turns.add(&of.inTurn)
	of.first.changed()
}

// comesAgain takes in a message that is in hand already, and reports whether it is. An
// acknowledgement must be of the last delivery.
func (l *lanes) comesAgain(m *mail) bool {
	of := l.byKey[m.message.Key]
	return of != nil && of.comesAgain(m)
}

// fallOutOfStep follows a reset of the consumer, which delivers again all that is not
// settled. Everything is let go of but what a handler works on.
func (l *lanes) fallOutOfStep() {
	for of := range l.turns.all {
		l.total -= len(of.behind)
		of.behind = nil
		if of.first.working {
			of.first.outOfStep = true
		} else {
			l.remove(of.first)
		}
	}
}

// confirming reports whether the server has yet to confirm that a message is settled.
func (l *lanes) confirming() bool { return len(l.unconfirmed) > 0 }

// confirmed lets go of a message that the server knows as settled.
func (l *lanes) confirmed(o original) {
	m := l.unconfirmed[o]
	if m == nil {
		return
	}
	l.remove(m)
	m.confirming = false
	l.ahead, l.confirmedAt = max(l.ahead, o.sequence), l.now
}

// overtaken reports whether a message is in hand before one that is settled.
func (l *lanes) overtaken() bool {
	return l.turns.find(func(of *lane) bool { return of.first.mail.sequence < l.ahead }) != nil
}

// remove lets go of the first message of a lane. The next one of its key waits behind the
// lanes that wait already, so that a key with many messages keeps no other from its turn.
func (l *lanes) remove(m *slotMessage) {
	of := m.lane
	l.total--
	if m.confirming {
		delete(l.unconfirmed, m.mail.original)
	}
	of.inTurn.leave()
	of.leaveIndexes()
	if of.advance(l) {
		l.enqueue(of)
	} else {
		delete(l.byKey, of.key)
	}
}

// changed puts a lane where ready and wake look for it, after its first message has changed.
func (l *lanes) changed(of *lane) {
	of.leaveIndexes()
	switch m := of.first; {
	case m.working:
	case l.now.Before(m.rest):
		l.rests.add(of, m.rest)
	default:
		l.rested(of, m.rest)
	}
}

// rested puts a lane among those with which something may be done.
func (l *lanes) rested(of *lane, until time.Time) {
	if !until.IsZero() {
		l.ended.add(of, until)
	}
	if of.first.confirming {
		l.overdue.add(&of.ready)
	} else {
		l.due.add(&of.ready)
	}
}

// ready returns the message that something can be done with now, nil if there is none: one
// before a sequence, or that has yet to be confirmed. Nothing is begun of a key of which a
// handler has a message of the retry queue, or a request.
func (l *lanes) ready(retried *retriedKey, before uint64) *slotMessage {
	for of, until := l.rests.pop(l.now); of != nil; of, until = l.rests.pop(l.now) {
		l.rested(of, until)
	}

	first := l.overdue.find(func(of *lane) bool { return !retried.is(of.key) })
	if before > 0 {
		begin := l.due.find(func(of *lane) bool {
			return of.first.mail.sequence < before && l.serving[of.key] == nil && !retried.is(of.key)
		})
		if first == nil || begin != nil && begin.turn < first.turn {
			first = begin
		}
	}
	if first == nil {
		return nil
	}
	return first.first
}

// wake returns when the first of the messages that rest is ready, zero for never.
func (l *lanes) wake() time.Time {
	served := func(of *lane) bool { return l.serving[of.key] != nil }
	return earlier(l.ended.earliest(served), l.rests.earliest(served))
}

// busy reports whether a handler works on a message or request of a key.
func (l *lanes) busy(key string) bool {
	of := l.byKey[key]
	return of != nil && of.first.working || l.serving[key] != nil
}

// waits reports whether a message of a key may be begun as soon as no handler works on the key.
func (l *lanes) waits(key string) bool {
	of := l.byKey[key]
	return of != nil && !of.first.confirming && !l.now.Before(of.first.rest)
}

// resting returns the messages that are not worked on.
func (l *lanes) resting() (out []*slotMessage) {
	for of := range l.turns.all {
		if !of.first.working {
			out = append(out, of.first)
		}
	}
	return out
}

// leased ends the rest of the messages that have waited for the lease to be valid.
func (l *lanes) leased() {
	for of := range l.turns.all {
		if of.first.forLease {
			of.first.rest = time.Time{}
			of.first.changed()
		}
	}
}

// clear lets go of everything and returns it in the order of the stream, without the first
// messages that without names; nil: none.
func (l *lanes) clear(without func(*slotMessage) bool) []*mail {
	var out []*mail
	for of := range l.turns.all {
		if without == nil || !without(of.first) {
			out = append(out, of.first.mail)
		}
		out = append(out, of.behind...)
		of.first, of.behind = nil, nil
		of.inTurn.leave()
		of.leaveIndexes()
	}
	l.total = 0
	clear(l.byKey)
	clear(l.unconfirmed)
	slices.SortStableFunc(out, func(a, b *mail) int { return cmp.Compare(a.sequence, b.sequence) })
	return out
}

// known returns what is in hand of the keys whose first message is known to be new, and is
// not settled.
func (l *lanes) known() (out []*mail) {
	for of := range l.turns.all {
		if !of.first.recalling && !of.first.confirming {
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
