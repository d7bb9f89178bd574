package partition

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file is what carries out a delivery's effects in the simulator, as pull.go and
// retrystore.go do with the real server. The delivery is the real one.

// simRun is what belongs to a slotRun outside of its delivery.
type simRun struct {
	w *simWorker
	place
	number   uint64
	handlers map[uint64]*simHandler // at work, by call
	services map[uint64]*simService // likewise, on requests
	// read are the messages of the retry queue that were read, by their sequences there. An
	// answer that is late may be of another key than the one that is waited for.
	read map[uint64]simQueued
}

type simHandler struct {
	r         *simRun
	call      uint64
	fence     Fence
	msg       simMessage
	queued    *simQueued // nil: from the main stream
	begun     time.Time
	cancelled bool
	until     time.Duration // it does not return before
	// rejectedBy is the fence for which the store has rejected its write.
	rejectedBy Fence
	handling   simHandling
	abandons   bool // it gives the message up
}

// stubbornFor is how long a handler works on, at most, that does not heed its context.
const stubbornFor = 10 * time.Second

var errHandlerFailed = errors.New("the handler failed")

func (w *simWorker) trusted() bool { return !w.suspended && w.clock().Before(w.trustedUntil) }

func (w *simWorker) trustUntil(t time.Time) {
	w.trustedUntil = t
	w.delivery.until = t
}

func (w *simWorker) hold(e holdEffect) {
	shown := e.fence
	if w.s.broken.claimless {
		shown.Claim = 0
	}
	w.s.check.held(w, e.place, shown, e.handed)
	w.deliver(heldInput{e.place, e.fence, e.handed || w.s.broken.unsuspected, e.state})
}

// deliver gives the delivery one input and carries its effects out.
func (w *simWorker) deliver(in deliveryInput) {
	if w.dead {
		return
	}
	if hook := w.s.broken.onDelivery; hook != nil {
		if in = hook(w, in); in == nil {
			return
		}
	}
	for _, e := range w.delivery.step(w.clock(), in) {
		if hook := w.s.broken.onDelivered; hook != nil {
			if e = hook(w, e); e == nil {
				continue
			}
		}
		w.freezeDelivery(e)
		w.carryOut(e)
	}
}

func (w *simWorker) carryOut(e deliveryEffect) {
	s := w.s
	switch e := e.(type) {
	case beganEffect:
		w.runs[e.run] = &simRun{w: w, place: e.place, number: e.run, handlers: make(map[uint64]*simHandler), services: make(map[uint64]*simService), read: make(map[uint64]simQueued)}
		if r := w.delivery.slots[e.place]; s.broken.blindQueue && r.retry != nil {
			r.retry.queue.phase = queueOpen
		}
	case fetchEffect:
		p := &simPull{w: w, place: e.place, pullNumber: e.pullNumber, n: e.batch, id: pinNumber(e.pin)}
		w.link.up(func() {
			p.expires = s.now + pullExpiry
			s.srv.slot(p.place).pull(p)
		})
	case handleEffect:
		w.handle(e)
	case interruptEffect:
		w.runs[e.run].interrupt(e.call)
	case loadEffect, stopLoadEffect, exportEffect:
		w.carryOutState(e)
	case serveEffect:
		w.serve(e)
	case replyEffect:
		w.reply(e)
	case expiryEffect:
		w.expire(e)
	case settleEffect:
		d := e.mail.body.(simDelivery)
		if e.how == settleNak {
			w.nak(d)
		} else {
			s.check.settles(w, d.msg)
			w.ack(d)
		}
	case confirmEffect:
		d := e.mail.body.(simDelivery)
		s.check.settles(w, d.msg)
		w.confirm(e, d)
	case returnEffect:
		if !s.broken.deafUnpin {
			w.sendBack(e.mail.body.(simDelivery))
		}
	case workingEffect:
		d := e.mail.body.(simDelivery)
		w.link.up(func() { s.srv.slot(d.place).progress(d) })
	case askEffect:
		w.ask(e)
	case lookEffect:
		w.lookAtStreams()
	case rolledBackEffect:
		s.logf("%s: %s, %d slots are forgotten", w, e.what, e.forgotten)
		w.lookAtStreams()
		w.later(0, func() { w.deliver(rolledBackInput{e.slot}) })
	case reportEffect:
		w.later(0, func() { w.step(e.input) })
	case forcedEffect:
		w.unpinUntilDone(e.place, func() { w.step(e.report) })
	case wakeEffect:
		s.at(max(w.virtual(e.at)+1, s.now+shortestSleep), w, func() { w.deliver(wakeInput{e.run}) })
	case endedEffect:
		delete(w.runs, e.run)
	}
}

