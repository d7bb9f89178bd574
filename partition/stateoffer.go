package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// stateOffer is the state of a slot that this worker has handed off, while the next owner may have
// it. Nothing changes the state meanwhile: the slot's last handler has returned, and if the slot comes
// back, its next run withdraws the offer before anything else. A goroutine of the offer calls Export
// when the next owner asks, and answers.
type stateOffer struct {
	*stateExchange
	exportEffect

	ctx      context.Context // ends when the offer is withdrawn, or when time is up
	end      context.CancelFunc
	requests chan stateAsked
	closed   chan struct{} // nothing is read of the state any more, and a Releaser was told
	transfer string        // that the state goes to; "": it was not asked for. Under the exchange's lock
}

// stateAsked is a request for a chunk.
type stateAsked struct {
	record.StateRequest
	reply string
}

// run waits for the next owner to ask, and sends the state.
func (o *stateOffer) run() {
	defer close(o.closed)
	defer o.released(o.leave)
	defer o.forget(o)
	defer o.end()

	var first stateAsked
	select {
	case first = <-o.requests:
	case <-o.ctx.Done():
		return
	}
	err := o.export(first)
	if err == nil {
		return
	}
	o.log.Warn("The state of a slot was not exported; its new owner prepares instead.",
		"slot", o.slot, "to", o.state.peer.ID, "version", o.state.version, "err", err)
	o.answer(first, record.StateChunk{Outcome: record.StateFailed, Reason: shortened(err.Error())}, nil)
}

// export has the handler export the state. It returns when the handler has; one that ignores its
// context is left alone after a while, since what it gives then goes nowhere.
func (o *stateOffer) export(first stateAsked) error {
	ended := make(chan error, 1)
	o.guard.start("Export", event.Event{Slot: o.slot}, func() error { return o.send(first) }, func(err error) { ended <- err })
	select {
	case err := <-ended:
		return err
	case <-o.ctx.Done():
	}

	late := time.NewTimer(exportPatience)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return fmt.Errorf("the handler's Export has not returned %v after its context ended: have it return then", exportPatience)
	}
}

// exportPatience is how long an Export is waited for whose context has ended.
const exportPatience = time.Second

// send sends the state, a chunk for each request.
func (o *stateOffer) send(asked stateAsked) (err error) {
	state, err := o.handler.Export(o.ctx, o.only())
	if err != nil {
		return err
	}
	if state == nil {
		return errors.New("the handler's Export returned no reader and no error: return one of them")
	}
	if c, is := state.(io.Closer); is {
		defer func() { _ = c.Close() }()
	}

	source := newStateSource(state, o.chunkSize(), o.cfg.State.MaxBytes)
	for n := 0; ; n++ {
		if asked.Chunk != n {
			return fmt.Errorf("chunk %d was asked for, want %d", asked.Chunk, n)
		}
		data, about, err := source.next()
		if o.ctx.Err() != nil {
			return errOfferOver
		}
		if err != nil {
			return err
		}
		o.answer(asked, about, data)
		if about.Outcome == record.StateLast {
			return nil
		}

		select {
		case asked = <-o.requests:
		case <-o.ctx.Done():
			return errOfferOver
		}
	}
}

var errOfferOver = errors.New("it took longer than Config.State.Timeout, or the slot went elsewhere")

// answer answers a request, with its number. A client that reconnects may keep it waiting, so the
// exchange's lock must not be held.
func (x *stateExchange) answer(asked stateAsked, about record.StateChunk, data []byte) {
	about.Schema, about.Transfer, about.Chunk = record.Schema, asked.Transfer, asked.Chunk
	header := nats.Header{record.StateHeader: []string{string(record.Encode(about))}}
	_ = x.nc.PublishMsg(&nats.Msg{Subject: asked.reply, Header: header, Data: data})
}

// chunkSize is how many bytes one message has. The servers' limit is of the header, too.
func (x *stateExchange) chunkSize() int { return min(stateChunk, int(x.nc.MaxPayload()/2)) }
