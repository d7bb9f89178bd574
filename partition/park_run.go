package partition

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// This file is what a slot's runner does with messages that are parked. All of it
// happens in the runner's goroutine, between two messages of the main stream, so a
// slot has one handler at a time as ever; what takes time are attempts, and lot
// spaces these.

// parking is the retry stream as a runner sees it.
type parking struct {
	r     *runner
	lot   *lot
	timer *time.Timer
	fails int // operations in a row

	// What metrics show; the lot is the goroutine's alone.
	messages, keys atomic.Int64
	oldest         atomic.Int64 // nanoseconds since 1970, 0 for none
}

// parkCounts are of all slots that a worker ever had.
type parkCounts struct{ parked, retries, abandoned atomic.Uint64 }

func newParking(r *runner, f Fence) *parking {
	return &parking{r: r, lot: newLot(r.p.cfg.Retry, r.place, f)}
}

// due tells when there is something to do; never, if nothing is ever parked.
func (k *parking) due() <-chan time.Time {
	if k == nil {
		return nil
	}
	d := time.Until(k.lot.wake())
	switch {
	case !k.lot.open() && k.r.p.trusted():
		d = pullRetry * time.Duration(min(k.fails, 10))
	case !k.lot.open():
		d = pullRetry
	case k.lot.wake().IsZero():
		return nil
	}
	if k.timer == nil {
		k.timer = time.NewTimer(d)
	} else {
		k.timer.Reset(d)
	}
	return k.timer.C
}

// publish shows what the lot has.
func (k *parking) publish() {
	k.messages.Store(int64(k.lot.total))
	k.keys.Store(int64(len(k.lot.keys)))
	if t := k.lot.oldest(); t.IsZero() {
		k.oldest.Store(0)
	} else {
		k.oldest.Store(t.UnixNano())
	}
}

// store is the group's retry stream.
func (k *parking) store() *retryStore { return k.r.p.retry }

// booked notes whether an operation could be carried out.
func (k *parking) booked(err error) bool {
	if err == nil {
		k.fails = 0
		return true
	}
	if k.r.ctx.Err() == nil {
		if k.fails++; k.fails%10 == 1 {
			k.r.p.cfg.Logger.Warn("The retry stream can't be used; trying again.", "slot", k.r.slot, "err", err)
		}
	}
	return false
}

// advance carries out what the lot needs in order to be open, one step.
func (k *parking) advance() bool {
	ctx, cancel := context.WithTimeout(k.r.ctx, apiTimeout)
	defer cancel()
	k.r.mu.Lock()
	fence := k.r.fence
	k.r.mu.Unlock()
	l := k.lot
	l.refence(fence)
	switch l.phase {
	case lotOpen:
	case lotLost:
		// Who is not the owner any more is told so; a claim that was wrong may
		// be removed by hand.
		l.reread(true)
		k.fails++
		return false
	case lotReading:
		last, claims, err := k.store().readSpace(ctx, l.at)
		if !k.booked(err) {
			return false
		}
		if l.read(last, claims); l.lost() {
			k.r.p.cfg.Logger.Warn("A later owner has claimed the parked messages of a slot; nothing of it is begun.", "slot", k.r.slot, "fence", fence)
		}
	case lotClaiming:
		seq, out, err := k.store().claim(ctx, l.at, l.fence, l.last)
		l.claimed(seq, out)
		if out != outcomeConflict && !k.booked(err) {
			return false
		}
	case lotLooking:
		counts, err := k.store().count(ctx, l.at)
		if !k.booked(err) {
			return false
		}
		l.looked(time.Now(), counts)
		k.publish()
	}
	return true
}

// know has the lot open; false means that the slot ends.
func (r *runner) know() bool {
	for {
		if r.ctx.Err() != nil || r.isReleasing() {
			return false
		}
		if !r.park.advance() && !r.pause(pullRetry*time.Duration(max(1, min(r.park.fails, 10)))) {
			return false
		}
		if r.park.lot.writable() {
			return true
		}
	}
}

// begin says whether a handler may have a message.
type begin uint8

const (
	beginNow   begin = iota
	beginNot         // it is parked, or was processed from there
	beginNever       // the slot ends
)

// parks tells whether a message that has failed so often is to be parked. One that
// failed while the lease was not trusted was interrupted.
func (r *runner) parks(attempts int) bool {
	return r.park != nil && attempts >= r.p.cfg.Retry.Tries && r.p.trusted()
}

