package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
)

const (
	// maxOutstanding is how many messages the server may not have confirmed yet.
	maxOutstanding = 1 << 14
	// ackSample is of how many slots acknowledgements are listened to.
	ackSample = 16
	// ackRing is how many sequences are remembered for them; a power of two.
	ackRing = 1 << 16
)

// What a rate has to do to be held.
const (
	// heldWithin is the longest that 99 of 100 messages may take, from the moment
	// they were due until they are stored.
	heldWithin = time.Second
	// heldBacklog is how much may be waiting when the last message is published, as
	// a time at the rate.
	heldBacklog = 500 * time.Millisecond
	// onTime is the share of the rate that the publisher has to reach.
	onTime = 0.99
)

// publisher is an open loop: each message is due at its time, whatever became of
// those before, and is published at once when the publisher is late. What is
// measured counts from when it was due, so that a system that holds the publisher
// up doesn't look faster for it (coordinated omission).
type publisher struct {
	conn     *nats.Conn
	js       jetstream.JetStream
	acks     []*nats.Subscription
	pool     *pool
	chambers []defender.Chamber
	group    partition.Config
	count    func(int64) // adds to the messages published, for progress
	next     int         // number of the next message; chambers take turns
	now      atomic.Pointer[phase]
	ring     [ackRing]atomic.Uint64 // by sequence, that (its last 32 bits) and number of the message + 1
}

func newPublisher(s *session, p *pool) (*publisher, error) {
	pub := &publisher{pool: p, chambers: s.Chambers, group: s.Partition(), count: s.Traffic.Count}
	var err error
	if pub.conn, err = s.ConnectAll("load"); err != nil {
		return nil, err
	}
	refused := func(jetstream.JetStream, *nats.Msg, error) {
		if ph := pub.now.Load(); ph != nil {
			ph.refused.Add(1)
		}
	}
	pub.js, err = jetstream.New(pub.conn, jetstream.WithPublishAsyncMaxPending(maxOutstanding), jetstream.WithPublishAsyncErrHandler(refused))
	if err == nil {
		err = pub.listen()
	}
	if err != nil {
		pub.close()
		return nil, fmt.Errorf("opening the publisher: %w", err)
	}
	return pub, nil
}

// listen follows the acknowledgements of some slots.
func (p *publisher) listen() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var subjects []string
	for _, name := range p.group.Streams() {
		stream, err := p.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		list := stream.ConsumerNames(ctx)
		for consumer := range list.Name() {
			subjects = append(subjects, "$JS.ACK."+name+"."+consumer+".>")
		}
		if err := list.Err(); err != nil {
			return err
		}
	}
	slices.Sort(subjects)
	for at := 0; at < len(subjects); at += max(1, len(subjects)/ackSample) {
		sub, err := p.conn.Subscribe(subjects[at], p.acknowledged)
		if err != nil {
			return err
		}
		p.acks = append(p.acks, sub)
	}
	return p.conn.Flush()
}

func (p *publisher) close() {
	if p.conn == nil {
		return
	}
	for _, sub := range p.acks {
		_ = sub.Unsubscribe()
	}
	p.conn.Close()
}

// name returns the name of a message's context.
func (p *publisher) name(number int) string {
	chamber, n := number%len(p.chambers), number/len(p.chambers)
	return withTrace(fmt.Sprintf("load%09d", number), p.pool.of(chamber, p.pool.history+n))
}

// numberOf returns the message whose context has a name.
func numberOf(name string) (int, bool) {
	name, _, _ = strings.Cut(name, traceMark)
	digits, ok := strings.CutPrefix(name, "load")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil
}

