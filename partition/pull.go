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
)

const (
	// pullBatch is how many messages one pull asks for. One is in flight at a
	// time anyway, so a larger batch only saves requests.
	pullBatch = 64
	// pullRetry is the pause after a pull that the server could not take.
	pullRetry = 100 * time.Millisecond
	// apiTimeout bounds one request of the JetStream API.
	apiTimeout = 2 * time.Second
	// ghostCheck is how long a slot that is held may be silent before its
	// consumer is looked at, and looked at again; Config.ghostCheck in tests.
	ghostCheck = 5 * time.Second
	// maxRetryDelay bounds the pause between tries of a failing message.
	maxRetryDelay = 5 * time.Second
)

// puller pulls for the slots that a worker holds, and sends back what comes for
// any other. It has one subscription for all of them, which stays when a slot is
// released: the server may still be on its way to deliver to a pull of ours, and
// what nobody listens to is lost until AckWait.
type puller struct {
	cfg     Config
	layout  layout
	nc      *nats.Conn
	js      jetstream.JetStream
	handler Handler
	guard   guard // of what is the handler's
	post    func(input)
	inbox   string
	sub     *nats.Subscription
	epoch   time.Time
	// trustedUntil is, in nanoseconds since epoch, until when messages may be
	// started. The machine's suspend comes with the next tick; a process that
	// was stopped and goes on must not start anything before that.
	trustedUntil atomic.Int64

	life context.Context // until it is closed
	end  context.CancelFunc

	mu        sync.Mutex
	runners   map[string]*runner // by consumer
	ending    map[int][]ending   // by slot of the coarsest division
	done      []watermarks       // by shard, what was settled here
	suspended bool
	wg        sync.WaitGroup

	looking   atomic.Bool // a goroutine looks whether the streams are what they were
	lookAgain atomic.Bool // and starts over when it is done
	pauses    pauses
	retry     *retryStore // nil: failing messages are not parked
	parks     parkCounts
}

// ending is a runner that was started; ended is closed when it has ended.
type ending struct {
	place
	ended chan struct{}
}

