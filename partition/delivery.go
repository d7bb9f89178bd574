package partition

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// This file decides what a worker does with the messages of the slots that it holds.
// Like the machine it has no I/O, no goroutine and no clock: step takes an input and
// returns effects, and puller carries those out. The simulator runs this very code.
//
// One holding of a slot by this worker is a slotRun. Its life:
//
//  1. runWaiting: handlers that were begun for the same keys before, by an earlier
//     holding, have not all returned.
//  2. runPulling: it pulls, and handles one message at a time of each key.
//  3. runGivingUp: the slot is handed off. The server is asked to take the pin off,
//     and then what was delivered and not begun goes back to it.
//  4. runDropped: the slot is another worker's already. A handler may still have to
//     return; nothing is acknowledged any more.
//
// Whatever takes time is a question: askEffect asks it, answerInput answers it. A
// slotRun asks one question at a time, and begins nothing before the answer is there.

// delivery is what a worker knows of the messages of its slots: the runs, and which of
// them hold a slot. It hands each input to the run that it is for.
type delivery struct {
	deliveryCore

	slots map[place]*slotRun  // those held: what comes for any other goes back
	runs  map[uint64]*slotRun // those that have not ended
	last  uint64              // number of the latest run
}

func newDelivery(cfg Config, remembers *memory, counts *retryCounts) *delivery {
	d := &delivery{
		deliveryCore: deliveryCore{cfg: cfg, memory: remembers, retries: counts, batch: cfg.Delivery.pullBatch(), pulled: make(map[place]bool),
			handlers: handlerLimit{most: cfg.Delivery.MaxHandlers}, suspended: true},
		slots: make(map[place]*slotRun),
		runs:  make(map[uint64]*slotRun),
	}
	d.inbox = newRequestInbox(&d.deliveryCore)
	return d
}

// step takes in what has happened and returns what to do.
func (d *delivery) step(now time.Time, in deliveryInput) []deliveryEffect {
	d.now = now
	switch in := in.(type) {
	case heldInput:
		d.hold(in)
	case handOffInput:
		d.handOff(in)
	case forcedInput:
		d.force(in.place)
	case droppedInput:
		d.drop(in.place)
	case validityInput:
		d.validity(in.valid)
	case rolledBackInput:
		d.pullAgain(in.slot)
	case mailInput:
		d.deliver(in.place, in.mail)
	case handledInput:
		d.of(in.run, func(r *slotRun) { r.handled(in.call, in.err) })
	case answerInput:
		d.of(in.run, func(r *slotRun) { r.answered(in) })
	case confirmedInput:
		d.of(in.run, func(r *slotRun) { r.confirmed(in.original) })
	case unsentInput:
		d.of(in.run, func(r *slotRun) { r.pull.unsent(in.pullNumber) })
	case requestInput:
		d.request(in.request)
	case servedInput:
		d.of(in.run, func(r *slotRun) { r.served(in) })
	case loadedInput:
		d.of(in.run, func(r *slotRun) { r.loaded(in.complete) })
	case expiredInput:
		d.inbox.expired(in.number)
	case wakeInput:
		d.of(in.run, func(r *slotRun) { r.armed = time.Time{} })
	case progressInput:
		d.progress()
	case closeInput:
		d.close()
	}
	d.grant()
	d.inbox.stepped()
	out := d.out
	d.out = nil
	return out
}

// mostReused bounds the effects that recycle keeps room for: more are of a rare step, such as the loss
// of the lease.
const mostReused = 256

// recycle lets the next step use the effects that step has returned, which are carried out.
func (d *delivery) recycle(out []deliveryEffect) {
	if cap(out) <= mostReused {
		clear(out)
		d.out = out[:0]
	}
}

// force ends a slot whose handler has not returned in time.
func (d *delivery) force(at place) {
	if r := d.slots[at]; r != nil {
		r.drop()
		d.do(forcedEffect{at, slotReleasedInput{place: at, claim: r.fence.Claim, forced: true}})
	}
}

// drop ends a slot that is another worker's.
func (d *delivery) drop(at place) {
	if r := d.slots[at]; r != nil {
		r.drop()
		r.tellReleased(at.only())
	}
}

// close ends every slot.
func (d *delivery) close() {
	for _, r := range inOrder(d.slots) {
		r.drop()
	}
	d.inbox.close()
}

