package partition

import (
	"cmp"
	"time"
)

// lot is what the owner of a slot knows of its parked messages, and what it has to
// do to know it. It has no I/O: next says what to do, and a method for each
// operation takes its outcome in. See docs/partition.md, "A failing key", for why
// this keeps the order.
type lot struct {
	cfg   Retry
	at    place
	fence Fence
	phase lotPhase
	// bump is whether our claim has to be written, whether or not it is there:
	// a write of ours whose outcome is not known fails after it.
	bump  bool
	stale bool   // last is not known: the last message was removed
	last  uint64 // sequence of the last message of the space, which a write expects
	keys  map[string]*parkedKey
	total int
	// calm is until when no parked message is tried: as long as the last one
	// took, so that the other keys have at least half of the slot's time.
	calm time.Time
	// wentBack is whether the retry queue may have lost messages, which may be in the main
	// stream again then.
	wentBack bool
	// latest is the latest original, by publication, that was processed from here:
	// one that was on its way may come yet.
	latest original
}

type lotPhase uint8

const (
	lotReading  lotPhase = iota // which claims there are
	lotClaiming                 // writing ours
	lotLooking                  // which keys are parked
	lotOpen
	lotLost // a later owner has a claim
)

// parkedKey is a key that has messages in the retry stream.
type parkedKey struct {
	n        int       // messages
	attempts int       // of the first, since it was parked, at this owner
	next     time.Time // when it is tried again
	since    time.Time // when the first was parked; zero: not known yet
	done     uint64    // the first, if it has been processed and is to be removed
	fenced   int       // fence rejections of the first in a row, which are no attempts
	head     original  // of the first, as it was last read; zero: not known yet
}

// original tells a message of the main stream from every other one, one of an
// earlier stream of the same name included.
type original struct {
	sequence  uint64
	published int64 // nanoseconds since 1970
}

// lotClaim is a claim as it lies in the retry stream.
type lotClaim struct {
	Slots int   `json:"slots"` // of the division
	Slot  int   `json:"slot"`
	Fence Fence `json:"fence"`
}

func (c lotClaim) overlaps(p place) bool {
	n := min(c.Slots, p.slots)
	return n > 0 && c.Slot%n == p.slot%n
}

// outcome is what came of a write.
type outcome uint8

const (
	outcomeDone     outcome = iota
	outcomeConflict         // not written: the last message is another one
	outcomeRefused          // not written, for another reason
	outcomeUnknown          // no answer: it may be written, now or later
)

func newLot(cfg Retry, at place, fence Fence) *lot {
	return &lot{cfg: cfg, at: at, fence: fence, bump: true, keys: make(map[string]*parkedKey)}
}

// refence takes a later fence of the same owner in.
func (l *lot) refence(f Fence) {
	if f == l.fence {
		return
	}
	l.fence = f
	l.reread(true)
}

func (l *lot) reread(bump bool) {
	l.phase = lotReading
	l.bump = l.bump || bump
}

// restored notes that the server may have been restored from a copy.
func (l *lot) restored() {
	l.wentBack = true
	l.reread(false)
}

// open reports whether it is known which keys are parked, and nobody has claimed
// the slot since, as far as is known here.
func (l *lot) open() bool { return l.phase == lotOpen }

func (l *lot) lost() bool { return l.phase == lotLost }

// read takes in the sequence of the space's last message, and the claims, which
// were read after it.
func (l *lot) read(last uint64, claims []lotClaim) {
	if l.phase != lotReading {
		return
	}
	ours := false
	for _, c := range claims {
		switch order := c.Fence.Compare(l.fence); {
		case !c.overlaps(l.at):
		case order > 0:
			l.phase = lotLost
			return
		case order == 0 && c.Slots == l.at.slots && c.Slot == l.at.slot:
			ours = true
		}
	}
	l.last, l.stale = last, false
	l.phase = lotClaiming
	if ours && !l.bump {
		l.phase = lotLooking
	}
}

// claimed takes in what came of writing our claim where last was expected.
func (l *lot) claimed(seq uint64, o outcome) {
	if l.phase != lotClaiming {
		return
	}
	if o != outcomeDone {
		l.reread(o == outcomeUnknown)
		return
	}
	l.last, l.bump = seq, false
	l.phase = lotLooking
}

// looked takes in how many messages of each key are parked, as they are after our
// claim was written. A key that was not known here is tried at once.
func (l *lot) looked(now time.Time, counts map[string]int) {
	if l.phase != lotLooking {
		return
	}
	l.total = 0
	for k, known := range l.keys {
		l.wentBack = l.wentBack || counts[k] < known.n
		if counts[k] == 0 {
			delete(l.keys, k)
		}
	}
	for k, n := range counts {
		if n == 0 {
			continue
		}
		if l.keys[k] == nil {
			l.keys[k] = &parkedKey{next: now}
		}
		l.keys[k].n = n
		l.total += n
	}
	l.phase = lotOpen
}

// parked reports whether a key has messages in the retry stream: then a later one
// of it must go there, too.
func (l *lot) parked(key string) bool { return l.keys[key] != nil }

// room reports whether one more message of a key may be parked.
func (l *lot) room(key string) bool {
	n := 0
	if k := l.keys[key]; k != nil {
		n = k.n
	}
	return n < l.cfg.PerKey && l.total < l.cfg.PerSlot
}

