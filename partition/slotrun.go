package partition

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// slotRun is one holding of a slot; delivery.go tells its life.
type slotRun struct {
	d *delivery
	place
	number uint64
	stage  runStage
	before map[*slotRun]bool // runs that have to end before it starts
	fence  Fence
	armed  time.Time // when it will be woken; zero: nobody wakes it

	releasing bool
	final     bool  // its consumer will be no more
	leave     Slots // that a Releaser is told of
	settled   *mail // the last message that was settled, if it may be confirmed

	box  []*mail // what came and was not looked at
	pull slotPull

	hand       *mail  // the message in hand
	recalling  bool   // it is not known yet whether it was settled before
	looks      int    // that did not tell
	generation uint64 // of the memory, when it was recalled
	attempt    int
	failed     bool // it is to be queued for retry
	waited     bool // it has waited for room in the retry queue
	rest       time.Time
	forLease   bool // it rests until the lease is valid
	delay      time.Duration

	ended       func(error) // what follows the end of the handler that runs; nil: none runs
	interrupted bool
	question    uint64 // the number of the question that is open, 0 for none
	questions   uint64
	then        func(answer)

	retry *slotRetry // nil: failing messages are not queued for retry
}

type runStage uint8

const (
	runWaiting runStage = iota
	runPulling
	runGivingUp
	runDropped
)

// inOrder returns runs in the order of their slots, so that what is drawn by chance in
// the simulator does not depend on a map.
func inOrder(runs map[place]*slotRun) []*slotRun {
	out := make([]*slotRun, 0, len(runs))
	for _, r := range runs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *slotRun) int {
		return cmp.Or(cmp.Compare(a.place.generation, b.place.generation), cmp.Compare(a.slot, b.slot))
	})
	return out
}

// start has the slot pulled for.
func (r *slotRun) start() {
	r.stage = runPulling
	r.pull.quietAt = r.d.now.Add(r.d.cfg.ghostCheck)
	if !r.releasing {
		r.fetch()
	}
	r.proceed()
}

// proceed does what can be done until something has to be waited for.
func (r *slotRun) proceed() {
	for r.stage == runPulling && r.question == 0 && r.ended == nil {
		more := false
		switch {
		case r.releasing:
			r.giveUp()
		case r.retry != nil && r.retry.lot.wentBack:
			r.sendBack()
			more = true
		case r.hand == nil:
			more = r.idle()
		case r.d.now.Before(r.rest):
			// The retry queue is seen to meanwhile.
			more = r.workRetries()
		case r.recalling:
			r.recall()
			more = true
		default:
			r.begin()
			more = true
		}
		if !more {
			break
		}
	}
	r.arm()
}

// idle does one thing between two messages; false if there is none.
func (r *slotRun) idle() bool {
	now := r.d.now
	switch p := &r.pull; {
	case p.renew || !now.Before(p.at):
		r.fetch()
		return true
	case r.workRetries():
		return true
	case len(r.box) > 0: // the slot is not silent: what came goes before any look
	case !now.Before(p.quietAt):
		p.quietAt = now.Add(r.d.cfg.ghostCheck)
		r.lookAtSilence()
		return true
	default:
		return false
	}
	m := r.box[0]
	r.box[0] = nil
	r.box = r.box[1:]
	if m.status != "" {
		r.status(m)
		return true
	}
	r.got(m)
	if !m.unreadable {
		r.hand, r.recalling, r.looks = m, true, 0
		r.attempt, r.failed, r.waited, r.delay = 0, false, false, r.d.cfg.Delivery.RetryDelay
	}
	return true
}

// arm has the run woken when time alone makes a difference. A wake-up that comes too
// early is harmless, and cheaper than moving it with each message.
func (r *slotRun) arm() {
	if r.stage != runPulling || r.question != 0 || r.ended != nil {
		return
	}
	at := r.rest
	if r.hand == nil {
		at = earlier(r.pull.at, r.pull.quietAt)
	}
	if r.retry != nil {
		at = earlier(at, r.retry.wake())
	}
	if !at.IsZero() && (r.armed.IsZero() || at.Before(r.armed)) {
		r.armed = at
		r.d.do(wakeEffect{r.number, at})
	}
}

