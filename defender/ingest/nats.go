package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
)

// Subject is where runs are sent as requests.
const Subject = defender.IngestSubject

// Headers of a request and of its answer.
const (
	ParametersHeader = "Muster-Ingest" // the parameters, as in the query of an URL
	FormatHeader     = "Content-Type"  // as in HTTP
	StatusHeader     = "Muster-Status" // of an answer, as in HTTP
	queue            = "muster-ingest" // a request goes to one of all that serve
)

// Serve takes runs from [Subject] until ctx ends or the connection is closed, and then finishes
// those that it began.
func (i *Ingester) Serve(ctx context.Context, nc *nats.Conn) error {
	// What has begun isn't broken off by the end of ctx: it has a timeout of its own.
	last := context.WithoutCancel(ctx)
	var serving sync.WaitGroup
	sub, err := nc.QueueSubscribe(Subject, queue, func(m *nats.Msg) {
		leave, err := i.enter()
		if err != nil {
			reply(m, responseOf(Receipt{}, err))
			return
		}
		serving.Go(func() {
			defer leave()
			reply(m, i.answer(last, m))
		})
	})
	if err != nil {
		return fmt.Errorf("subscribing to %s: %w", Subject, err)
	}
	closed := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(closed) })
	if err := nc.FlushTimeout(serversTimeout); err != nil {
		return fmt.Errorf("subscribing to %s: %w", Subject, err)
	}

	select {
	case <-ctx.Done():
		if err := sub.Drain(); err != nil {
			return fmt.Errorf("leaving %s: %w", Subject, err)
		}
		<-closed // after it no run begins
	case <-closed:
	}
	serving.Wait()
	return nil
}

func (i *Ingester) answer(ctx context.Context, m *nats.Msg) Response {
	query, err := url.ParseQuery(m.Header.Get(ParametersHeader))
	if err != nil {
		return responseOf(Receipt{}, problem(ParametersHeader, "%v: write the parameters as in an URL", err))
	}
	return responseOf(i.take(ctx, query, m.Header.Get(FormatHeader), m.Data))
}

func reply(m *nats.Msg, r Response) {
	data, err := json.Marshal(r)
	if err == nil {
		err = m.RespondMsg(&nats.Msg{Data: data, Header: nats.Header{StatusHeader: {strconv.Itoa(r.Status)}}})
	}
	if err != nil {
		slog.Warn("answer not sent", "subject", m.Subject, "err", err)
	}
}
