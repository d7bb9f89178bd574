package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/broker/access"
)

// This file measures what the server does for one consumer a slot, in the ways that
// there are to keep messages and to give them out: streams that are full are
// drained by bare consumers. There are no workers, leases or maps, and a handler is
// an acknowledgement, so it is what Muster could reach at most in each way.

// Mode is one way.
type Mode struct {
	Limits   bool `json:"limits"`    // messages stay, and consumers' state is in files; else a work queue and state in memory
	InFlight int  `json:"in_flight"` // messages of a slot that wait for their acknowledgement at a time
	Shards   int  `json:"shards"`    // streams that the slots are spread over
	Slots    int  `json:"slots"`
	Replicas int  `json:"replicas"`
}

func (m Mode) String() string {
	retention := "work queue, memory"
	if m.Limits {
		retention = "limits, file"
	}
	return fmt.Sprintf("%s, %d in flight, %d shards, %d slots, %d replicas", retention, m.InFlight, m.Shards, m.Slots, m.Replicas)
}

// Modes are all ways for this number of slots.
func Modes(slots, replicas int) []Mode {
	var all []Mode
	for _, limits := range []bool{false, true} {
		for _, inFlight := range []int{1, 8, 64} {
			for _, shards := range []int{1, 4, 8} {
				all = append(all, Mode{Limits: limits, InFlight: inFlight, Shards: shards, Slots: slots, Replicas: replicas})
			}
		}
	}
	return all
}

// ModeRun is one drain.
type ModeRun struct {
	Mode
	Messages  int           `json:"messages"`
	Again     int           `json:"again"` // deliveries beyond one a message
	Took      time.Duration `json:"took_ns"`
	ServerCPU time.Duration `json:"server_cpu_ns"`
	ClientCPU time.Duration `json:"client_cpu_ns"`
}

// Rate is how many messages were drained in a second.
func (r ModeRun) Rate() float64 { return per(r.Messages, r.Took) }

// ServerPerMessage is the CPU time of the servers for each message.
func (r ModeRun) ServerPerMessage() time.Duration { return r.ServerCPU / time.Duration(r.Messages) }

const (
	modeClients = 8 // connections that pull, each for its part of the slots
	modeBatch   = 64
	modeExpiry  = 30 * time.Second
	modeGroup   = "owner"
)

// modeDrain is one measurement.
type modeDrain struct {
	Mode
	batch   int                                       // messages that one pull asks for
	pinned  bool                                      // each consumer has a priority group, as Muster's
	atomic  bool                                      // streams take atomic batches
	deliver func(connection, slot int, msg *nats.Msg) // one call at a time for each connection

	js    jetstream.JetStream
	conns []*nats.Conn
	subs  []*nats.Subscription // that pull
	got   atomic.Int64
	again atomic.Int64
	all   chan struct{} // closed with the last message
	goal  int64
}

