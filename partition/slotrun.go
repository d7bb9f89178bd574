package partition

import (
	"time"
)

// slotRun is one holding of a slot; delivery.go tells its life. It decides what is next:
// a pull, a message of the main stream, one of the retry queue, or the handoff. The
// delivery calls it, with whatever the puller's lock protects.
type slotRun struct {
	*runCore
	*slotMessage
	pull  slotPull
	retry *slotRetry // nil: failing messages are not queued for retry
	up    runOwner

	stage  runStage
	before map[*slotRun]bool // runs that have to end before it starts
	armed  time.Time         // when it will be woken; zero: nobody wakes it

	releasing bool
	final     bool  // its consumer will be no more
	leave     Slots // that a Releaser is told of
}

// runOwner is the delivery as a run sees it.
type runOwner interface {
	notHeld(*slotRun)
	runEnded(*slotRun)
}

func newSlotRun(d *deliveryCore, up runOwner, at place, number uint64, fence Fence) *slotRun {
	core := &runCore{deliveryCore: d, place: at, number: number, fence: fence}
	r := &slotRun{
		runCore:     core,
		slotMessage: &slotMessage{runCore: core},
		pull:        slotPull{runCore: core},
		up:          up,
		before:      make(map[*slotRun]bool),
	}
	if d.cfg.Retry.Enabled {
		r.retry = newSlotRetry(r.slotMessage)
	}
	return r
}

type runStage uint8

const (
	runWaiting runStage = iota
	runPulling
	runGivingUp
	runDropped
)

// start has the slot pulled for.
func (r *slotRun) start() {
	r.stage = runPulling
	r.pull.quietAt = r.now.Add(r.cfg.stalePinCheck)
	if !r.releasing {
		r.pull.fetch()
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
		case r.retry != nil && r.retry.queue.wentBack:
			r.sendBack()
			more = true
		case r.hand == nil:
			more = r.idle()
		case r.now.Before(r.rest):
			// The retry queue is seen to meanwhile.
			more = r.retry != nil && r.retry.work()
		case r.recalling:
			r.recall()
			more = true
		default:
			more = r.begin()
		}
		if !more {
			break
		}
	}
	r.giveBack()
	r.arm()
}

// giveBack returns a permit for which there was no message after all. While a question is
// open the run keeps it: it would have to wait for its turn again after each answer. A run
// that hands off, or was dropped, begins nothing, so it does not wait for a turn either.
func (r *slotRun) giveBack() {
	granted := r.permit == permitGranted && r.question == 0
	if granted || r.stage != runPulling {
		r.handlers.withdraw(r.runCore)
	}
}

// idle does one thing between two messages; false if there is none.
func (r *slotRun) idle() bool {
	now := r.now
	switch p := &r.pull; {
	case p.renew || !now.Before(p.at):
		r.pull.fetch()
		return true
	case r.retry != nil && r.retry.work():
		return true
	case len(r.pull.box) > 0: // the slot is not silent: what came goes before any look
	case !now.Before(p.quietAt):
		p.quietAt = now.Add(r.cfg.stalePinCheck)
		r.pull.lookAtSilence()
		return true
	default:
		return false
	}
	m := r.pull.next()
	if m.status != "" {
		r.pull.status(m)
		return true
	}
	r.pull.got(m)
	if !m.unreadable {
		r.take(m)
	}
	return true
}

// arm has the run woken when time alone makes a difference. A wake-up that comes too
// early is harmless, and cheaper than moving it with each message.
func (r *slotRun) arm() {
	if r.stage != runPulling || r.question != 0 || r.ended != nil {
		return
	}
	// What waits for a permit is due already, so its time would wake the run at once, again
	// and again. Its turn wakes it.
	waits := r.permit == permitAsked
	var at time.Time
	switch {
	case r.hand == nil:
		at = earlier(r.pull.at, r.pull.quietAt)
	case !waits:
		at = r.rest
	}
	if r.retry != nil && !waits {
		at = earlier(at, r.retry.wake())
	}
	if !at.IsZero() && (r.armed.IsZero() || at.Before(r.armed)) {
		r.armed = at
		r.do(wakeEffect{r.number, at})
	}
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

// sendBack returns what was delivered and not begun. After a rollback the server may have
// earlier messages of the same keys again, which it delivers first.
func (r *slotRun) sendBack() {
	r.retry.queue.wentBack = false
	if r.hand != nil {
		r.do(settleEffect{r.place, r.hand, settleNak})
		r.hand, r.rest = nil, time.Time{}
	}
	r.pull.sendBack()
}

// begin begins the message in hand, unless it has to wait, or goes to the retry queue. It
// returns false if it waits for a permit.
func (r *slotRun) begin() bool {
	if !r.valid() {
		r.restFor(pullRetry)
		r.forLease = true
		return true
	}
	if !r.admitted() {
		return false
	}
	if r.retry != nil && !r.retry.mayBegin() {
		return true
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
	return true
}

// handled takes in that the handler has returned.
func (r *slotRun) handled(err error) {
	then := r.ended
	if then == nil {
		return
	}
	r.ended = nil
	if r.stage == runDropped {
		r.handlers.returned()
		r.end()
		return
	}
	then(err)
	if r.ended == nil { // else the handler has been called to abandon the message
		r.handlers.returned()
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

// drop ends a run whose slot is not this worker's any more: nothing is acknowledged.
// What came and was not begun goes back. The leader's reset may have come before it
// was delivered, and then only AckWait would ever deliver it again. What was begun was
// delivered before that reset, since the lease was valid then.
func (r *slotRun) drop() {
	r.up.notHeld(r)
	r.stage = runDropped
	if r.hand != nil && r.attempt == 0 && r.ended == nil {
		r.pull.box = append([]*mail{r.hand}, r.pull.box...)
	}
	for _, m := range r.pull.box {
		if m.status == "" {
			r.do(returnEffect{r.place, m})
		}
	}
	r.pull.box = nil
	if r.interrupt(); r.ended == nil {
		r.end()
	}
}

// giveUp hands the slot off: no more pulls, the pin off, and what was delivered but not
// settled back to the server, in this order.
func (r *slotRun) giveUp() {
	stopped := r.now
	r.up.notHeld(r)
	r.stage = runGivingUp
	unpin := func(answer) {
		r.ask(askUnpin{}, func(a answer) {
			if a.err != nil {
				r.end() // the worker ends; the server takes the pin off when it has expired
				return
			}
			if r.hand != nil {
				r.pull.box = append([]*mail{r.hand}, r.pull.box...)
			}
			for _, m := range r.pull.box {
				if m.status == "" {
					r.do(settleEffect{r.place, m, settleNak})
				}
			}
			r.do(releasedEffect{r.leave})
			r.do(reportEffect{slotReleasedInput{place: r.place, claim: r.fence.Claim, idle: r.now.Sub(stopped)}})
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

// end: nothing of this run is left.
func (r *slotRun) end() {
	r.stage = runDropped
	r.handlers.withdraw(r.runCore)
	r.up.runEnded(r)
}