func pinNumber(pin string) uint64 {
	n, _ := strconv.ParseUint(pin, 10, 64)
	return n
}

// dispatch is the subscription's callback.
func (w *simWorker) dispatch(d simDelivery) { w.deliver(mailInput{d.place, w.mail(d)}) }

func (w *simWorker) mail(d simDelivery) *mail {
	m := &mail{pullNumber: d.pullNumber, body: d}
	if d.status != 0 {
		m.status = strconv.Itoa(d.status)
		return m
	}
	if d.pin != 0 {
		m.pin = strconv.FormatUint(d.pin, 10)
	}
	m.number, m.behind = d.dseq, uint64(d.behind)
	if w.s.broken.unsuspectedBehind {
		m.behind = 0
	}
	m.finest, m.message = d.msg.fine, w.message(d.msg)
	m.original = original{m.message.Sequence, m.message.Published.UnixNano()}
	return m
}

func (w *simWorker) message(m simMessage) Message {
	o := m.original()
	if w.s.broken.bareSequences {
		o.published = 0
	}
	return Message{Key: strconv.Itoa(m.key), Sequence: o.sequence, Published: time.Unix(0, o.published)}
}

func (w *simWorker) sendBack(d simDelivery) {
	w.s.logf("%s: message %d of slot %d came and is not for this worker", w, d.msg.seq, d.slot)
	w.api(w.s.srv.slot(d.place).unpin, func(error) { w.nak(d) })
}

func (w *simWorker) nak(d simDelivery) { w.link.up(func() { w.s.srv.slot(d.place).nak(d) }) }
func (w *simWorker) ack(d simDelivery) { w.link.up(func() { _ = w.s.srv.slot(d.place).ack(d) }) }

// confirm acknowledges a message, and has the server confirm that.
func (w *simWorker) confirm(e confirmEffect, d simDelivery) {
	s := w.s
	w.link.up(func() {
		if !s.srv.slot(d.place).ack(d) || !s.quiet && s.chance(s.faults.loseReply) {
			return
		}
		w.link.down(func() { w.deliver(confirmedInput{e.run, e.mail.original}) })
	})
}

func (w *simWorker) resetUntilDone(at place, then func()) {
	sl := w.s.srv.slot(at)
	again := func() { w.later(pullRetry, func() { w.resetUntilDone(at, then) }) }
	w.api(sl.unpin, func(err error) {
		switch {
		case errors.Is(err, errNoConsumer):
			then()
		case err != nil:
			again()
		default:
			w.resetIfThere(sl, func(err error) {
				if err != nil {
					again()
					return
				}
				then()
			})
		}
	})
}

// resetIfThere resets a consumer. The server may not answer if it does not have it.
func (w *simWorker) resetIfThere(sl *simSlot, then func(error)) {
	finished := false
	finish := func(err error) {
		if !finished {
			finished = true
			then(err)
		}
	}
	w.link.up(func() {
		if sl.reset() == nil {
			w.link.down(func() { finish(nil) })
		}
	})
	w.later(apiTimeout, func() { finish(errNoReply) })
}

func (w *simWorker) unpinUntilDone(at place, then func()) {
	w.api(w.s.srv.slot(at).unpin, func(err error) {
		if err == nil || errors.Is(err, errNoConsumer) {
			then()
			return
		}
		w.later(pullRetry, func() { w.unpinUntilDone(at, then) })
	})
}