// progress tells the server what is worked on.
func (d *delivery) progress() {
	if !d.valid() {
		return
	}
	for _, r := range inOrder(d.slots) {
		for _, m := range r.lanes.known() {
			d.do(workingEffect{r.place, m})
		}
	}
}

// grant lets runs proceed that have waited for a permit, as long as one is free. A run that
// has no use for it any more gives it back, so each run has at most one turn.
func (d *delivery) grant() {
	for p := d.handlers.next(); p != nil; p = d.handlers.next() {
		d.of(p.run, func(*slotRun) {})
	}
}

// of gives something to a run, unless it has ended, and lets it proceed.
func (d *delivery) of(run uint64, give func(*slotRun)) {
	if r := d.runs[run]; r != nil {
		give(r)
		r.proceed()
	}
}

// request takes in a request, which the run of its slot may serve.
func (d *delivery) request(m *request) {
	r := d.slots[m.place]
	d.inbox.arrive(m, r)
	if r != nil {
		r.proceed()
	}
}

func (d *delivery) hold(in heldInput) {
	at := in.place
	if r := d.slots[at]; r != nil {
		r.refence(in.fence)
		d.inbox.settle(r)
		r.proceed()
		return
	}
	d.last++
	r := newSlotRun(&d.deliveryCore, d, in, d.last)
	// A run that was dropped may have a handler that has yet to see it, of this slot
	// or of one of another generation with some of its keys.
	for _, o := range d.runs {
		if o.place == at || o.generation != at.generation && at.shares(o.place) {
			r.before[o] = true
		}
	}
	d.slots[at], d.runs[r.number] = r, r
	d.do(beganEffect{at, r.number})
	if len(r.before) == 0 {
		r.start()
	}
}

// shares reports whether two slots, of whatever generations, have keys in common.
func (p place) shares(q place) bool {
	n := min(p.slots, q.slots)
	return p.slot%n == q.slot%n
}

func (d *delivery) handOff(in handOffInput) {
	r := d.slots[in.place]
	if r == nil {
		d.do(reportEffect{slotReleasedInput{place: in.place, claim: in.claim}})
		return
	}
	r.releasing, r.final, r.leave, r.load.to = true, in.final, in.leave, in.state
	r.stopLoad()
	r.requests.refuseQueued(record.CallMoved)
	d.note(event.Event{Kind: event.SlotReleasing, Slot: in.slot, Busy: r.atWork()})
	r.proceed()
}

// validity lets no message begin, or lets messages begin again.
func (d *delivery) validity(valid bool) {
	d.suspended = !valid
	if valid {
		d.do(lookEffect{})
	}
	for _, r := range inOrder(d.slots) {
		if valid {
			r.resume()
		} else {
			r.suspend()
		}
		r.proceed()
	}
	if !valid {
		d.inbox.refuseAll()
	}
}

// pullAgain pulls again for every slot whose stream is that of a slot, since that stream is
// not the one that it was. A server that deletes a stream often tells nobody who waits for a
// message of it.
func (d *delivery) pullAgain(slot int) {
	for _, r := range inOrder(d.slots) {
		if d.memory.sameStream(r.slot, slot) {
			r.pull.renew = true
			r.proceed()
		}
	}
}

func (d *delivery) deliver(at place, m *mail) {
	switch r := d.slots[at]; {
	case r != nil:
		r.pull.box = append(r.pull.box, m)
		r.proceed()
	case m.status == "":
		d.do(returnEffect{at, m})
	}
}

// notHeld: a run holds its slot no more. From here on, what arrives for the slot goes back.
func (d *delivery) notHeld(r *slotRun) {
	delete(d.slots, r.place)
	d.inbox.leave(r)
}

// runEnded lets those runs start that have waited for this one.
func (d *delivery) runEnded(r *slotRun) {
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

// inOrder returns runs in the order of their slots, so that what is drawn by chance in
// the simulator does not depend on a map.
func inOrder(runs map[place]*slotRun) []*slotRun {
	out := make([]*slotRun, 0, len(runs))
	for _, r := range runs {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *slotRun) int {
		return cmp.Or(cmp.Compare(a.place.number, b.place.number), cmp.Compare(a.slot, b.slot))
	})
	return out
}
