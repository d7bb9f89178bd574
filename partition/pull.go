package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/event"
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
	guard   guard // of what is the handler's
	reports *reports
	inbox   string
	sub     *nats.Subscription
	memory  *memory
	retry   *retryStore // nil: failing messages are not queued for retry
	retries retryCounts
	pauses  pauses

	life context.Context // until it is closed
	end  context.CancelFunc

	mu       sync.Mutex
	delivery *delivery
	runs     map[uint64]*running
	places   map[string]place // by consumer, of all slots that were ever held
	wg       sync.WaitGroup   // of handlers and questions

	looking   atomic.Bool // a goroutine looks whether the streams are what they were
	lookAgain atomic.Bool // and starts over when it is done
}

// running is what belongs to a slotRun outside of the delivery.
type running struct {
	place
	name      string          // of its consumer
	address   string          // of that in the JetStream API
	ctx       context.Context // of its questions
	cancel    context.CancelFunc
	interrupt context.CancelFunc // of its handler
	timer     *time.Timer
}

// reports gives inputs to the machine in their order, without making anyone wait.
type reports struct {
	mu    sync.Mutex
	queue []input
	busy  bool
	give  func(input)
}

func (r *reports) post(in input) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, in)
	if r.busy {
		return
	}
	r.busy = true
	go func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for len(r.queue) > 0 {
			queue := r.queue
			r.queue = nil
			r.mu.Unlock()
			for _, in := range queue {
				r.give(in)
			}
			r.mu.Lock()
		}
		r.busy = false
	}()
}

func newPuller(cfg Config, lay layout, nc *nats.Conn, js jetstream.JetStream, h Handler, post func(input)) (*puller, error) {
	p := &puller{cfg: cfg, layout: lay, nc: nc, js: js, handler: h, guard: newGuard(cfg, post), reports: &reports{give: post}, inbox: nc.NewInbox(),
		memory: newMemory(len(lay.streams())), runs: make(map[uint64]*running), places: make(map[string]place)}
	_, abandons := h.(Abandoner)
	p.delivery = newDelivery(cfg, abandons, p.memory, &p.retries)
	p.life, p.end = context.WithCancel(context.Background())
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

// step gives the delivery one input and carries its effects out.
func (p *puller) step(in deliveryInput) {
	var after []func()
	p.mu.Lock()
	for _, e := range p.delivery.step(time.Now(), in) {
		after = p.execute(e, after)
	}
	p.mu.Unlock()
	for _, f := range after {
		f()
	}
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
	case interruptEffect:
		p.runs[e.run].interrupt()
	case settleEffect:
		p.settle(e)
	case returnEffect:
		go p.sendBack(e.mail.body.(*nats.Msg))
	case workingEffect:
		_ = e.mail.body.(*nats.Msg).InProgress()
	case askEffect:
		r := p.runs[e.run]
		p.wg.Go(func() { p.step(answerInput{e.run, e.number, p.answer(r, e.question)}) })
	case lookEffect:
		p.lookAtStreams()
	case rolledBackEffect:
		p.rolledBack(e.slot, e.what, e.forgotten)
	case releasedEffect:
		return append(after, func() { p.released(e.slots) })
	case reportEffect:
		if after == nil {
			p.reports.post(e.input)
			break
		}
		return append(after, func() { p.reports.post(e.input) })
	case forcedEffect:
		address := p.layout.address(e.place)
		go func() {
			p.unpinUntilDone(address)
			p.reports.post(e.report)
		}()
	case warnEffect:
		p.cfg.Logger.Warn(e.text, e.args...)
	case wakeEffect:
		r := p.runs[e.run]
		d := max(time.Until(e.at), shortestSleep)
		if r.timer == nil {
			r.timer = time.AfterFunc(d, func() { p.step(wakeInput{e.run}) })
		} else {
			r.timer.Reset(d)
		}
	case endedEffect:
		r := p.runs[e.run]
		delete(p.runs, e.run)
		r.cancel()
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	return after
}

func (p *puller) hold(at place, fence Fence) { p.step(heldInput{at, fence}) }
func (p *puller) release(e releaseEffect)    { p.step(handOffInput{e}) }
func (p *puller) force(at place)             { p.step(forcedInput{at}) }
func (p *puller) dropSlot(at place)          { p.step(droppedInput{at}) }
func (p *puller) suspend(on bool)            { p.step(validityInput{!on}) }
func (p *puller) inProgress()                { p.step(progressInput{}) }

// trustUntil says until when messages may begin.
func (p *puller) trustUntil(t time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delivery.until = t
}

func (p *puller) released(s Slots) {
	if h, ok := p.handler.(Releaser); ok && len(s.Slots) > 0 {
		_ = p.guard.call("Released", func() error { h.Released(s); return nil })
	}
}

// close ends every run and waits for its handlers.
func (p *puller) close() {
	p.step(closeInput{})
	p.end()
	p.wg.Wait()
	// What arrives until the server has handled the end of the subscription
	// is still sent back.
	_ = p.sub.Drain()
	_ = p.nc.FlushTimeout(apiTimeout)
}

// dispatch is the subscription's callback.
func (p *puller) dispatch(msg *nats.Msg) {
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
		go p.sendBack(msg)
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
		consumer, serie, _ := strings.Cut(rest, ".")
		m.serie = pullOf(serie)
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
	m.original, m.finest = original{meta.Sequence.Stream, meta.Timestamp.UnixNano()}, finest
	m.message = Message{Subject: published, Key: JoinKey(key...), Data: msg.Data, Header: msg.Header,
		Sequence: meta.Sequence.Stream, Published: meta.Timestamp, Delivered: meta.NumDelivered}
	return consumer, m
}

func (p *puller) fetch(e fetchEffect) {
	r := p.runs[e.run]
	body := mustJSON(pullRequest{Batch: pullBatch, Expires: pullExpiry, Group: priorityGroup, ID: e.pin})
	reply := p.inbox + "." + r.name + "." + strconv.Itoa(e.serie)
	if err := p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+r.address, reply, body); err != nil {
		go p.step(unsentInput{e.run, e.serie})
	}
}

