package handoff

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/partition/plan"
)

// ackWait is how long a broker waits for an acknowledgement before it delivers a
// message again, for everybody on NATS. Handlers take far less.
const ackWait = 5 * time.Second

// settleTime bounds one change of the number of workers.
const settleTime = 2 * time.Minute

// Case is one change of the number of workers.
type Case struct {
	Keys   int `json:"keys"`
	Slots  int `json:"slots"` // or partitions, for those that have them
	Before int `json:"workers_before"`
	After  int `json:"workers_after"`
}

// crashing is how many of the workers crash in the end: a ninth.
func (k Case) crashing() int { return max(1, k.After/9) }

// Contender is one way to share keys out.
type Contender struct {
	Name     string
	Replicas int    // of everything that is stored; as many servers
	Sync     string // always or default: when brokers sync what they acknowledge
	shards   int    // streams of Muster's, 0 for one
	static   bool   // it has no workers that could come and go
	kafka    *kafkaSetting
	start    func(context.Context, env) (group, error)
}

// env is what a group is started with.
type env struct {
	Case
	url      string
	replicas int
	shards   int
	kafka    *kafkaSetting
	ledger   *ledger
}

// group is a contender at work.
type group interface {
	// send publishes one message.
	send(ctx context.Context, m message) error
	// fill publishes messages as fast as it can and keeps the order of each key's.
	fill(ctx context.Context, ms []message) error
	// predicted returns the keys that a change will move.
	predicted(workers int) ([]int, error)
	// change brings the workers to another number. moving is called with the
	// keys that move as soon as their new owners have been told; it does not
	// block. It returns when all of them have what is theirs.
	change(ctx context.Context, workers int, moving func(keys []int)) error
	stop()
}

// What a group may do beside that.
type (
	// crasher lets the last n workers end as by a power cut.
	crasher interface{ crash(n int) }
	// holder lets workers fetch nothing until the function that it returns is called. Without
	// it their handlers wait.
	holder interface{ hold() (release func()) }
	// acknowledger waits until brokers have every acknowledgement.
	acknowledger interface {
		acknowledged(ctx context.Context) error
	}
	// separate groups have their workers in other processes.
	separate interface{ running() servers }
	// paced groups have handlers that are told how long they take: least, and up to spread ns more.
	paced interface{ pace(least, spread int64) }
)

// defaultSync and alwaysSync are the values of Contender.Sync.
const (
	defaultSync = "default"
	alwaysSync  = "always"
)

// Contenders are all that are measured, ours first.
func Contenders() []Contender {
	var all []Contender
	for _, replicas := range []int{1, 3} {
		for _, sync := range []string{defaultSync, alwaysSync} {
			all = append(all, onNATS(replicas, sync)...)
			if replicas == 1 {
				all = append(all, onKafka(sync)...)
			}
		}
	}
	return all
}

// onNATS returns the contenders on NATS. The models of other libraries are there to compare
// handoffs, which a disk doesn't decide.
func onNATS(replicas int, sync string) []Contender {
	all := []Contender{
		{Name: "raw JetStream, 1 stream", static: true, start: startRaw(1, false)},
		{Name: "raw JetStream, 8 streams", static: true, start: startRaw(8, false)},
		{Name: "muster", start: startMuster},
		{Name: "muster, 4 shards", shards: 4, start: startMuster},
		{Name: "muster, 8 shards", shards: 8, start: startMuster},
	}
	if sync == defaultSync {
		all = append(all,
			Contender{Name: "filters edited, work queue", start: startFilters(jetstream.WorkQueuePolicy)},
			Contender{Name: "recreated, drained first", start: startRecreated(true)})
	}
	if sync == defaultSync && replicas == 1 {
		all = append(all,
			Contender{Name: "muster, half the slots", start: startHalved},
			Contender{Name: "filters edited, limits", start: startFilters(jetstream.LimitsPolicy)},
			Contender{Name: "recreated, as pcgroups", start: startRecreated(false)})
	}
	if sync == alwaysSync {
		all = append(all, Contender{Name: "raw JetStream, 1 stream, batches", static: true, start: startRaw(1, true)})
	}
	for i := range all {
		all[i].Replicas, all[i].Sync = replicas, sync
	}
	return all
}

