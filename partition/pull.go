package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// puller carries out what delivery decides: it pulls for the slots that a worker holds,
// calls the handler, and sends back what comes for any other slot. It has one
// subscription for all of them, which stays when a slot is released: the server may
// still be on its way to deliver to a pull of ours, and what is not listened to is lost
// until AckWait.
//
// The delivery is stepped by any goroutine that has an input for it: the subscription's,
// a handler's, the worker's loop. mu is held while a step's effects are carried out, so
// that they happen in their order; none of them waits for anything.
type puller struct {
	cfg     Config
	layout  layout
	nc      *nats.Conn
	js      jetstream.JetStream
	handler Handler
	abandon func(ctx context.Context, m Message, failure error) error // nil: no message is given up
	guard   guard                                                     // of what is the handler's
	reports *reports
	inbox   string
	sub     *nats.Subscription
	streams *streamWatch
	retry   *retryStore // nil: failing messages are not queued for retry
	retries retryCounts
	pauses  pauses
	calls   handlerCalls
	server  *callServer    // nil: the handler answers no calls
	states  *stateExchange // nil: the handler is no StateMover

	consumers  *slotConsumers
	empty      *emptyStreams
	goroutines *goroutines        // of handlers
	interrupts interrupts         // has its own lock
	end        context.CancelFunc // of the life of consumers and streams

	mu       sync.Mutex
	delivery *delivery
	runs     map[uint64]*running
	places   map[string]place // by consumer, of all slots that were ever held
	wg       sync.WaitGroup   // of handlers and questions
}

// running is what belongs to a slotRun outside of the delivery.
type running struct {
	place
	name    string          // of its consumer
	address string          // of that in the JetStream API
	ctx     context.Context // of its questions
	cancel  context.CancelFunc
	timer   *time.Timer
}

func newPuller(cfg Config, lay layout, nc *nats.Conn, js jetstream.JetStream, h Handler, post func(input)) (*puller, error) {
	p := &puller{cfg: cfg, layout: lay, nc: nc, js: js, handler: h, guard: newGuard(cfg, post), reports: &reports{give: post}, inbox: nc.NewInbox(),
		runs: make(map[uint64]*running), places: make(map[string]place)}
	memory := newMemoryFor(cfg, len(lay.streams()))
	p.delivery = newDelivery(cfg, memory, &p.retries)
	var life context.Context
	life, p.end = context.WithCancel(context.Background())
	p.goroutines = newGoroutines(life)
	if c, ok := find[CallHandler](h); ok {
		p.server = &callServer{cfg: cfg, nc: nc, handler: c, guard: p.guard, interrupts: &p.interrupts, goroutines: p.goroutines, wg: &p.wg, step: p.step}
	}
	p.states = p.newStateExchange()
	p.delivery.loads = p.states != nil
	p.streams = &streamWatch{log: cfg.Logger, layout: lay, js: js, memory: memory, reports: p.reports, life: life}
	// The delivery may be within a step, whose effect this is.
	p.streams.again = func(slot int) { go p.step(rolledBackInput{slot}) }
	p.consumers = &slotConsumers{cfg: cfg, layout: lay, nc: nc, js: js, life: life, look: p.streams.look}
	p.empty = newEmptyStreams(p.consumers.messages, time.Now, cfg.silenceCheck()/2)
	sub, err := nc.Subscribe(p.inbox+".*.*", p.dispatch)
	if err != nil {
		return nil, fmt.Errorf("subscribing for pulled messages: %w", err)
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("subscribing for pulled messages: %w", err)
	}
	p.sub = sub
	return p, nil
}

// newStateExchange returns what moves the states of slots, nil if the handler is no StateMover.
func (p *puller) newStateExchange() *stateExchange {
	h, ok := find[StateMover](p.handler)
	if !ok {
		return nil
	}
	preparer, _ := find[Preparer](p.handler)
	note := func(e event.Event) { p.reports.post(noteInput{e}) }
	return &stateExchange{
		cfg: p.cfg, nc: p.nc, log: p.cfg.Logger, handler: h, guard: p.guard, note: note,
		prepares: statePrepares{preparer: preparer, guard: p.guard, timeout: p.cfg.Rebalance.PrepareTimeout, gather: prepareGather, note: note},
		released: p.released, step: p.step, wg: &p.wg,
		offers: make(map[place]*stateOffer), loads: make(map[uint64]context.CancelFunc),
	}
}

