package partition

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// slotRun delivers the messages of a slot from when this worker holds it until it is handed off
// or lost; delivery.go describes its life. It decides what comes next: a pull, a message of the
// main stream, one of the retry queue, or the handoff. The delivery calls it under the puller's
// lock.
type slotRun struct {
	*runCore
	lanes    *lanes
	pull     slotPull
	retry    *slotRetry // nil: failing messages are not queued for retry
	requests *slotRequests
	load     stateLoad // of the handler's state
	up       runOwner

	stage  runStage
	before map[*slotRun]bool // runs that have to end before it starts
	armed  time.Time         // when it will be woken; zero if no wake-up is pending
	taken  map[int]bool      // by slot of the largest slot count: messages were received, with several in flight

	forgets   uint64 // the memory's count of losses at the last look
	releasing bool   // to be handed off
	final     bool   // the consumer is deleted after the handoff
	leave     Slots  // that a Releaser is told about
}

// runOwner is the part of the delivery that a run calls.
type runOwner interface {
	notHeld(*slotRun)
	runEnded(*slotRun)
}

func newSlotRun(d *deliveryCore, up runOwner, in heldInput, number uint64) *slotRun {
	at, fence := in.place, in.fence
	core := &runCore{deliveryCore: d, place: at, number: number, fence: fence, permit: permit{run: number}, serving: make(map[string]*service)}
	r := &slotRun{
		runCore: core,
		lanes:   newLanes(core),
		pull:    slotPull{runCore: core},
		up:      up,
		before:  make(map[*slotRun]bool),
		taken:   make(map[int]bool),
		forgets: d.memory.forgets(at.slot),
		load:    stateLoad{from: in.state},
	}
	if !in.handed {
		r.lanes.suspects.left = d.cfg.Delivery.InFlight
	}
	r.requests = newSlotRequests(r.lanes)
	if !d.cfg.Retry.Disabled {
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

// start begins to pull for the slot, after the handler has the slot's state.
func (r *slotRun) start() {
	if r.beginLoad() {
		return
	}
	r.stage = runPulling
	r.inbox.settle(r)
	r.pull.silence.at = r.now.Add(r.cfg.firstSilenceCheck(r.slot))
	if !r.releasing {
		r.pull.fetch()
	}
	r.proceed()
}

// suspend follows the loss of the lease's validity: the handlers are interrupted.
func (r *slotRun) suspend() {
	r.interrupt()
	r.pull.renew = false
}

// resume follows its return: what was interrupted begins again from the start.
//
// This worker may have been disconnected, so it pulls again. The server may also have been
// restored from a copy meanwhile: what waits in the retry queue is counted again, and what was not
// begun comes again. So does all that is in hand with several messages in flight, since the server
// goes by the sequence of what is acknowledged, which another message may have by now.
func (r *slotRun) resume() {
	r.pull.connected()
	if r.several() && !r.atRest() {
		r.order.lost = true
	}
	r.lanes.leased()
	if r.retry != nil {
		r.retry.queue.restored()
	}
}

// proceed does all that is possible without waiting for an answer, a handler or time.
func (r *slotRun) proceed() {
	if r.stage == runPulling {
		r.concludeLate()
	}
	for r.doOne() {
	}
	r.giveBack()
	r.arm()
}

// doOne does one step for a message or for a request, and returns false if there is none.
// Messages and requests take turns, so that neither starves when handlers are few.
func (r *slotRun) doOne() bool {
	if r.requests.messageNext && r.mayProceed() && r.next() {
		return true
	}
	if r.stage == runPulling && !r.releasing && r.requests.next(r.retried()) {
		return true
	}
	return !r.requests.messageNext && r.mayProceed() && r.next()
}

// mayProceed reports whether another message may begin. A message of the retry queue counts as
// one in flight while a handler works on it.
func (r *slotRun) mayProceed() bool {
	return r.stage == runPulling && r.question == 0 && len(r.calls) < r.cfg.Delivery.InFlight
}

// next does one step for a message, and returns false if there is none.
func (r *slotRun) next() bool {
	r.seeForgets()
	switch {
	case r.releasing:
		return r.release()
	case r.retry != nil && r.retry.queue.wentBack:
		if len(r.calls) > 0 {
			return false
		}
		r.sendBack()
		return true
	case r.order.lost:
		return r.resync()
	case !r.lanes.full() && r.idle():
		return true
	}
	if m := r.lanes.ready(r.retried(), math.MaxUint64); m != nil {
		return r.advance(m)
	}
	// While the lanes are full, the retry queue can still make progress.
	return r.lanes.full() && r.retry != nil && r.retry.work()
}

// advance does what is next for a message. It returns false if that waits for a permit.
func (r *slotRun) advance(m *slotMessage) bool {
	switch {
	case m.confirming:
		m.confirmAgain()
		return true
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

// giveBack returns a permit that no message needs. While a question to the server is open the
// run keeps its permit; otherwise it would wait for its turn again after each answer. A run that
// hands off, or was dropped, begins nothing and also gives up its turn.
func (r *slotRun) giveBack() {
	granted := r.permit.state == permitGranted && r.question == 0
	if granted || r.stage != runPulling {
		r.handlers.withdraw(&r.permit)
	}
}

// idle does one step while there is room for another message, and returns false if there is none.
func (r *slotRun) idle() bool {
	now := r.now
	switch p := &r.pull; {
	case p.renew || !now.Before(p.at):
		r.pull.fetch()
		return true
	case r.retry != nil && r.retry.work():
		return true
	case len(r.pull.box) > 0: // messages have come, so there is no silence to look into
	case r.mayMiss() && !now.Before(r.order.lookAt):
		r.lookWhetherAllCame()
		return true
	case !r.atRest() || now.Before(p.silence.at):
		return false
	default:
		p.silence.at = now.Add(r.cfg.silenceCheck())
		r.pull.lookAtSilence()
		return true
	}
	r.receive(r.pull.next())
	return true
}

// receive handles a message or a status that a pull brought.
func (r *slotRun) receive(m *mail) {
	if m.status != "" {
		r.pull.status(m)
		return
	}
	r.pull.got(m)
	if r.several() && !r.follows(m) || m.unreadable {
		return
	}
	r.lanes.take(m)
}

// follows reports whether a message is new, and none is missing before it.
func (r *slotRun) follows(m *mail) bool {
	r.order.lookAt = r.now.Add(r.cfg.stalePinCheck)
	if !r.order.follows(m.number) {
		return false
	}
	r.taken[m.finest] = true
	if r.lanes.comesAgain(m) {
		return false
	}
	// A rolled-back stream may have reused the sequence for another message. That has to be
	// noticed now: once later messages are settled, this one would look like a settled one.
	if replaces, forgets := r.memory.taken(r.slot, m.finest, m.original); replaces {
		r.rolledBack(r.slot, forgets, fmt.Sprintf("message %d is another one than it was", m.sequence))
		return false
	}
	return true
}

// mayMiss reports whether the run has to ask now and then if it has received everything that its
// consumer delivered. A message that went missing counts as in flight on the server, which may
// therefore deliver nothing more.
func (r *slotRun) mayMiss() bool { return r.several() && !r.atRest() }

// lookWhetherAllCame asks the server for the number of its last delivery.
func (r *slotRun) lookWhetherAllCame() {
	r.order.lookAt = r.now.Add(r.cfg.stalePinCheck)
	r.ask(askWaiting{}, func(a answer) {
		if a.err == nil && len(r.pull.box) == 0 && a.sequence != r.order.came {
			r.order.lost = true
		}
	})
}

// seeForgets has the consumer reset after the memory of settled messages was lost. Otherwise the
// next message to be settled would become the memory's new start, and messages in hand before it
// would be taken for settled.
func (r *slotRun) seeForgets() {
	if forgets := r.memory.forgets(r.slot); r.several() && forgets != r.forgets {
		r.forgets = forgets
		r.order.lost = true
	}
}

// resync resets the consumer, so that the server delivers every unsettled message again, and
// reports whether that has begun. Two things come first:
//
//   - The lease must be valid. Otherwise the consumer may already belong to another worker.
//   - Confirmations that are under way must arrive, because the reset drops them.
func (r *slotRun) resync() bool {
	o := &r.order
	if r.now.Before(o.at) {
		return false
	}
	if o.since.IsZero() {
		o.since = r.now
	}
	o.at = r.now.Add(pullRetry)
	if confirmations := r.lanes.confirming() && r.now.Before(o.since.Add(confirmTimeout)); confirmations || !r.valid() {
		return false
	}
	r.pull.dropMessages()
	r.ask(askTake{}, func(a answer) {
		if a.err != nil {
			return
		}
		o.reset(r.now)
		r.pull.forget()
		r.lanes.fallOutOfStep()
		r.pull.fetch()
	})
	return true
}

// confirmed handles the server's confirmation that a message is settled.
func (r *slotRun) confirmed(o original) {
	r.lanes.confirmed(o)
	if !r.atRest() || r.order.lost {
		return
	}
	for finest := range r.taken { // nothing that came is left
		r.memory.atRest(r.slot, finest)
	}
	clear(r.taken)
	r.order.wasReset = false
}

// atRest reports whether the slot has nothing in hand, and no handler runs.
func (r *slotRun) atRest() bool { return r.lanes.total == 0 && len(r.calls) == 0 }

// arm schedules a wake-up for when the passing of time alone allows a step. One that comes too
// early is harmless, and cheaper than rescheduling it with each message.
func (r *slotRun) arm() {
	if !r.mayProceed() {
		return
	}
	at := r.due()
	if !at.IsZero() && (r.armed.IsZero() || at.Before(r.armed)) {
		r.armed = at
		r.do(wakeEffect{r.number, at})
	}
}

// due returns when the passing of time allows a step, zero for never. Messages that wait for a
// permit are due already: their time would wake the run in a busy loop, so only the permit wakes
// it. While a reset of the consumer is due, nothing else is waited for.
func (r *slotRun) due() (at time.Time) {
	if r.order.lost {
		return r.order.at
	}
	waits := r.permit.state == permitAsked
	if !r.lanes.full() {
		at = r.pull.at
	}
	if r.atRest() {
		at = earlier(at, r.pull.silence.at)
	}
	if r.mayMiss() {
		at = earlier(at, r.order.lookAt)
	}
	if r.releasing && r.awaitsRemoval() {
		at = earlier(at, r.lanes.confirmedAt.Add(removalLag))
	}
	if !waits {
		at = earlier(at, r.lanes.wake())
	}
	if r.retry != nil && !waits {
		at = earlier(at, r.retry.wake())
	}
	return at
}

// answered handles the answer to the open question.
func (r *slotRun) answered(in answerInput) {
	if r.stage == runDropped || in.question != r.question {
		return
	}
	then := r.then
	r.question, r.then = 0, nil
	then(in.answer)
}

// sendBack returns messages that were delivered and not begun. After a rollback the server may
// have earlier messages of the same keys again, and it delivers these first.
func (r *slotRun) sendBack() {
	r.retry.queue.wentBack = false
	if r.several() {
		r.order.lost = true
		return
	}
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
	if r.retry != nil && r.retry.attempts.exhausted(m.attempt, m.tried()) {
		r.giveUpUntried(m)
	} else {
		r.try(m)
	}
	return true
}

// try calls the handler.
func (r *slotRun) try(m *slotMessage) {
	m.begins()
	of, attempt := m.mail, m.attempt
	message := of.message
	message.Attempt = attempt
	r.requests.messageBegins(message.Key)
	if r.retry != nil {
		r.retry.attempts.records.begins(message.Key)
	}
	m.call = r.handle(handleEffect{mail: of, message: message}, func(err error) {
		if err == nil { // nearly always; what follows is about failures
			r.concluded(m, nil, false)
			return
		}
		r.failed(m, of, attempt, err)
	})
}

// failed follows an attempt on a message, as it came then, that has ended with an error.
func (r *slotRun) failed(m *slotMessage, of *mail, attempt int, err error) {
	message := of.message
	message.Attempt = attempt
	if r.retry != nil {
		err = r.retry.attempts.ended(message, m.mail.original, err)
	}
	uncounted := isUncounted(err)
	if uncounted {
		r.fencedOff(err)
		m.attempt--
	}
	r.abandonOr(message, m.attempt, err, func(err error) { r.concluded(m, err, uncounted) })
}

// giveUpUntried abandons a message that has had all of its attempts.
func (r *slotRun) giveUpUntried(m *slotMessage) {
	m.works(true)
	message := m.mail.message
	message.Attempt = m.attempt
	m.call = r.abandon(message, errUnfinished, func(err error) { r.concluded(m, err, false) })
}

// handled handles the return of a handler.
func (r *slotRun) handled(number uint64, err error) {
	at, found := r.callOf(number)
	if !found || r.calls[at].returned {
		return
	}
	c := r.calls[at]
	r.returned(c, err)
	switch {
	case r.stage == runDropped:
		r.forgetReturned()
	case r.question == 0:
		r.conclude(c)
	}
}

// served follows the return of the handler that worked on a request.
func (r *slotRun) served(in servedInput) {
	owns := r.stage != runDropped && r.valid()
	r.requests.served(in, owns)
	if r.stage == runDropped {
		r.forgetReturned()
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
	if !r.atWork() && r.load.stage != loadOpen {
		r.end()
	}
}

// concluded follows the last handler of an attempt on a message.
func (r *slotRun) concluded(m *slotMessage, err error, uncounted bool) {
	m.works(false)
	done := err == nil || isDiscarded(err)
	if r.retry != nil {
		r.retry.attempts.concluded(m, done)
	}
	switch {
	case err == nil:
		m.settle(settleAck)
		return
	case done:
		m.settle(settleTerm)
		return
	case m.outOfStep: // it comes again, or is gone
		r.lanes.remove(m)
		return
	}
	// A message that was fenced off is not queued for retry, because the owner with the later fence
	// should try it at once, and in its order. A message whose handler reports an outage is not
	// queued either, because the whole backlog would follow it into the queue.
	if m.failed = !uncounted && r.queues(m.attempt); m.failed {
		return
	}
	m.restFor(m.delay)
	m.delay = min(2*m.delay, maxRetryDelay)
}

// drop ends a run that has lost its slot, and acknowledges nothing. It returns messages that were
// delivered and not begun: if the leader's reset came before their delivery, only AckWait would
// deliver them again. Messages that were begun need no return. The lease was valid then, so the
// leader's reset came later.
func (r *slotRun) drop() {
	r.up.notHeld(r)
	r.stage = runDropped
	for _, m := range append(r.lanes.clear((*slotMessage).begun), r.pull.box...) {
		if m.status == "" {
			r.do(returnEffect{r.place, m})
		}
	}
	r.pull.box = nil
	r.interrupt()
	r.stopLoad()
	r.forgetReturned()
}

// release waits for the messages and requests that were begun, then hands the slot off. It reports
// whether it did something meanwhile. With several messages in flight the server must confirm
// each acknowledgement before the handoff; after a reset the message has to come again for that.
func (r *slotRun) release() bool {
	p := &r.pull
	before := uint64(0)
	if r.awaitsRemoval() {
		before = r.lanes.ahead
	}
	switch m := r.lanes.ready(r.retried(), before); {
	case len(r.calls) == 0 && r.retry != nil && r.retry.recordAttempts():
	case len(r.calls) == 0 && !r.lanes.confirming() && !r.awaitsRemoval():
		if len(r.serving) == 0 {
			r.giveUp()
		}
		return false
	case !r.several():
		return false
	case r.order.lost:
		return r.resync()
	case m != nil:
		return r.advance(m)
	case p.renew || !r.now.Before(p.at):
		p.fetch()
	case len(p.box) > 0:
		r.receive(p.next())
	case !r.now.Before(r.order.lookAt):
		r.lookWhetherAllCame()
	default:
		return false
	}
	return true
}

// awaitsRemoval reports whether a reset might deliver a settled message again. With replicas this
// race exists:
//
//  1. The consumer's replicas agree on an acknowledgement, and the server confirms it.
//  2. The stream's replicas remove the message a moment later.
//  3. A reset in between goes back to the first unsettled message, and delivers the settled ones
//     behind it again.
//
// So the run handles the messages in hand before a settled one before it hands the slot off. If
// that fails, it waits for as long as a removal takes.
func (r *slotRun) awaitsRemoval() bool {
	removalLags := r.several() && r.cfg.Storage.Replicas > 1
	unsettledBefore := r.lanes.overtaken() || r.order.wasReset
	return removalLags && unsettledBefore && r.now.Before(r.lanes.confirmedAt.Add(removalLag))
}

// giveUp hands the slot off. The order matters: it stops pulling, unpins the consumer, and then
// returns messages that were delivered but not settled. With several messages in flight a reset
// does the last two.
func (r *slotRun) giveUp() {
	stopped := r.now
	r.up.notHeld(r)
	r.stage = runGivingUp
	end := question(askUnpin{})
	if r.several() {
		end = askReset{}
	}
	unpin := func(answer) {
		r.ask(end, func(a answer) {
			if a.err != nil {
				r.end() // the worker ends, and its pin expires on the server
				return
			}
			r.returnAll()
			r.giveState()
			r.do(reportEffect{slotReleasedInput{place: r.place, claim: r.fence.Claim, idle: r.now.Sub(stopped)}})
			r.end()
		})
	}
	if r.final && !r.several() && r.lanes.settled != nil {
		// The consumer is about to be deleted, and an acknowledgement on its way would
		// be lost.
		r.ask(askConfirm{r.lanes.settled}, unpin)
		return
	}
	unpin(answer{})
}

// returnAll returns messages that were delivered and not settled. With several messages in flight
// the reset has done that.
func (r *slotRun) returnAll() {
	if r.several() {
		return
	}
	for _, m := range append(r.lanes.clear(nil), r.pull.box...) {
		if m.status == "" {
			r.do(settleEffect{r.place, m, settleNak})
		}
	}
}

// end removes the run.
func (r *slotRun) end() {
	r.stage = runDropped
	r.handlers.withdraw(&r.permit)
	r.up.runEnded(r)
}
