package partition

import (
	"errors"

	"github.com/muster-dev/muster/partition/internal/record"
)

// slotAttempts sees to it that the attempts on a slot's messages are recorded before they
// begin, and that records go with their messages. Its slotRetry asks it before each attempt,
// and has it tidy up when nothing else is to be done.
type slotAttempts struct {
	*runCore

	queue   *retryQueue
	booked  func(error) bool // of the slotRetry
	records attemptRecords
	sweep   bool // records are looked at when they are known again
	// takenBack is how many records of excused attempts were taken back before the handoff.
	takenBack int
}

// mostTakenBack bounds how many records are taken back before a handoff, during which the slot
// stands still. In the middle of an outage each queued key may have one. The attempts that are
// left count.
const mostTakenBack = 100

// errUnfinished is why a message is given up that has had all of its attempts before this
// owner could try it.
var errUnfinished = errors.New("the last attempt did not end: its worker failed, or lost its lease, while it handled the message")

func newSlotAttempts(r *runCore, q *retryQueue, booked func(error) bool) *slotAttempts {
	return &slotAttempts{runCore: r, queue: q, booked: booked, records: newAttemptRecords(r.cfg.Retry.Attempts)}
}

// exhausted reports whether a message has had all of its attempts before this owner had it.
// Then nobody knows how the last one would end, and it is given up without another one.
func (a *slotAttempts) exhausted(begun int, tried bool) bool {
	return a.records.most > 0 && begun >= a.records.most && !tried
}

// mayTry reports whether a message of the main stream may be tried, or given up, now. If not,
// something is asked.
func (a *slotAttempts) mayTry(m *slotMessage) bool {
	if a.records.most == 0 {
		return true
	}

	key, o := m.mail.message.Key, m.mail.original
	if !m.counted {
		if a.records.unread(key) {
			a.read(key, func() {})
			return false
		}
		m.counted = true
		m.former = a.records.made(key, o)
		m.before = max(m.former, a.records.failures(key, o))
		m.attempt = m.before
	}

	mayHaveBegun := m.attempt > 0 || m.suspect || m.suspects.has(m.mail)
	if !mayHaveBegun || a.records.of(key, o) > m.attempt || a.exhausted(m.attempt, m.tried()) {
		return true
	}
	a.write(key, o, m.attempt+1, func() {})
	return false
}

// failedUnrecorded returns a message that has failed at the head of the slot, and whose last
// attempt is not recorded; nil if there is none.
func (a *slotAttempts) failedUnrecorded(l *lanes) *slotMessage {
	if a.records.most == 0 {
		return nil
	}
	for _, m := range l.resting() {
		recorded := a.records.of(m.mail.message.Key, m.mail.original) >= m.attempt
		if m.tried() && !recorded && !m.confirming {
			return m
		}
	}
	return nil
}

// ended takes in that an attempt on a message has ended, and returns its error, unless that says
// nothing of the message and counts all the same: then it returns what the handler has returned.
func (a *slotAttempts) ended(m Message, o original, err error) error {
	if a.records.most == 0 || !isUncounted(err) {
		return err
	}
	var i *interruption
	onlyInterrupted := errors.As(err, &i) && !isUncounted(i.err)
	if onlyInterrupted && a.records.interrupted(m.Key, o) {
		return i.err
	}
	a.records.excuse(m.Key, o, m.Attempt)
	return err
}

// concluded takes in that a message was settled, or is to be tried again. That its attempt has failed
// is remembered until the message is queued: it may be let go of before, and come again.
func (a *slotAttempts) concluded(m *slotMessage, settled bool) {
	key, o := m.mail.message.Key, m.mail.original
	switch {
	case settled:
		a.records.settled(key, o)
	case m.tried():
		a.records.failedAtHead(key, o, m.attempt)
	}
}

// toTakeBack returns a key whose record has to be taken back, or read for that, before the slot is
// handed off.
func (a *slotAttempts) toTakeBack() (key string, found bool) {
	if a.takenBack == mostTakenBack {
		return "", false
	}
	return a.records.excused()
}