// step gives the delivery one input and carries its effects out.
func (p *puller) step(in deliveryInput) {
	var after []func()
	p.mu.Lock()
	if p.interrupts.ahead() && !p.delivery.suspended {
		// The handlers were interrupted before the machine knows why. What they return now
		// must not count as an attempt, and nothing may begin. The machine is told of the
		// same loss, so it lets messages begin again.
		after = p.executeAll(p.delivery.step(time.Now(), validityInput{false}), after)
	}
	after = p.executeAll(p.delivery.step(time.Now(), in), after)
	p.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// executeAll carries the effects of a step out; mu is held.
func (p *puller) executeAll(effects []deliveryEffect, after []func()) []func() {
	for _, e := range effects {
		after = p.execute(e, after)
	}
	p.delivery.recycle(effects)
	return after
}

// execute carries one effect out; mu is held. What calls the user's code goes to after,
// with what must follow it.
func (p *puller) execute(e deliveryEffect, after []func()) []func() {
	switch e := e.(type) {
	case beganEffect:
		r := &running{place: e.place, name: p.layout.consumer(e.place), address: p.layout.address(e.place)}
		r.ctx, r.cancel = context.WithCancel(context.Background())
		p.runs[e.run], p.places[r.name] = r, e.place
	case fetchEffect:
		p.fetch(e)
	case handleEffect:
		p.handle(e)
	case serveEffect, replyEffect, expiryEffect:
		p.server.execute(e)
	case loadEffect, stopLoadEffect, exportEffect:
		p.states.execute(e)
	case interruptEffect:
		p.interrupts.end(handlerCall(e))
	case settleEffect:
		p.settle(e)
	case confirmEffect:
		p.confirm(e)
	case returnEffect:
		go p.consumers.sendBack(e.mail.body.(*nats.Msg))
	case workingEffect:
		_ = e.mail.body.(*nats.Msg).InProgress()
	case askEffect:
		r := p.runs[e.run]
		p.wg.Go(func() { p.step(answerInput{e.run, e.number, p.answer(r, e.question)}) })
	case lookEffect:
		p.streams.look()
	case rolledBackEffect:
		p.streams.rolledBack(e.slot, e.what, e.forgotten)
	case releasedEffect:
		return append(after, func() { p.released(e.slots) })
	case reportEffect:
		return p.report(e.input, after)
	case forcedEffect:
		address := p.layout.address(e.place)
		go func() {
			p.consumers.unpinUntilDone(address)
			p.reports.post(e.report)
		}()
	case warnEffect:
		p.cfg.Logger.Warn(e.text, e.args...)
	case wakeEffect:
		p.wake(e)
	case endedEffect:
		p.ended(e.run)
	}
	return after
}

// report gives the machine an input, but not before what comes after the step.
func (p *puller) report(in input, after []func()) []func() {
	if after == nil {
		p.reports.post(in)
		return nil
	}
	return append(after, func() { p.reports.post(in) })
}

// ended lets go of what belonged to a run.
func (p *puller) ended(run uint64) {
	r := p.runs[run]
	delete(p.runs, run)
	r.cancel()
	if r.timer != nil {
		r.timer.Stop()
	}
}

// wake has a run woken at a moment.
func (p *puller) wake(e wakeEffect) {
	r := p.runs[e.run]
	d := max(time.Until(e.at), shortestSleep)
	if r.timer == nil {
		r.timer = time.AfterFunc(d, func() { p.step(wakeInput{e.run}) })
		return
	}
	r.timer.Reset(d)
}

func (p *puller) hold(e holdEffect)       { p.step(heldInput{e.place, e.fence, e.handed, e.state}) }
func (p *puller) release(e releaseEffect) { p.step(handOffInput{e}) }
func (p *puller) force(at place)          { p.step(forcedInput{at}) }
func (p *puller) dropSlot(at place)       { p.step(droppedInput{at}) }
func (p *puller) suspend(on bool)         { p.step(validityInput{!on}) }
func (p *puller) inProgress()             { p.step(progressInput{}) }

// trustUntil says until when messages may begin.
func (p *puller) trustUntil(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delivery.until = t
}

func (p *puller) released(s Slots) {
	if h, ok := find[Releaser](p.handler); ok && len(s.Slots) > 0 {
		_ = p.guard.call("Released", func() error { h.Released(s); return nil })
	}
}

// close ends every run and waits for its handlers.
func (p *puller) close() {
	p.step(closeInput{})
	if p.states != nil {
		p.states.close()
	}
	p.end()
	p.wg.Wait()
	// What arrives until the server has handled the end of the subscription
	// is still sent back.
	_ = p.sub.Drain()
	_ = p.nc.FlushTimeout(apiTimeout)
}

// dispatch is the subscription's callback.
func (p *puller) dispatch(msg *nats.Msg) {
	if run, of, is := p.confirmation(msg); is {
		if !isStatus(msg) { // nobody has the acknowledgement
			p.step(confirmedInput{run, of})
		}
		return
	}
	consumer, m := p.read(msg)
	p.mu.Lock()
	at, known := p.places[consumer]
	p.mu.Unlock()
	switch {
	case consumer == "":
		p.cfg.Logger.Warn("A message that no consumer delivered is ignored.", "subject", msg.Subject)
	case known:
		p.step(mailInput{at, m})
	case m.status == "":
		go p.consumers.sendBack(msg)
	}
}

func isStatus(msg *nats.Msg) bool { return len(msg.Data) == 0 && msg.Header.Get("Status") != "" }

// read returns the consumer that a message or a status is of, and what it says.
func (p *puller) read(msg *nats.Msg) (consumer string, m *mail) {
	m = &mail{body: msg}
	if isStatus(msg) {
		m.status, m.description = msg.Header.Get("Status"), msg.Header.Get("Description")
		rest, ok := strings.CutPrefix(msg.Subject, p.inbox+".")
		if !ok {
			return "", m
		}
		consumer, pullNumber, _ := strings.Cut(rest, ".")
		m.pullNumber = pullOf(pullNumber)
		return consumer, m
	}
	_, consumer = originOf(msg.Reply)
	m.pin = msg.Header.Get("Nats-Pin-Id")
	meta, err := msg.Metadata()
	if err != nil {
		p.cfg.Logger.Error("A message without JetStream metadata was delivered.", "subject", msg.Subject, "err", err)
		m.unreadable = true
		return consumer, m
	}
	finest, key, published, err := p.layout.parse(msg.Subject)
	if err != nil {
		p.cfg.Logger.Error("A message of another layout was delivered.", "subject", msg.Subject, "err", err)
		m.unreadable = true
		return consumer, m
	}
	m.number, m.behind = meta.Sequence.Consumer, meta.NumPending
	m.original, m.finest = original{meta.Sequence.Stream, meta.Timestamp.UnixNano()}, finest
	m.message = Message{Subject: published, Key: JoinKey(key...), Data: msg.Data, Header: msg.Header,
		Sequence: meta.Sequence.Stream, Published: meta.Timestamp, Delivered: meta.NumDelivered}
	return consumer, m
}

func (p *puller) fetch(e fetchEffect) {
	r := p.runs[e.run]
	body := record.Encode(pullRequest{Batch: e.batch, Expires: pullExpiry, Group: priorityGroup, ID: e.pin})
	reply := p.inbox + "." + r.name + "." + strconv.Itoa(e.pullNumber)
	if err := p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+r.address, reply, body); err != nil {
		go p.step(unsentInput{e.run, e.pullNumber})
	}
}