// handle begins a handler.
func (w *simWorker) handle(e handleEffect) {
	if e.abandon {
		w.abandon(e)
		return
	}
	r := w.runs[e.run]
	h := &simHandler{r: r, call: e.call, fence: e.message.Fence, begun: w.clock()}
	if e.queued != nil {
		p := r.read[e.queued.seq]
		h.queued, h.msg = &p, p.msg
	} else {
		h.msg = e.mail.body.(simDelivery).msg
	}
	r.handlers[e.call] = h
	h.handling = simHandling{Worker: w, Fence: h.fence, Number: h.msg.n, Standing: h.standing}
	w.s.logf("%s: slot %d, handler begins %d (key %d, %d), fence %v", w, r.slot, h.msg.seq, h.msg.key, h.msg.n, h.fence)
	w.s.check.begins(w, h)
	if w.s.broken.ackFirst && h.queued == nil {
		w.ack(e.mail.body.(simDelivery))
	}
	d := w.s.between(time.Millisecond, 60*time.Millisecond)
	if w.s.chance(w.s.faults.slowWork) {
		d = w.s.between(0, 2*w.s.cfg.Rebalance.HandoffTimeout)
	}
	if w.s.kills(h.msg.key) {
		w.later(d, func() {
			if h.atWork() {
				w.crash()
				w.s.after(w.s.between(0, 2*time.Second), func() { w.s.startWorker() })
			}
		})
		return
	}
	w.later(d, h.end)
}

// atWork reports whether the handler has not returned.
func (h *simHandler) atWork() bool { return h.r.handlers[h.call] == h }

// cancel ends a handler's context. Most handlers return then.
func (h *simHandler) cancel() {
	if h.cancelled {
		return
	}
	h.cancelled = true
	w := h.r.w
	if w.s.chance(w.s.faults.stubborn) {
		h.until = w.s.now + w.s.between(0, stubbornFor)
		w.later(h.until-w.s.now, h.end)
		return
	}
	w.later(w.s.between(0, time.Millisecond), h.end)
}

// end is the handler's last action: a write with its fence, which its store
// refuses when a later owner has written.
func (h *simHandler) end() {
	r := h.r
	w := r.w
	if !h.atWork() || w.s.now < h.until {
		return
	}
	var err error
	switch {
	case h.abandons:
		err = h.endAbandon()
	case h.cancelled || w.s.chance(w.s.faults.failWork) || w.s.fails(h.msg.key):
		err = errHandlerFailed
		w.s.check.attempts.ended(w, h)
	case !w.s.check.processed(w, h):
		err = &FencedError{h.rejectedBy}
	}
	delete(r.handlers, h.call)
	w.deliver(handledInput{r.number, h.call, err})
}

// waiting is puller.waiting.
func (w *simWorker) waiting(sl *simSlot, silent bool, a *answer, reply func(error)) {
	askConsumer := func() {
		w.api(func() error {
			if sl.consumer == nil || w.s.broken.deafUnpin {
				return errNoConsumer
			}
			a.yes, a.sequence = sl.waits(), sl.consumer.dseq-1
			return nil
		}, reply)
	}
	if !silent {
		askConsumer()
		return
	}
	w.empty(sl.slot%w.s.cfg.Shards, func(empty bool) {
		if empty {
			a.empty = true
			reply(nil)
		} else {
			askConsumer()
		}
	})
}

// simSeenStream is what a worker has last seen of a stream.
type simSeenStream struct {
	known bool
	at    time.Duration
	empty bool
}

// empty is emptyStreams.empty.
func (w *simWorker) empty(shard int, then func(bool)) {
	seen := &w.seenStreams[shard]
	if seen.known && w.s.now-seen.at < w.s.cfg.silenceCheck()/2 {
		empty := seen.empty
		w.later(0, func() { then(empty) })
		return
	}
	at, messages := w.s.now, 0
	w.api(func() error {
		messages = w.s.srv.messages(shard)
		return nil
	}, func(err error) {
		*seen = simSeenStream{true, at, err == nil && messages == 0}
		then(seen.empty)
	})
}