// takeBack does one thing towards having the record of a key count the attempts that were made.
func (a *slotAttempts) takeBack(key string) {
	if a.records.unread(key) {
		a.read(key, func() {})
		return
	}

	a.takenBack++
	excused := a.records.announced[key]
	a.write(key, excused.original, excused.attempt-1, func() { a.records.begins(key) })
}

// beforeRetry records the attempt on the first queued message of a key that is about to
// begin, and continues.
func (a *slotAttempts) beforeRetry(key string, head *queuedMessage, then func()) {
	of := a.queue.keys[key]
	if a.records.most == 0 || of == nil {
		then()
		return
	}

	o := head.original()
	again := func() { a.beforeRetry(key, head, then) }
	if !of.counted {
		if a.records.unread(key) {
			a.read(key, again)
			return
		}
		of.counted = true
		of.attempts = max(of.attempts, a.records.made(key, o)-head.attempts)
	}

	begun := head.attempts + of.attempts
	if a.records.of(key, o) > begun || a.exhausted(begun, of.tried) {
		then()
		return
	}
	a.write(key, o, begun+1, again)
}

// read reads the record of a key, and continues.
func (a *slotAttempts) read(key string, then func()) {
	a.ask(askAttempts{key}, func(got answer) {
		if !a.bookedOf(key, got.err) {
			return
		}
		a.records.read(key, got.sequence, got.attempts)
		then()
	})
}

// write records that an attempt is about to begin, and continues.
func (a *slotAttempts) write(key string, o original, attempt int, then func()) {
	q := a.queue
	if !q.writable() {
		q.postpone(key, a.now)
		return
	}
	stored := record.Attempts{Sequence: o.sequence, Published: o.published, Attempts: attempt}
	a.records.announce(key, o, attempt)
	a.ask(askStoreAttempts{key, stored, q.last}, func(got answer) {
		q.wrote(got.sequence, got.outcome)
		conflict := got.outcome == outcomeConflict
		if conflict || !a.bookedOf(key, got.err) || got.outcome != outcomeDone {
			return
		}
		a.records.read(key, got.sequence, stored)
		then()
	})
}

// bookedOf is booked for an operation for one key.
func (a *slotAttempts) bookedOf(key string, err error) bool {
	if !a.booked(err) {
		a.queue.postpone(key, a.now.Add(pullRetry))
		return false
	}
	return true
}

// counted takes in which keys have a record.
func (a *slotAttempts) counted(keys []string) {
	a.records.counted(keys)
	if a.sweep {
		a.sweep = false
		a.records.look(a.queue.has)
	}
}

// tidy removes one record that is not wanted any more, or looks at one that may not be. It
// returns false if there is none.
func (a *slotAttempts) tidy() bool {
	r := &a.records
	if record, found := r.removable(a.queue.last); found {
		a.removeDone(record)
		return true
	}
	if len(r.stale) == 0 {
		return false
	}
	key := r.stale[0]
	r.stale = r.stale[1:]
	if r.unread(key) {
		a.read(key, func() { a.removeIfLeft(key) })
	}
	return true
}

// removeDone removes the record of a message that was settled. What lies at its sequence is
// looked at before: if the server went back, it may be a queued message.
func (a *slotAttempts) removeDone(record doneRecord) {
	a.ask(askAttempts{record.key}, func(got answer) {
		switch {
		case !a.booked(got.err):
		case got.sequence != record.seq:
			a.records.removed(record)
		default:
			a.ask(askRemove{record.seq}, func(got answer) {
				if a.booked(got.err) {
					a.records.removed(record)
					a.queue.recordRemoved(record.seq)
				}
			})
		}
	})
}

// removeIfLeft removes the record of a message that is neither in the main stream nor queued.
func (a *slotAttempts) removeIfLeft(key string) {
	r := a.records.byKey[key]
	if r == nil {
		return
	}
	a.ask(askStored{r.original}, func(got answer) {
		left := got.err == nil && !got.yes && !a.queue.has(key) && a.records.byKey[key] == r
		if left {
			a.records.remove(key)
		}
	})
}