// publish publishes n messages at a rate and returns when the server has
// them all, or has refused them.
func (p *publisher) publish(ctx context.Context, rate float64, n int) (*phase, error) {
	ph := newPhase(p.next, n, len(p.chambers), rate)
	p.now.Store(ph)
	p.next += n
	for i := range n {
		if wait := time.Until(ph.due(i)); wait > 0 {
			time.Sleep(wait)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		ph.late[i] = micros(time.Since(ph.due(i)))
		if err := p.send(ph.first + i); err != nil {
			return nil, err
		}
		p.count(1)
	}
	ph.ended = time.Now()
	ph.waiting = n - int(ph.distinct.Load())
	select {
	case <-p.js.PublishAsyncComplete():
		return ph, nil
	case <-time.After(time.Minute):
		return nil, fmt.Errorf("publishing at %.0f messages/s: the server has not confirmed %d messages after a minute", rate, p.js.PublishAsyncPending())
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// send publishes one message as the data collector does, without waiting for the
// server's answer.
func (p *publisher) send(number int) error {
	chamber, n := number%len(p.chambers), number/len(p.chambers)
	at := p.pool.of(chamber, p.pool.history+n)
	ref := p.pool.ref(p.chambers[chamber], fmt.Sprintf("load%09d", number), at, time.Now())
	data, err := json.Marshal(defender.NewCompletion(ref))
	if err != nil {
		return fmt.Errorf("announcing %s: %w", ref.TChart(), err)
	}
	subject, err := p.group.PublishSubject(defender.CompletionSubject(ref.Chamber))
	if err != nil {
		return fmt.Errorf("announcing %s: %w", ref.TChart(), err)
	}
	msg := &nats.Msg{Subject: subject, Data: data}
	if _, err := p.js.PublishMsgAsync(msg, jetstream.WithMsgID(ref.TChart().String()), jetstream.WithStallWait(time.Minute)); err != nil {
		return fmt.Errorf("announcing %s: %w", ref.TChart(), err)
	}
	return nil
}

// stored is told by the defenders of each context that is stored.
func (p *publisher) stored(x defender.Processed) {
	number, ok := numberOf(x.Context.ID)
	ph := p.now.Load()
	if !ok || ph == nil {
		return
	}
	p.ring[x.Sequence%ackRing].Store(x.Sequence<<32 | uint64(number) + 1)
	ph.stored(number, x)
}

// storedNow returns how many messages of the current rate are stored.
func (p *publisher) storedNow() int64 {
	if ph := p.now.Load(); ph != nil {
		return ph.distinct.Load()
	}
	return 0
}

// acknowledged gets the acknowledgements of some slots, as the server does.
func (p *publisher) acknowledged(msg *nats.Msg) {
	stream, at, ok := ackedSequence(msg.Subject)
	ph := p.now.Load()
	if !ok || ph == nil {
		return
	}
	sequence, err := p.group.Sequence(stream, at)
	if err != nil {
		return
	}
	// What is not stored yet is in progress, which is told on the same subject.
	if known := p.ring[sequence%ackRing].Load(); known>>32 == sequence&math.MaxUint32 && known != 0 {
		ph.acked(int(known&math.MaxUint32) - 1)
	}
}

// ackedSequence reads the stream and the sequence in it from the subject of an
// acknowledgement.
func ackedSequence(subject string) (stream string, sequence uint64, ok bool) {
	// $JS.ACK.[domain.account.]stream.consumer.delivered.sequence....
	tokens := strings.Split(subject, ".")
	at := 2
	if len(tokens) >= 11 {
		at = 4
	}
	if len(tokens) <= at+3 {
		return "", 0, false
	}
	n, err := strconv.ParseUint(tokens[at+3], 10, 64)
	return tokens[at], n, err == nil
}

// phase is messages that are published at one rate, and what became of them.
type phase struct {
	first    int // number of the first message
	chambers int
	rate     float64
	began    time.Time
	ended    time.Time // of publishing
	waiting  int       // then

	late     []int32        // µs from due to published
	micros   []atomic.Int32 // µs from due to stored, 0: not yet
	last     []atomic.Int64 // by chamber, the last message stored
	distinct atomic.Int64   // messages stored
	again    atomic.Int64   // processed again after that
	disorder atomic.Int64   // stored after a later one of the same chamber
	refused  atomic.Int64   // by the server
	hits     atomic.Int64
	acks     durations
}

func newPhase(first, n, chambers int, rate float64) *phase {
	ph := &phase{first: first, chambers: chambers, rate: rate, late: make([]int32, n), micros: make([]atomic.Int32, n), last: make([]atomic.Int64, chambers)}
	for i := range ph.last {
		ph.last[i].Store(-1)
	}
	ph.acks.list = make([]int32, 0, n/ackSample+n/64+1024) // so that the memory of a measurement does not grow
	ph.began = time.Now()
	return ph
}

// due is when the i-th message is to be published.
func (ph *phase) due(i int) time.Time {
	return ph.began.Add(time.Duration(float64(i) / ph.rate * float64(time.Second)))
}

func (ph *phase) stored(number int, x defender.Processed) {
	i := number - ph.first
	if i < 0 || i >= len(ph.micros) {
		return
	}
	// One that was interrupted between store and acknowledgement is stored already.
	if !ph.micros[i].CompareAndSwap(0, max(1, micros(time.Since(ph.due(i))))) {
		ph.again.Add(1)
		return
	}
	if ph.last[number%ph.chambers].Swap(int64(number)) > int64(number) {
		ph.disorder.Add(1)
	}
	if x.CacheHit {
		ph.hits.Add(1)
	}
	ph.distinct.Add(1)
}

func (ph *phase) acked(number int) {
	if i := number - ph.first; i >= 0 && i < len(ph.micros) {
		ph.acks.add(micros(time.Since(ph.due(i))))
	}
}

// backlog is how many messages were waiting when the last was published.
func (ph *phase) backlog() int { return ph.waiting }

// held reports whether the rate was: the publisher reached it, no backlog had
// gathered at its end, and nearly all were stored soon.
func (ph *phase) held(backlog int) bool {
	planned := float64(len(ph.micros)) / ph.rate
	return ph.ended.Sub(ph.began).Seconds()*onTime <= planned && float64(backlog) <= max(1, ph.rate*heldBacklog.Seconds()) &&
		ph.distinct.Load() == int64(len(ph.micros)) && ph.latency().P99 < float64(heldWithin.Milliseconds())
}

func (ph *phase) latency() Quantiles {
	list := make([]int32, 0, len(ph.micros))
	for i := range ph.micros {
		if m := ph.micros[i].Load(); m > 0 {
			list = append(list, m)
		}
	}
	return quantilesOf(list)
}

// lateness returns how late messages were published, in µs.
func (ph *phase) lateness() []int32 { return slices.Clone(ph.late) }

func (ph *phase) hitRate() float64 {
	return float64(ph.hits.Load()) / float64(max(ph.distinct.Load(), 1))
}

// contextsOf returns the numbers of the messages of a chamber, in order.
func (ph *phase) contextsOf(chamber, chambers int) []int {
	var ns []int
	for n := ph.first + (chamber-ph.first%chambers+chambers)%chambers; n < ph.first+len(ph.micros); n += chambers {
		ns = append(ns, n)
	}
	return ns
}

// durations gathers durations in µs from several goroutines.
type durations struct {
	mu   sync.Mutex
	list []int32
}

func (d *durations) add(m int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list = append(d.list, m)
}

func (d *durations) quantiles() Quantiles {
	d.mu.Lock()
	defer d.mu.Unlock()
	return quantilesOf(slices.Clone(d.list))
}

// micros returns a duration in µs, as far as it fits: some 35 minutes.
func micros(d time.Duration) int32 { return int32(min(d.Microseconds(), math.MaxInt32)) }

// Quantiles is what is told of many durations, in milliseconds.
type Quantiles struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func (q Quantiles) String() string {
	if q.N == 0 {
		return "none"
	}
	return fmt.Sprintf("p50 %.1f, p95 %.1f, p99 %.1f, max %.1f (%d)", q.P50, q.P95, q.P99, q.Max, q.N)
}

// quantilesOf sorts a list of µs.
func quantilesOf(list []int32) Quantiles {
	if len(list) == 0 {
		return Quantiles{}
	}
	slices.Sort(list)
	at := func(q float64) float64 {
		i := int(math.Ceil(q*float64(len(list)))) - 1
		return round(float64(list[max(i, 0)]) / 1e3)
	}
	return Quantiles{N: len(list), P50: at(.5), P95: at(.95), P99: at(.99), Max: at(1)}
}

func round(v float64) float64 { return math.Round(v*100) / 100 }
