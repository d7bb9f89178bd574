// Package workers lets the node plane ask workers that share keys by package partition: what taking a node away costs, and to hand
// over before it goes. Workers tell where they run by partition.Config.Identity.Node.
package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/partition"
)

// Plane is a group of workers as the node plane sees it. It implements nodes.WorkerPlane.
type Plane struct {
	nc    *nats.Conn
	group string
}

var _ nodes.WorkerPlane = (*Plane)(nil)

// New returns the workers of a group. It does no I/O.
func New(nc *nats.Conn, group string) *Plane { return &Plane{nc, group} }

// Cost returns the number of slots that the workers on each node have: each is a handoff and a cache to warm.
func (p *Plane) Cost(ctx context.Context, names []string) (map[string]float64, error) {
	members, err := partition.Open(p.nc, p.group).Members(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the cost of nodes: %w", err)
	}
	var slots map[string]int // none before the first map
	switch a, err := p.assignment(ctx); {
	case err == nil:
		slots = a.Counts()
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, fmt.Errorf("asking for the cost of nodes: %w", err)
	}
	out := make(map[string]float64, len(names))
	for _, n := range names {
		out[n] = 0
	}
	for _, m := range members {
		if _, asked := out[m.Node]; asked {
			out[m.Node] += float64(slots[m.ID])
		}
	}
	return out, nil
}

func (p *Plane) assignment(ctx context.Context) (*partition.Assignment, error) {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, p.group+"-assignments")
	if err != nil {
		return nil, fmt.Errorf("opening the assignment map of %s: %w", p.group, err)
	}
	e, err := kv.Get(ctx, partition.AssignmentKey)
	if err != nil {
		return nil, fmt.Errorf("reading the assignment map of %s: %w", p.group, err)
	}
	return partition.DecodeAssignment(e.Value())
}

// DrainWorkers asks the workers on a node to give their slots away and to take none until a time. It returns how many slots they still
// have; workers that don't answer are an error.
func (p *Plane) DrainWorkers(ctx context.Context, node string, until time.Time) (int, error) {
	held, err := partition.Open(p.nc, p.group).Drain(ctx, on(node), until)
	left := 0
	for _, n := range held {
		left += n
	}
	return left, err
}

// TakeBack lets the workers on a node take slots again.
func (p *Plane) TakeBack(ctx context.Context, node string) error {
	_, err := partition.Open(p.nc, p.group).Drain(ctx, on(node), time.Time{})
	return err
}

func on(node string) func(partition.MemberInfo) bool {
	return func(m partition.MemberInfo) bool { return m.Node == node && node != "" }
}

// Follow tells the workers how many they should be, by what replicas returns, whenever that changes, until ctx ends. What fails is tried
// again, and logged when it begins to fail.
func (p *Plane) Follow(ctx context.Context, clock nodes.Clock, log *slog.Logger, replicas func(context.Context) (int, error)) error {
	if clock == nil {
		clock = nodes.SystemClock{}
	}
	if log == nil {
		log = slog.Default()
	}
	told, failing := -1, false
	for ctx.Err() == nil {
		n, err := replicas(ctx)
		if err == nil && n != told {
			if err = p.expect(ctx, n); err == nil {
				told = n
				log.Info("told the workers how many they should be", "group", p.group, "expected", n)
			}
		}
		switch {
		case err == nil:
			failing = false
		case !failing && ctx.Err() == nil:
			failing = true
			log.Error("following the replicas of the workers' Deployment; tried again", "group", p.group, "error", err)
		}
		_ = clock.Sleep(ctx, followEvery) // its error is ctx's
	}
	return nil
}

func (p *Plane) expect(ctx context.Context, n int) error {
	if !p.nc.IsConnected() {
		return errors.New("the workers' NATS servers can't be reached")
	}
	return partition.Open(p.nc, p.group).Expect(ctx, n)
}

// followEvery is how often the replicas of a Deployment are read. When they become fewer, workers are told to end at once; until the new
// number is known those are taken to restart, and their slots wait for successors.
const followEvery = 500 * time.Millisecond
