package partition

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/natstest"
	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// modelInFlight is how many messages the consumers of TestConsumerModel may deliver before one
// is settled.
const modelInFlight = 3

// consumerServer is a stream with a pinned consumer, real or simulated, and two workers that
// pull for it.
type consumerServer interface {
	publish(n int)
	// pull asks for up to n messages with a pin, "" for none, and returns when the server has
	// the request.
	pull(worker string, n int, pinned string)
	// unpin takes the pin off, and reset goes back to the acknowledgement floor.
	unpin()
	reset()
	// send settles a message that a worker has, and says nothing of what comes of it. confirm
	// waits for an answer, and reports whether one came.
	send(d modelDelivery, how settlement)
	confirm(d modelDelivery, how settlement) bool
	// come waits until that many messages in all have come to a worker, and returns them.
	come(worker string, n int) []modelDelivery
	// floor returns the acknowledgement floor's sequence, and how many messages are pending.
	floor() (sequence uint64, pending int)
}

type modelDelivery struct {
	sequence uint64 // in the stream
	number   uint64 // of the consumer's deliveries
	behind   uint64 // messages that the consumer has yet to deliver
	pinned   string
	body     any
}

// TestConsumerModel runs one body against the simulated consumer and the real one: what more
// than one message in flight needs to know of the server.
func TestConsumerModel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, srv consumerServer){
		"as many as may be in flight are delivered, in order":                         modelOrder,
		"a confirmed acknowledgement confirms those before it":                        modelConfirm,
		"what is returned comes again in the order of returning, before all new":      modelReturn,
		"a reset delivers again what is not settled, in order, numbered from 1":       modelReset,
		"what was not delivered since a reset can't be acknowledged":                  modelLateAck,
		"a pull without a pin outlives a handoff, and takes what comes after it":      modelOldPull,
		"a return by an earlier delivery is a redelivery, once it is delivered again": modelLateReturn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("simulated", func(t *testing.T) { test(t, newSimModel(t)) })
			t.Run("real", func(t *testing.T) { test(t, newRealModel(t)) })
		})
	}
}

func sequences(ds []modelDelivery) (out []uint64) {
	for _, d := range ds {
		out = append(out, d.sequence)
	}
	return out
}

func expectSequences(t *testing.T, ds []modelDelivery, want ...uint64) {
	t.Helper()
	if got := sequences(ds); !slices.Equal(got, want) {
		t.Fatalf("messages %v came, want %v", got, want)
	}
}

// expectBehind compares how many messages each delivery says are behind it.
func expectBehind(t *testing.T, ds []modelDelivery, want ...uint64) {
	t.Helper()
	for i, d := range ds {
		if d.behind != want[i] {
			t.Errorf("message %d says that %d are behind it, want %d", d.sequence, d.behind, want[i])
		}
	}
}

func modelOrder(t *testing.T, srv consumerServer) {
	srv.publish(5)
	srv.pull("a", 10, "")
	had := srv.come("a", modelInFlight)
	srv.confirm(had[1], settleAck)
	came := srv.come("a", 4)
	expectSequences(t, came, 1, 2, 3, 4)
	expectBehind(t, came, 4, 3, 2, 1)
	if floor, pending := srv.floor(); floor != 0 || pending != modelInFlight {
		t.Errorf("floor %d with %d pending, want 0 and %d: the first is not settled", floor, pending, modelInFlight)
	}
	srv.confirm(had[0], settleAck)
	if floor, _ := srv.floor(); floor != 2 {
		t.Errorf("floor %d, want 2", floor)
	}
}

func modelConfirm(t *testing.T, srv consumerServer) {
	srv.publish(3)
	srv.pull("a", 3, "")
	had := srv.come("a", 3)
	srv.send(had[1], settleAck)
	srv.send(had[0], settleAck)
	if !srv.confirm(had[2], settleAck) {
		t.Fatal("no answer")
	}
	if floor, pending := srv.floor(); floor != 3 || pending != 0 {
		t.Errorf("floor %d with %d pending, want 3 and none", floor, pending)
	}
}

func modelReturn(t *testing.T, srv consumerServer) {
	srv.publish(5)
	srv.pull("a", 3, "")
	had := srv.come("a", 3)
	srv.send(had[1], settleNak)
	srv.send(had[0], settleNak)
	if !srv.confirm(had[2], settleNak) {
		t.Fatal("no answer")
	}
	srv.pull("a", 3, had[0].pinned)
	came := srv.come("a", 6)
	expectSequences(t, came, 1, 2, 3, 2, 1, 3)
	expectBehind(t, came, 4, 3, 2, 2, 2, 2)
}

