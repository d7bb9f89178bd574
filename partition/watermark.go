package partition

import (
	"fmt"
	"slices"
	"time"
)

// A message that this worker has settled may be delivered again: its
// acknowledgement was lost with the state of its consumer. It must not be handled
// a second time, after its successors. So a worker remembers, for each slot, the
// last message that it has settled, and acknowledges what is not later.
//
// A sequence alone does not say which message that was. A stream that is deleted
// and made again begins at 1, and a server that lost power, or was restored from a
// copy, gives the sequences that it has forgotten to other messages. A worker that goes
// by sequences then acknowledges new messages without having seen them. Therefore:
//
//  1. A message is settled only if neither its sequence nor its time is later than
//     what was settled. A message that is published after a roll-back has an earlier
//     sequence and a later time, which proves the roll-back.
//  2. Clocks of servers may go back, too. So before a message is acknowledged
//     unhandled, the stream is asked whether it is the one that it was: created at
//     the same time, and not shorter than it is known to have been.
//  3. A message that was put into the retry queue is settled as long as its copy is
//     there. A server that lost power may have the message again, and no copy. So the
//     copy is looked for, until the message is processed.
//  4. What comes before the first message that this worker settled as the slot's owner
//     was settled by a former owner, which may have queued it. Those copies are older than
//     this owner's claim on the retry queue. So the message is settled as long as that claim
//     is there.
//  5. What contradicts 1 or 2 drops everything that is remembered of the stream, but for
//     which messages were queued. Then messages that were settled may be handled again, and
//     none is lost.

// watermarks is what a worker has settled of one stream. It has no I/O, and is not
// safe for several goroutines.
type watermarks struct {
	created time.Time // of the stream; zero: it has not been looked at
	last    uint64    // the highest sequence that the stream is known to have had
	// forgets is how often all was forgotten, so that a message that began
	// before is not remembered as one of the stream that is there now.
	forgets uint64
	slots   map[int]watermark // by slot of the largest slot count
	// inHand are the messages that were taken in hand and not settled, with several in
	// flight, by slot of the largest slot count.
	inHand map[int]*heldMessages
	// recent are the last messages that were settled, keep of each slot. An original is of one
	// stream, so they are kept when the stream is another one than it was.
	recent map[int]*settledRing
	keep   int
	// queued has the sequences of the copies in the retry queue of messages that were
	// settled when these were stored, and not processed by this worker since. An original
	// is of one stream, so it is kept when the stream is another one than it was.
	queued map[original]uint64
	// erased has the messages that were removed from the stream because their copy was about to
	// be tried. One that was on its way may come yet.
	erased map[original]bool
	// crowded is whether more were queued than are remembered. Then every settled message
	// may be one of them, and its copy is looked for.
	crowded bool
}

// mostQueued is how many queued messages of a stream are remembered. What other workers
// process is among them, too.
const mostQueued = 100_000

// watermark is the last message of a slot that was settled. Messages come in the order of
// the stream, so those from first on were settled by this worker, too. With several messages
// in flight this is so for those that are not in hand, and the latest are remembered one by
// one.
type watermark struct {
	original
	first uint64 // sequence of the first message that was settled under the fence
	fence Fence
	// Before first this worker has settled what is in again, or with several messages in flight
	// in before: they were in hand when a later one was settled first, or a former owner had
	// settled them and they were handled again.
	again  span
	before []uint64
	floor  uint64 // the highest sequence that was one of the recent ones, and is not any more
	// latest is the latest time of all that were settled. The last one's may be
	// earlier, since after an election another server's clock counts.
	latest int64
}

// span is a range of sequences.
type span struct{ from, to uint64 } // to included; zero: none

func (s span) has(sequence uint64) bool { return s.from <= sequence && sequence <= s.to }

// with returns the span up to a sequence that comes after it, or if it comes before, one of
// that alone.
func (s span) with(sequence uint64) span {
	if s.from == 0 || sequence < s.to {
		return span{sequence, sequence}
	}
	return span{s.from, sequence}
}

// recollection is what is remembered of a message.
type recollection uint8

const (
	recallNothing  recollection = iota // it is to be handled
	recallSettled                      // it was settled, if the stream is the one it was
	recallQueued                       // it was settled if its copy is in the retry queue
	recallFormer                       // it was settled by a former owner, if the claim of this one is in the retry stream
	recallReplaced                     // it has the sequence of another one: the stream is not the one it was
)

func (r recollection) String() string {
	return [...]string{"nothing", "settled", "queued", "former", "replaced"}[r]
}

// recall tells what is remembered of a message that is delivered.
func (w *watermarks) recall(slot int, o original) recollection {
	m, ok := w.slots[slot]
	_, queued := w.queued[o]
	switch {
	case queued:
		return recallQueued
	case w.erased[o]:
		return recallSettled
	case w.inHand[slot].has(o):
		return recallNothing
	case !w.crowded && w.recent[slot].has(o):
		return recallSettled
	case !ok || o.sequence > m.sequence:
		return recallNothing
	case o.sequence == m.sequence && o.published != m.published, o.published > m.latest:
		return recallReplaced
	case w.crowded:
		return recallQueued
	case w.keep > 0 && o.sequence > max(m.floor, m.first):
		return recallNothing // a later one was settled first
	case o.sequence < m.first && !m.again.has(o.sequence) && !slices.Contains(m.before, o.sequence):
		return recallFormer
	}
	return recallSettled
}