// mayBegin waits until a message of the main stream may begin: for trust, and
// until nothing of its key is parked before it. What has failed, and what comes
// behind something parked, is parked.
func (r *runner) mayBegin(m Message, msg *nats.Msg, failed bool) begin {
	for {
		if !r.mayStart() {
			return beginNever
		}
		if r.park == nil {
			return beginNow
		}
		if !r.know() {
			return beginNever
		}
		l := r.park.lot
		own := original{m.Sequence, m.Published.UnixNano()}
		switch parked := l.parked(m.Key); {
		case !parked && own == l.latest:
			return beginNot
		case parked:
			tail, ok := r.tail(m.Key)
			if !ok {
				if !r.rest(pullRetry) {
					return beginNever
				}
				continue
			}
			if tail == nil {
				l.vanished(m.Key)
				continue
			}
			if tail.original() == own {
				return beginNot
			}
		case !failed && r.p.trusted():
			return beginNow
		case !failed:
			continue // it was lost meanwhile
		}
		if !l.room(m.Key) {
			// The slot waits. What has nothing of its key before it goes on as if
			// nothing was ever parked.
			if !r.rest(l.backoff(m.Attempt)) {
				return beginNever
			}
			if !l.parked(m.Key) && r.p.trusted() {
				return beginNow
			}
			continue
		}
		if r.putAside(m, msg) {
			return beginNot
		}
	}
}

func (r *runner) tail(key string) (*parkedMessage, bool) {
	ctx, cancel := context.WithTimeout(r.ctx, apiTimeout)
	defer cancel()
	tail, err := r.park.store().tail(ctx, r.place, key)
	return tail, r.park.booked(err)
}

// putAside parks a message; false means that it has to be seen whether it is.
func (r *runner) putAside(m Message, msg *nats.Msg) bool {
	ctx, cancel := context.WithTimeout(r.ctx, apiTimeout)
	defer cancel()
	l := r.park.lot
	first := !l.parked(m.Key)
	seq, out, err := r.park.store().store(ctx, r.place, msg, m, m.Attempt, l.last)
	l.stored(m.Key, seq, time.Now(), out)
	r.park.publish()
	if out != outcomeConflict && !r.park.booked(err) {
		if out == outcomeRefused {
			r.rest(maxRetryDelay / 5)
		}
		return false
	}
	if out != outcomeDone {
		return false
	}
	r.p.parks.parked.Add(1)
	if first {
		r.p.post(noteInput{Event{Kind: EventKeyParked, Slot: r.slot, Reason: m.Key, Count: m.Attempt}})
	}
	return true
}

// rest waits, and sees to what is parked meanwhile; false means that the slot
// ends.
func (r *runner) rest(d time.Duration) bool {
	if r.park == nil {
		return r.pause(d)
	}
	for end := time.Now().Add(d); ; {
		r.park.work()
		left := time.Until(end)
		if left <= 0 {
			return r.ctx.Err() == nil && !r.isReleasing()
		}
		if l := r.park.lot; !l.wake().IsZero() {
			left = min(left, max(time.Until(l.wake()), shortestSleep))
		}
		if !r.pause(left) {
			return false
		}
	}
}

// work does one thing that is due: a step towards knowing what is parked, an
// attempt, or the removal of what was processed.
func (k *parking) work() {
	r := k.r
	if r.ctx.Err() != nil || r.isReleasing() || !r.p.trusted() {
		k.lot.calm = time.Now().Add(pullRetry)
		return
	}
	if !k.lot.open() {
		k.advance()
		return
	}
	key, due := k.lot.due(time.Now())
	if !due {
		return
	}
	defer k.publish()
	if k.lot.keys[key].done != 0 {
		k.remove(key)
		return
	}
	head, ok := k.head(key)
	if !ok {
		k.lot.postpone(key, time.Now().Add(pullRetry))
		return
	}
	if head == nil {
		k.lot.vanished(key)
		return
	}
	k.try(key, head)
}

