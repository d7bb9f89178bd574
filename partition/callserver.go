package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// callServer takes the calls that callers send to this worker, and carries out what the delivery
// decides about them. What arrives is taken by a goroutine of the client; serve and reply are called
// within a step of the delivery, and wait for nothing.
type callServer struct {
	cfg        Config
	nc         *nats.Conn
	handler    CallHandler
	guard      guard
	interrupts *interrupts
	goroutines *goroutines
	wg         *sync.WaitGroup // of handlers
	step       func(deliveryInput)
}

// longestErrorText bounds the text of an error that is sent to a caller, in bytes.
const longestErrorText = 4096

// arrived takes in a call.
func (c *callServer) arrived(msg *nats.Msg) {
	if msg.Reply == "" {
		return // nobody waits for the answer
	}
	v, err := record.DecodeCall(msg.Header.Get(record.CallHeader))
	if err == nil {
		err = c.check(v)
	}
	if err != nil {
		c.respond(msg, record.CallInvalid, []byte(err.Error()))
		return
	}

	now := time.Now()
	c.step(requestInput{&request{
		place:   generation{v.Layout, v.Slots}.place(v.Slot),
		key:     v.Key,
		known:   Fence(v.Fence),
		data:    msg.Data,
		waits:   now.Add(time.Duration(v.Wait) * time.Millisecond),
		expires: now.Add(time.Duration(v.Timeout) * time.Millisecond),
		from:    msg,
	}})
}

// check reports why no worker of the group can serve a request.
func (c *callServer) check(v record.CallRequest) error {
	err := c.cfg.CheckKey(v.Key)
	if slot := SlotOfKey(v.Slots, v.Key); slot != v.Slot {
		err = errors.Join(err, fmt.Errorf("key %s is in slot %d of %d, the request says %d", v.Key, slot, v.Slots, v.Slot))
	}
	return err
}

// execute carries an effect about a request out.
func (c *callServer) execute(e deliveryEffect) {
	switch e := e.(type) {
	case serveEffect:
		c.serve(e)
	case replyEffect:
		c.reply(e)
	case expiryEffect:
		c.expire(e)
	}
}

// serve calls the handler, in a goroutine of its own.
func (c *callServer) serve(e serveEffect) {
	m, this := e.request, handlerCall{e.run, e.call}
	until := m.expires
	if d := c.cfg.Delivery.HandlerTimeout; d > 0 {
		until = earlier(until, time.Now().Add(d))
	}
	ctx, cancel := context.WithDeadline(context.Background(), until)
	c.interrupts.begin(this, cancel)

	var data []byte
	work := func() (err error) {
		data, err = c.handler.HandleCall(ctx, Call{Key: m.key, Slot: e.slot, Data: m.data, Fence: e.fence})
		return err
	}
	then := func(err error) {
		defer c.wg.Done()
		cancel()
		c.interrupts.returned(this)
		c.step(servedInput{e.run, e.call, data, err})
	}
	c.wg.Add(1)
	c.goroutines.run(func() { c.guard.run("HandleCall", event.Event{Slot: e.slot}, work, then) })
}

// reply answers a request.
func (c *callServer) reply(e replyEffect) {
	data := e.data
	if e.err != nil {
		data = []byte(shortened(e.err.Error()))
	}
	c.respond(e.request.from.(*nats.Msg), e.outcome, data)
}

func (c *callServer) respond(to *nats.Msg, outcome record.CallOutcome, data []byte) {
	answer := &nats.Msg{Subject: to.Reply, Data: data, Header: nats.Header{record.CallOutcomeHeader: []string{string(outcome)}}}
	err := c.nc.PublishMsg(answer)
	if errors.Is(err, nats.ErrMaxPayload) {
		answer.Header.Set(record.CallOutcomeHeader, string(record.CallFailed))
		answer.Data = fmt.Appendf(nil, "the answer has %d bytes, the servers allow %d", len(data), c.nc.MaxPayload())
		err = c.nc.PublishMsg(answer)
	}
	if err != nil {
		c.cfg.Logger.Warn("A call can't be answered.", "err", err)
	}
}

// shortened cuts the text of an error.
func shortened(text string) string {
	if len(text) <= longestErrorText {
		return text
	}
	return strings.ToValidUTF8(text[:longestErrorText], "") + "…"
}

// expire has a request looked at when its time is over.
func (c *callServer) expire(e expiryEffect) {
	time.AfterFunc(max(time.Until(e.at), 0), func() { c.step(expiredInput{e.number}) })
}
