package partition

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// retryQueue is what the owner of a slot knows of the messages of the slot that are queued
// for retry, and of what it has to do to know it. It has no I/O: phase says what is to be
// done, and a method for each operation takes its outcome in. Its slotRetry calls it, and
// has the operations carried out.
//
// Owners change, so a former owner may still write while the next one reads. Each write
// expects the last message of the slot's space to be a certain one, and fails otherwise:
//
//  1. A new owner reads which claims there are. A later fence than its own has won.
//  2. It writes its claim, which every write of a former owner fails after.
//  3. Then it counts the keys that have messages. What it has seen now stays true.
//
// See docs/partition.md, "Retry queue", for why this keeps the order.
type retryQueue struct {
	cfg   Retry
	at    place
	fence Fence
	phase queuePhase
	// bump is whether our claim has to be written, whether or not it is there:
	// a write of ours whose outcome is not known fails after it.
	bump      bool
	written   bool   // our claim was written, for this fence
	claimLost bool   // it was, and was not there later
	stale     bool   // last is not known: the last message was removed
	last      uint64 // sequence of the last message of the space, which a write expects
	keys      map[string]*queuedKey
	total     int
	// calm is until when no queued message is tried: as long as the last one
	// took, so that the other keys have at least half of the slot's time.
	calm time.Time
	// wentBack is whether the retry queue may have lost messages, which may be in the main
	// stream again then.
	wentBack bool
	// latest is the latest original, by publication, that was processed from here:
	// one that was on its way may come yet.
	latest original
}

type queuePhase uint8

const (
	queueReading  queuePhase = iota // which claims there are
	queueClaiming                   // writing ours
	queueCounting                   // which keys are queued
	queueOpen
	queueLost // a later owner has a claim
)

// queuedKey is a key that has messages in the retry stream.
type queuedKey struct {
	n        int       // messages
	attempts int       // of the first, since it was queued
	counted  bool      // those of former owners, too
	tried    bool      // by this owner
	next     time.Time // when it is tried again
	since    time.Time // when the first was queued; zero: not known yet
	done     uint64    // the first, if it has been processed and is to be removed
	refused  int       // fence rejections of the first in a row, which are no attempts
	head     original  // of the first, as it was last read; zero: not known yet
}

func newRetryQueue(cfg Retry, at place, fence Fence) *retryQueue {
	return &retryQueue{cfg: cfg, at: at, fence: fence, bump: true, keys: make(map[string]*queuedKey)}
}

// refence takes a later fence of the same owner in.
func (q *retryQueue) refence(f Fence) {
	if f == q.fence {
		return
	}
	q.fence, q.written = f, false
	q.reread(true)
}

func (q *retryQueue) reread(bump bool) {
	q.phase = queueReading
	q.bump = q.bump || bump
}

// restored notes that the server may have been restored from a copy.
func (q *retryQueue) restored() {
	q.wentBack = true
	q.reread(false)
}

// open reports whether it is known which keys are queued, and nobody has claimed
// the slot since, as far as is known here.
func (q *retryQueue) open() bool { return q.phase == queueOpen }

func (q *retryQueue) lost() bool { return q.phase == queueLost }

// read takes in the sequence of the space's last message, and the claims, which
// were read after it.
func (q *retryQueue) read(last uint64, claims []record.QueueClaim) {
	if q.phase != queueReading {
		return
	}
	for _, c := range claims {
		if claimOverlaps(c, q.at) && Fence(c.Fence).Compare(q.fence) > 0 {
			q.phase = queueLost
			return
		}
	}
	ours := claimedBy(claims, q.at, q.fence)
	q.claimLost = q.claimLost || q.written && !ours
	q.last, q.stale = last, false
	q.phase = queueClaiming
	if ours && !q.bump {
		q.phase = queueCounting
	}
}

// claimedBy reports whether the claim of a slot's owner is among those of its space.
func claimedBy(claims []record.QueueClaim, at place, owner Fence) bool {
	return slices.ContainsFunc(claims, func(c record.QueueClaim) bool {
		return Fence(c.Fence) == owner && c.Slots == at.slots && c.Slot == at.slot
	})
}

// claimed takes in what came of writing our claim where last was expected.
func (q *retryQueue) claimed(seq uint64, o outcome) {
	if q.phase != queueClaiming {
		return
	}
	if o != outcomeDone {
		q.reread(o == outcomeUnknown)
		return
	}
	q.last, q.bump, q.written = seq, false, true
	q.phase = queueCounting
}

// looked takes in how many messages of each key are queued, as they are after our
// claim was written. A key that was not known here is tried at once.
func (q *retryQueue) looked(now time.Time, counts map[string]int) {
	if q.phase != queueCounting {
		return
	}
	q.total = 0
	for k, known := range q.keys {
		q.wentBack = q.wentBack || counts[k] < known.n
		if counts[k] == 0 {
			delete(q.keys, k)
		}
	}
	for k, n := range counts {
		if n == 0 {
			continue
		}
		if q.keys[k] == nil {
			q.keys[k] = &queuedKey{next: now}
		}
		q.keys[k].n = n
		q.total += n
	}
	q.phase = queueOpen
}

// has reports whether a key has messages in the retry queue: then a later one
// of it must go there, too.
func (q *retryQueue) has(key string) bool { return q.keys[key] != nil }

// room reports whether one more message of a key may be queued.
func (q *retryQueue) room(key string) bool {
	n := 0
	if k := q.keys[key]; k != nil {
		n = k.n
	}
	return n < q.cfg.PerKey && q.total < q.cfg.PerSlot
}