// onKafka returns the contenders on Apache Kafka: clients in Go and Java, with the timers that
// are their defaults and with fast ones.
func onKafka(sync string) []Contender {
	cooperative := kafkaSetting{flush: sync == alwaysSync}
	broker := cooperative
	broker.next = true
	all := []Contender{
		{Name: "Kafka, franz-go, KIP-848, fast", kafka: broker.fast(), start: startFranz},
		{Name: "Kafka, Java, KIP-848, fast", kafka: broker.fast(), start: startJava},
	}
	if sync == defaultSync {
		all = append(all,
			Contender{Name: "Kafka, franz-go, cooperative, fast", kafka: cooperative.fast(), start: startFranz},
			Contender{Name: "Kafka, franz-go, cooperative", kafka: &cooperative, start: startFranz},
			Contender{Name: "Kafka, franz-go, KIP-848", kafka: &broker, start: startFranz},
			Contender{Name: "Kafka, Java, KIP-848", kafka: &broker, start: startJava})
	}
	for i := range all {
		all[i].Replicas, all[i].Sync = 1, sync
	}
	return all
}

// rebalancers are Muster and Kafka's own client with each protocol and both timers.
func rebalancers() []Contender {
	cooperative, broker := kafkaSetting{}, kafkaSetting{next: true}
	all := []Contender{
		{Name: "muster", start: startMuster},
		{Name: "Kafka, Java, KIP-848, fast", kafka: broker.fast(), start: startJava},
		{Name: "Kafka, Java, cooperative, fast", kafka: cooperative.fast(), start: startJava},
		{Name: "Kafka, Java, KIP-848", kafka: &broker, start: startJava},
		{Name: "Kafka, Java, cooperative", kafka: &cooperative, start: startJava},
	}
	for i := range all {
		all[i].Replicas, all[i].Sync = 1, defaultSync
	}
	return all
}

// serve starts the contender's brokers.
func (c Contender) serve(ctx context.Context, dir string) (servers, string, error) {
	if c.kafka != nil {
		return c.kafka.serve(ctx)
	}
	options, err := broker.ClusterOptions(c.Replicas, 0, filepath.Join(dir, "store"), "")
	if err != nil {
		return nil, "", err
	}
	orders := make([]order, len(options))
	for i := range options {
		// The publishers know nothing of shards.
		if from, to := musterConfig(0, c.Replicas, c.shards).Mapping(); to != "" {
			options[i].Mappings = map[string]string{from: to}
		}
		orders[i] = order{NATS: options[i], Sync: c.Sync}
	}
	all, err := startChildren(ctx, orders)
	if err != nil {
		return nil, "", err
	}
	url := broker.URLs(options)
	if err := ready(ctx, url, c.Replicas); err != nil {
		all.stop()
		return nil, "", err
	}
	return all, url, nil
}

// detects returns how long the contender's brokers take at most to find out that a worker has
// failed, beyond the time that they wait for an acknowledgement.
func (c Contender) detects() time.Duration {
	if c.kafka == nil {
		return 0
	}
	return c.kafka.sessionTimeout()
}

func ready(ctx context.Context, url string, replicas int) error {
	nc, err := access.Connect(url, "bench")
	if err != nil {
		return err
	}
	defer nc.Close()
	return broker.WaitReplicated(ctx, nc, replicas)
}

// natsSender publishes over connections of its own.
type natsSender struct {
	conns     []*nats.Conn
	js        []jetstream.JetStream
	subjectOf func(key int) string
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

// workerName names workers in plans so that their order is that of their numbers.
func workerName(i int) string { return fmt.Sprintf("worker-%04d", i) }

// planned returns the owners of n units of equal weight among the first
// workers, and which of them move: the same planner for all that have none of
// their own.
func planned(units, workers int, before []int32) (owners []int32, moves []int, err error) {
	p := plan.Problem{Slots: units, Owners: slices.Clone(before), Budget: -1}
	for i := range workers {
		p.Workers = append(p.Workers, plan.Worker{ID: workerName(i), Weight: 1})
	}
	for u, w := range p.Owners {
		if int(w) >= workers {
			p.Owners[u] = plan.Gone
		}
	}
	next, err := plan.Sticky().Plan(p)
	if err != nil {
		return nil, nil, fmt.Errorf("planning %d units for %d workers: %w", units, workers, err)
	}
	for u, w := range next.Owners {
		if before != nil && before[u] != w {
			moves = append(moves, u)
		}
	}
	return next.Owners, moves, nil
}

// eventually waits until a condition holds.
func eventually(ctx context.Context, what string, holds func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for !holds() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
