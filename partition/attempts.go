package partition

import (
	"maps"
	"slices"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file keeps the number of attempts on a message where Retry.Attempts bounds it. An
// owner may fail in the middle of an attempt, maybe because of the message, so the attempt is
// recorded before it begins:
//
//   - each attempt on a queued message, and each but the first one at the head of a slot;
//   - the first one at the head, too, if the owner before may have failed while it handled
//     the message. So a slot whose owners do not fail has no record written.
//
// A record is in the slot's space of the retry stream, one for each key, since one message of
// a key is tried at a time. Like everything there it is written behind the last message that
// the owner knows, so a former owner can't write any.
//
// An attempt may end without saying anything of the message: what the handler needs is
// unavailable, its store has rejected the fence, or the lease became invalid in the middle of it.
// Such an attempt counts as none. What was recorded of it stands for the next attempt, and before a
// handoff the owner takes it back.

// interruptionsPerAttempt is how many interruptions of the handler by an invalid lease count as
// one failed attempt, with one owner. A message that makes its worker lose the lease each time,
// since it takes all of the processor say, becomes a dead letter after all.
const interruptionsPerAttempt = 10

// attemptRecords is what the owner of a slot knows of them.
type attemptRecords struct {
	most  int // Retry.Attempts; 0: nothing is recorded
	byKey map[string]*attemptRecord
	done  []doneRecord
	// announced has the attempts that this owner has asked to be recorded, and that were not
	// begun, or count as none: a message may be returned in between and come again, and the
	// answer may not come.
	announced map[string]announcement
	// interruptions has how many attempts on the message of a key were interrupted by an invalid
	// lease since the last one that counted.
	interruptions map[string]interruptions
	// failed has the attempts that failed at the head of the slot and may not be recorded, of
	// messages that may be returned and come again.
	failed map[string]announcement
	stale  []string // keys whose record is looked at, since no message of theirs is queued
}

// announcement is an attempt on a message.
type announcement struct {
	original
	attempt int
}

// interruptions is how often in a row the attempts on a message were interrupted.
type interruptions struct {
	original
	n int
}

// doneRecord is a record to be removed, since its message was settled.
type doneRecord struct {
	key string
	seq uint64
}

// attemptRecord is the record of a key.
type attemptRecord struct {
	known    bool // what follows was read, or written by this owner
	seq      uint64
	original original
	attempts int // begun, or about to begin
}

func newAttemptRecords(most int) attemptRecords {
	return attemptRecords{
		most:          most,
		byKey:         make(map[string]*attemptRecord),
		announced:     make(map[string]announcement),
		interruptions: make(map[string]interruptions),
		failed:        make(map[string]announcement),
	}
}

// counted takes in which keys have a record. What was known is read again where it is wanted:
// the server may have gone back.
func (a *attemptRecords) counted(keys []string) {
	clear(a.byKey)
	for _, key := range keys {
		a.byKey[key] = &attemptRecord{}
	}
	a.done, a.stale = nil, nil
}

// unread reports whether a key has a record that has yet to be read.
func (a *attemptRecords) unread(key string) bool {
	r := a.byKey[key]
	return r != nil && !r.known
}

// read takes in the record of a key; zero: it has none.
func (a *attemptRecords) read(key string, seq uint64, stored record.Attempts) {
	if seq == 0 {
		delete(a.byKey, key)
		return
	}
	a.byKey[key] = &attemptRecord{true, seq, original{stored.Sequence, stored.Published}, stored.Attempts}
}

// of returns how many attempts on a message are recorded.
func (a *attemptRecords) of(key string, o original) int {
	if r := a.byKey[key]; r != nil && r.known && r.original == o {
		return r.attempts
	}
	return 0
}

// made returns how many attempts on a message were made, as far as they are recorded.
func (a *attemptRecords) made(key string, o original) int {
	n := a.of(key, o)
	if n > 0 && a.announced[key] == (announcement{o, n}) {
		n--
	}
	return n
}

// announce notes that an attempt is about to be recorded.
func (a *attemptRecords) announce(key string, o original, attempt int) {
	a.announced[key] = announcement{o, attempt}
}

// begins notes that an attempt on a message of a key begins.
func (a *attemptRecords) begins(key string) { delete(a.announced, key) }

// interrupted notes that an attempt on a message was interrupted by an invalid lease, and reports
// whether it counts all the same.
func (a *attemptRecords) interrupted(key string, o original) (counts bool) {
	before := a.interruptions[key]
	if before.original != o {
		before = interruptions{original: o}
	}
	before.n++
	if before.n < interruptionsPerAttempt {
		a.interruptions[key] = before
		return false
	}
	delete(a.interruptions, key)
	return true
}

// excuse has an attempt that has begun count as none. It is recorded if another owner may count it.
func (a *attemptRecords) excuse(key string, o original, attempt int) {
	if a.of(key, o) == attempt || a.unread(key) {
		a.announce(key, o, attempt)
	}
}

// excused returns a key whose record counts an attempt that is none, or that has yet to be read
// to know it.
func (a *attemptRecords) excused() (key string, found bool) {
	for _, key := range slices.Sorted(maps.Keys(a.announced)) {
		announced := a.announced[key]
		if a.unread(key) || a.of(key, announced.original) == announced.attempt {
			return key, true
		}
	}
	return "", false
}

// failedAtHead notes the last attempt on a message, which has failed.
func (a *attemptRecords) failedAtHead(key string, o original, attempt int) {
	if a.most > 0 {
		a.failed[key] = announcement{o, attempt}
	}
}

// failures returns how many attempts on a message have failed here at the head of the slot.
func (a *attemptRecords) failures(key string, o original) int {
	if f := a.failed[key]; f.original == o {
		return f.attempt
	}
	return 0
}

// settled has the record of a message removed that will not be tried again.
func (a *attemptRecords) settled(key string, o original) {
	delete(a.failed, key)
	delete(a.interruptions, key)
	if r := a.byKey[key]; r != nil && r.known && r.original == o {
		a.remove(key)
	}
}

func (a *attemptRecords) remove(key string) {
	a.done = append(a.done, doneRecord{key, a.byKey[key].seq})
	delete(a.byKey, key)
}

// look has the records looked at that may be left over: an owner failed before it had
// removed them. Those of queued messages are read when these are tried.
func (a *attemptRecords) look(queued func(key string) bool) {
	a.stale = nil
	for key, r := range a.byKey {
		if !r.known && !queued(key) {
			a.stale = append(a.stale, key)
		}
	}
	slices.Sort(a.stale)
}

// removable returns a record to be removed. The last one of the space stays until something is
// written behind it: without it the owner would have to read the space again to know what its
// next write has to expect.
func (a *attemptRecords) removable(last uint64) (record doneRecord, found bool) {
	i := slices.IndexFunc(a.done, func(r doneRecord) bool { return r.seq != last })
	if i < 0 {
		return doneRecord{}, false
	}
	return a.done[i], true
}

func (a *attemptRecords) removed(record doneRecord) {
	a.done = slices.DeleteFunc(a.done, func(o doneRecord) bool { return o == record })
}

// pending reports whether there is something to remove, or to look at.
func (a *attemptRecords) pending(last uint64) bool {
	_, removable := a.removable(last)
	return removable || len(a.stale) > 0
}
