package handoff

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker/access"
)

// This file holds what the alternatives on NATS have in common: a map of owners
// in a bucket, which every worker watches, as in the seed of the design and as
// in parti and pcgroups. Who is there, and who decides, is not modelled: one
// writer, and no worker dies.

const (
	mapBucket = "map"
	mapKey    = "owners"
	stream    = "dc"
)

// ownersValue is the map.
type ownersValue struct {
	Version int     `json:"version"`
	Owners  []int32 `json:"owners"` // by unit
}

// client is what a kind of worker does when its share changes.
type client interface {
	// apply brings what it consumes to these units; none means that it leaves.
	// It returns when it has.
	apply(ctx context.Context, units []int) error
}

// mappedGroup hands units to workers by a map.
type mappedGroup struct {
	*natsSender
	env
	units   int
	unitOf  func(key int) int
	connect func(w *mappedWorker) client

	nc      *nats.Conn
	kv      jetstream.KeyValue
	value   ownersValue
	workers []*mappedWorker
}

type mappedWorker struct {
	group  *mappedGroup
	number int
	nc     *nats.Conn
	js     jetstream.JetStream
	client client
	queues queues
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu      sync.Mutex
	applied int // version
	err     error
}

func (g *mappedGroup) open(ctx context.Context, cfg jetstream.StreamConfig) (err error) {
	if g.natsSender, err = newNATSSender(g.url, subjectOf); err != nil {
		return err
	}
	if g.nc, err = access.Connect(g.url, "bench"); err != nil {
		return err
	}
	js, err := jetstream.New(g.nc)
	if err != nil {
		return err
	}
	cfg.Name, cfg.Storage, cfg.Replicas = stream, jetstream.FileStorage, g.replicas
	cfg.Subjects = []string{"dc.*.*.completion"}
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		return fmt.Errorf("making stream %s: %w", stream, err)
	}
	if g.batched {
		if err := allowBatches(ctx, g.nc, stream); err != nil {
			return err
		}
		g.streamOf = func(int) int { return 0 }
	}
	g.kv, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: mapBucket, Replicas: g.replicas})
	if err != nil {
		return fmt.Errorf("making bucket %s: %w", mapBucket, err)
	}
	return nil
}

func (g *mappedGroup) predicted(n int) ([]int, error) {
	_, moves, err := planned(g.units, n, g.value.Owners)
	return g.keysOf(moves), err
}

// keysOf returns the keys of some units.
func (g *mappedGroup) keysOf(units []int) []int {
	in := map[int]bool{}
	for _, u := range units {
		in[u] = true
	}
	var keys []int
	for key := range g.Keys {
		if in[g.unitOf(key)] {
			keys = append(keys, key)
		}
	}
	return keys
}

func (g *mappedGroup) change(ctx context.Context, n int, moving func([]int)) error {
	for len(g.workers) < n {
		if err := g.add(ctx); err != nil {
			return err
		}
	}
	owners, moves, err := planned(g.units, n, g.value.Owners)
	if err != nil {
		return err
	}
	g.value = ownersValue{g.value.Version + 1, owners}
	data, err := json.Marshal(g.value)
	if err != nil {
		return err
	}
	if _, err := g.kv.Put(ctx, mapKey, data); err != nil {
		return fmt.Errorf("writing the map: %w", err)
	}
	moving(g.keysOf(moves))
	var fault error
	err = eventually(ctx, fmt.Sprintf("version %d of the map is applied", g.value.Version), func() bool {
		for _, w := range g.workers {
			applied, err := w.state()
			if fault = err; fault != nil {
				return true
			}
			if applied < g.value.Version {
				return false
			}
		}
		return true
	})
	if err = errors.Join(err, fault); err != nil {
		return err
	}
	for _, w := range g.workers[n:] {
		w.end()
	}
	g.workers = g.workers[:n]
	return nil
}

func (g *mappedGroup) add(ctx context.Context) error {
	w := &mappedWorker{group: g, number: len(g.workers), queues: queues{all: map[int]*queue{}}}
	var err error
	if w.nc, err = access.Connect(g.url, workerName(w.number)); err != nil {
		return err
	}
	if w.js, err = jetstream.New(w.nc); err != nil {
		return err
	}
	w.client = g.connect(w)
	kv, err := w.js.KeyValue(ctx, mapBucket)
	if err != nil {
		return err
	}
	watch, err := kv.Watch(context.WithoutCancel(ctx), mapKey)
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(context.Background())
	w.stop = sync.OnceFunc(func() {
		stop()
		_ = watch.Stop()
	})
	g.workers = append(g.workers, w)
	w.ended.Go(func() { w.follow(working, watch) })
	return nil
}

