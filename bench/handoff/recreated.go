package handoff

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
)

// startRecreated is a work queue divided in partitions by a subject transform,
// and one consumer a worker that is deleted and re-created with other filters
// when partitions move. The server refuses filters that another consumer has, so
// that a new owner waits until the former has deleted its own.
//
// With drained a worker first ends what it has begun and waits for the server to
// know, and asks again soon for what was refused. Without, it does as the elastic
// groups of pcgroups: a message in work is not waited for, and what was refused
// is asked for again after AckWait and half a second.
func startRecreated(drained bool) func(context.Context, env) (group, error) {
	return func(ctx context.Context, e env) (group, error) {
		g := &mappedGroup{env: e, units: e.Slots, connect: func(w *mappedWorker) client { return &recreatedClient{w: w, drained: drained} }}
		g.unitOf = func(key int) int {
			tool, chamber := tokens(key)
			return partition.SlotOf(e.Slots, tool, chamber)
		}
		transform := fmt.Sprintf("{{partition(%d,1,2)}}.{{wildcard(1)}}.{{wildcard(2)}}", e.Slots)
		err := g.open(ctx, jetstream.StreamConfig{Retention: jetstream.WorkQueuePolicy,
			SubjectTransform: &jetstream.SubjectTransformConfig{Source: "dc.*.*.completion", Destination: transform}})
		if err != nil {
			g.stop()
			return nil, err
		}
		return g, nil
	}
}

type recreatedClient struct {
	w         *mappedWorker
	drained   bool
	consuming jetstream.ConsumeContext
}

func (c *recreatedClient) apply(ctx context.Context, units []int) error {
	if c.consuming != nil {
		if err := c.giveUp(ctx); err != nil {
			return err
		}
	}
	if len(units) == 0 {
		return nil
	}
	filters := make([]string, len(units))
	for i, u := range units {
		filters[i] = strconv.Itoa(u) + ".>"
	}
	pause := retryPause
	if !c.drained {
		pause = ackWait + 500*time.Millisecond
	}
	var consumer jetstream.Consumer
	err := untilDone(ctx, pause, func(ctx context.Context) (err error) {
		consumer, err = c.w.js.CreateConsumer(ctx, stream, c.w.config(filters))
		return err
	})
	if err != nil {
		return err
	}
	c.consuming, err = c.w.consume(ctx, consumer, partitionOf)
	return err
}

// giveUp ends consuming and deletes the consumer; what was delivered and not
// begun is the next owner's.
func (c *recreatedClient) giveUp(ctx context.Context) error {
	c.consuming.Stop()
	<-c.consuming.Closed()
	c.consuming = nil
	c.w.queues.discard()
	if c.drained {
		c.w.queues.wait()
		if err := c.w.flush(); err != nil {
			return err
		}
	}
	return untilDone(ctx, retryPause, func(ctx context.Context) error {
		err := c.w.js.DeleteConsumer(ctx, stream, c.w.consumerName())
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return nil
		}
		return err
	})
}

// partitionOf reads the partition in a transformed subject.
func partitionOf(subject string, _ message) int {
	first, _, _ := strings.Cut(subject, ".")
	n, err := strconv.Atoi(first)
	if err != nil {
		return -1
	}
	return n
}