// head returns a key's first message, whose original is in the main stream no
// more, nil for none.
func (k *parking) head(key string) (*parkedMessage, bool) {
	ctx, cancel := context.WithTimeout(k.r.ctx, apiTimeout)
	defer cancel()
	k.r.p.mu.Lock()
	generation := k.r.p.marks(k.r.slot).generation
	k.r.p.mu.Unlock()
	head, err := k.store().head(ctx, k.r.place, key)
	if head == nil || err != nil {
		return nil, k.booked(err)
	}
	k.lot.headed(key, head.original(), head.stored)
	was, err := k.store().erase(ctx, k.r.place, head.original())
	if was && err == nil {
		// It may have been delivered before, and lie here.
		_ = k.r.settle(head.finest, head.original(), generation, "")
	}
	return head, k.booked(err)
}

// remove removes the first message of a key, which has been processed. What lies at
// its sequence is looked at before: if the stream was made again, or its server went
// back, it is another message, maybe of another slot.
func (k *parking) remove(key string) {
	ctx, cancel := context.WithTimeout(k.r.ctx, apiTimeout)
	defer cancel()
	head, err := k.store().head(ctx, k.r.place, key)
	switch {
	case !k.booked(err):
		k.lot.postpone(key, time.Now().Add(pullRetry))
		return
	case head == nil:
		k.lot.vanished(key)
		return
	}
	k.lot.headed(key, head.original(), head.stored)
	if k.lot.keys[key].done != head.seq {
		return
	}
	seq := head.seq
	before, err := k.store().remove(ctx, seq)
	if !k.booked(err) {
		k.lot.postpone(key, time.Now().Add(pullRetry))
		return
	}
	if k.lot.removed(key, seq, time.Now(), before) {
		k.r.p.post(noteInput{Event{Kind: EventKeyFreed, Slot: k.r.slot, Reason: key}})
	}
}

func (k *parking) try(key string, head *parkedMessage) {
	r := k.r
	if !r.p.trusted() {
		k.lot.postpone(key, time.Now().Add(pullRetry)) // it was lost meanwhile
		return
	}
	m := head.Message
	m.Slot, m.Delivered = r.slot, 1
	m.Attempt = head.attempts + k.lot.keys[key].attempts + 1
	k.lot.tried(head.original())
	r.p.parks.retries.Add(1)
	began := time.Now()
	err := r.call("Handle", m, r.p.handler.Handle)
	fenced := isFenced(err)
	if fenced {
		r.fencedOff(err)
	}
	if err != nil && !fenced && !isDiscarded(err) && r.exhausted(m.Attempt) {
		err = r.abandon(m, err)
	}
	now := time.Now()
	switch {
	case err == nil, isDiscarded(err):
		k.lot.processed(key, head.seq, now, now.Sub(began))
		k.remove(key)
	case r.ctx.Err() != nil:
	case !r.p.trusted():
		k.lot.postpone(key, now)
	case fenced:
		k.lot.fencedOff(key, now, now.Sub(began))
	default:
		k.lot.failed(key, now, now.Sub(began))
	}
}

// exhausted tells whether a message that has failed so often is to be given up.
func (r *runner) exhausted(attempts int) bool {
	most := r.p.cfg.Retry.Attempts
	return r.park != nil && most > 0 && attempts >= most && r.ctx.Err() == nil && r.p.trusted()
}

func (r *runner) abandon(m Message, failure error) error {
	a, ok := r.p.handler.(Abandoner)
	if !ok {
		return failure
	}
	err := r.call("Abandon", m, func(ctx context.Context, m Message) error { return a.Abandon(ctx, m, failure) })
	if err == nil {
		r.p.parks.abandoned.Add(1)
	}
	return err
}

// ParkedHere is what is parked of the slots that a worker pulls for, as it knows.
type ParkedHere struct {
	Messages, Keys int
	Oldest         time.Time // when the first of them was parked; zero for none
	Parked         uint64    // messages that this worker has parked
	Retries        uint64    // attempts of parked messages by this worker
	Abandoned      uint64    // messages that it has given up
}

func (p *puller) parked() ParkedHere {
	out := ParkedHere{Parked: p.parks.parked.Load(), Retries: p.parks.retries.Load(), Abandoned: p.parks.abandoned.Load()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runners {
		if r.park == nil {
			continue
		}
		out.Messages += int(r.park.messages.Load())
		out.Keys += int(r.park.keys.Load())
		if ns := r.park.oldest.Load(); ns != 0 && (out.Oldest.IsZero() || ns < out.Oldest.UnixNano()) {
			out.Oldest = time.Unix(0, ns)
		}
	}
	return out
}
