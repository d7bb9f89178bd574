package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// This file decides what a worker does with the messages of the slots that it holds.
// Like the machine it has no I/O, no goroutine and no clock: step takes an input and
// returns effects, and puller carries those out. The simulator runs this very code.
//
// One holding of a slot by this worker is a slotRun. Its life:
//
//  1. runWaiting: handlers that were begun for the same keys before, by an earlier
//     holding, have not all returned.
//  2. runPulling: it pulls, and handles one message at a time.
//  3. runGivingUp: the slot is handed off. The server is asked to take the pin off,
//     and then what was delivered and not begun goes back to it.
//  4. runDropped: the slot is another worker's already. A handler may still have to
//     return; nothing is acknowledged any more.
//
// Whatever takes time is a question: askEffect asks it, answerInput answers it. A
// slotRun asks one question at a time, and begins nothing before the answer is there.

// delivery is what a worker knows of the messages of its slots.
type delivery struct {
	cfg      Config
	abandons bool    // the handler is an Abandoner
	memory   *memory // of what was settled
	retries  *retryCounts

	slots map[place]*slotRun  // those held: what comes for any other goes back
	runs  map[uint64]*slotRun // those that have not ended
	last  uint64              // number of the latest run

	// The lease lets messages begin until a moment, unless suspended. The machine
	// suspends with its next step only; a process that was stopped and continues
	// must not begin anything before that step.
	suspended bool
	until     time.Time

	now time.Time
	out []deliveryEffect
}

func newDelivery(cfg Config, abandons bool, remembers *memory, counts *retryCounts) *delivery {
	return &delivery{cfg: cfg, abandons: abandons, memory: remembers, retries: counts,
		slots: make(map[place]*slotRun), runs: make(map[uint64]*slotRun), suspended: true}
}

// deliveryInput is something that has happened.
type deliveryInput interface{ deliveryInput() }

type (
	// heldInput: the slot is this worker's, or has a later fence.
	heldInput struct {
		place
		fence Fence
	}
	// handOffInput: the slot is to end with the message that it has.
	handOffInput struct{ releaseEffect }
	// forcedInput: the slot ends although its handler has not returned in time.
	forcedInput struct{ place }
	// droppedInput: the slot is another worker's.
	droppedInput struct{ place }
	// validityInput: the lease became invalid, or is valid again.
	validityInput struct{ valid bool }
	// mailInput: the server has answered a pull of the slot's consumer.
	mailInput struct {
		place
		mail *mail
	}
	// handledInput: the handler of a run has returned.
	handledInput struct {
		run uint64
		err error
	}
	// answerInput answers the question of that number.
	answerInput struct {
		run, question uint64
		answer
	}
	// unsentInput: a pull could not be sent.
	unsentInput struct {
		run   uint64
		serie int
	}
	// wakeInput: the time of a wakeEffect has come.
	wakeInput struct{ run uint64 }
	// progressInput: it is time to tell the server of messages that are worked on.
	progressInput struct{}
	// closeInput: every slot ends.
	closeInput struct{}
)

func (heldInput) deliveryInput()     {}
func (handOffInput) deliveryInput()  {}
func (forcedInput) deliveryInput()   {}
func (droppedInput) deliveryInput()  {}
func (validityInput) deliveryInput() {}
func (mailInput) deliveryInput()     {}
func (handledInput) deliveryInput()  {}
func (answerInput) deliveryInput()   {}
func (unsentInput) deliveryInput()   {}
func (wakeInput) deliveryInput()     {}
func (progressInput) deliveryInput() {}
func (closeInput) deliveryInput()    {}

// deliveryEffect is something to do. Effects are carried out in their order, and
// before the next step; what takes time continues elsewhere and comes back as an input.
type deliveryEffect interface{ deliveryEffect() }

