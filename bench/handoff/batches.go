package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// batchSize is how many messages are in an atomic batch. Servers allow 1,000.
const batchSize = 500

// allowBatches lets streams take atomic batches.
func allowBatches(ctx context.Context, nc *nats.Conn, streams ...string) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	for _, name := range streams {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("allowing batches in stream %s: %w", name, err)
		}
		config := s.CachedInfo().Config
		config.AllowAtomicPublish = true
		if _, err := js.UpdateStream(ctx, config); err != nil {
			return fmt.Errorf("allowing batches in stream %s: %w", name, err)
		}
	}
	return nil
}

// fillInBatches publishes in atomic batches, each of messages of one stream. A connection waits
// for the confirmation of one batch before the next.
func (s *natsSender) fillInBatches(ctx context.Context, ms []message) error {
	errs := make([]error, len(s.conns))
	var all sync.WaitGroup
	for i, nc := range s.conns {
		own := slices.DeleteFunc(slices.Clone(ms), func(m message) bool { return m.key%len(s.conns) != i })
		all.Go(func() {
			for _, batch := range batches(own, s.streamOf, batchSize) {
				if errs[i] = s.publishBatch(ctx, nc, batch); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// batches divides messages into batches of one stream each, and keeps the order of a stream's.
func batches(ms []message, streamOf func(key int) int, most int) (all [][]message) {
	open := map[int][]message{}
	for _, m := range ms {
		of := streamOf(m.key)
		open[of] = append(open[of], m)
		if len(open[of]) == most {
			all = append(all, open[of])
			delete(open, of)
		}
	}
	var rest []int
	for of := range open {
		rest = append(rest, of)
	}
	slices.Sort(rest)
	for _, of := range rest {
		all = append(all, open[of])
	}
	return all
}

// publishBatch publishes messages of one stream of which all are stored or none.
//
// Source: ADR-50 of nats-architecture-and-design, "JetStream Batch Publishing".
func (s *natsSender) publishBatch(ctx context.Context, nc *nats.Conn, batch []message) error {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	id := nats.NewInbox()
	for i, m := range batch {
		msg := &nats.Msg{Subject: s.subjectOf(m.key), Data: m.encode(), Header: nats.Header{}}
		msg.Header.Set("Nats-Batch-Id", id)
		msg.Header.Set("Nats-Batch-Sequence", strconv.Itoa(i+1))
		if i < len(batch)-1 {
			if err := nc.PublishMsg(msg); err != nil {
				return err
			}
			continue
		}

		msg.Header.Set("Nats-Batch-Commit", "1")
		answer, err := nc.RequestMsgWithContext(ctx, msg)
		if err != nil {
			return fmt.Errorf("publishing a batch: %w", err)
		}
		var stored struct {
			Count int `json:"count"`
		}
		if err := json.Unmarshal(answer.Data, &stored); err != nil || stored.Count != len(batch) {
			return fmt.Errorf("publishing a batch of %d: the server answers %s", len(batch), answer.Data)
		}
	}
	return nil
}
