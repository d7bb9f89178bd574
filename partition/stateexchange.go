package partition

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// stateExchange moves the states of slots between this worker's handler and those of others. It
// carries out what the runs of slots decide; see stateLoad for the order. A transfer that fails in
// whatever way ends in Prepare, and is an event: the handoff itself never depends on it.
type stateExchange struct {
	cfg      Config
	nc       *nats.Conn
	log      *slog.Logger
	handler  StateMover
	guard    guard
	note     func(event.Event)
	released func(Slots)
	step     func(deliveryInput)
	wg       *sync.WaitGroup // of loads
	prepares statePrepares

	mu     sync.Mutex
	self   record.Process
	sub    *nats.Subscription
	offers map[place]*stateOffer
	loads  map[uint64]context.CancelFunc // by run
	open   sync.WaitGroup                // offers
	closed bool                          // nothing is offered any more
}

// listen subscribes to the subject of an identity. A worker that has given its identity up keeps the
// subscription, for the states of slots that it has just handed off.
func (x *stateExchange) listen(self record.Process) {
	if self == (record.Process{}) {
		return
	}
	sub, err := x.nc.Subscribe(stateSubject(x.cfg.Name, self), x.asked)
	if err != nil {
		x.log.Error("Subscribing for requests for the states of slots failed.", "err", err)
	}
	x.mu.Lock()
	former := x.sub
	x.self, x.sub = self, sub
	x.mu.Unlock()
	if former != nil {
		_ = former.Unsubscribe()
	}
}

func (x *stateExchange) identity() record.Process {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.self
}

// close waits until the states that are offered were fetched, or time is up.
func (x *stateExchange) close() {
	if x.nc.IsClosed() {
		x.withdraw(func(*stateOffer) bool { return true })
	}
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
	x.open.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.sub != nil {
		_ = x.sub.Unsubscribe()
	}
}

// execute carries an effect about a state out.
func (x *stateExchange) execute(e deliveryEffect) {
	switch e := e.(type) {
	case loadEffect:
		x.wg.Go(x.begin(e))
	case stopLoadEffect:
		x.stop(e.run)
	case exportEffect:
		x.offer(e)
	}
}

// begin begins the load of a run's slot. The returned function does the rest, and takes as long as
// that takes.
func (x *stateExchange) begin(e loadEffect) func() {
	ctx, cancel := context.WithCancel(context.Background())
	x.mu.Lock()
	defer x.mu.Unlock()
	x.loads[e.run] = cancel
	return func() {
		complete := x.load(ctx, e)
		x.mu.Lock()
		delete(x.loads, e.run)
		x.mu.Unlock()
		cancel()
		x.step(loadedInput{e.run, complete})
	}
}

// stop ends the context of a load.
func (x *stateExchange) stop(run uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if cancel := x.loads[run]; cancel != nil {
		cancel()
	}
}

// load gets the state of a slot, and reports whether the handler has all of it. Offers of the same
// keys end first: a Releaser may be told of them.
func (x *stateExchange) load(ctx context.Context, e loadEffect) bool {
	x.withdraw(func(o *stateOffer) bool {
		return o.place == e.place || o.generation != e.generation && o.shares(e.place)
	})
	if e.state == (stateMove{}) {
		return x.prepares.prepare(ctx, e.place)
	}

	begun := time.Now()
	size, err := x.fetch(ctx, e)
	about := event.Event{Slot: e.slot, Peer: e.state.peer.ID, Version: e.state.version, Duration: time.Since(begun)}
	switch {
	case err == nil:
		about.Kind, about.Count = event.StateMoved, int(size)
		x.note(about)
		return true
	case ctx.Err() != nil: // the slot goes elsewhere
		return false
	}
	about.Kind, about.Err = event.StateNotMoved, err.Error()
	x.note(about)
	x.log.Warn("The state of a slot could not be had from its old owner; the handler prepares instead.",
		"slot", e.slot, "from", e.state.peer.ID, "version", e.state.version, "err", err)
	return x.prepares.prepare(ctx, e.place)
}

