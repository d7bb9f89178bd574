package partition

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// runCore is what the parts of a slotRun share: which run it is, the question that it has
// asked, and the handlers that it has called. One question at a time is open, and a run
// begins nothing before it has the answer.
type runCore struct {
	*deliveryCore
	place
	number uint64
	fence  Fence

	question  uint64 // the number of the question that is open, 0 for none
	questions uint64
	then      func(answer) // what follows its answer

	calls  []*call // handlers that run, in the order in which they were called, which is that of their numbers
	called uint64  // handlers so far
	late   int     // calls that have returned, and are not concluded yet
	// serving has the requests that the handler works on, by key.
	serving map[string]*service

	permit permit // to begin a message
	order  deliveryOrder
	later  Fence // to be used once no handler has the one before; zero: none
}

// call is a handler that runs, or has returned while a question was open: what follows may
// ask the next one, so it waits for the answer.
type call struct {
	number      uint64
	then        func(error)
	abandons    bool // it is called to store a dead letter
	interrupted bool
	returned    bool
	err         error
}

// outcome returns what the handler's error says of the message, nil for success.
func (c *call) outcome() error {
	if c.interrupted && !c.abandons {
		return interrupted(c.err)
	}
	return c.err
}

// ask asks a question; nothing else is begun before its answer.
func (r *runCore) ask(q question, then func(answer)) {
	r.questions++
	r.question, r.then = r.questions, then
	r.do(askEffect{r.place, r.number, r.question, q})
}

// handle calls the handler with the run's permit, and returns the number of the call; then
// follows its end.
func (r *runCore) handle(e handleEffect, then func(error)) uint64 {
	r.handlers.begun(&r.permit)
	return r.call(e, then)
}

// call is handle with the permit of a call that has returned. The run's own may be for another
// message by now.
func (r *runCore) call(e handleEffect, then func(error)) uint64 {
	e.place, e.run = r.place, r.number
	e.message.Slot, e.message.Fence = r.slot, r.fence
	r.called++
	e.call = r.called
	r.calls = append(r.calls, &call{number: r.called, then: then, abandons: e.abandon})
	r.do(e)
	return r.called
}

// conclude takes in what came of a handler that has returned.
func (r *runCore) conclude(c *call) {
	r.forgetCall(c)
	before := r.called
	c.then(c.outcome())
	if r.called == before { // else the handler has been called to abandon the message
		r.handlers.returned()
	}
}

// callOf returns the place of a call in calls.
func (r *runCore) callOf(number uint64) (at int, found bool) {
	return slices.BinarySearchFunc(r.calls, number, func(c *call, number uint64) int { return cmp.Compare(c.number, number) })
}

// returned takes in that a handler has returned.
func (r *runCore) returned(c *call, err error) {
	c.returned, c.err = true, err
	r.late++
}

// forgetCall removes a call that has returned.
func (r *runCore) forgetCall(c *call) {
	at, found := r.callOf(c.number)
	switch {
	case !found:
		return
	case at == 0: // as when handlers take equally long; nothing has to be moved
		r.calls[0] = nil
		r.calls = r.calls[1:]
	default:
		r.calls = slices.Delete(r.calls, at, at+1)
	}
	r.late--
}

// concludeLate concludes the handlers that have returned while a question was open.
func (r *runCore) concludeLate() {
	for r.question == 0 && r.late > 0 {
		at := slices.IndexFunc(r.calls, func(c *call) bool { return c.returned })
		r.conclude(r.calls[at])
	}
}

// admitted reports whether a message may be begun without exceeding MaxHandlers, and with the
// fence that the slot has. If not, the run proceeds when it is its turn.
func (r *runCore) admitted() bool {
	r.takeLaterFence()
	return r.later == Fence{} && r.handlers.admit(&r.permit)
}

// refence takes a later fence of the same owner in. With several messages in flight handlers
// may be at work with the one before, and a store that has seen the later one would reject
// them. So the next one begins when they have returned.
func (r *runCore) refence(f Fence) {
	if !r.several() {
		r.fence = f
		return
	}
	if r.later = f; f == r.fence {
		r.later = Fence{}
	}
	r.takeLaterFence()
}

func (r *runCore) takeLaterFence() {
	if (r.later == Fence{} || r.atWork()) {
		return
	}
	r.memory.refence(r.place, r.fence, r.later)
	r.fence, r.later = r.later, Fence{}
}

// atWork reports whether a handler has to return, on a message or on a request.
func (r *runCore) atWork() bool { return len(r.calls) > 0 || len(r.serving) > 0 }

// interrupt ends the contexts of all handlers.
func (r *runCore) interrupt() {
	for _, key := range slices.Sorted(maps.Keys(r.serving)) {
		if of := r.serving[key]; !of.interrupted {
			of.interrupted = true
			r.do(interruptEffect{r.number, of.call})
		}
	}
	for _, c := range r.calls {
		if !c.interrupted && !c.returned {
			c.interrupted = true
			r.do(interruptEffect{r.number, c.number})
		}
	}
}

// abandonOr has a message abandoned that has failed as often as it may, or that no later attempt
// can succeed with, and continues with what comes of that.
func (r *runCore) abandonOr(m Message, attempts int, err error, then func(error)) {
	failed := err != nil && !isUncounted(err) && !isDiscarded(err)
	enough := attempts >= r.cfg.Retry.Attempts || isHopeless(err)
	// One that failed while the lease was not valid was interrupted.
	if !failed || !r.cfg.Retry.givesUp() || !enough || !r.valid() {
		then(err)
		return
	}
	r.call(handleEffect{message: m, abandon: true, failure: err}, r.abandoned(m, err, then))
}

// abandon has a message abandoned that is not tried, and continues with what comes of that.
func (r *runCore) abandon(m Message, failure error, then func(error)) uint64 {
	return r.handle(handleEffect{message: m, abandon: true, failure: failure}, r.abandoned(m, failure, then))
}

// abandoned tells of the message if it was abandoned, and continues.
func (r *runCore) abandoned(m Message, failure error, then func(error)) func(error) {
	return func(err error) {
		if err == nil {
			r.retries.abandoned.Add(1)
			r.note(event.Event{Kind: event.DeadLettered, Slot: r.slot, Reason: m.Key, Count: m.Attempt, Err: failure.Error()})
		}
		then(err)
	}
}

// queues reports whether a message that has failed that often is to be queued for retry.
// One that failed while the lease was not valid was interrupted.
func (r *runCore) queues(attempts int) bool {
	return !r.cfg.Retry.Disabled && attempts >= r.cfg.Retry.Tries && r.valid()
}

// fencedOff has the machine report a fence rejection, if the handler's error says which
// fence the store has. A fence that was raised meanwhile is not what was rejected.
func (r *runCore) fencedOff(err error) {
	var by *FencedError
	if errors.As(err, &by) && r.fence.Compare(by.Stored) < 0 {
		r.do(reportEffect{fencedInput{place: r.place, fence: r.fence, stored: by.Stored}})
	}
}

// shortestSleep keeps a wake-up in the past from spinning.
const shortestSleep = 2 * time.Millisecond