type (
	// beganEffect: a run was made. Whatever else names it comes later.
	beganEffect struct {
		place
		run uint64
	}
	// fetchEffect sends a pull, with the pin that the run has.
	fetchEffect struct {
		place
		run   uint64
		serie int
		pin   string
	}
	// handleEffect calls the handler, and handledInput says what came of it.
	handleEffect struct {
		place
		run     uint64
		mail    *mail          // of the main stream
		parked  *parkedMessage // or from the retry stream
		message Message
		abandon bool  // Abandoner.Abandon is called
		failure error // with this
	}
	// interruptEffect ends the context of a run's handler.
	interruptEffect struct{ run uint64 }
	// settleEffect answers a message: it is acknowledged, terminated or goes back.
	settleEffect struct {
		place
		mail *mail
		how  settlement
	}
	// returnEffect returns a message for a slot that is not held: the pin first, or
	// the server would deliver it here again.
	returnEffect struct {
		place
		mail *mail
	}
	// workingEffect tells the server that a message is worked on.
	workingEffect struct {
		place
		mail *mail
	}
	// askEffect asks a question.
	askEffect struct {
		place
		run, number uint64
		question    question
	}
	// lookEffect has all streams looked at.
	lookEffect struct{}
	// rolledBackEffect reports that the stream of a slot is not the one that it was.
	rolledBackEffect struct {
		slot      int
		what      string
		forgotten int
	}
	// releasedEffect tells a Releaser.
	releasedEffect struct{ slots Slots }
	// reportEffect gives the machine an input.
	reportEffect struct{ input input }
	// forcedEffect takes the pin off a slot that was forced, and then reports.
	forcedEffect struct {
		place
		report slotReleasedInput
	}
	// warnEffect logs.
	warnEffect struct {
		text string
		args []any
	}
	// wakeEffect has a run woken, with a wakeInput, at a moment.
	wakeEffect struct {
		run uint64
		at  time.Time
	}
	// endedEffect: nothing of a run is left.
	endedEffect struct{ run uint64 }
)

func (beganEffect) deliveryEffect()      {}
func (fetchEffect) deliveryEffect()      {}
func (handleEffect) deliveryEffect()     {}
func (interruptEffect) deliveryEffect()  {}
func (settleEffect) deliveryEffect()     {}
func (returnEffect) deliveryEffect()     {}
func (workingEffect) deliveryEffect()    {}
func (askEffect) deliveryEffect()        {}
func (lookEffect) deliveryEffect()       {}
func (rolledBackEffect) deliveryEffect() {}
func (releasedEffect) deliveryEffect()   {}
func (reportEffect) deliveryEffect()     {}
func (forcedEffect) deliveryEffect()     {}
func (warnEffect) deliveryEffect()       {}
func (wakeEffect) deliveryEffect()       {}
func (endedEffect) deliveryEffect()      {}

// settlement is what the server is told of a message.
type settlement uint8

const (
	settleAck settlement = iota
	settleTerm
	settleNak
)

// question is what a run asks.
type question interface{ question() }

type (
	askStream  struct{}             // what contradicts that the stream is the one it was: answer.what
	askWaiting struct{}             // whether the consumer has messages to deliver, or delivered and not settled: yes
	askFirst   struct{}             // the first stored message: sequence, 0 for none
	askTake    struct{}             // the pin off and the consumer reset, or created
	askCreate  struct{}             // the consumer created, if it is gone
	askRenew   struct{}             // the consumer deleted and created
	askUnpin   struct{}             // the pin off, tried until it is
	askConfirm struct{ mail *mail } // that the server knows this acknowledgement
	askSpace   struct{}             // of the retry stream: sequence, claims
	askClaim   struct {
		fence  Fence
		expect uint64
	}
	askCount struct{} // counts
	askTail  struct{ key string }
	askHead  struct {
		key  string
		from uint64 // sequence, the first has 1
	}
	askErase     struct{ original } // yes: it was there
	askRemove    struct{ sequence uint64 }
	askStoreCopy struct {
		mail     *mail
		message  Message
		attempts int
		expect   uint64
	}
)

func (askStream) question()    {}
func (askWaiting) question()   {}
func (askFirst) question()     {}
func (askTake) question()      {}
func (askCreate) question()    {}
func (askRenew) question()     {}
func (askUnpin) question()     {}
func (askConfirm) question()   {}
func (askSpace) question()     {}
func (askClaim) question()     {}
func (askCount) question()     {}
func (askTail) question()      {}
func (askHead) question()      {}
func (askErase) question()     {}
func (askRemove) question()    {}
func (askStoreCopy) question() {}

// answer answers any question; each uses some of the fields.
type answer struct {
	err      error
	what     string
	yes      bool
	sequence uint64
	claims   []lotClaim
	counts   map[string]int
	parked   *parkedMessage // nil: none
	outcome  outcome
}

// mail is one thing that a pull brought: a message, or the status that ends a pull.
type mail struct {
	status      string // "" for a message
	description string
	serie       int // of the pull that a status ends

	pin        string // of the consumer, as the message says
	unreadable bool   // it is not for handlers, and was logged
	original
	finest  int // slot of the finest division
	message Message
	body    any // what the shell needs to settle it
}

