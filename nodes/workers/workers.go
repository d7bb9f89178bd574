// Package workers lets the node plane ask workers that share keys by package partition: what taking a node away costs, and to hand
// over before it goes. Workers tell where they run by partition.Config.Identity.Node.
package workers

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/report"
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
	group := partition.Open(p.nc, p.group)
	leases, err := group.Leases(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the cost of nodes: %w", err)
	}

	assigned, err := group.Map(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for the cost of nodes: %w", err)
	}
	var slots map[string]int // none before the first map
	if assigned != nil {
		slots = assigned.Counts()
	}

	out := make(map[string]float64, len(names))
	for _, n := range names {
		out[n] = 0
	}
	for _, m := range leases {
		if _, asked := out[m.Node]; asked {
			out[m.Node] += float64(slots[m.ID])
		}
	}
	return out, nil
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

func on(node string) func(report.Lease) bool {
	return func(m report.Lease) bool { return m.Node == node && node != "" }
}
