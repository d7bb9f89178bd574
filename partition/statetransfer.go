package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/muster-dev/muster/partition/internal/record"
)

// stateTransfer is the reader of Import: the state of one slot, asked for chunk by chunk as it is
// read. Its answers have a subject of their own, so a late chunk of another transfer never comes here.
// Read returns io.EOF only when length and checksum of the whole are right.
type stateTransfer struct {
	ctx     context.Context
	nc      *nats.Conn
	to      string // subject of the old owner
	reply   string // of the answers
	request record.StateRequest
	answers chan *nats.Msg
	sub     *nats.Subscription

	mu   sync.Mutex // Import may leave a goroutine behind that reads on
	sink *stateSink
	data []byte // came, and not read yet
	err  error  // after data
}

// ownerProbe is after how long without an answer it is asked whether the old owner is there.
const ownerProbe = 200 * time.Millisecond

var (
	errOldOwnerGone = errors.New("the old owner is gone, or has no state to give")
	errImportOver   = errors.New("the state is read after Import has returned")
)

// openTransfer asks for the state of a slot, and waits for the first chunk.
func (x *stateExchange) openTransfer(ctx context.Context, e loadEffect) (*stateTransfer, error) {
	self := x.identity()
	transfer := nuid.Next()
	t := &stateTransfer{
		ctx: ctx, nc: x.nc,
		to:    stateSubject(x.cfg.Name, e.state.peer),
		reply: stateSubject(x.cfg.Name, self) + "." + transfer,
		request: record.StateRequest{Schema: record.Schema, Transfer: transfer, From: self,
			Layout: e.number, Slots: e.slots, Slot: e.slot, Version: e.state.version},
		answers: make(chan *nats.Msg, 16*stateWindow), // also for answers to probes, which nobody counts
		sink:    newStateSink(transfer, x.cfg.State.MaxBytes),
	}
	var err error
	if t.sub, err = x.nc.ChanSubscribe(t.reply, t.answers); err != nil {
		return nil, fmt.Errorf("subscribing for a slot's state: %w", err)
	}
	for range stateWindow {
		t.ask()
	}
	if t.receive(); t.err != nil && !errors.Is(t.err, io.EOF) {
		err := t.err
		t.close()
		return nil, err
	}
	return t, nil
}

// ask asks for the next chunk.
func (t *stateTransfer) ask() {
	header := nats.Header{record.StateHeader: []string{string(record.Encode(t.request))}}
	if err := t.nc.PublishMsg(&nats.Msg{Subject: t.to, Reply: t.reply, Header: header}); err != nil {
		t.err = fmt.Errorf("asking for chunk %d: %w", t.request.Chunk, err)
	}
	t.request.Chunk++
}

// Read reads the state.
func (t *stateTransfer) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.data) == 0 {
		if t.err != nil {
			return 0, t.err
		}
		t.receive()
	}
	n := copy(p, t.data)
	t.data = t.data[n:]
	return n, nil
}

// receive waits for the next chunk. An error ends the state, and so does its end.
func (t *stateTransfer) receive() {
	msg, err := t.answer()
	if err != nil {
		t.err = err
		return
	}
	about, err := record.DecodeStateChunk(msg.Header.Get(record.StateHeader))
	if err != nil {
		t.err = fmt.Errorf("decoding chunk %d: %w", t.sink.next, err)
		return
	}
	if err := t.sink.take(about, msg.Data); err != nil {
		t.err = err
		return
	}

	t.data = msg.Data
	if t.sink.whole {
		t.err = io.EOF
		return
	}
	t.ask()
}

// answer waits for what the old owner answers. If that takes long, the servers are asked whether it
// is there: a worker that is killed answers nothing.
func (t *stateTransfer) answer() (*nats.Msg, error) {
	probe := time.NewTicker(ownerProbe)
	defer probe.Stop()
	for {
		select {
		case msg := <-t.answers:
			if msg.Header.Get("Status") == "503" {
				return nil, errOldOwnerGone
			}
			return msg, nil
		case <-probe.C:
			_ = t.nc.PublishRequest(t.to, t.reply, nil)
		case <-t.ctx.Done():
			return nil, fmt.Errorf("waiting for chunk %d of the state: %w", t.sink.next, t.ctx.Err())
		}
	}
}

// finish reads what Import left unread, and reports why the state is not whole. Nothing can be read
// afterwards.
func (t *stateTransfer) finish() error {
	_, err := io.Copy(io.Discard, t)
	t.close()
	return err
}

func (t *stateTransfer) close() {
	_ = t.sub.Unsubscribe()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data, t.err = nil, errImportOver
}