// ask finds the answer to a question.
func (w *simWorker) ask(e askEffect) {
	sl, s := w.s.srv.slot(e.place), w.s
	s.check.attempts.handsOff(w.delivery.runs[e.run])
	var a answer
	reply := func(err error) {
		if a.err == nil {
			a.err = err
		}
		w.deliver(answerInput{e.run, e.number, a})
	}
	switch q := e.question.(type) {
	case askStream:
		w.look(e.slot, func(what string, err error) {
			a.what = what
			reply(err)
		})
	case askWaiting:
		w.waiting(sl, q.silent, &a, reply)
	case askFirst:
		w.api(func() error {
			if stored := sl.stream(); len(stored) > 0 {
				a.sequence = stored[0].seq
			}
			return nil
		}, reply)
	case askStored:
		w.api(func() error { a.yes, a.what = s.srv.has(e.place, q.original); return nil }, reply)
	case askTake:
		w.replace(e.place, nil, func(err error) {
			s.logf("%s: slot %d, stale pin, %v", w, e.slot, err)
			reply(err)
		})
	case askCreate:
		w.create(e.place, reply)
	case askRenew:
		w.api(func() error { sl.remove(); return nil }, func(err error) {
			if err != nil {
				reply(err)
				return
			}
			w.create(e.place, reply)
		})
	case askUnpin:
		w.unpinUntilDone(e.place, func() {
			if !s.quiet && s.chance(20*s.faults.dieHere) {
				w.crash() // between UNPIN and NAK
				return
			}
			reply(nil)
		})
	case askReset:
		w.resetUntilDone(e.place, func() { reply(nil) })
	case askConfirm:
		d := q.mail.body.(simDelivery)
		w.api(func() error { _ = sl.ack(d); return nil }, reply)
	default:
		w.askRetry(e, &a, reply)
	}
}

// waits reports whether a consumer has something to deliver, or delivered and not settled.
func (sl *simSlot) waits() bool {
	c := sl.consumer
	return len(c.pending) > 0 || len(c.redeliver) > 0 || sl.undelivered()
}

// undelivered reports whether a consumer has something to deliver that it never delivered.
func (sl *simSlot) undelivered() bool {
	return slices.ContainsFunc(sl.stream(), func(m simMessage) bool { return m.seq >= sl.consumer.sseq })
}