// fetch has the handler import the state from the old owner. It returns the state's size.
func (x *stateExchange) fetch(ctx context.Context, e loadEffect) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.State.Timeout)
	defer cancel()
	t, err := x.openTransfer(ctx, e)
	if err != nil {
		return 0, fmt.Errorf("asking worker %s for the state: %w", e.state.peer.ID, err)
	}

	late := time.AfterFunc(x.cfg.State.Timeout+exportPatience, func() {
		x.log.Error("An Import goes on although its context has ended: its slot waits for it. Have it return then.", "slot", e.slot)
	})
	defer late.Stop()
	imported := x.guard.call("Import", func() error { return x.handler.Import(ctx, e.only(), t) })
	// An Import that has not read everything has not seen whether the state is whole.
	if err := t.finish(); err != nil {
		imported = errors.Join(imported, err)
	}
	if imported != nil {
		return 0, fmt.Errorf("importing the state from worker %s: %w", e.state.peer.ID, imported)
	}
	return t.sink.length, nil
}

// only is a slot as a handler is told of it.
func (p place) only() Slots { return Slots{p.slots, []int{p.slot}} }

// offer offers the state of a slot. A slot may be released as late as when the worker ends.
func (x *stateExchange) offer(e exportEffect) {
	o := &stateOffer{stateExchange: x, exportEffect: e, requests: make(chan stateAsked, 2*stateWindow), closed: make(chan struct{})}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		x.wg.Go(func() { x.released(e.leave) })
		return
	}
	o.ctx, o.end = context.WithTimeout(context.Background(), x.cfg.State.Timeout)
	x.offers[e.place] = o
	x.open.Go(o.run)
}

// withdraw ends offers, and waits until nothing is read of their states.
func (x *stateExchange) withdraw(which func(*stateOffer) bool) {
	x.mu.Lock()
	var ends []*stateOffer
	for _, o := range x.offers {
		if which(o) {
			ends = append(ends, o)
		}
	}
	x.mu.Unlock()
	for _, o := range ends {
		o.end()
	}
	for _, o := range ends {
		<-o.closed
	}
}

// forget removes an offer, unless a later one of the slot is in its place.
func (x *stateExchange) forget(o *stateOffer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.offers[o.place] == o {
		delete(x.offers, o.place)
	}
}

// asked takes in a request for a chunk.
func (x *stateExchange) asked(msg *nats.Msg) {
	if msg.Reply == "" || len(msg.Header) == 0 {
		return // a probe: being subscribed is the answer
	}
	v, err := record.DecodeStateRequest(msg.Header.Get(record.StateHeader))
	if err != nil {
		x.log.Warn("A request for the state of a slot is rejected.", "err", err)
		return
	}

	// Only the first chunk: the requests that are under way when a state ends need no answer.
	if asked := (stateAsked{v, msg.Reply}); !x.pass(asked) && v.Chunk == 0 {
		x.answer(asked, record.StateChunk{Outcome: record.StateNone}, nil)
	}
}

// pass gives a request to the offer that it is for. It reports whether there is one.
func (x *stateExchange) pass(asked stateAsked) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	o := x.offers[generation{asked.Layout, asked.Slots}.place(asked.Slot)]
	if o == nil || !o.isFor(asked.StateRequest) {
		return false
	}
	o.transfer = asked.Transfer
	select {
	case o.requests <- asked:
	default: // more than the window: no worker asks for that
	}
	return true
}

// isFor reports whether a request is of the handoff that the state is offered for, and of the one
// transfer of that.
func (o *stateOffer) isFor(v record.StateRequest) bool {
	return v.From == o.state.peer && v.Version == o.state.version && (o.transfer == "" || o.transfer == v.Transfer)
}