// MeasureMode fills streams with messages, spread evenly over the slots, and drains
// them.
func MeasureMode(ctx context.Context, m Mode, messages int) (r ModeRun, err error) {
	dir, err := os.MkdirTemp("", "modes-")
	if err != nil {
		return r, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	options, err := broker.ClusterOptions(m.Replicas, 0, filepath.Join(dir, "store"), "")
	if err != nil {
		return r, err
	}
	orders := make([]order, len(options))
	for i := range options {
		orders[i].NATS = options[i]
	}
	running, err := startChildren(ctx, orders)
	if err != nil {
		return r, err
	}
	defer running.stop()
	url := broker.URLs(options)
	if err := ready(ctx, url, m.Replicas); err != nil {
		return r, err
	}
	d := &modeDrain{Mode: m, batch: modeBatch, pinned: true, all: make(chan struct{}), goal: int64(messages)}
	d.deliver = d.count
	defer d.close()
	if err := d.open(url); err != nil {
		return r, err
	}
	if err := d.provision(ctx); err != nil {
		return r, err
	}
	if err := d.fill(ctx, messages); err != nil {
		return r, err
	}
	r = ModeRun{Mode: m, Messages: messages}
	before, err := bothCPU(running)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := d.drain(ctx); err != nil {
		return r, err
	}
	r.Took = time.Since(began)
	after, err := bothCPU(running)
	r.ServerCPU, r.ClientCPU, r.Again = after[0]-before[0], after[1]-before[1], int(d.again.Load())
	return r, err
}

// bothCPU returns the CPU time of the servers and of this process.
func bothCPU(running servers) (times [2]time.Duration, err error) {
	if times[0], err = running.cpu(); err != nil {
		return times, err
	}
	times[1], err = ownCPU()
	return times, err
}

func (d *modeDrain) open(url string) error {
	for i := range modeClients {
		nc, err := access.Connect(url, workerName(i))
		if err != nil {
			return err
		}
		d.conns = append(d.conns, nc)
	}
	var err error
	d.js, err = jetstream.New(d.conns[0], jetstream.WithPublishAsyncMaxPending(4000))
	return err
}

func (d *modeDrain) close() {
	for _, nc := range d.conns {
		nc.Close()
	}
}

func (d *modeDrain) stream(slot int) string { return "shard-" + strconv.Itoa(slot%d.Shards) }

func (d *modeDrain) subject(slot int) string {
	return fmt.Sprintf("shard.%d.slot.%d.", slot%d.Shards, slot)
}

func consumer(slot int) string { return fmt.Sprintf("slot-%04d", slot) }

func (d *modeDrain) provision(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime) // the client's own is short where 512 files are made
	defer cancel()
	retention := jetstream.WorkQueuePolicy
	if d.Limits {
		retention = jetstream.LimitsPolicy
	}
	for k := range d.Shards {
		if _, err := d.js.CreateStream(ctx, jetstream.StreamConfig{Name: d.stream(k), Subjects: []string{fmt.Sprintf("shard.%d.>", k)},
			Retention: retention, Storage: jetstream.FileStorage, Replicas: d.Replicas, MaxConsumers: d.Slots, AllowAtomicPublish: d.atomic}); err != nil {
			return err
		}
	}
	const makers = 16
	errs := make([]error, makers)
	var wg sync.WaitGroup
	for i := range makers {
		wg.Go(func() {
			for slot := i; slot < d.Slots && errs[i] == nil; slot += makers {
				errs[i] = d.provisionSlot(ctx, slot)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (d *modeDrain) provisionSlot(ctx context.Context, slot int) error {
	config := jetstream.ConsumerConfig{Durable: consumer(slot), FilterSubject: d.subject(slot) + ">",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: modeExpiry, MaxDeliver: -1, MaxAckPending: d.InFlight, MemoryStorage: !d.Limits}
	if d.pinned {
		config.PriorityPolicy, config.PriorityGroups, config.PinnedTTL = jetstream.PriorityPolicyPinned, []string{modeGroup}, 3*modeExpiry
	}
	_, err := d.js.CreateConsumer(ctx, d.stream(slot), config)
	return err
}

// fill publishes messages of the size of Muster's.
func (d *modeDrain) fill(ctx context.Context, messages int) error {
	payload := []byte(strings.Repeat("m", 256))
	for i := range messages {
		if _, err := d.js.PublishAsync(d.subject(i%d.Slots)+"key", payload, jetstream.WithStallWait(settleTime)); err != nil {
			return err
		}
	}
	select {
	case <-d.js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	var stored uint64
	for k := range d.Shards {
		s, err := d.js.Stream(ctx, d.stream(k))
		if err != nil {
			return err
		}
		stored += s.CachedInfo().State.Msgs
	}
	if stored != uint64(messages) {
		return fmt.Errorf("%d of %d messages are stored", stored, messages)
	}
	return nil
}

// drain pulls for all slots until every message has come and its acknowledgement
// is booked.
func (d *modeDrain) drain(ctx context.Context) error {
	if err := d.begin(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	select {
	case <-d.all:
	case <-ctx.Done():
		return fmt.Errorf("draining %v: %d of %d messages have come: %w", d.Mode, d.got.Load(), d.goal, ctx.Err())
	}
	return d.booked(ctx)
}

// begin pulls for all slots.
func (d *modeDrain) begin() error {
	for i, nc := range d.conns {
		if err := d.pull(nc, i); err != nil {
			return err
		}
	}
	return nil
}

// end pulls no more. What the server still had to send is for the next who pulls.
func (d *modeDrain) end() error {
	var errs []error
	for _, sub := range d.subs {
		errs = append(errs, sub.Unsubscribe())
	}
	d.subs = nil
	for _, nc := range d.conns {
		errs = append(errs, nc.FlushTimeout(tryTime))
	}
	return errors.Join(errs...)
}

// count acknowledges a message.
func (d *modeDrain) count(_, _ int, msg *nats.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		return
	}
	_ = msg.Ack()
	switch {
	case meta.NumDelivered > 1:
		d.again.Add(1)
	case d.got.Add(1) == d.goal:
		close(d.all)
	}
}

// booked waits until the server has every acknowledgement.
func (d *modeDrain) booked(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, nc := range d.conns {
		if err := nc.FlushWithContext(ctx); err != nil {
			return err
		}
	}
	for {
		waiting, err := d.unacknowledged(ctx)
		if err != nil {
			return fmt.Errorf("draining %v: waiting for the acknowledgements: %w", d.Mode, err)
		}
		if waiting == 0 {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// unacknowledged counts what the server has not booked: all that is left in work
// queues; on limits, by the last slot of each shard, as asking all of 512
// consumers would cost more than the drain.
func (d *modeDrain) unacknowledged(ctx context.Context) (n uint64, err error) {
	for k := range d.Shards {
		if !d.Limits {
			s, err := d.js.Stream(ctx, d.stream(k))
			if err != nil {
				return 0, err
			}
			n += s.CachedInfo().State.Msgs
			continue
		}
		c, err := d.js.Consumer(ctx, d.stream(k), consumer(d.Slots-d.Shards+k))
		if err != nil {
			return 0, err
		}
		n += uint64(c.CachedInfo().NumAckPending)
	}
	return n, nil
}

// nextRequest is what a pull asks for.
type nextRequest struct {
	Batch   int           `json:"batch"`
	Expires time.Duration `json:"expires"`
	Group   string        `json:"group,omitempty"`
	ID      string        `json:"id,omitempty"` // that the consumer is pinned to
}

// pull pulls for a connection's part of the slots: one subscription, and one pull per
// slot that is renewed when it has brought what it asked for.
func (d *modeDrain) pull(nc *nats.Conn, part int) error {
	inbox := nats.NewInbox()
	left := make([]int, d.Slots)
	request := nextRequest{Batch: d.batch, Expires: modeExpiry}
	if d.pinned {
		request.Group = modeGroup
	}
	ask := func(slot int, pin string) error {
		left[slot] = d.batch
		own := request
		own.ID = pin
		body, err := json.Marshal(own)
		if err != nil {
			return err
		}
		return nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+d.stream(slot)+"."+consumer(slot), inbox+"."+strconv.Itoa(slot), body)
	}
	sub, err := nc.Subscribe(inbox+".>", func(msg *nats.Msg) {
		if len(msg.Data) == 0 {
			return // the end of a pull that waited for nothing
		}
		slot, err := strconv.Atoi(strings.Split(msg.Subject, ".")[3])
		if err != nil {
			return
		}
		d.deliver(part, slot, msg)
		if left[slot]--; left[slot] == 0 {
			_ = ask(slot, msg.Header.Get("Nats-Pin-Id"))
		}
	})
	if err != nil {
		return err
	}
	d.subs = append(d.subs, sub)
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	var errs []error
	for slot := part; slot < d.Slots; slot += modeClients {
		errs = append(errs, ask(slot, ""))
	}
	return errors.Join(errs...)
}