// askRetry is a request to the retry stream.
func (w *simWorker) askRetry(e askEffect, a *answer, reply func(error)) {
	r, s := w.runs[e.run], w.s
	sp := s.srv.space(e.place)
	var do func()
	write := false
	switch q := e.question.(type) {
	case askSpace:
		do = func() { a.sequence, a.claims = sp.last(), sp.readClaims(e.place) }
	case askClaim:
		write = true
		if s.broken.unclaimed {
			a.sequence = q.expect
			w.later(0, func() { reply(nil) })
			return
		}
		do = func() {
			a.sequence, a.outcome = sp.claim(record.QueueClaim{Slots: e.slots, Slot: e.slot, Fence: record.Fence(q.fence)}, q.expect)
		}
	case askCount:
		do = func() { a.counts, a.recorded = sp.count(e.place), sp.recorded(e.place) }
	case askAttempts:
		if s.broken.unreadAttempts {
			w.later(0, func() { reply(nil) })
			return
		}
		do = func() {
			a.sequence, a.attempts = sp.attemptsOf(q.key)
			if r := w.delivery.runs[e.run]; s.broken.confusedAttempts && r != nil {
				if l := r.lanes.byKey[q.key]; l != nil {
					a.attempts.Sequence, a.attempts.Published = l.first.mail.sequence, l.first.mail.published
				}
			}
		}
	case askStoreAttempts:
		write = true
		if s.broken.unrecorded {
			q.attempts = record.Attempts{}
		}
		do = func() {
			a.sequence, a.outcome = sp.storeAttempts(q.key, q.attempts, q.expect)
			s.check.attempts.recorded(r, q.key, q.attempts, a.outcome)
		}
	case askTail:
		if s.broken.overtaking {
			delete(w.delivery.runs[e.run].retry.queue.keys, q.key)
			w.later(0, func() { reply(nil) })
			return
		}
		do = func() { r.show(sp.of(q.key), a, false) }
	case askHead:
		do = func() {
			r.show(slices.DeleteFunc(sp.of(q.key), func(p simQueued) bool { return p.seq < q.from }), a, true)
		}
	case askErase:
		if s.broken.unerased {
			w.later(0, func() { reply(nil) })
			return
		}
		m := r.original(q.original)
		do = func() { a.yes = s.srv.erase(m) }
	case askRemove:
		if s.broken.freeSoon {
			s.after(s.between(0, 4*time.Second), func() { sp.remove(q.sequence) })
			w.later(0, func() { reply(nil) })
			return
		}
		do = func() { a.yes = sp.remove(q.sequence) }
	case askStoreCopy:
		write = true
		d := q.mail.body.(simDelivery)
		if s.broken.ackUnqueued {
			w.ack(d)
		}
		do = func() { a.sequence, a.outcome = sp.store(d.msg, q.attempts, q.expect) }
	default:
		panic(fmt.Sprintf("question %T", q))
	}
	finished := false
	finish := func(err error) {
		if finished {
			return
		}
		finished = true
		switch {
		case err != nil:
			*a = answer{}
			if write {
				a.outcome = outcomeUnknown
			}
		case a.outcome == outcomeConflict:
			err = errConflict
		}
		reply(err)
	}
	w.link.up(func() {
		if !s.quiet && s.chance(s.faults.lateStore) {
			// It lies somewhere, and is carried out when its sender waits no more.
			s.after(s.between(0, 2*s.cfg.Lease.TTL), func() {
				if s.srv.up {
					do()
				}
			})
			return
		}
		do()
		if !s.quiet && s.chance(s.faults.loseReply) {
			return
		}
		w.link.down(func() {
			finish(nil)
		})
	})
	w.later(apiTimeout, func() { finish(errNoReply) })
}

// read reads the first or the last of a key's messages in the retry queue.
func (r *simRun) show(all []simQueued, a *answer, first bool) {
	if len(all) == 0 {
		return
	}
	p := all[len(all)-1]
	if first {
		p = all[0]
		r.read[p.seq] = p
	}
	a.queued = &queuedMessage{Message: r.w.message(p.msg), seq: p.seq, finest: p.msg.fine, attempts: p.attempts}
}

// original returns the message of the main stream that one of the retry queue is a copy of.
func (r *simRun) original(o original) simMessage {
	for _, p := range r.read {
		if p.msg.original() == o {
			return p.msg
		}
	}
	panic("a message is erased that was never read")
}

// take is Worker.take.
func (w *simWorker) take(e takeEffect) {
	w.replace(e.place, e.retire, func(err error) { w.step(takenInput{slot: e.slot, run: e.run, err: err}) })
}

// replace is puller.replace.
func (w *simWorker) replace(at place, former []place, then func(error)) {
	w.proceedTakeover(newTakeoverSteps(at, former), then)
}

func (w *simWorker) proceedTakeover(t *takeoverSteps, then func(error)) {
	stage, of := t.next()
	sl := w.s.srv.slot(of)
	did := func(err error) {
		t.did(err)
		w.proceedTakeover(t, then)
	}
	if w.s.broken.leftOut[stage] {
		w.later(0, func() { did(nil) })
		return
	}
	switch stage {
	case stepRetire:
		w.retire(sl, w.s.now, did)
	case stepUnpin:
		w.api(sl.unpin, did)
	case stepReset:
		w.api(func() error {
			err := sl.reset()
			if err == nil {
				w.s.check.resetDone(of)
			}
			return err
		}, did)
	case stepCreate:
		w.create(of, did)
	case stepDone:
		then(t.err)
	}
}

var errNotRemoved = errors.New("what is settled is not removed yet")

// retire is slotConsumers.retire.
func (w *simWorker) retire(sl *simSlot, began time.Duration, then func(error)) {
	w.api(func() error {
		stored := sl.stream()
		settledStays := sl.consumer != nil && len(stored) > 0 && stored[0].seq <= sl.consumer.asflr
		if settledStays && w.s.now < began+removalWait {
			return errNotRemoved
		}
		sl.remove()
		return nil
	}, func(err error) {
		if errors.Is(err, errNotRemoved) {
			w.later(10*time.Millisecond, func() { w.retire(sl, began, then) })
			return
		}
		then(err)
	})
}

