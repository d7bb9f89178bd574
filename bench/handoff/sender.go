package handoff

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker/access"
)

// natsSender publishes over connections of its own.
type natsSender struct {
	conns     []*nats.Conn
	js        []jetstream.JetStream
	subjectOf func(key int) string
	streamOf  func(key int) int // of those that take atomic batches; nil: none does
}

// mostUnconfirmed is how many messages each connection publishes ahead of their confirmations.
const mostUnconfirmed = 4000

func newNATSSender(url string, subjectOf func(key int) string) (*natsSender, error) {
	s := &natsSender{subjectOf: subjectOf}
	for range 4 {
		nc, err := access.Connect(url, "publisher")
		if err != nil {
			s.close()
			return nil, err
		}
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(mostUnconfirmed))
		if err != nil {
			s.close()
			return nil, err
		}
		s.conns, s.js = append(s.conns, nc), append(s.js, js)
	}
	return s, nil
}

// send publishes; a message that was stored without our knowing is known by its
// ID.
func (s *natsSender) send(ctx context.Context, m message) error {
	try, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := s.js[m.key%len(s.js)].Publish(try, s.subjectOf(m.key), m.encode(), jetstream.WithMsgID(m.String()))
	return err
}

// fill publishes without IDs, as nothing is tried twice, and all of a key over one connection.
func (s *natsSender) fill(ctx context.Context, ms []message) error {
	if s.streamOf != nil {
		return s.fillInBatches(ctx, ms)
	}
	errs := make([]error, len(s.js))
	var all sync.WaitGroup
	for i, js := range s.js {
		all.Go(func() { errs[i] = s.fillOver(ctx, js, i, ms) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (s *natsSender) fillOver(ctx context.Context, js jetstream.JetStream, conn int, ms []message) error {
	var futures []jetstream.PubAckFuture
	for _, m := range ms {
		if m.key%len(s.js) != conn {
			continue
		}
		f, err := js.PublishAsync(s.subjectOf(m.key), m.encode(), jetstream.WithStallWait(settleTime))
		if err != nil {
			return err
		}
		futures = append(futures, f)
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, f := range futures {
		select {
		case err := <-f.Err():
			return err
		default:
		}
	}
	return nil
}

func (s *natsSender) close() {
	for _, nc := range s.conns {
		nc.Close()
	}
}
