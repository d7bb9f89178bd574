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
type lanes struct {
	*runCore

	byKey   map[string]*lane
	turns   []*lane // the lane that is looked at first is the one that has waited longest
	total   int     // messages
	settled *mail   // the last message that was settled, if it may be confirmed
	// claimLost: the retry stream went back to before the claim of this owner, so messages
	// that former owners queued may be lost there.
	claimLost bool

	suspects suspects

	// ahead is the highest sequence that is confirmed as settled, and confirmedAt when the last
	// one was, with several messages in flight.
	ahead       uint64
	confirmedAt time.Time
}

// lane is what a slot has in hand of one key.
type lane struct {
	key    string
	first  *slotMessage
	behind []*mail
}

func newLanes(r *runCore) *lanes { return &lanes{runCore: r, byKey: make(map[string]*lane)} }

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
	of := &lane{key: key}
	of.first = newSlotMessage(l, of, m)
	l.byKey[key] = of
	l.turns = append(l.turns, of)
}

// insert puts a message among the others of its key, in the order of the stream. One that
// was begun stays the first.
func (of *lane) insert(m *mail) {
	if first := of.first; m.sequence < first.mail.sequence && !first.begun() {
		of.first = newSlotMessage(first.lanes, of, m)
		m = first.mail
	}
	at := slices.IndexFunc(of.behind, func(o *mail) bool { return o.sequence > m.sequence })
	if at < 0 {
		at = len(of.behind)
	}
	of.behind = slices.Insert(of.behind, at, m)
}

// comesAgain takes in a message that is in hand already, and reports whether it is. An
// acknowledgement must be of the last delivery.
func (l *lanes) comesAgain(m *mail) bool {
	of := l.byKey[m.message.Key]
	if of == nil {
		return false
	}
	if of.first.mail.original == m.original {
		of.first.cameAgain(m)
		return true
	}
	at := slices.IndexFunc(of.behind, func(o *mail) bool { return o.original == m.original })
	if at < 0 {
		return false
	}
	of.behind[at] = m
	return true
}

// fallOutOfStep follows a reset of the consumer, which delivers again all that is not
// settled. Everything is let go of but what a handler works on.
func (l *lanes) fallOutOfStep() {
	for _, of := range slices.Clone(l.turns) {
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
func (l *lanes) confirming() bool {
	return slices.ContainsFunc(l.turns, func(of *lane) bool { return of.first.confirming })
}

// confirmed lets go of a message that the server knows as settled.
func (l *lanes) confirmed(o original) {
	at := slices.IndexFunc(l.turns, func(of *lane) bool { return of.first.confirming && of.first.mail.original == o })
	if at < 0 {
		return
	}
	m := l.turns[at].first
	m.confirming = false
	l.remove(m)
	l.ahead, l.confirmedAt = max(l.ahead, o.sequence), l.now
}

// overtaken reports whether a message is in hand before one that is settled.
func (l *lanes) overtaken() bool {
	return slices.ContainsFunc(l.turns, func(of *lane) bool { return of.first.mail.sequence < l.ahead })
}

// remove lets go of the first message of a lane. The next one of its key waits behind the
// lanes that wait already, so that a key with many messages keeps no other from its turn.
func (l *lanes) remove(m *slotMessage) {
	of := m.lane
	l.total--
	l.turns = slices.DeleteFunc(l.turns, func(o *lane) bool { return o == of })
	if len(of.behind) == 0 {
		delete(l.byKey, of.key)
		return
	}
	of.first = newSlotMessage(l, of, of.behind[0])
	of.behind = of.behind[1:]
	l.turns = append(l.turns, of)
}

// ready returns the message that something can be done with now, nil if there is none: one
// before a sequence, or that has yet to be confirmed. Nothing is begun of a key of which a
// handler has a message of the retry queue, or a request.
func (l *lanes) ready(now time.Time, retried *retriedKey, before uint64) *slotMessage {
	for _, of := range l.turns {
		m := of.first
		wanted := m.confirming || m.mail.sequence < before && l.serving[of.key] == nil
		if wanted && !m.working && !now.Before(m.rest) && !retried.is(of.key) {
			return m
		}
	}
	return nil
}

// wake returns when the first of the messages that rest is ready, zero for never.
func (l *lanes) wake() (at time.Time) {
	for _, of := range l.turns {
		if !of.first.working && l.serving[of.key] == nil {
			at = earlier(at, of.first.rest)
		}
	}
	return at
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
	for _, of := range l.turns {
		if !of.first.working {
			out = append(out, of.first)
		}
	}
	return out
}

// leased ends the rest of the messages that have waited for the lease to be valid.
func (l *lanes) leased() {
	for _, of := range l.turns {
		if of.first.forLease {
			of.first.rest = time.Time{}
		}
	}
}

// clear lets go of everything and returns it in the order of the stream, without the first
// messages that without names; nil: none.
func (l *lanes) clear(without func(*slotMessage) bool) []*mail {
	var out []*mail
	for _, of := range l.turns {
		if without == nil || !without(of.first) {
			out = append(out, of.first.mail)
		}
		out = append(out, of.behind...)
	}
	l.turns, l.total = nil, 0
	clear(l.byKey)
	slices.SortStableFunc(out, func(a, b *mail) int { return cmp.Compare(a.sequence, b.sequence) })
	return out
}

// known returns what is in hand of the keys whose first message is known to be new, and is
// not settled.
func (l *lanes) known() (out []*mail) {
	for _, of := range l.turns {
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