// handle calls the handler, in a goroutine of its own.
func (p *puller) handle(e handleEffect) {
	r, m := p.runs[e.run], e.message
	ctx, cancel := context.WithCancel(context.Background())
	r.interrupt = cancel
	if e.mail != nil {
		if d, felt := p.pauses.end(e.place, m.Published, time.Now()); felt {
			p.reports.post(noteInput{event.Event{Kind: event.SlotResumed, Slot: e.slot, Duration: d}})
		}
	}
	m.Sequence = p.layout.sequence(e.slot, m.Sequence)
	callback, call := "Handle", p.handler.Handle
	if e.abandon {
		callback, call = "Abandon", func(ctx context.Context, m Message) error {
			return p.handler.(Abandoner).Abandon(ctx, m, e.failure)
		}
	}
	p.wg.Add(1)
	p.guard.start(callback, event.Event{Slot: e.slot}, func() error {
		if d := p.cfg.HandlerTimeout; d > 0 {
			bounded, stop := context.WithTimeout(ctx, d)
			defer stop()
			return call(bounded, m)
		}
		return call(ctx, m)
	}, func(err error) {
		defer p.wg.Done()
		cancel()
		p.step(handledInput{e.run, err})
	})
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

// answer finds the answer to a question of a run.
func (p *puller) answer(r *running, q question) (a answer) {
	switch q := q.(type) {
	case askUnpin:
		p.unpinUntilDone(r.address)
		a.err = p.life.Err()
		return a
	case askConfirm:
		ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
		defer cancel()
		_, a.err = p.nc.RequestWithContext(ctx, q.mail.body.(*nats.Msg).Reply, []byte("+ACK"))
		return a
	}
	ctx, cancel := context.WithTimeout(r.ctx, apiTimeout)
	defer cancel()
	switch q := q.(type) {
	case askStream:
		a.what, a.err = p.lookAtStream(ctx, r.slot)
	case askWaiting:
		a.yes, a.err = p.waiting(ctx, r.place)
	case askFirst:
		a.sequence, a.err = p.firstStored(ctx, p.layout.streamOf(r.slot), p.layout.filter(r.place))
	case askTake:
		a.err = p.replace(ctx, r.place, nil)
	case askCreate:
		a.err = p.createConsumer(ctx, r.place)
	case askRenew:
		a.err = p.renew(ctx, r.place)
	default:
		p.answerRetry(ctx, r.place, q, &a)
	}
	return a
}

// sendBack returns a message that came for a slot that is not held: the pin
// first, or the server would deliver it here again.
func (p *puller) sendBack(msg *nats.Msg) {
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	stream, consumer := originOf(msg.Reply)
	_ = p.unpin(ctx, stream+"."+consumer)
	_ = msg.Nak()
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

func (p *puller) api(ctx context.Context, verb, address string, body []byte) error {
	subject := "$JS.API.CONSUMER." + verb + "." + address
	msg, err := p.nc.RequestWithContext(ctx, subject, body)
	if errors.Is(err, nats.ErrNoResponders) && verb == "RESET" {
		return errNoConsumer
	}
	if err != nil {
		return err
	}
	var answer apiError
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		if answer.Error.ErrCode == codeConsumerNotFound {
			return errNoConsumer
		}
		return fmt.Errorf("%s: %s (%d)", strings.ToLower(verb), answer.Error.Description, answer.Error.ErrCode)
	}
	return nil
}

var unpinBody = mustJSON(struct {
	Group string `json:"group"`
}{priorityGroup})

func (p *puller) unpin(ctx context.Context, address string) error {
	return p.api(ctx, "UNPIN", address, unpinBody)
}

// unpinUntilDone tries until the pin is off, or the puller is closed: then the
// server takes it off when it has expired, if nobody has before.
func (p *puller) unpinUntilDone(address string) {
	for p.life.Err() == nil {
		ctx, cancel := context.WithTimeout(p.life, apiTimeout)
		err := p.unpin(ctx, address)
		cancel()
		if err == nil || errors.Is(err, errNoConsumer) || p.nc.IsClosed() {
			return
		}
		select {
		case <-p.life.Done():
		case <-time.After(pullRetry):
		}
	}
}

// replace takes a slot whose keys may have had other consumers.
func (p *puller) replace(ctx context.Context, at place, former []place) error {
	t := newTaking(at, former)
	for {
		stage, of := t.next()
		var err error
		switch stage {
		case takeRetire:
			err = p.retire(ctx, of)
		case takeUnpin:
			err = p.unpin(ctx, p.layout.address(of))
		case takeReset:
			err = p.api(ctx, "RESET", p.layout.address(of), nil)
		case takeCreate:
			err = p.createConsumer(ctx, of)
		case takeDone:
			return t.err
		}
		t.did(err)
	}
}

// retire deletes a consumer that nobody pulls for any more. The server removes
// what is acknowledged a moment later, and what it has not removed by then would
// be delivered again by the next consumer, after its successors maybe.
func (p *puller) retire(ctx context.Context, at place) error {
	stream, name := p.layout.streamOf(at.slot), p.layout.consumer(at)
	c, err := p.js.Consumer(ctx, stream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(removalPoll) {
		first, err := p.firstStored(ctx, stream, p.layout.filter(at))
		if err != nil {
			return err
		}
		if first == 0 || first > c.CachedInfo().AckFloor.Stream {
			break
		}
		if time.Since(began) > removalWait {
			// A repetition is better than a slot that stands still.
			p.cfg.Logger.Warn("The server does not remove what is acknowledged; it may be delivered again.", "consumer", name, "sequence", first)
			break
		}
	}
	err = p.js.DeleteConsumer(ctx, stream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	return err
}

// removalPoll is how often the stream is looked at while acknowledged messages
// are removed, removalWait for how long.
const (
	removalPoll = 2 * time.Millisecond
	removalWait = apiTimeout / 2
)

// firstStored returns the sequence of the first message that a filter selects, 0
// for none, as the stream's leader knows it.
func (p *puller) firstStored(ctx context.Context, stream, filter string) (uint64, error) {
	body := mustJSON(struct {
		Seq     uint64 `json:"seq"`
		NextFor string `json:"next_by_subj"`
	}{1, filter})
	msg, err := p.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		apiError
		Message struct {
			Seq uint64 `json:"seq"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return 0, err
	}
	switch e := answer.Error; {
	case e == nil:
		return answer.Message.Seq, nil
	case jetstream.ErrorCode(e.ErrCode) == codeNoMessage:
		return 0, nil
	default:
		return 0, fmt.Errorf("reading the first message of %s: %s (%d)", filter, e.Description, e.ErrCode)
	}
}

// waiting reports whether a slot has messages that are not delivered, or delivered
// and not settled.
func (p *puller) waiting(ctx context.Context, at place) (bool, error) {
	c, err := p.js.Consumer(ctx, p.layout.streamOf(at.slot), p.layout.consumer(at))
	if err != nil {
		return false, err
	}
	info := c.CachedInfo()
	return info.NumPending > 0 || info.NumAckPending > 0, nil
}

// createConsumer makes a slot's consumer anew: its state is in memory only and
// goes with a restart of the server. What was not acknowledged is in the stream.
func (p *puller) createConsumer(ctx context.Context, at place) error {
	p.lookAtStreams() // it may have gone with its stream
	_, err := p.js.CreateOrUpdateConsumer(ctx, p.layout.streamOf(at.slot), slotConsumer(p.cfg, p.layout, at))
	return err
}
