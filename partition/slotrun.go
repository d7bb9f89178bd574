package partition

import (
	"slices"
	"time"
)

// slotRun is one holding of a slot; delivery.go tells its life. It decides what is next:
// a pull, a message of the main stream, one of the retry queue, or the handoff. The
// delivery calls it, with whatever the puller's lock protects.
type slotRun struct {
	*runCore
	lanes *lanes
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
	core := &runCore{deliveryCore: d, place: at, number: number, fence: fence, permit: permit{run: number}}
	r := &slotRun{
		runCore: core,
		lanes:   newLanes(core),
		pull:    slotPull{runCore: core},
		up:      up,
		before:  make(map[*slotRun]bool),
	}
	if d.cfg.Retry.Enabled {
		r.retry = newSlotRetry(r.lanes)
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
	if r.stage == runPulling {
		r.concludeLate()
	}
	for r.mayProceed() && r.next() {
	}
	r.giveBack()
	r.arm()
}

// mayProceed reports whether something new may be begun. A message of the retry queue counts
// as one in flight while a handler works on it.
func (r *slotRun) mayProceed() bool {
	return r.stage == runPulling && r.question == 0 && len(r.calls) < r.cfg.inFlight
}

// next does one thing; false if there is none.
func (r *slotRun) next() bool {
	switch {
	case r.releasing:
		if len(r.calls) == 0 {
			r.giveUp()
		}
		return false
	case r.retry != nil && r.retry.queue.wentBack:
		if len(r.calls) > 0 {
			return false
		}
		r.sendBack()
		return true
	case !r.lanes.full() && r.idle():
		return true
	}
	m := r.lanes.ready(r.now, r.retried())
	switch {
	case m == nil:
		// The retry queue is seen to meanwhile.
		return r.lanes.full() && r.retry != nil && r.retry.work()
	case m.recalling:
		m.recall()
		return true
	default:
		return r.begin(m)
	}
}

// retried returns the key of the retry queue that a handler works on.
func (r *slotRun) retried() *retriedKey {
	if r.retry == nil {
		return nil
	}
	return &r.retry.tried
}

// giveBack returns a permit for which there was no message after all. While a question is
// open the run keeps it: it would have to wait for its turn again after each answer. A run
// that hands off, or was dropped, begins nothing, so it does not wait for a turn either.
func (r *slotRun) giveBack() {
	granted := r.permit.state == permitGranted && r.question == 0
	if granted || r.stage != runPulling {
		r.handlers.withdraw(&r.permit)
	}
}

// idle does one thing while there is room for another message; false if there is none.
func (r *slotRun) idle() bool {
	now := r.now
	switch p := &r.pull; {
	case p.renew || !now.Before(p.at):
		r.pull.fetch()
		return true
	case r.retry != nil && r.retry.work():
		return true
	case len(r.pull.box) > 0: // the slot is not silent: what came goes before any look
	case !r.atRest() || now.Before(p.quietAt):
		return false
	default:
		p.quietAt = now.Add(r.cfg.stalePinCheck)
		r.pull.lookAtSilence()
		return true
	}
	m := r.pull.next()
	if m.status != "" {
		r.pull.status(m)
		return true
	}
	r.pull.got(m)
	if !m.unreadable {
		r.lanes.take(m)
	}
	return true
}

// atRest reports whether the slot has nothing in hand, and no handler runs.
func (r *slotRun) atRest() bool { return r.lanes.total == 0 && len(r.calls) == 0 }

// arm has the run woken when time alone makes a difference. A wake-up that comes too
// early is harmless, and cheaper than moving it with each message.
func (r *slotRun) arm() {
	if !r.mayProceed() {
		return
	}
	// What waits for a permit is due already, so its time would wake the run at once, again
	// and again. Its turn wakes it.
	waits := r.permit.state == permitAsked
	var at time.Time
	if !r.lanes.full() {
		at = r.pull.at
	}
	if r.atRest() {
		at = earlier(at, r.pull.quietAt)
	}
	if !waits {
		at = earlier(at, r.lanes.wake())
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
	for _, m := range r.lanes.clear(nil) {
		r.do(settleEffect{r.place, m, settleNak})
	}
	r.pull.sendBack()
}

// begin begins a message, unless it has to wait, or goes to the retry queue. It returns false
// if it waits for a permit.
func (r *slotRun) begin(m *slotMessage) bool {
	if !r.valid() {
		m.restFor(pullRetry)
		m.forLease = true
		return true
	}
	if !r.admitted() {
		return false
	}
	if r.retry != nil && !r.retry.mayBegin(m) {
		return true
	}
	m.attempt++
	m.working = true
	message := m.mail.message
	message.Attempt = m.attempt
	m.call = r.handle(handleEffect{mail: m.mail, message: message}, func(err error) {
		fenced := isFenced(err)
		if fenced {
			r.fencedOff(err)
			m.attempt--
		}
		r.abandonOr(message, m.attempt, err, func(err error) {
			m.working = false
			r.concluded(m, err, fenced)
		})
	})
	return true
}

// handled takes in that a handler has returned.
func (r *slotRun) handled(number uint64, err error) {
	i := slices.IndexFunc(r.calls, func(c *call) bool { return c.number == number && !c.returned })
	if i < 0 {
		return
	}
	c := r.calls[i]
	c.returned, c.err = true, err
	switch {
	case r.stage == runDropped:
		r.forgetReturned()
	case r.question == 0:
		r.conclude(c)
	}
}

// forgetReturned ends a dropped run whose handlers have all returned.
func (r *slotRun) forgetReturned() {
	for _, c := range slices.Clone(r.calls) {
		if c.returned {
			r.forgetCall(c)
			r.handlers.returned()
		}
	}
	if len(r.calls) == 0 {
		r.end()
	}
}

// concluded follows the last handler of an attempt on a message.
func (r *slotRun) concluded(m *slotMessage, err error, fenced bool) {
	switch {
	case err == nil:
		m.settle(settleAck)
		return
	case isDiscarded(err):
		m.settle(settleTerm)
		return
	}
	// A message that was fenced off is not queued for retry: the owner with the
	// later fence is to try it at once, and in its place.
	if m.failed = !fenced && r.queues(m.attempt); m.failed {
		return
	}
	m.restFor(m.delay)
	m.delay = min(2*m.delay, maxRetryDelay)
}

// drop ends a run whose slot is not this worker's any more: nothing is acknowledged.
// What came and was not begun goes back. The leader's reset may have come before it
// was delivered, and then only AckWait would ever deliver it again. What was begun was
// delivered before that reset, since the lease was valid then.
func (r *slotRun) drop() {
	r.up.notHeld(r)
	r.stage = runDropped
	begun := func(m *slotMessage) bool { return m.working || m.attempt > 0 }
	for _, m := range append(r.lanes.clear(begun), r.pull.box...) {
		if m.status == "" {
			r.do(returnEffect{r.place, m})
		}
	}
	r.pull.box = nil
	r.interrupt()
	r.forgetReturned()
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
			for _, m := range append(r.lanes.clear(nil), r.pull.box...) {
				if m.status == "" {
					r.do(settleEffect{r.place, m, settleNak})
				}
			}
			r.do(releasedEffect{r.leave})
			r.do(reportEffect{slotReleasedInput{place: r.place, claim: r.fence.Claim, idle: r.now.Sub(stopped)}})
			r.end()
		})
	}
	if r.final && r.lanes.settled != nil {
		// The consumer is about to be deleted, and an acknowledgement on its way would
		// be lost.
		r.ask(askConfirm{r.lanes.settled}, unpin)
		return
	}
	unpin(answer{})
}

// end: nothing of this run is left.
func (r *slotRun) end() {
	r.stage = runDropped
	r.handlers.withdraw(&r.permit)
	r.up.runEnded(r)
}
