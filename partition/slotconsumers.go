package partition

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// slotConsumers does what the slots' consumers need of the server beside pulls: it takes
// pins off, resets, creates and deletes consumers, and looks at what they have. It has no
// state. Questions of runs, takeovers of the leader and messages for slots that are not
// held call it from goroutines of their own.
type slotConsumers struct {
	cfg    Config
	layout layout
	nc     *nats.Conn
	js     jetstream.JetStream
	life   context.Context // until the puller is closed
	look   func()          // has the streams looked at
}

// sendBack returns a message that came for a slot that is not held: the pin
// first, or the server would deliver it here again.
func (c *slotConsumers) sendBack(msg *nats.Msg) {
	stream, consumer := originOf(msg.Reply)
	_ = c.unpin(context.Background(), stream+"."+consumer)
	_ = msg.Nak()
}

func (c *slotConsumers) api(ctx context.Context, verb, address string, body []byte) error {
	subject := "$JS.API.CONSUMER." + verb + "." + address
	msg, err := askServer(ctx, c.nc, &nats.Msg{Subject: subject, Data: body})
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

var unpinBody = record.Encode(struct {
	Group string `json:"group"`
}{priorityGroup})

func (c *slotConsumers) unpin(ctx context.Context, address string) error {
	return c.api(ctx, "UNPIN", address, unpinBody)
}

// unpinUntilDone tries until the pin is off, or the puller is closed: then the
// server takes it off when it has expired, if nobody has before.
func (c *slotConsumers) unpinUntilDone(address string) {
	c.untilDone(func(ctx context.Context) error { return c.unpin(ctx, address) })
}

// resetUntilDone tries until the pin is off and the consumer reset, or the consumer gone, or
// the puller closed. The server may not answer the reset of a consumer that it does not have,
// so the pin comes first each time.
func (c *slotConsumers) resetUntilDone(address string) {
	c.untilDone(func(ctx context.Context) error {
		if err := c.unpin(ctx, address); err != nil {
			return err
		}
		return c.api(ctx, "RESET", address, nil)
	})
}

// untilDone tries an operation on a consumer until it succeeds, the consumer is gone or the
// puller is closed.
func (c *slotConsumers) untilDone(do func(context.Context) error) {
	for c.life.Err() == nil {
		err := do(c.life)
		if err == nil || errors.Is(err, errNoConsumer) || c.nc.IsClosed() {
			return
		}
		select {
		case <-c.life.Done():
		case <-time.After(pullRetry):
		}
	}
}

// replace takes a slot whose keys may have had other consumers.
func (c *slotConsumers) replace(ctx context.Context, at place, former []place) error {
	t := newTakeoverSteps(at, former)
	for {
		stage, of := t.next()
		var err error
		switch stage {
		case stepRetire:
			err = c.retire(ctx, of)
		case stepUnpin:
			err = c.unpin(ctx, c.layout.address(of))
		case stepReset:
			err = c.api(ctx, "RESET", c.layout.address(of), nil)
		case stepCreate:
			err = c.createConsumer(ctx, of)
		case stepDone:
			return t.err
		}
		t.did(err)
	}
}

// retire deletes a consumer that nobody pulls for any more. The server removes
// what is acknowledged a moment later, and what it has not removed by then would
// be delivered again by the next consumer, after the messages behind it maybe.
func (c *slotConsumers) retire(ctx context.Context, at place) error {
	stream, name := c.layout.streamOf(at.slot), c.layout.consumer(at)
	consumer, err := c.js.Consumer(ctx, stream, name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	for began := time.Now(); ; time.Sleep(removalPoll) {
		first, err := c.firstStored(ctx, stream, c.layout.filter(at))
		if err != nil {
			return err
		}
		if first == 0 || first > consumer.CachedInfo().AckFloor.Stream {
			break
		}
		if time.Since(began) > removalWait {
			// A repetition is better than a slot that stands still.
			c.cfg.Logger.Warn("The server does not remove what is acknowledged; it may be delivered again.", "consumer", name, "sequence", first)
			break
		}
	}
	err = c.js.DeleteConsumer(ctx, stream, name)
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
func (c *slotConsumers) firstStored(ctx context.Context, stream, filter string) (uint64, error) {
	first, err := c.read(ctx, stream, storedRequest{Sequence: 1, NextFor: filter})
	if err != nil {
		return 0, fmt.Errorf("reading the first message of %s: %w", filter, err)
	}
	return first.Sequence, nil
}

// stored reports whether a message is in a stream, as the stream's leader knows it. If another
// one has its sequence, it says so.
func (c *slotConsumers) stored(ctx context.Context, stream string, o original) (is bool, other string, err error) {
	m, err := c.read(ctx, stream, storedRequest{Sequence: o.sequence})
	switch {
	case err != nil:
		return false, "", fmt.Errorf("reading message %d of %s: %w", o.sequence, stream, err)
	case m.Sequence == 0:
		return false, "", nil
	case m.Time.UnixNano() != o.published:
		return false, fmt.Sprintf("message %d was published at %s, and the one before at %s", o.sequence,
			m.Time.UTC().Format(time.RFC3339Nano), time.Unix(0, o.published).UTC().Format(time.RFC3339Nano)), nil
	}
	return true, "", nil
}

// storedRequest asks for the message with a sequence, or the next one from there on that
// a filter selects.
//
// Source: NATS ADR-31, "JetStream Direct Get", and $JS.API.STREAM.MSG.GET.
type storedRequest struct {
	Sequence uint64 `json:"seq"`
	NextFor  string `json:"next_by_subj,omitempty"`
}

type storedMessage struct {
	Sequence uint64    `json:"seq"` // 0: there is none
	Time     time.Time `json:"time"`
}

func (c *slotConsumers) read(ctx context.Context, stream string, wanted storedRequest) (storedMessage, error) {
	msg, err := askServer(ctx, c.nc, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + stream, Data: record.Encode(wanted)})
	if err != nil {
		return storedMessage{}, err
	}
	var answer struct {
		apiError
		Message storedMessage `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &answer); err != nil {
		return storedMessage{}, err
	}
	switch e := answer.Error; {
	case e == nil:
		return answer.Message, nil
	case jetstream.ErrorCode(e.ErrCode) == codeNoMessage:
		return storedMessage{}, nil
	default:
		return storedMessage{}, fmt.Errorf("%s (%d)", e.Description, e.ErrCode)
	}
}

// messages returns how many messages a stream has.
func (c *slotConsumers) messages(ctx context.Context, stream string) (uint64, error) {
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}

// waiting answers askWaiting by what the server says of the consumer.
func (c *slotConsumers) waiting(ctx context.Context, at place, a *answer) error {
	consumer, err := c.js.Consumer(ctx, c.layout.streamOf(at.slot), c.layout.consumer(at))
	if err != nil {
		return err
	}
	info := consumer.CachedInfo()
	a.yes, a.sequence = info.NumPending > 0 || info.NumAckPending > 0, info.Delivered.Consumer
	return nil
}

// createConsumer creates a slot's consumer again: its state is in memory only and
// goes with a restart of the server. What was not acknowledged is in the stream.
func (c *slotConsumers) createConsumer(ctx context.Context, at place) error {
	c.look() // it may have gone with its stream
	_, err := c.js.CreateOrUpdateConsumer(ctx, c.layout.streamOf(at.slot), slotConsumer(c.cfg, c.layout, at))
	return err
}

// renew creates a slot's consumer again, without what the server knew of it.
func (c *slotConsumers) renew(ctx context.Context, at place) error {
	err := c.js.DeleteConsumer(ctx, c.layout.streamOf(at.slot), c.layout.consumer(at))
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return err
	}
	return c.createConsumer(ctx, at)
}