func (w *mappedWorker) follow(ctx context.Context, watch jetstream.KeyWatcher) {
	for e := range watch.Updates() {
		if e == nil {
			continue
		}
		var v ownersValue
		err := json.Unmarshal(e.Value(), &v)
		if err == nil {
			var mine []int
			for u, o := range v.Owners {
				if int(o) == w.number {
					mine = append(mine, u)
				}
			}
			err = w.client.apply(ctx, mine)
		}
		w.mu.Lock()
		w.applied = v.Version
		if err != nil && ctx.Err() == nil {
			w.err = fmt.Errorf("%s, version %d of the map: %w", workerName(w.number), v.Version, err)
		}
		w.mu.Unlock()
	}
}

func (w *mappedWorker) state() (applied int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.applied, w.err
}

func (w *mappedWorker) end() {
	w.stop()
	w.ended.Wait()
	w.queues.discard()
	w.queues.wait()
	w.nc.Close()
}

func (g *mappedGroup) stop() {
	var gone sync.WaitGroup
	for _, w := range g.workers {
		gone.Go(w.end)
	}
	gone.Wait()
	if g.nc != nil {
		g.nc.Close()
	}
	if g.natsSender != nil {
		g.close()
	}
}

// consumerName is the durable consumer of a worker.
func (w *mappedWorker) consumerName() string { return workerName(w.number) }

// inFlight is how many messages a worker may have that it has not acknowledged.
const inFlight = 64

// config is what the consumers have in common; the rest is as the client library
// sets it.
func (w *mappedWorker) config(filters []string) jetstream.ConsumerConfig {
	return jetstream.ConsumerConfig{Durable: w.consumerName(), FilterSubjects: filters, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: ackWait, MaxAckPending: inFlight, DeliverPolicy: jetstream.DeliverAllPolicy}
}

// consume begins to pull; what comes is worked on one at a time in each unit,
// units beside each other. With replicas a consumer that was just made has no
// leader yet, and a pull that comes before would be lost until it expires: only a
// leader answers the question for its state.
func (w *mappedWorker) consume(ctx context.Context, c jetstream.Consumer, unitOf func(subject string, m message) int) (jetstream.ConsumeContext, error) {
	err := untilDone(ctx, retryPause, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, leaderTime)
		defer cancel()
		_, err := c.Info(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.Consume(func(msg jetstream.Msg) {
		w.group.ledger.delivered.Add(1)
		m, err := decode(msg.Data())
		if err != nil {
			w.group.ledger.fault(err)
			return
		}
		unit := unitOf(msg.Subject(), m)
		w.queues.put(unit, func() {
			meta, err := msg.Metadata()
			if err != nil {
				w.group.ledger.fault(err)
				return
			}
			if w.group.ledger.handle(context.Background(), w.number, unit, msg.Data(), meta.Timestamp) == nil {
				_ = msg.Ack()
			}
		})
	}, jetstream.PullMaxMessages(inFlight), jetstream.PullExpiry(ackWait/2))
}

// flush waits until the server has every acknowledgement.
func (w *mappedWorker) flush() error { return w.nc.FlushTimeout(10 * time.Second) }

// retryPause is how soon what a broker refused is asked for again.
const retryPause = 20 * time.Millisecond

// tryTime bounds one try. It is long, since who asks again makes a server that is
// busy busier.
const tryTime = 10 * time.Second

// leaderTime bounds a question to a consumer: without a leader it goes nowhere.
const leaderTime = time.Second

// untilDone repeats what fails until it doesn't, pausing between.
func untilDone(ctx context.Context, pause time.Duration, try func(context.Context) error) error {
	for {
		one, cancel := context.WithTimeout(ctx, tryTime)
		err := try(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// queues work on what is put in, in order within a unit.
type queues struct {
	mu      sync.Mutex
	all     map[int]*queue
	working sync.WaitGroup
}

type queue struct{ tasks []func() }

func (q *queues) put(unit int, task func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if own := q.all[unit]; own != nil {
		own.tasks = append(own.tasks, task)
		return
	}
	own := &queue{tasks: []func(){task}}
	q.all[unit] = own
	q.working.Go(func() { q.work(unit, own) })
}

func (q *queues) work(unit int, own *queue) {
	for {
		q.mu.Lock()
		if len(own.tasks) == 0 {
			delete(q.all, unit)
			q.mu.Unlock()
			return
		}
		task := own.tasks[0]
		own.tasks = own.tasks[1:]
		q.mu.Unlock()
		task()
	}
}

// discard forgets what has not been begun.
func (q *queues) discard() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, own := range q.all {
		own.tasks = nil
	}
}

// wait waits for what has been begun; nothing may be put in meanwhile.
func (q *queues) wait() { q.working.Wait() }
