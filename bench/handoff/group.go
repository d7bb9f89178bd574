package handoff

import (
	"context"
	"fmt"
	"slices"
	"time"

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

// env is what a group is started with.
type env struct {
	Case
	url      string
	replicas int
	shards   int
	inFlight int
	sourced  bool
	batched  bool
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
	// stepwise groups take one worker after the other, and then wait.
	stepwise interface {
		crasher
		// announce tells the number of workers to those that want to know it beforehand, and the
		// group who is to be told which keys move.
		announce(ctx context.Context, workers int, moving func(keys []int)) error
		// join starts one more worker and does not wait until it has anything.
		join() error
		// settle waits until this number of workers, all that run, have what is theirs.
		settle(ctx context.Context, workers int) error
	}
	// paced groups have handlers that are told how long they take: least, and up to spread ns more.
	paced interface{ pace(least, spread int64) }
)

// defaultSync and alwaysSync are the values of Contender.Sync.
const (
	defaultSync = "default"
	alwaysSync  = "always"
)

func ready(ctx context.Context, url string, replicas int) error {
	nc, err := access.Connect(url, "bench")
	if err != nil {
		return err
	}
	defer nc.Close()
	return broker.WaitReplicated(ctx, nc, replicas)
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