// handle calls the handler, in a goroutine of its own.
func (p *puller) handle(e handleEffect) {
	m, this := e.message, handlerCall{e.run, e.call}
	ctx, cancel := context.WithCancel(context.Background())
	p.interrupts.begin(this, cancel)
	if e.mail != nil {
		if d, felt := p.pauses.end(e.place, m.Published, time.Now()); felt {
			p.reports.post(noteInput{event.Event{Kind: event.SlotResumed, Slot: e.slot, Duration: d}})
		}
	}
	m.Sequence = p.layout.sequence(e.slot, m.Sequence)
	callback, call := "Handle", p.handler.Handle
	returned := func(error) {}
	if e.abandon {
		callback, call = "DeadLetter", func(ctx context.Context, m Message) error {
			return p.abandon(ctx, m, e.failure)
		}
	} else {
		returned = p.calls.begin()
	}
	work := func() error {
		if d := p.cfg.Delivery.HandlerTimeout; d > 0 {
			bounded, stop := context.WithTimeout(ctx, d)
			defer stop()
			return call(bounded, m)
		}
		return call(ctx, m)
	}
	then := func(err error) {
		defer p.wg.Done()
		returned(err)
		cancel()
		p.interrupts.returned(this)
		p.step(handledInput{e.run, e.call, err})
	}
	p.wg.Add(1)
	p.goroutines.run(func() { p.guard.run(callback, event.Event{Slot: e.slot}, work, then) })
}

func (p *puller) settle(e settleEffect) {
	msg := e.mail.body.(*nats.Msg)
	switch e.how {
	case settleAck:
		_ = msg.Ack()
	case settleTerm:
		_ = msg.Term()
	case settleNak:
		_ = msg.Nak()
	}
}