func modelReset(t *testing.T, srv consumerServer) {
	srv.publish(4)
	srv.pull("a", 3, "")
	had := srv.come("a", 3)
	srv.confirm(had[1], settleAck)
	srv.unpin()
	srv.reset()
	srv.pull("b", 3, "")
	again := srv.come("b", 3)
	expectSequences(t, again, 1, 3, 4)
	expectBehind(t, again, 2, 1, 0)
	for i, d := range again {
		if d.number != uint64(i+1) {
			t.Errorf("message %d is delivery %d, want %d", d.sequence, d.number, i+1)
		}
	}
}

func modelLateAck(t *testing.T, srv consumerServer) {
	srv.publish(2)
	srv.pull("a", 2, "")
	had := srv.come("a", 2)
	srv.unpin()
	srv.reset()
	if srv.confirm(had[1], settleAck) {
		t.Error("the acknowledgement is answered")
	}
	srv.pull("b", 2, "")
	expectSequences(t, srv.come("b", 2), 1, 2)
}

// modelOldPull is why a handoff as it is keeps the order with one message in flight only. A
// waits with a pull that has no pin yet when it hands the slot off to B. What is published
// then comes to A. When A takes the pin off to give it back, the next message comes to B, and
// the ones before it have not come back.
func modelOldPull(t *testing.T, srv consumerServer) {
	srv.pull("a", 10, "")
	srv.unpin()
	srv.pull("b", 10, "")
	srv.publish(2)
	expectSequences(t, srv.come("a", 2), 1, 2)
	srv.unpin()
	srv.publish(1)
	expectSequences(t, srv.come("b", 1), 3)
}

func modelLateReturn(t *testing.T, srv consumerServer) {
	srv.publish(2)
	srv.pull("a", 2, "")
	had := srv.come("a", 2)
	srv.unpin()
	srv.reset()
	srv.confirm(had[0], settleNak) // not delivered since the reset: ignored
	srv.pull("b", 4, "")
	srv.come("b", 2)
	srv.confirm(had[0], settleNak)
	expectSequences(t, srv.come("b", 3), 1, 2, 1)
}

// simModel is the simulator's consumer.
type simModel struct {
	s          *sim
	slot       *simSlot
	workers    map[string]*simWorker
	came       map[*simWorker][]modelDelivery
	pullNumber int
	n          int
}

func newSimModel(t *testing.T) *simModel {
	t.Helper()
	s := newSim(1, false)
	s.faults = simFaults{}
	s.resize(1)
	s.cfg.Delivery.InFlight = modelInFlight
	m := &simModel{s: s, slot: s.srv.slot(generation{1, 1}.place(0)), workers: make(map[string]*simWorker), came: make(map[*simWorker][]modelDelivery)}
	s.broken.onDelivery = func(w *simWorker, in deliveryInput) deliveryInput {
		if in, is := in.(mailInput); is && in.mail.status == "" {
			d := in.mail.body.(simDelivery)
			m.came[w] = append(m.came[w], modelDelivery{sequence: d.msg.seq, number: d.dseq, behind: in.mail.behind, pinned: in.mail.pin, body: d})
		}
		return nil
	}
	for _, name := range []string{"a", "b"} {
		w := &simWorker{s: s, name: name}
		w.link = &simLink{s: s, w: w, client: true, server: true}
		m.workers[name] = w
	}
	return m
}

func (m *simModel) publish(n int) {
	for range n {
		m.n++
		// The test settles messages that no handler has processed: the auditor must not miss them.
		number := m.s.check.publish(0)
		m.s.check.keys[0].Take(number)
		m.s.srv.publish(simMessage{seq: m.s.srv.number(0), n: number, published: m.s.now})
	}
	m.pass()
}

// pass lets everything happen that is on its way.
func (m *simModel) pass() { m.s.run(m.s.now+time.Second, nil) }

func (m *simModel) pull(worker string, n int, pinned string) {
	m.pullNumber++
	m.slot.pull(&simPull{w: m.workers[worker], place: m.slot.place, pullNumber: m.pullNumber, n: n, id: pinNumber(pinned), expires: m.s.now + pullExpiry})
	m.pass()
}

func (m *simModel) unpin() { _ = m.slot.unpin(); m.pass() }
func (m *simModel) reset() { _ = m.slot.reset(); m.pass() }

func (m *simModel) send(d modelDelivery, how settlement) { m.confirm(d, how) }

func (m *simModel) confirm(d modelDelivery, how settlement) bool {
	of := d.body.(simDelivery)
	answers := true
	if how == settleNak {
		m.slot.nak(of)
	} else {
		answers = m.slot.ack(of)
	}
	m.pass()
	return answers
}

