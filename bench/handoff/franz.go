package handoff

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franzGroup is a consumer group of franz-go clients. Each works on its partitions beside each
// other, ends what it has begun and commits before it gives a partition up. This is franz-go's
// own example of a goroutine per partition with marked offsets (examples/goroutine_per_partition_consuming).
type franzGroup struct {
	*kafkaGroup
	workers []*franzWorker
	crashed []*franzWorker
}

func startFranz(ctx context.Context, e env) (group, error) {
	common, err := newKafkaGroup(ctx, e)
	if err != nil {
		return nil, err
	}
	return &franzGroup{kafkaGroup: common}, nil
}

func (g *franzGroup) predicted(int) ([]int, error) { return g.any(), nil }

func (g *franzGroup) change(ctx context.Context, n int, moving func([]int)) error {
	if err := g.announce(ctx, n, moving); err != nil {
		return err
	}
	for len(g.workers) < n {
		if err := g.join(); err != nil {
			return err
		}
	}
	leaving := g.workers[n:]
	g.workers = g.workers[:n]
	var gone sync.WaitGroup
	for _, w := range leaving {
		gone.Go(w.close)
	}
	gone.Wait()
	return g.settle(ctx, n)
}

// settle waits until each member has its share.
func (g *franzGroup) settle(ctx context.Context, n int) error {
	return g.shared(ctx, n, func(worker int) int { return g.workers[worker].count() })
}

// crash cuts the connections of the last n workers for good.
func (g *franzGroup) crash(n int) {
	left := len(g.workers) - n
	for i, w := range g.workers[left:] {
		g.ledger.crash(left + i)
		w.network.cut()
		w.stop()
	}
	g.crashed = append(g.crashed, g.workers[left:]...)
	g.workers = g.workers[:left:left]
}

// hold lets workers fetch nothing. What they had fetched and not been given is fetched again.
func (g *franzGroup) hold() (release func()) {
	for _, w := range g.workers {
		w.client.PauseFetchTopics(kafkaTopic)
	}
	return func() {
		for _, w := range g.workers {
			w.client.ResumeFetchTopics(kafkaTopic)
		}
	}
}

func (g *franzGroup) stop() {
	g.tell(nil)
	var gone sync.WaitGroup
	for _, w := range append(g.workers, g.crashed...) {
		gone.Go(w.close)
	}
	gone.Wait()
	g.close()
}

// franzWorker is one member.
type franzWorker struct {
	group   *franzGroup
	number  int
	client  *kgo.Client
	network network
	stop    context.CancelFunc
	polled  sync.WaitGroup

	mu    sync.Mutex
	parts map[int32]*franzPartition
}

func (g *franzGroup) join() error {
	w := &franzWorker{group: g, number: len(g.workers), parts: map[int32]*franzPartition{}}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(g.url, ",")...), kgo.ConsumerGroup(consumerGroup), kgo.ConsumeTopics(kafkaTopic), kgo.Dialer(w.network.dial),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { w.assigned(m[kafkaTopic]) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, m map[string][]int32) {
			w.group.revoked(m[kafkaTopic])
			w.lost(m[kafkaTopic])
			if err := cl.CommitMarkedOffsets(ctx); err != nil && ctx.Err() == nil && !w.network.isCut() {
				g.ledger.fault(fmt.Errorf("committing offsets: %w", err))
			}
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, m map[string][]int32) { w.lost(m[kafkaTopic]) }),
	}
	var err error
	w.client, err = kgo.NewClient(append(options, g.kafka.franz()...)...)
	if err != nil {
		return fmt.Errorf("joining the consumer group: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	g.workers = append(g.workers, w)
	w.polled.Go(func() { w.poll(ctx) })
	return nil
}

// franz returns the options of a member. By KIP-848 the broker rules its timers.
func (k kafkaSetting) franz() []kgo.Opt {
	if k.next {
		return []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}
	}
	options := []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}
	if k.heartbeat > 0 {
		options = append(options, kgo.HeartbeatInterval(k.heartbeat), kgo.SessionTimeout(k.session))
	}
	return options
}

func (w *franzWorker) poll(ctx context.Context) {
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

func (w *franzWorker) assigned(partitions []int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range partitions {
		p := &franzPartition{more: make(chan struct{}, 1), quit: make(chan struct{}), ended: make(chan struct{})}
		w.parts[n] = p
		go w.work(int(n), p)
	}
}

// lost ends what is in work; what has not been begun is the next owner's.
func (w *franzWorker) lost(partitions []int32) {
	var ending []*franzPartition
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

func (w *franzWorker) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.parts)
}

// close leaves the group, which gives up what it has.
func (w *franzWorker) close() {
	w.stop()
	w.polled.Wait()
	w.client.CloseAllowingRebalance()
}

// franzPartition works on one partition, one record at a time.
type franzPartition struct {
	mu      sync.Mutex
	more    chan struct{}
	records []*kgo.Record
	quit    chan struct{}
	ended   chan struct{}
}

func (w *franzWorker) work(n int, p *franzPartition) {
	defer close(p.ended)
	for {
		select {
		case <-p.quit:
			return
		case <-p.more:
		}
		for _, r := range p.take() {
			select {
			case <-p.quit:
				return
			default:
			}
			if w.group.ledger.handle(context.Background(), w.number, n, r.Value, r.Timestamp) != nil {
				return // the worker has crashed
			}
			w.client.MarkCommitRecords(r)
		}
	}
}

func (p *franzPartition) put(records []*kgo.Record) {
	p.mu.Lock()
	p.records = append(p.records, records...)
	p.mu.Unlock()
	select {
	case p.more <- struct{}{}:
	default:
	}
}

func (p *franzPartition) take() []*kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	records := p.records
	p.records = nil
	return records
}

// network makes connections and can be cut.
type network struct {
	mu    sync.Mutex
	conns []net.Conn
	down  bool
}

var errCut = errors.New("the network of this worker is cut")

func (n *network) dial(ctx context.Context, kind, host string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, kind, host)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.Join(errCut, conn.Close())
	}
	n.conns = append(n.conns, conn)
	return conn, nil
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = true
	for _, conn := range n.conns {
		_ = conn.Close()
	}
}

func (n *network) isCut() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down
}