func newPuller(cfg Config, lay layout, nc *nats.Conn, js jetstream.JetStream, h Handler, post func(input)) (*puller, error) {
	p := &puller{cfg: cfg, layout: lay, nc: nc, js: js, handler: h, guard: newGuard(cfg, post), post: post, inbox: nc.NewInbox(), epoch: time.Now(),
		runners: make(map[string]*runner), ending: make(map[int][]ending), done: make([]watermarks, len(lay.streams())), suspended: true}
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

// runner is one slot that is held: one goroutine, one message at a time.
type runner struct {
	p *puller
	place
	name    string // of its consumer
	address string // of that in the JetStream API
	mail    chan *nats.Msg
	park    *parking      // nil: failing messages are not parked
	poke    chan struct{} // something of the below has changed
	ctx     context.Context
	drop    context.CancelFunc

	mu        sync.Mutex
	fence     Fence
	releasing bool
	final     bool   // its consumer will be no more
	leave     Slots  // that Releaser is told of
	renew     bool   // the pull at the server may be gone
	busy      bool   // a handler is running
	reply     string // ack subject of the message in hand, "" for none
	interrupt context.CancelFunc
	settled   string // ack subject of the last message settled, "" for none
}

func (p *puller) hold(at place, fence Fence) {
	name := p.layout.consumer(at)
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.runners[name]; r != nil {
		r.mu.Lock()
		r.fence = fence
		r.mu.Unlock()
		r.wakeUp()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &runner{p: p, place: at, name: name, address: p.layout.address(at), mail: make(chan *nats.Msg, pullBatch*4), poke: make(chan struct{}, 1), ctx: ctx, drop: cancel, fence: fence}
	if p.retry != nil {
		r.park = newParking(r, fence)
	}
	p.runners[name] = r
	ended := make(chan struct{})
	before := p.endings(at, ended)
	p.wg.Add(1)
	go func() {
		defer p.wg.Done()
		defer close(ended)
		for _, b := range before {
			<-b
		}
		r.run()
	}()
}

// endings enters a runner that starts, and returns what it must wait for: one
// that was dropped may have a handler that has yet to see it, be it of this slot
// or of one of another division.
func (p *puller) endings(at place, ended chan struct{}) (before []chan struct{}) {
	coarsest := at.slot % p.layout.base
	var still []ending
	for _, e := range p.ending[coarsest] {
		select {
		case <-e.ended:
			continue
		default:
		}
		still = append(still, e)
		if e.place == at || e.division != at.division {
			before = append(before, e.ended)
		}
	}
	p.ending[coarsest] = append(still, ending{at, ended})
	return before
}

// release asks a slot's runner to end with the message it has. It posts
// slotReleasedInput when it has, and the server has been told. It does not
// block: a release that came late would meet the runner of a later hold.
func (p *puller) release(e releaseEffect) {
	var in input = slotReleasedInput{place: e.place, claim: e.claim}
	if r := p.runner(p.layout.consumer(e.place)); r != nil {
		r.mu.Lock()
		r.releasing, r.final, r.leave = true, e.final, e.leave
		busy := r.busy
		r.mu.Unlock()
		in = noteInput{Event{Kind: EventReleasing, Slot: e.slot, Busy: busy}}
		r.wakeUp()
	}
	go p.post(in)
}

// force ends a slot whose handler does not return in time.
func (p *puller) force(at place) {
	if r := p.detach(p.layout.consumer(at)); r != nil {
		r.drop()
		go func() {
			p.unpinUntilDone(r.address)
			p.post(slotReleasedInput{place: at, claim: r.claim(), forced: true})
		}()
	}
}

// dropSlot ends a slot that is not ours any more: nothing is acknowledged.
func (p *puller) dropSlot(at place) {
	if r := p.detach(p.layout.consumer(at)); r != nil {
		r.drop()
		p.released(Slots{at.slots, []int{at.slot}})
	}
}

func (p *puller) runner(consumer string) *runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runners[consumer]
}

func (p *puller) detach(consumer string) *runner {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.runners[consumer]
	delete(p.runners, consumer)
	return r
}

func (p *puller) released(s Slots) {
	if h, ok := p.handler.(Releaser); ok && len(s.Slots) > 0 {
		_ = p.guard.call("Released", Event{}, func() error { h.Released(s); return nil })
	}
}

// suspend lets no message begin and ends the contexts of those that run;
// resume lets them go on, the interrupted ones from the start. Who was suspended
// was disconnected, maybe, and the server forgets the pulls of those without
// saying so; hence all pull again.
func (p *puller) suspend(on bool) {
	p.mu.Lock()
	p.suspended = on
	runners := make([]*runner, 0, len(p.runners))
	for _, r := range p.runners {
		runners = append(runners, r)
	}
	p.mu.Unlock()
	if !on {
		p.lookAtStreams()
	}
	for _, r := range runners {
		r.mu.Lock()
		if on && r.interrupt != nil {
			r.interrupt()
		}
		r.renew = !on
		r.mu.Unlock()
		r.wakeUp()
	}
}

func (p *puller) trusted() bool {
	p.mu.Lock()
	s := p.suspended
	p.mu.Unlock()
	return !s && int64(time.Since(p.epoch)) < p.trustedUntil.Load()
}

// close ends every runner and waits for their handlers.
func (p *puller) close() {
	p.mu.Lock()
	for s, r := range p.runners {
		r.drop()
		delete(p.runners, s)
	}
	p.mu.Unlock()
	p.end()
	p.wg.Wait()
	// What arrives until the server has handled the end of the subscription
	// is still sent back.
	_ = p.sub.Drain()
	_ = p.nc.FlushTimeout(apiTimeout)
}

// dispatch is the subscription's callback.
func (p *puller) dispatch(msg *nats.Msg) {
	consumer := p.deliveredBy(msg)
	if consumer == "" {
		p.cfg.Logger.Warn("A message that no consumer delivered is ignored.", "subject", msg.Subject)
		return
	}
	if r := p.runner(consumer); r != nil {
		select {
		case r.mail <- msg:
			return
		case <-r.ctx.Done():
		}
	}
	if !isStatus(msg) {
		go p.sendBack(msg)
	}
}

func isStatus(msg *nats.Msg) bool { return len(msg.Data) == 0 && msg.Header.Get("Status") != "" }

// deliveredBy returns the consumer that a message or a status is of.
func (p *puller) deliveredBy(msg *nats.Msg) string {
	if !isStatus(msg) {
		_, consumer := originOf(msg.Reply)
		return consumer
	}
	rest, ok := strings.CutPrefix(msg.Subject, p.inbox+".")
	if !ok {
		return ""
	}
	consumer, _, _ := strings.Cut(rest, ".")
	return consumer
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

// inProgress tells the server that the messages in hand are being worked on.
func (p *puller) inProgress() {
	if !p.trusted() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.runners {
		r.mu.Lock()
		if r.reply != "" {
			_ = p.nc.Publish(r.reply, []byte("+WPI"))
		}
		r.mu.Unlock()
	}
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

// apiError is the part of a JetStream API answer that tells whether it failed.
type apiError struct {
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     uint16 `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
}

const codeConsumerNotFound = 10014

var errNoConsumer = errors.New("the consumer does not exist")

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

// take takes a slot from a dead owner: its pin, then what was delivered to it
// and is not settled, so that nobody waits for AckWait.
func (p *puller) take(ctx context.Context, at place) error {
	address := p.layout.address(at)
	err := p.unpin(ctx, address)
	if err == nil {
		err = p.api(ctx, "RESET", address, nil)
	}
	if !errors.Is(err, errNoConsumer) {
		return err
	}
	return p.createConsumer(ctx, at)
}

// replace takes a slot whose keys had other consumers: they are deleted, so that
// the server lets it have one.
func (p *puller) replace(ctx context.Context, at place, former []place) error {
	for _, f := range former {
		if err := p.retire(ctx, f); err != nil {
			return err
		}
	}
	return p.take(ctx, at)
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

// waiting tells whether a slot has messages that are not delivered, or delivered
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

func (r *runner) wakeUp() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// run is the runner's goroutine.
func (r *runner) run() {
	pull := pullState{r: r}
	defer pull.stop()
	defer r.sendBackMail()
	pull.request()
	ghosts := time.NewTicker(r.p.cfg.ghostCheck)
	defer ghosts.Stop()
	for {
		if r.mustRenew() {
			pull.request()
		}
		select {
		case <-r.ctx.Done():
			return
		case <-r.park.due():
			r.park.work()
		case <-r.poke:
		case <-pull.timer.C:
			pull.request()
		case <-ghosts.C:
			pull.lookForGhost()
		case msg := <-r.mail:
			if isStatus(msg) {
				pull.status(msg)
				break
			}
			pull.got(msg)
			if !r.process(msg) {
				r.giveUp(msg)
				return
			}
		}
		if r.isReleasing() {
			r.giveUp(nil)
			return
		}
		if r.ctx.Err() != nil {
			return
		}
	}
}

// sendBackMail returns what came and was not begun when a slot is dropped. The
// leader's reset may have come before it was delivered, and then nobody but
// AckWait would ever deliver it again.
func (r *runner) sendBackMail() {
	for {
		select {
		case msg := <-r.mail:
			if !isStatus(msg) {
				go r.p.sendBack(msg)
			}
		default:
			return
		}
	}
}

func (r *runner) mustRenew() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	renew := r.renew
	r.renew = false
	return renew
}

func (r *runner) isReleasing() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.releasing
}

// giveUp hands the slot back: no more pulls, the pin off, and what was
// delivered but not begun back to the server, in this order.
func (r *runner) giveUp(inHand *nats.Msg) {
	if r.ctx.Err() != nil {
		return // dropped, or forced: somebody else sees to it
	}
	stopped := time.Now()
	// From here on, what arrives is sent back by dispatch.
	if r.p.detach(r.name) == nil {
		return
	}
	r.confirm()
	r.p.unpinUntilDone(r.address)
	if r.p.life.Err() != nil {
		return
	}
	if inHand != nil {
		_ = inHand.Nak()
	}
	for {
		select {
		case msg := <-r.mail:
			if !isStatus(msg) {
				_ = msg.Nak()
			}
			continue
		default:
		}
		break
	}
	r.drop()
	r.mu.Lock()
	leave := r.leave
	r.mu.Unlock()
	r.p.released(leave)
	r.p.post(slotReleasedInput{place: r.place, claim: r.claim(), idle: time.Since(stopped)})
}

// confirm has the server say that it knows the last acknowledgement, where its
// consumer is about to be deleted: one on its way would be lost.
func (r *runner) confirm() {
	r.mu.Lock()
	subject, final := r.settled, r.final
	r.mu.Unlock()
	if !final || subject == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), apiTimeout)
	defer cancel()
	_, _ = r.p.nc.RequestWithContext(ctx, subject, []byte("+ACK"))
}

// process handles one message until it is settled, and reports whether it is:
// false means that the slot ends with it unsettled.
func (r *runner) process(msg *nats.Msg) bool {
	meta, err := msg.Metadata()
	if err != nil {
		r.p.cfg.Logger.Error("A message without JetStream metadata was delivered.", "subject", msg.Subject, "err", err)
		return true
	}
	finest, key, published, err := r.p.layout.parse(msg.Subject)
	if err != nil {
		r.p.cfg.Logger.Error("A message of another layout was delivered.", "subject", msg.Subject, "err", err)
		return true
	}
	own := original{meta.Sequence.Stream, meta.Timestamp.UnixNano()}
	settled, generation, ok := r.settledBefore(finest, own)
	if !ok {
		return false
	}
	if settled {
		// Delivered again after a take-over; its first acknowledgement may
		// have been lost with the consumer's state.
		_ = msg.Ack()
		return true
	}
	m := Message{Subject: published, Key: JoinKey(key...), Slot: r.slot, Data: msg.Data, Header: msg.Header,
		Sequence: meta.Sequence.Stream, Published: meta.Timestamp, Delivered: meta.NumDelivered}
	r.setReply(msg.Reply)
	defer r.setReply("")
	failed := false
	for delay := r.p.cfg.RetryDelay; ; {
		switch r.mayBegin(m, msg, failed) {
		case beginNever:
			return false
		case beginNot:
			r.answer(msg, r.settle(finest, own, generation, msg.Reply), msg.Ack)
			return true
		case beginNow:
		}
		m.Attempt++
		if d, felt := r.p.pauses.end(r.place, m.Published, time.Now()); felt {
			r.p.post(noteInput{Event{Kind: EventSlotResumed, Slot: r.slot, Duration: d}})
		}
		err := r.call("Handle", m, r.p.handler.Handle)
		fenced := isFenced(err)
		switch {
		case fenced:
			r.fencedOff(err)
			m.Attempt--
		case err != nil && !isDiscarded(err) && r.exhausted(m.Attempt):
			err = r.abandon(m, err)
		}
		switch {
		case r.ctx.Err() != nil:
			return false
		case err == nil:
			r.answer(msg, r.settle(finest, own, generation, msg.Reply), msg.Ack)
			return true
		case isDiscarded(err):
			r.answer(msg, r.settle(finest, own, generation, msg.Reply), msg.Term)
			return true
		}
		// A message that was fenced off is not queued for retry: the owner with the
		// later fence is to try it at once, and in its place.
		if failed = !fenced && r.parks(m.Attempt); failed {
			continue
		}
		if !r.rest(delay) {
			return false
		}
		delay = min(2*delay, maxRetryDelay)
	}
}

func (r *runner) claim() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fence.Claim
}

func (r *runner) setReply(reply string) {
	r.mu.Lock()
	r.reply = reply
	r.mu.Unlock()
}

// mayStart waits for trust; false means that the slot ends.
func (r *runner) mayStart() bool {
	for {
		if r.ctx.Err() != nil || r.isReleasing() {
			return false
		}
		if r.p.trusted() {
			return true
		}
		select {
		case <-r.ctx.Done():
		case <-r.poke:
		case <-time.After(pullRetry):
		}
	}
}

// pause waits before a failed message is tried again; false means that the slot
// ends.
func (r *runner) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return true
		case <-r.ctx.Done():
			return false
		case <-r.poke:
			if r.isReleasing() {
				return false
			}
		}
	}
}

func (r *runner) call(callback string, m Message, handle func(context.Context, Message) error) error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	if d := r.p.cfg.HandlerTimeout; d > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, d)
		defer stop()
	}
	m.Sequence = r.p.layout.sequence(r.slot, m.Sequence)
	r.mu.Lock()
	m.Fence = r.fence
	r.busy, r.interrupt = true, cancel
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.busy, r.interrupt = false, nil
		r.mu.Unlock()
	}()
	return r.p.guard.call(callback, Event{Slot: r.slot}, func() error { return handle(ctx, m) })
}

// pullState keeps one pull parked at the server.
type pullState struct {
	r     *runner
	pin   string
	asked string // the pin that the pull was made with
	left  int    // messages that the pull may still bring
	serie int
	timer *time.Timer
	fails int
	quiet bool // nothing came since the last look for a ghost
	ghost bool // and there was something to come
	looks int  // when nothing was
	// stored is the first message in the stream at such a look, 0 for none.
	stored uint64
}

func (s *pullState) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *pullState) again(d time.Duration) {
	if s.timer == nil {
		s.timer = time.NewTimer(d)
		return
	}
	s.timer.Reset(d)
}

func (s *pullState) request() {
	p := s.r.p
	s.serie++
	s.left, s.asked = pullBatch, s.pin
	// If neither message nor status comes, the pull is lost.
	s.again(pullExpiry + 2*time.Second)
	body := mustJSON(pullRequest{Batch: pullBatch, Expires: pullExpiry, Group: priorityGroup, ID: s.pin})
	reply := p.inbox + "." + s.r.name + "." + strconv.Itoa(s.serie)
	subject := "$JS.API.CONSUMER.MSG.NEXT." + s.r.address
	if err := p.nc.PublishRequest(subject, reply, body); err != nil {
		s.again(pullRetry)
	}
}

func (s *pullState) got(msg *nats.Msg) {
	if pin := msg.Header.Get("Nats-Pin-Id"); pin != "" {
		s.pin = pin
	}
	s.fails = 0
	s.quiet, s.ghost = false, false
	s.left--
	if s.left == 0 {
		s.request()
	} else {
		s.again(pullExpiry + 2*time.Second)
	}
}

// lookForGhost heals a pin that nobody has. An unpinned pull of an earlier owner
// may get a message, and with it the pin, and its process may die before it
// gives both back; then nobody is served until the pin has expired. When there
// are messages and none has come between two looks, the pin is taken off and
// what is in flight delivered again.
func (s *pullState) lookForGhost() {
	p := s.r.p
	silent := s.quiet
	s.quiet = true
	if !silent || !p.trusted() {
		return
	}
	ctx, cancel := context.WithTimeout(s.r.ctx, apiTimeout)
	defer cancel()
	waiting, err := p.waiting(ctx, s.r.place)
	if err != nil || !waiting {
		s.ghost = false
		if err == nil {
			s.lookForLeftover(ctx)
		}
		return
	}
	s.stored = 0
	if !s.ghost {
		s.ghost = true
		return
	}
	s.ghost = false
	if err := p.take(ctx, s.r.place); err != nil {
		return
	}
	p.post(noteInput{Event{Kind: EventGhostHealed, Slot: s.r.slot}})
	s.pin = ""
	s.request()
}

// status handles the end of a pull. Ends of earlier pulls are ignored, unless one may
// have been what the pin was for: then the one that waits gets nothing, since it was
// asked for without that.
func (s *pullState) status(msg *nats.Msg) {
	code := msg.Header.Get("Status")
	if !strings.HasSuffix(msg.Subject, "."+strconv.Itoa(s.serie)) {
		if (code == "408" || code == "404") && s.pin != "" && s.asked != s.pin {
			s.request()
		}
		return
	}
	switch code {
	case "408", "404": // expired
		s.request()
	case "423": // the pin is not ours any more
		s.pin = ""
		s.request()
	default: // 409: leadership change, consumer deleted …; 503: nobody there
		s.pin = ""
		s.fails++
		if code == "409" || code == "503" {
			// The consumer may have gone with its stream, and another worker, or a
			// publisher, may have created both again before this one asks for them.
			s.r.p.lookAtStreams()
		}
		// Who can't trust its lease may hold what is replaced by now.
		if s.fails%5 == 0 && s.r.p.trusted() {
			s.r.p.cfg.Logger.Warn("Pulls are refused; making the consumer anew if it is gone.", "slot", s.r.slot, "status", code, "description", msg.Header.Get("Description"))
			ctx, cancel := context.WithTimeout(s.r.ctx, apiTimeout)
			_ = s.r.p.createConsumer(ctx, s.r.place)
			cancel()
		}
		s.again(pullRetry * time.Duration(min(s.fails, 10)))
	}
}