// valid reports whether a message may begin.
func (d *delivery) valid() bool { return !d.suspended && d.now.Before(d.until) }

func (d *delivery) do(e deliveryEffect) { d.out = append(d.out, e) }

func (d *delivery) note(e event.Event) { d.do(reportEffect{noteInput{e}}) }

// step takes in what has happened and returns what to do.
func (d *delivery) step(now time.Time, in deliveryInput) []deliveryEffect {
	d.now = now
	switch in := in.(type) {
	case heldInput:
		d.hold(in.place, in.fence)
	case handOffInput:
		d.handOff(in)
	case forcedInput:
		if r := d.slots[in.place]; r != nil {
			r.drop()
			d.do(forcedEffect{in.place, slotReleasedInput{place: in.place, claim: r.fence.Claim, forced: true}})
		}
	case droppedInput:
		if r := d.slots[in.place]; r != nil {
			r.drop()
			d.do(releasedEffect{Slots{in.slots, []int{in.slot}}})
		}
	case validityInput:
		d.validity(in.valid)
	case mailInput:
		d.deliver(in.place, in.mail)
	case handledInput:
		d.of(in.run, func(r *slotRun) { r.handled(in.err) })
	case answerInput:
		d.of(in.run, func(r *slotRun) { r.answered(in) })
	case unsentInput:
		d.of(in.run, func(r *slotRun) {
			if in.serie == r.pull.serie {
				r.pull.at = d.now.Add(pullRetry)
			}
		})
	case wakeInput:
		d.of(in.run, func(r *slotRun) { r.armed = time.Time{} })
	case progressInput:
		for _, r := range inOrder(d.slots) {
			if r.hand != nil && !r.recalling && d.valid() {
				d.do(workingEffect{r.place, r.hand})
			}
		}
	case closeInput:
		for _, r := range inOrder(d.slots) {
			r.drop()
		}
	}
	out := d.out
	d.out = nil
	return out
}

// of gives something to a run, unless it has ended, and lets it proceed.
func (d *delivery) of(run uint64, give func(*slotRun)) {
	if r := d.runs[run]; r != nil {
		give(r)
		r.proceed()
	}
}

func (d *delivery) hold(at place, fence Fence) {
	if r := d.slots[at]; r != nil {
		r.fence = fence
		r.proceed()
		return
	}
	d.last++
	r := &slotRun{d: d, place: at, number: d.last, fence: fence, before: make(map[*slotRun]bool)}
	if d.cfg.Retry.Enabled {
		r.retry = newSlotRetry(d.cfg.Retry, at, fence)
	}
	// A run that was dropped may have a handler that has yet to see it, of this slot
	// or of one of another division with some of its keys.
	for _, o := range d.runs {
		if o.place == at || o.division != at.division && at.shares(o.place) {
			r.before[o] = true
		}
	}
	d.slots[at], d.runs[r.number] = r, r
	d.do(beganEffect{at, r.number})
	if len(r.before) == 0 {
		r.start()
	}
}

// shares reports whether two slots, of whatever divisions, have keys in common.
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
	r.releasing, r.final, r.leave = true, in.final, in.leave
	d.note(event.Event{Kind: event.SlotReleasing, Slot: in.slot, Busy: r.ended != nil})
	r.proceed()
}

// validity lets no message begin and interrupts the handlers, or lets messages begin
// again, the interrupted ones from the start. A worker whose lease was invalid may have
// been disconnected, and the server forgets the pulls of a client without a word; so
// every slot pulls again. The server may also have been restored from a copy meanwhile:
// what waits in the retry queue is counted again, and what was not begun comes again.
func (d *delivery) validity(valid bool) {
	d.suspended = !valid
	if valid {
		d.do(lookEffect{})
	}
	for _, r := range inOrder(d.slots) {
		if !valid {
			r.interrupt()
		}
		r.pull.renew = valid
		if valid && r.forLease {
			r.rest = time.Time{}
		}
		if valid && r.retry != nil {
			r.retry.lot.restored()
		}
		r.proceed()
	}
}

func (d *delivery) deliver(at place, m *mail) {
	switch r := d.slots[at]; {
	case r != nil:
		r.box = append(r.box, m)
		r.proceed()
	case m.status == "":
		d.do(returnEffect{at, m})
	}
}