func (m *simModel) come(worker string, _ int) []modelDelivery { return m.came[m.workers[worker]] }

func (m *simModel) floor() (uint64, int) {
	return m.slot.consumer.asflr, len(m.slot.consumer.pending)
}

// realModel is a consumer of a real server.
type realModel struct {
	t         *testing.T
	js        jetstream.JetStream
	consumers *slotConsumers
	workers   map[string]*modelWorker
}

type modelWorker struct {
	nc    *nats.Conn
	sub   *nats.Subscription
	inbox string
	came  []modelDelivery
}

const modelAddress = "model.slot"

func newRealModel(t *testing.T) *realModel {
	t.Helper()
	url := natstest.Start(t, natstest.Options{})
	nc := connect(t, url)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	m := &realModel{t: t, js: js, consumers: &slotConsumers{nc: nc, js: js}, workers: make(map[string]*modelWorker)}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "model", Subjects: []string{"model.*"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: 1, Retry: Retry{Disabled: true}}.resolve()
	lay, err := cfg.validate()
	if err != nil {
		t.Fatal(err)
	}
	c := slotConsumer(cfg, lay, lay.firstGeneration().place(0))
	c.Durable, c.FilterSubject, c.MaxAckPending = "slot", "model.*", modelInFlight
	if _, err := js.CreateConsumer(t.Context(), "model", c); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b"} {
		w := &modelWorker{nc: connect(t, url)}
		w.inbox = w.nc.NewInbox()
		if w.sub, err = w.nc.SubscribeSync(w.inbox + ".*"); err != nil {
			t.Fatal(err)
		}
		m.workers[name] = w
	}
	return m
}

func (m *realModel) publish(n int) {
	m.t.Helper()
	var last uint64
	for range n {
		ack, err := m.js.Publish(m.t.Context(), "model.key", nil)
		if err != nil {
			m.t.Fatal(err)
		}
		last = ack.Sequence
	}

	// The server confirms a message before its consumers have counted it.
	await.That(m.t, "the messages are counted", func() bool {
		c, err := m.js.Consumer(m.t.Context(), "model", "slot")
		m.must(err)
		info := c.CachedInfo()
		return info.NumPending == last-info.Delivered.Stream
	})
}

func (m *realModel) pull(worker string, n int, pinned string) {
	m.t.Helper()
	w := m.workers[worker]
	body := record.Encode(pullRequest{Batch: n, Expires: pullExpiry, Group: priorityGroup, ID: pinned})
	if err := w.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+modelAddress, w.inbox+".1", body); err != nil {
		m.t.Fatal(err)
	}
	if err := w.nc.Flush(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *realModel) unpin() { m.must(m.consumers.unpin(m.t.Context(), modelAddress)) }
func (m *realModel) reset() { m.must(m.consumers.api(m.t.Context(), "RESET", modelAddress, nil)) }

func (m *realModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

var modelVerbs = map[settlement]string{settleAck: "+ACK", settleNak: "-NAK"}

func (m *realModel) send(d modelDelivery, how settlement) {
	m.t.Helper()
	msg := d.body.(*nats.Msg)
	m.must(m.workers["a"].nc.Publish(msg.Reply, []byte(modelVerbs[how])))
}

func (m *realModel) confirm(d modelDelivery, how settlement) bool {
	msg := d.body.(*nats.Msg)
	ctx, cancel := context.WithTimeout(m.t.Context(), 2*time.Second)
	defer cancel()
	_, err := m.workers["a"].nc.RequestWithContext(ctx, msg.Reply, []byte(modelVerbs[how]))
	return err == nil
}

func (m *realModel) come(worker string, n int) []modelDelivery {
	m.t.Helper()
	w := m.workers[worker]
	for len(w.came) < n {
		msg, err := w.sub.NextMsg(10 * time.Second)
		if err != nil {
			m.t.Fatalf("%d messages came to %s, want %d: %v", len(w.came), worker, n, err)
		}
		if isStatus(msg) {
			continue
		}
		meta, err := msg.Metadata()
		m.must(err)
		w.came = append(w.came, modelDelivery{sequence: meta.Sequence.Stream, number: meta.Sequence.Consumer, behind: meta.NumPending, pinned: msg.Header.Get("Nats-Pin-Id"), body: msg})
	}
	return slices.Clone(w.came)
}

func (m *realModel) floor() (uint64, int) {
	m.t.Helper()
	c, err := m.js.Consumer(m.t.Context(), "model", "slot")
	m.must(err)
	info := c.CachedInfo()
	return info.AckFloor.Stream, info.NumAckPending
}
