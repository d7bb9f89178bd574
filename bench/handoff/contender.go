package handoff

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
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

// Contender is one way to share keys out.
type Contender struct {
	Name     string
	Replicas int // of everything that is stored; as many servers
	shards   int // streams of Muster's, 0 for one
	kafka    bool
	start    func(context.Context, env) (group, error)
}

// env is what a group is started with.
type env struct {
	Case
	url      string
	replicas int
	shards   int
	ledger   *ledger
}

// group is a contender at work.
type group interface {
	// send publishes one message.
	send(ctx context.Context, m message) error
	// predicted returns the keys that a change will move.
	predicted(workers int) ([]int, error)
	// change brings the workers to another number. moving is called with the
	// keys that move as soon as their new owners have been told; it does not
	// block. It returns when all of them have what is theirs.
	change(ctx context.Context, workers int, moving func(keys []int)) error
	stop()
}

// Contenders are all that are measured, ours first.
func Contenders() []Contender {
	return []Contender{
		{Name: "muster", Replicas: 1, start: startMuster},
		{Name: "muster, half the slots", Replicas: 1, start: startHalved},
		{Name: "muster, 4 shards", Replicas: 1, shards: 4, start: startMuster},
		{Name: "muster, 8 shards", Replicas: 1, shards: 8, start: startMuster},
		{Name: "filters edited, limits", Replicas: 1, start: startFilters(jetstream.LimitsPolicy)},
		{Name: "filters edited, work queue", Replicas: 1, start: startFilters(jetstream.WorkQueuePolicy)},
		{Name: "recreated, as pcgroups", Replicas: 1, start: startRecreated(false)},
		{Name: "recreated, drained first", Replicas: 1, start: startRecreated(true)},
		{Name: "franz-go, fake Kafka", Replicas: 1, kafka: true, start: startKafka},
		{Name: "muster", Replicas: 3, start: startMuster},
		{Name: "muster, 4 shards", Replicas: 3, shards: 4, start: startMuster},
		{Name: "muster, 8 shards", Replicas: 3, shards: 8, start: startMuster},
		{Name: "filters edited, work queue", Replicas: 3, start: startFilters(jetstream.WorkQueuePolicy)},
		{Name: "recreated, drained first", Replicas: 3, start: startRecreated(true)},
	}
}

// serve starts the contender's brokers.
func (c Contender) serve(ctx context.Context, dir string, partitions int) ([]*child, string, error) {
	if c.kafka {
		all, err := startChildren(ctx, []order{{Partitions: partitions}})
		if err != nil {
			return nil, "", err
		}
		return all, all[0].address, nil
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
		orders[i].NATS = &options[i]
	}
	all, err := startChildren(ctx, orders)
	if err != nil {
		return nil, "", err
	}
	url := broker.URLs(options)
	if err := ready(ctx, url, c.Replicas); err != nil {
		stopChildren(all)
		return nil, "", err
	}
	return all, url, nil
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
	conns []*nats.Conn
	js    []jetstream.JetStream
}

func newNATSSender(url string) (*natsSender, error) {
	s := &natsSender{}
	for range 4 {
		nc, err := access.Connect(url, "publisher")
		if err != nil {
			s.close()
			return nil, err
		}
		js, err := jetstream.New(nc)
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
	data := m.encode()
	_, err := s.js[m.key%len(s.js)].Publish(try, subjectOf(m.key), data, jetstream.WithMsgID(string(data)))
	return err
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
