package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// maxUnacknowledged is how many messages PublishAsync has in flight at most.
const maxUnacknowledged = 1024

// Outgoing is a message to publish.
type Outgoing struct {
	// Key is the message's key in its written form; see JoinKey. Required.
	Key  string
	Data []byte
	// ID is recognized within Storage.Duplicates: a second message with the same ID is
	// acknowledged as a duplicate and not stored. Publish it again under its ID after an error
	// that leaves open whether it was stored. May be empty.
	ID string
	// Header is sent with it; may be nil. It is not changed.
	Header nats.Header
}

// Publisher publishes a group's messages by key. It finds the stream of a key, also with
// Config.Shards. Several goroutines may use one. Nothing needs it: publishers in any language
// publish to Config.Subject.
type Publisher struct {
	cfg Config
	js  jetstream.JetStream
}

// Publisher reads how the group was provisioned, and returns a publisher for it. Resharding
// changes nothing for it. Of the users with permissions of their own, role.Collector may do so.
func (g *Group) Publisher(ctx context.Context) (*Publisher, error) {
	cfg, err := g.Config(ctx)
	if err != nil {
		return nil, fmt.Errorf("preparing to publish to group %s: %w", g.name, err)
	}
	js, err := jetstream.New(g.nc, jetstream.WithPublishAsyncMaxPending(maxUnacknowledged))
	if err != nil {
		return nil, fmt.Errorf("preparing to publish to group %s: %w", g.name, err)
	}
	return &Publisher{cfg, js}, nil
}

// Publish publishes a message and waits until its stream has stored it. Config.Sequence tells
// from the result what Message.Sequence will be, unless the group has a Source: then the message
// goes there, and the result is that stream's.
//
// For the error of a stream without room IsFull is true: publish the message again later. An
// error that wraps jetstream.ErrNoStreamResponse says that the stream is missing or its servers
// are away. After any other error but that of a wrong key the message may have been stored.
func (p *Publisher) Publish(ctx context.Context, m Outgoing) (*jetstream.PubAck, error) {
	msg, err := p.message(m)
	if err != nil {
		return nil, err
	}
	ack, err := p.js.PublishMsg(ctx, msg, m.options()...)
	if err != nil {
		return nil, p.failed(m, err)
	}
	return ack, nil
}

// PublishAsync publishes a message and doesn't wait for its stream. The future tells the
// outcome, with the errors that Publish has. A key's messages are stored in the order in which
// one goroutine publishes them, but one that fails doesn't hold later ones back, and isn't
// tried again: publish the next only after it where a gap would matter.
//
// At most 1,024 messages are in flight. When as many are, it waits for a moment, then the error
// wraps jetstream.ErrTooManyStalledMsgs: nothing was published.
func (p *Publisher) PublishAsync(m Outgoing) (jetstream.PubAckFuture, error) {
	msg, err := p.message(m)
	if err != nil {
		return nil, err
	}
	// Tried again after a pause, it would come behind later messages of its key.
	options := append(m.options(), jetstream.WithRetryAttempts(0))
	future, err := p.js.PublishMsgAsync(msg, options...)
	if err != nil {
		return nil, p.failed(m, err)
	}
	return future, nil
}

// Flush waits until the outcome of every message of PublishAsync is known.
func (p *Publisher) Flush(ctx context.Context) error {
	select {
	case <-p.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for %d messages to group %s to be acknowledged: %w", p.js.PublishAsyncPending(), p.cfg.Name, ctx.Err())
	}
}

// message is what the servers get of an outgoing message.
func (p *Publisher) message(m Outgoing) (*nats.Msg, error) {
	if err := p.cfg.CheckKey(m.Key); err != nil {
		return nil, fmt.Errorf("publishing to group %s: %w", p.cfg.Name, err)
	}
	pattern, err := parsePattern(p.cfg.Subject)
	if err != nil {
		return nil, fmt.Errorf("publishing to group %s: %w", p.cfg.Name, err)
	}
	subject, err := p.cfg.PublishSubject(pattern.of(SplitKey(m.Key)))
	if err != nil {
		return nil, fmt.Errorf("publishing to group %s: %w", p.cfg.Name, err)
	}

	msg := &nats.Msg{Subject: subject, Data: m.Data, Header: nats.Header{}}
	for name, values := range m.Header {
		msg.Header[name] = slices.Clone(values)
	}
	return msg, nil
}

func (m Outgoing) options() []jetstream.PublishOpt {
	if m.ID == "" {
		return nil
	}
	return []jetstream.PublishOpt{jetstream.WithMsgID(m.ID)}
}

// failed says what was attempted, and what to do where that is known.
func (p *Publisher) failed(m Outgoing, err error) error {
	switch {
	case IsFull(err):
		return fmt.Errorf("publishing a message of key %s to group %s, whose stream is full: publish it again later: %w", m.Key, p.cfg.Name, err)
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("publishing a message of key %s to group %s: its stream is missing or its servers are away; Group.Provision creates it: %w", m.Key, p.cfg.Name, err)
	}
	return fmt.Errorf("publishing a message of key %s to group %s: %w", m.Key, p.cfg.Name, err)
}