// confirm settles a message and asks the server to confirm that. The reply subject says which
// message it was: the run, and the message's sequence and time.
func (p *puller) confirm(e confirmEffect) {
	verb := "+ACK"
	if e.how == settleTerm {
		verb = "+TERM"
	}
	to := make([]byte, 0, 96)
	to = append(to, p.inbox...)
	to = append(to, confirmations...)
	to = strconv.AppendUint(to, e.run, 10)
	to = strconv.AppendUint(append(to, '-'), e.mail.sequence, 10)
	to = strconv.AppendInt(append(to, '-'), e.mail.published, 10)
	_ = p.nc.PublishRequest(e.mail.body.(*nats.Msg).Reply, string(to), []byte(verb))
}

// confirmations is where the server confirms what is settled: no consumer can have that name.
const confirmations = ".+."

// confirmation returns which message of a run the server confirms as settled, if msg is that.
func (p *puller) confirmation(msg *nats.Msg) (run uint64, o original, is bool) {
	text, ours := strings.CutPrefix(msg.Subject, p.inbox)
	text, is = strings.CutPrefix(text, confirmations)
	if !ours || !is {
		return 0, o, false
	}
	of, rest, _ := strings.Cut(text, "-")
	sequence, published, _ := strings.Cut(rest, "-")
	var err1, err2, err3 error
	run, err1 = strconv.ParseUint(of, 10, 64)
	o.sequence, err2 = strconv.ParseUint(sequence, 10, 64)
	o.published, err3 = strconv.ParseInt(published, 10, 64)
	return run, o, errors.Join(err1, err2, err3) == nil
}

// answer finds the answer to a question of a run.
func (p *puller) answer(r *running, q question) (a answer) {
	switch q := q.(type) {
	case askUnpin:
		p.consumers.unpinUntilDone(r.address)
		a.err = p.consumers.life.Err()
		return a
	case askReset:
		p.consumers.resetUntilDone(r.address)
		a.err = p.consumers.life.Err()
		return a
	case askConfirm:
		reply := q.mail.body.(*nats.Msg).Reply
		_, a.err = askServer(context.Background(), p.nc, &nats.Msg{Subject: reply, Data: []byte("+ACK")})
		return a
	}
	ctx := r.ctx
	switch q := q.(type) {
	case askStream:
		a.what, a.err = p.streams.contradiction(ctx, r.slot)
	case askWaiting:
		a.err = p.waiting(ctx, r.place, q.silent, &a)
	case askFirst:
		a.sequence, a.err = p.consumers.firstStored(ctx, p.layout.streamOf(r.slot), p.layout.filter(r.place))
	case askStored:
		a.yes, a.what, a.err = p.consumers.stored(ctx, p.layout.streamOf(r.slot), q.original)
	case askTake:
		a.err = p.consumers.replace(ctx, r.place, nil)
	case askCreate:
		a.err = p.consumers.createConsumer(ctx, r.place)
	case askRenew:
		a.err = p.consumers.renew(ctx, r.place)
	default:
		p.retry.answer(ctx, r.place, q, &a)
	}
	return a
}

// waiting answers askWaiting.
func (p *puller) waiting(ctx context.Context, at place, silent bool, a *answer) error {
	if silent && p.empty.empty(ctx, p.layout.streamOf(at.slot)) {
		a.empty = true
		return nil
	}
	return p.consumers.waiting(ctx, at, a)
}

// pullRequest is the body of a pull.
//
// Source: NATS ADR-42, "Pull Consumer Priority Groups".
type pullRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires"`
	Group   string        `json:"group"`
	ID      string        `json:"id,omitempty"`
}

// queueStatus is what is in the retry queue of the slots that a worker pulls for, as it knows.
type queueStatus struct {
	Messages, Keys int
	Oldest         time.Time // when the first of them was queued; zero for none
	Queued         uint64    // messages that this worker has queued
	Retries        uint64    // attempts of queued messages by this worker
	Abandoned      uint64    // messages that it has given up
}

func (p *puller) queueStatus() queueStatus {
	out := queueStatus{Queued: p.retries.queued.Load(), Retries: p.retries.retries.Load(), Abandoned: p.retries.abandoned.Load()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.delivery.slots {
		if r.retry == nil {
			continue
		}
		l := r.retry.queue
		out.Messages += l.total
		out.Keys += len(l.keys)
		if t := l.oldest(); !t.IsZero() && (out.Oldest.IsZero() || t.Before(out.Oldest)) {
			out.Oldest = t
		}
	}
	return out
}