// earlier returns the earlier of two moments, of which a zero one never comes.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// ask asks a question; nothing else is begun before its answer.
func (r *slotRun) ask(q question, then func(answer)) {
	r.questions++
	r.question, r.then = r.questions, then
	r.d.do(askEffect{r.place, r.number, r.question, q})
}

// answered takes the answer to the open question in.
func (r *slotRun) answered(in answerInput) {
	if r.stage == runDropped || in.question != r.question {
		return
	}
	then := r.then
	r.question, r.then = 0, nil
	then(in.answer)
}

func (r *slotRun) restFor(d time.Duration) { r.rest, r.forLease = r.d.now.Add(d), false }

// recall sees to it that a message which was settled here is not handled again: its
// acknowledgement may have been lost with the state of its consumer.
func (r *slotRun) recall() {
	m := r.hand
	recalled, generation := r.d.memory.recall(r.slot, m.finest, m.original)
	switch recalled {
	case recallNothing:
		r.recalling, r.generation = false, generation
		return
	case recallReplaced:
		r.d.rolledBack(r.slot, generation, fmt.Sprintf("message %d is another one than it was", m.sequence))
		return
	case recallQueued:
		r.lookForCopy()
		return
	case recallSettled:
	}
	r.ask(askStream{}, func(a answer) {
		r.looks++
		switch {
		case a.err == nil && a.what == "":
			r.d.do(settleEffect{r.place, m, settleAck})
			r.hand = nil
			return
		case a.err == nil && r.looks >= looksToBelieve:
			r.d.rolledBack(r.slot, generation, a.what)
			return
		}
		// An unanswered question, or an answer to be asked for again: the slot
		// waits, since what is acknowledged by mistake is lost.
		r.restFor(pullRetry)
	})
}

// lookForCopy settles the message in hand if its copy is in the retry queue. If not, the
// message is handled: a later owner has processed it, or the server went back and has lost
// the copy.
func (r *slotRun) lookForCopy() {
	m := r.hand
	copied := r.d.memory.copied(r.slot, m.original)
	r.ask(askHead{m.message.Key, max(1, copied)}, func(a answer) {
		switch {
		case a.err != nil:
			r.restFor(pullRetry)
		case a.parked != nil && a.parked.original() == m.original:
			r.settleQueued(a.parked.seq)
		default:
			r.d.do(warnEffect{"A message was delivered again, and its copy is not in the retry queue; it is handled.", []any{"slot", r.slot, "key", m.message.Key, "sequence", m.sequence}})
			r.d.memory.dequeue(r.slot, m.original)
			r.recalling, r.generation = false, r.d.memory.generation(r.slot)
		}
	})
}

// sendBack returns what was delivered and not begun. After a rollback the server may have
// earlier messages of the same keys again, which it delivers first.
func (r *slotRun) sendBack() {
	r.retry.lot.wentBack = false
	if r.hand != nil {
		r.d.do(settleEffect{r.place, r.hand, settleNak})
		r.hand, r.rest = nil, time.Time{}
	}
	r.box = slices.DeleteFunc(r.box, func(m *mail) bool {
		if m.status != "" {
			return false
		}
		r.d.do(settleEffect{r.place, m, settleNak})
		return true
	})
}

// rolledBack forgets what is remembered of a slot's stream, and tells of it, unless
// that was done since a generation.
func (d *delivery) rolledBack(slot int, generation uint64, what string) {
	if forgotten, was := d.memory.forget(slot, generation); was {
		d.do(rolledBackEffect{slot, what, forgotten})
	}
}

// begin begins the message in hand, unless it has to wait, or goes to the retry queue.
func (r *slotRun) begin() {
	if !r.d.valid() {
		r.restFor(pullRetry)
		r.forLease = true
		return
	}
	if r.retry != nil && !r.mayBegin() {
		return
	}
	r.attempt++
	m := r.hand.message
	m.Attempt = r.attempt
	r.handle(handleEffect{mail: r.hand, message: m}, func(err error) {
		fenced := isFenced(err)
		if fenced {
			r.fencedOff(err)
			r.attempt--
		}
		r.abandonOr(m, r.attempt, err, func(err error) { r.concluded(err, fenced) })
	})
}