// writable reports whether a message can be stored; if not, the space is read again.
func (l *lot) writable() bool {
	if l.phase == lotOpen && l.stale {
		l.reread(false)
	}
	return l.phase == lotOpen
}

// stored takes in what came of storing a message where last was expected.
func (l *lot) stored(key string, seq uint64, now time.Time, o outcome) {
	switch o {
	case outcomeDone:
		l.last = seq
		k := l.keys[key]
		if k == nil {
			k = &parkedKey{next: now.Add(l.cfg.Delay), since: now}
			l.keys[key] = k
		}
		k.n++
		l.total++
	case outcomeConflict:
		l.reread(false)
	case outcomeUnknown:
		l.reread(true)
	case outcomeRefused:
	}
}

// due returns the key whose first message is to be tried, or removed, now.
func (l *lot) due(now time.Time) (string, bool) {
	if !l.open() || now.Before(l.calm) {
		return "", false
	}
	key, found := l.first()
	return key, found && !now.Before(l.keys[key].next)
}

// first returns the key whose turn is next; of several the first by name.
func (l *lot) first() (key string, found bool) {
	for name, k := range l.keys {
		if !found || cmp.Or(k.next.Compare(l.keys[key].next), cmp.Compare(name, key)) < 0 {
			key, found = name, true
		}
	}
	return key, found
}

// wake returns when due may have something, zero for never.
func (l *lot) wake() time.Time {
	key, found := l.first()
	if !l.open() || !found {
		return time.Time{}
	}
	if l.calm.After(l.keys[key].next) {
		return l.calm
	}
	return l.keys[key].next
}

// postpone has a key wait that could not be tried.
func (l *lot) postpone(key string, until time.Time) {
	if k := l.keys[key]; k != nil {
		k.next = until
	}
}

// headed takes in which message a key's first one is, and when it was parked. What
// is known of another message at its place, in a stream that was made again, is not
// known of this one.
func (l *lot) headed(key string, o original, since time.Time) {
	k := l.keys[key]
	if k == nil {
		return
	}
	if k.n == 0 {
		l.reread(false) // the server went back, or its answer to the question whether it is the last was lost
	}
	if k.head != o {
		if k.done != 0 {
			l.reread(false) // it is gone, and may have been counted
		}
		k.head, k.attempts, k.fenced, k.done = o, 0, 0, 0
	}
	k.since = since
}

// failed books an attempt in vain that took so long.
func (l *lot) failed(key string, now time.Time, took time.Duration) {
	l.calm = now.Add(took)
	k := l.keys[key]
	if k == nil {
		return
	}
	k.attempts++
	k.fenced = 0
	k.next = now.Add(l.backoff(k.attempts + 1))
}

// fencedOff books an attempt that ended with a fence rejection and took so long. It
// counts for the pause before the next one only.
func (l *lot) fencedOff(key string, now time.Time, took time.Duration) {
	l.calm = now.Add(took)
	if k := l.keys[key]; k != nil {
		k.fenced++
		k.next = now.Add(l.backoff(k.attempts + k.fenced))
	}
}

// backoff returns the pause before the attempt of that number, from 1, of a parked
// message: Delay, doubled each time, at most MaxDelay.
func (l *lot) backoff(attempt int) time.Duration {
	d := l.cfg.Delay
	for i := 1; i < attempt && d < l.cfg.MaxDelay; i++ {
		d *= 2
	}
	return min(d, l.cfg.MaxDelay)
}

// processed books that the first message of a key is done, and has to be removed
// before anything else of it.
func (l *lot) processed(key string, head *parkedMessage, now time.Time, took time.Duration) {
	l.calm = now.Add(took)
	if o := head.original(); o.published >= l.latest.published {
		l.latest = o
	}
	if k := l.keys[key]; k != nil {
		k.done, k.next = head.seq, now
	}
}

// removed books that a processed message is gone. It reports whether the key should
// have none left. If the message was gone before, it may have been counted without it
// meanwhile, so the messages are counted again.
func (l *lot) removed(key string, seq uint64, now time.Time, before bool) bool {
	if seq == l.last {
		l.stale = true
	}
	k := l.keys[key]
	if k == nil {
		return false
	}
	k.done, k.attempts, k.fenced, k.next, k.since, k.head = 0, 0, 0, now, time.Time{}, original{}
	if before {
		l.reread(false)
		return false
	}
	l.total--
	k.n--
	return k.n == 0
}

// vanished books that a key has no message left, and reports whether that was to be
// expected. If not, somebody has removed some, or a removal had no answer.
func (l *lot) vanished(key string) (expected bool) {
	k := l.keys[key]
	if k == nil {
		return false
	}
	expected = k.n == 0
	l.total -= k.n
	l.stale = l.stale || !expected
	l.wentBack = l.wentBack || !expected
	delete(l.keys, key)
	return expected
}

// oldest returns when the first of the parked messages that are known was parked,
// zero if there is none.
func (l *lot) oldest() time.Time {
	var t time.Time
	for _, k := range l.keys {
		if !k.since.IsZero() && (t.IsZero() || k.since.Before(t)) {
			t = k.since
		}
	}
	return t
}