// writable reports whether a message can be stored; if not, the space is read again.
func (q *retryQueue) writable() bool {
	if q.phase == queueOpen && q.stale {
		q.reread(false)
	}
	return q.phase == queueOpen
}

// stored takes in what came of storing a message where last was expected.
func (q *retryQueue) stored(key string, seq uint64, now time.Time, o outcome) {
	if q.wrote(seq, o); o != outcomeDone {
		return
	}
	k := q.keys[key]
	if k == nil {
		k = &queuedKey{next: now.Add(q.cfg.Delay), since: now}
		q.keys[key] = k
	}
	k.n++
	q.total++
}

// began takes in which message is the first of a key, and whether this owner has tried it.
func (q *retryQueue) began(key string, o original, tried bool) {
	k := q.keys[key]
	k.head, k.tried = o, tried
}

// wrote takes in what came of a write where last was expected.
func (q *retryQueue) wrote(seq uint64, o outcome) {
	switch o {
	case outcomeDone:
		q.last = seq
	case outcomeConflict:
		q.reread(false)
	case outcomeUnknown:
		q.reread(true)
	case outcomeRefused:
	}
}

// due returns the key whose first message is to be tried, or removed, now.
func (q *retryQueue) due(now time.Time) (string, bool) {
	if !q.open() || now.Before(q.calm) {
		return "", false
	}
	key, found := q.first()
	return key, found && !now.Before(q.keys[key].next)
}

// first returns the key whose turn is next; of several the first by name.
func (q *retryQueue) first() (key string, found bool) {
	for name, k := range q.keys {
		if !found || cmp.Or(k.next.Compare(q.keys[key].next), cmp.Compare(name, key)) < 0 {
			key, found = name, true
		}
	}
	return key, found
}

// wake returns when due may have something, zero for never.
func (q *retryQueue) wake() time.Time {
	key, found := q.first()
	if !q.open() || !found {
		return time.Time{}
	}
	if q.calm.After(q.keys[key].next) {
		return q.calm
	}
	return q.keys[key].next
}

// postpone has a key wait that could not be tried.
func (q *retryQueue) postpone(key string, until time.Time) {
	if k := q.keys[key]; k != nil {
		k.next = until
	}
}

// headed takes in which message a key's first one is, and when it was queued. What
// is known of another message at its place, in a stream that was made again, is not
// known of this one.
func (q *retryQueue) headed(key string, o original, since time.Time) {
	k := q.keys[key]
	if k == nil {
		return
	}
	if k.n == 0 {
		q.reread(false) // the server went back, or its answer to the question whether it is the last was lost
	}
	if k.head != o {
		if k.done != 0 {
			q.reread(false) // it is gone, and may have been counted
		}
		*k = queuedKey{n: k.n, next: k.next, head: o}
	}
	k.since = since
}

// failed books an attempt in vain that took so long.
func (q *retryQueue) failed(key string, now time.Time, took time.Duration) {
	q.calm = now.Add(took)
	k := q.keys[key]
	if k == nil {
		return
	}
	k.attempts++
	k.refused = 0
	k.next = now.Add(q.backoff(k.attempts + 1))
}

// refused books what counts for the pause before the next attempt only, and took so long: an
// attempt that ended with a fence rejection, or that a message could not be given up.
func (q *retryQueue) refused(key string, now time.Time, took time.Duration) {
	q.calm = now.Add(took)
	if k := q.keys[key]; k != nil {
		k.refused++
		k.next = now.Add(q.backoff(k.attempts + k.refused))
	}
}

// backoff returns the pause before the attempt of that number, from 1, of a queued
// message: Delay, doubled each time, at most MaxDelay.
func (q *retryQueue) backoff(attempt int) time.Duration {
	d := q.cfg.Delay
	for i := 1; i < attempt && d < q.cfg.MaxDelay; i++ {
		d *= 2
	}
	return min(d, q.cfg.MaxDelay)
}

// processed books that the first message of a key is done, and has to be removed
// before anything else of it.
func (q *retryQueue) processed(key string, head *queuedMessage, now time.Time, took time.Duration) {
	q.calm = now.Add(took)
	if o := head.original(); o.published >= q.latest.published {
		q.latest = o
	}
	if k := q.keys[key]; k != nil {
		k.done, k.next = head.seq, now
	}
}

// removed books that a processed message is gone. It reports whether the key should
// have none left. If the message was gone before, it may have been counted without it
// meanwhile, so the messages are counted again.
func (q *retryQueue) removed(key string, seq uint64, now time.Time, before bool) bool {
	if seq == q.last {
		q.stale = true
	}
	k := q.keys[key]
	if k == nil {
		return false
	}
	*k = queuedKey{n: k.n, next: now}
	if before {
		q.reread(false)
		return false
	}
	q.total--
	k.n--
	return k.n == 0
}

// recordRemoved books that a record of attempts is gone.
func (q *retryQueue) recordRemoved(seq uint64) { q.stale = q.stale || seq == q.last }

// vanished books that a key has no message left, and reports whether that was to be
// expected. If not, somebody has removed some, or a removal had no answer.
func (q *retryQueue) vanished(key string) (expected bool) {
	k := q.keys[key]
	if k == nil {
		return false
	}
	expected = k.n == 0
	q.total -= k.n
	q.stale = q.stale || !expected
	q.wentBack = q.wentBack || !expected
	delete(q.keys, key)
	return expected
}

// oldest returns when the first of the queued messages that are known was queued,
// zero if there is none.
func (q *retryQueue) oldest() time.Time {
	var t time.Time
	for _, k := range q.keys {
		if !k.since.IsZero() && (t.IsZero() || k.since.Before(t)) {
			t = k.since
		}
	}
	return t
}