// handle calls the handler; then follows its end.
func (r *slotRun) handle(e handleEffect, then func(error)) {
	e.place, e.run = r.place, r.number
	e.message.Slot, e.message.Fence = r.slot, r.fence
	r.ended, r.interrupted = then, false
	r.d.do(e)
}

// handled takes in that the handler has returned.
func (r *slotRun) handled(err error) {
	then := r.ended
	r.ended = nil
	if r.stage == runDropped {
		r.end()
		return
	}
	if then != nil {
		then(err)
	}
}

// concluded follows the last handler of an attempt on the message in hand.
func (r *slotRun) concluded(err error, fenced bool) {
	switch {
	case err == nil:
		r.settle(settleAck)
		return
	case isDiscarded(err):
		r.settle(settleTerm)
		return
	}
	// A message that was fenced off is not queued for retry: the owner with the
	// later fence is to try it at once, and in its place.
	if r.failed = !fenced && r.queues(r.attempt); r.failed {
		return
	}
	r.restFor(r.delay)
	r.delay = min(2*r.delay, maxRetryDelay)
}

// settle settles the message in hand. One of an earlier stream goes back: the server
// goes by its sequence, and delivers what has that now once more.
func (r *slotRun) settle(how settlement) {
	m := r.hand
	r.hand, r.settled = nil, m
	if !r.d.memory.settle(r.slot, m.finest, m.original, r.generation) {
		r.settled, how = nil, settleNak
	}
	r.d.do(settleEffect{r.place, m, how})
}

func (r *slotRun) interrupt() {
	if r.ended != nil && !r.interrupted {
		r.interrupted = true
		r.d.do(interruptEffect{r.number})
	}
}

// drop ends a run whose slot is not this worker's any more: nothing is acknowledged.
// What came and was not begun goes back. The leader's reset may have come before it
// was delivered, and then only AckWait would ever deliver it again. What was begun was
// delivered before that reset, since the lease was valid then.
func (r *slotRun) drop() {
	delete(r.d.slots, r.place)
	r.stage = runDropped
	if r.hand != nil && r.attempt == 0 && r.ended == nil {
		r.box = append([]*mail{r.hand}, r.box...)
	}
	for _, m := range r.box {
		if m.status == "" {
			r.d.do(returnEffect{r.place, m})
		}
	}
	r.box = nil
	if r.interrupt(); r.ended == nil {
		r.end()
	}
}

// giveUp hands the slot off: no more pulls, the pin off, and what was delivered but not
// settled back to the server, in this order.
func (r *slotRun) giveUp() {
	d := r.d
	stopped := d.now
	// From here on, what arrives goes back.
	delete(d.slots, r.place)
	r.stage = runGivingUp
	unpin := func(answer) {
		r.ask(askUnpin{}, func(a answer) {
			if a.err != nil {
				r.end() // the worker ends; the server takes the pin off when it has expired
				return
			}
			if r.hand != nil {
				r.box = append([]*mail{r.hand}, r.box...)
			}
			for _, m := range r.box {
				if m.status == "" {
					d.do(settleEffect{r.place, m, settleNak})
				}
			}
			d.do(releasedEffect{r.leave})
			d.do(reportEffect{slotReleasedInput{place: r.place, claim: r.fence.Claim, idle: d.now.Sub(stopped)}})
			r.end()
		})
	}
	if r.final && r.settled != nil {
		// The consumer is about to be deleted, and an acknowledgement on its way would
		// be lost.
		r.ask(askConfirm{r.settled}, unpin)
		return
	}
	unpin(answer{})
}

// end lets those start that have waited for this run.
func (r *slotRun) end() {
	d := r.d
	r.stage = runDropped
	delete(d.runs, r.number)
	d.do(endedEffect{r.number})
	for _, o := range inOrder(d.slots) {
		if o.before[r] {
			delete(o.before, r)
			if len(o.before) == 0 && o.stage == runWaiting {
				o.start()
			}
		}
	}
}