// queue remembers that the copy of a message has a sequence in the retry queue.
func (w *watermarks) queue(o original, copied uint64) {
	switch {
	case w.crowded:
	case len(w.queued) >= mostQueued:
		w.queued, w.crowded = nil, true
	default:
		if w.queued == nil {
			w.queued = make(map[original]uint64)
		}
		w.queued[o] = copied
	}
}

// erase remembers a message that was removed from the stream, since its copy is about to be
// tried. When there are too many, all are forgotten, and may be handled again.
func (w *watermarks) erase(o original) {
	if w.erased == nil || len(w.erased) >= mostQueued {
		w.erased = make(map[original]bool)
	}
	w.erased[o] = true
}

// settle remembers a message that the owner with a fence has begun; forgets is what it was
// then. It reports whether nothing was forgotten since: otherwise the message may not be
// acknowledged, since the server goes by the sequence, which another message has by now.
func (w *watermarks) settle(slot int, o original, forgets uint64, by Fence) bool {
	if forgets != w.forgets {
		return false
	}
	w.last = max(w.last, o.sequence)
	m, ok := w.slots[slot]
	switch {
	case !ok || by != m.fence:
		// Another worker may have been the owner in between.
		m = watermark{original: o, first: o.sequence, fence: by, floor: m.floor, latest: m.latest}
	case o.sequence >= m.sequence:
		m.original = o
	case o.sequence < m.first && w.keep == 0:
		// It comes again after the server went back. So does what is between it and the first
		// one, after it.
		m.again = m.again.with(o.sequence)
	case o.sequence < m.first:
		m.before = append(m.before, o.sequence)
		m.before = m.before[max(0, len(m.before)-w.keep):]
	}
	if former := w.remember(slot, o); former <= m.sequence { // else of another stream
		m.floor = max(m.floor, former)
	}
	w.letGo(slot, o)
	m.latest = max(m.latest, o.published)
	if w.slots == nil {
		w.slots = make(map[int]watermark)
	}
	w.slots[slot] = m
	return true
}

// remember adds a settled message to the last ones of a slot, and returns the sequence of the
// one that is not remembered any more, 0 for none.
func (w *watermarks) remember(slot int, o original) (former uint64) {
	if w.keep == 0 {
		return 0
	}
	of := w.recent[slot]
	if of == nil {
		if w.recent == nil {
			w.recent = make(map[int]*settledRing)
		}
		of = &settledRing{}
		w.recent[slot] = of
	}
	return of.add(o, w.keep)
}

// taken notes that a message was taken in hand. If it was not settled before, it is not when
// later ones are. It reports whether it has the sequence of another one.
func (w *watermarks) taken(slot int, o original) (replaces bool) {
	recalled := w.recall(slot, o)
	if recalled == recallNothing {
		w.holds(slot, o)
	}
	return recalled == recallReplaced
}

// holds notes that a message is in hand that is not settled.
func (w *watermarks) holds(slot int, o original) {
	of := w.inHand[slot]
	if of == nil {
		if w.inHand == nil {
			w.inHand = make(map[int]*heldMessages)
		}
		of = &heldMessages{}
		w.inHand[slot] = of
	}
	of.add(o)
}

// letGo notes that a message is not in hand any more.
func (w *watermarks) letGo(slot int, o original) { w.inHand[slot].letGo(o) }

// atRest notes that nothing of a slot is in hand. What is noted as in hand was settled by
// another owner.
func (w *watermarks) atRest(slot int) { w.inHand[slot].clear() }

// refence notes that an owner goes on with a later fence, so nobody else was the owner in
// between.
func (w *watermarks) refence(at place, before, later Fence) {
	for slot, m := range w.slots {
		if slot%at.slots == at.slot && m.fence == before {
			m.fence = later
			w.slots[slot] = m
		}
	}
}

// saw takes in what a stream has been seen to be, and returns how that contradicts
// what is remembered, "" if it does not. known is what last was when the stream was
// asked: later messages may have been settled before its answer was there.
func (w *watermarks) saw(created time.Time, last, known uint64) string {
	switch {
	case !w.created.IsZero() && !created.Equal(w.created):
		return fmt.Sprintf("it was created at %s, and the one before at %s", created.UTC().Format(time.RFC3339Nano), w.created.UTC().Format(time.RFC3339Nano))
	case last < known:
		return fmt.Sprintf("its last sequence is %d, and was %d or more", last, known)
	}
	for _, m := range w.slots {
		if m.latest < created.UnixNano() {
			return fmt.Sprintf("it was created at %s, after a message of it was processed", created.UTC().Format(time.RFC3339Nano))
		}
	}
	w.created, w.last = created, max(w.last, last)
	return ""
}

// forget drops what is remembered of a stream that is not the one it was, and
// returns of how many slots.
func (w *watermarks) forget() int {
	n := len(w.slots)
	*w = watermarks{forgets: w.forgets + 1, queued: w.queued, crowded: w.crowded, erased: w.erased, keep: w.keep, recent: w.recent}
	return n
}
