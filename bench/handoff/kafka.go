package handoff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// topic is the one topic of the fake of Kafka.
const topic = "dc"

// kafkaGroup is a consumer group of franz-go clients with the cooperative sticky
// balancer and its defaults, each working on its partitions beside each other,
// ending what it has begun and committing before it gives a partition up.
type kafkaGroup struct {
	env
	producer *kgo.Client
	workers  []*kafkaWorker

	mu      sync.Mutex
	moving  func([]int)
	keysOf  map[int32][]int // by partition
	located map[int]bool    // keys in keysOf
}

func startKafka(_ context.Context, e env) (group, error) {
	g := &kafkaGroup{env: e, keysOf: map[int32][]int{}, located: map[int]bool{}}
	var err error
	if g.producer, err = kgo.NewClient(kgo.SeedBrokers(e.url), kgo.ProducerLinger(0)); err != nil {
		return nil, fmt.Errorf("connecting to the fake of Kafka: %w", err)
	}
	return g, nil
}

func (g *kafkaGroup) send(ctx context.Context, m message) error {
	r, err := g.producer.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: []byte(strconv.Itoa(m.key)), Value: m.encode()}).First()
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.located[m.key] {
		g.located[m.key] = true
		g.keysOf[r.Partition] = append(g.keysOf[r.Partition], m.key)
	}
	return nil
}

// predicted names all keys: which ones move is decided by a member in the middle
// of the change.
func (g *kafkaGroup) predicted(int) ([]int, error) {
	keys := make([]int, g.Keys)
	for i := range keys {
		keys[i] = i
	}
	return keys, nil
}

func (g *kafkaGroup) change(ctx context.Context, n int, moving func([]int)) error {
	g.mu.Lock()
	g.moving = moving
	g.mu.Unlock()
	for len(g.workers) < n {
		if err := g.add(); err != nil {
			return err
		}
	}
	leavers := g.workers[n:]
	g.workers = g.workers[:n]
	var gone sync.WaitGroup
	for _, w := range leavers {
		gone.Go(w.close)
	}
	gone.Wait()
	return eventually(ctx, fmt.Sprintf("%d members have their share", n), func() bool {
		least, most, all := g.Slots, 0, 0
		for _, w := range g.workers {
			own := w.count()
			least, most, all = min(least, own), max(most, own), all+own
		}
		return all == g.Slots && most-least <= 1
	})
}

// revoked tells which keys are on their way.
func (g *kafkaGroup) revoked(partitions []int32) {
	g.mu.Lock()
	tell := g.moving
	var keys []int
	for _, p := range partitions {
		keys = append(keys, g.keysOf[p]...)
	}
	g.mu.Unlock()
	if tell != nil && len(keys) > 0 {
		slices.Sort(keys)
		tell(keys)
	}
}

func (g *kafkaGroup) stop() {
	g.mu.Lock()
	g.moving = nil
	g.mu.Unlock()
	var gone sync.WaitGroup
	for _, w := range g.workers {
		gone.Go(w.close)
	}
	gone.Wait()
	g.producer.Close()
}

// kafkaWorker is one member.
type kafkaWorker struct {
	group  *kafkaGroup
	number int
	client *kgo.Client
	stop   context.CancelFunc
	polled sync.WaitGroup

	mu    sync.Mutex
	parts map[int32]*kafkaPartition
}

// kafkaPartition works on one partition, one record at a time.
type kafkaPartition struct {
	mu      sync.Mutex
	more    chan struct{}
	records []*kgo.Record
	quit    chan struct{}
	ended   chan struct{}
}

func (g *kafkaGroup) add() error {
	w := &kafkaWorker{group: g, number: len(g.workers), parts: map[int32]*kafkaPartition{}}
	var err error
	w.client, err = kgo.NewClient(kgo.SeedBrokers(g.url), kgo.ConsumerGroup("bench"), kgo.ConsumeTopics(topic),
		kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { w.assigned(m[topic]) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, m map[string][]int32) {
			w.group.revoked(m[topic])
			w.lost(m[topic])
			if err := cl.CommitMarkedOffsets(ctx); err != nil && ctx.Err() == nil {
				g.ledger.fault(fmt.Errorf("committing offsets: %w", err))
			}
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { w.lost(m[topic]) }))
	if err != nil {
		return fmt.Errorf("joining the consumer group: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	g.workers = append(g.workers, w)
	w.polled.Go(func() { w.poll(ctx) })
	return nil
}

func (w *kafkaWorker) poll(ctx context.Context) {
	for {
		fetches := w.client.PollFetches(ctx)
		if fetches.IsClientClosed() || ctx.Err() != nil {
			w.client.AllowRebalance()
			return
		}
		fetches.EachError(func(_ string, _ int32, err error) {
			if !errors.Is(err, context.Canceled) {
				w.group.ledger.fault(fmt.Errorf("fetching: %w", err))
			}
		})
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			w.mu.Lock()
			part := w.parts[p.Partition]
			w.mu.Unlock()
			if part != nil {
				part.put(p.Records)
			}
		})
		w.client.AllowRebalance()
	}
}

func (w *kafkaWorker) assigned(partitions []int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range partitions {
		p := &kafkaPartition{more: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
		w.parts[n] = p
		go w.work(int(n), p)
	}
}

// lost ends what is in work; what has not been begun is the next owner's.
func (w *kafkaWorker) lost(partitions []int32) {
	var ending []*kafkaPartition
	w.mu.Lock()
	for _, n := range partitions {
		if p := w.parts[n]; p != nil {
			close(p.quit)
			ending = append(ending, p)
			delete(w.parts, n)
		}
	}
	w.mu.Unlock()
	for _, p := range ending {
		<-p.ended
	}
}

func (w *kafkaWorker) work(n int, p *kafkaPartition) {
	defer close(p.ended)
	for {
		select {
		case <-p.quit:
			return
		case <-p.more:
		}
		for r := p.next(); r != nil; r = p.next() {
			select {
			case <-p.quit:
				return
			default:
			}
			if w.group.ledger.handle(context.Background(), w.number, n, r.Value, r.Timestamp) == nil {
				w.client.MarkCommitRecords(r)
			}
		}
	}
}

func (p *kafkaPartition) put(records []*kgo.Record) {
	p.mu.Lock()
	p.records = append(p.records, records...)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *kafkaPartition) next() *kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) == 0 {
		return nil
	}
	r := p.records[0]
	p.records = p.records[1:]
	return r
}

func (w *kafkaWorker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.parts)
}

// close leaves the group, which gives up what it has.
func (w *kafkaWorker) close() {
	w.stop()
	w.polled.Wait()
	w.client.CloseAllowingRebalance()
}