// create is puller.createConsumer.
func (w *simWorker) create(at place, then func(error)) {
	w.lookAtStreams()
	sl := w.s.srv.slot(at)
	w.api(func() error {
		err := sl.create()
		if err == nil {
			w.s.check.resetDone(at)
		}
		return err
	}, then)
}

// look is puller.lookAtStream.
func (w *simWorker) look(slot int, then func(string, error)) {
	shard := slot % w.s.cfg.Shards
	forgets, last := w.delivery.memory.known(shard)
	var made time.Duration
	var seen uint64
	w.api(func() error {
		made, seen = w.s.srv.made, w.s.srv.seqs[shard]
		return nil
	}, func(err error) {
		what := ""
		if err == nil && !w.s.broken.bareSequences {
			what = w.delivery.memory.saw(shard, forgets, last, simEpoch.Add(made), seen)
		}
		then(what, err)
	})
}

// lookAtStreams is puller.lookAtStreams.
func (w *simWorker) lookAtStreams() {
	if w.looking > 0 {
		return
	}
	for shard := range w.s.cfg.Shards {
		w.looking++
		w.lookUntilSure(shard, 1)
	}
}

func (w *simWorker) lookUntilSure(shard, try int) {
	forgets := w.delivery.memory.forgets(shard)
	w.look(shard, func(what string, err error) {
		pause := pullRetry
		switch {
		case err != nil:
			try, pause = 0, time.Second
		case what == "":
			w.looking--
			return
		case try >= looksToBelieve:
			if _, was := w.delivery.memory.forget(shard, forgets); was {
				w.deliver(rolledBackInput{shard})
			}
			try = 0
		}
		w.later(pause, func() { w.lookUntilSure(shard, try+1) })
	})
}

// What the checker knows of the delivery.

// simSettled is the last message of a key that a worker has settled.
type simSettled struct {
	message simMessage
	forgets uint64 // of what the worker remembers of the stream
}

// settles notes that a worker has settled a message.
func (c *simChecker) settles(w *simWorker, m simMessage) {
	if w.settled == nil {
		w.settled = make(map[int]simSettled)
	}
	w.settled[m.key] = simSettled{m, w.delivery.memory.forgets(m.fine)}
}

// beginsByRight: again, a worker begins nothing that it has settled, unless it has found that
// the stream is another one since, or that was put into the retry queue and the server has lost
// it there; lease, a handler begins only while its worker's lease is valid.
func (c *simChecker) beginsByRight(w *simWorker, h *simHandler) {
	if !w.trusted() {
		c.fail("lease", "%v begins %d (key %d, %d) without a valid lease", w, h.msg.seq, h.msg.key, h.msg.n)
	}
	copyGone := c.waits(h.msg) && !c.s.srv.isQueued(h.msg) // with a power cut
	settled := w.settled[h.msg.key] == simSettled{h.msg, w.delivery.memory.forgets(h.msg.fine)}
	if settled && h.queued == nil && !h.abandons && !copyGone {
		c.fail("again", "%v begins %d (key %d, %d), which it has settled", w, h.msg.seq, h.msg.key, h.msg.n)
	}
}

// interrupted: interrupt, a worker whose lease is invalid has interrupted its handlers.
func (c *simChecker) interrupted(w *simWorker) {
	for _, r := range w.runs {
		for _, h := range r.handlers {
			if !h.cancelled {
				c.fail("interrupt", "%v, whose lease is invalid, lets the handler of %d (key %d, %d) work on", w, h.msg.seq, h.msg.key, h.msg.n)
			}
		}
		for _, v := range r.services {
			if !v.cancelled && !v.forgotten {
				c.fail("interrupt", "%v, whose lease is invalid, lets the handler of a call of key %s work on", w, v.request.key)
			}
		}
	}
}
