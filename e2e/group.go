package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/state"
)

// group is a session whose servers may be away: it reads the assignment map, and waits by
// that and by what the defenders say, rather than by events.
type group struct {
	*session
	js   jetstream.JetStream
	maps jetstream.KeyValue
}

func openGroup(ctx context.Context, s *session) (*group, error) {
	g := &group{session: s}
	var err error
	if g.js, err = jetstream.New(s.Conn); err != nil {
		return nil, err
	}
	if g.maps, err = g.js.KeyValue(ctx, defender.Group+"-assignments"); err != nil {
		return nil, fmt.Errorf("opening the bucket of the assignment map: %w", err)
	}
	return g, nil
}

// recovered bounds how long the cluster takes to have every slot with a live
// owner again.
const recovered = 90 * time.Second

// current reads the assignment map.
func (g *group) current(ctx context.Context) (*partition.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	e, err := g.maps.Get(ctx, partition.AssignmentKey)
	if err != nil {
		return nil, fmt.Errorf("reading the assignment map: %w", err)
	}
	return partition.DecodeAssignment(e.Value())
}

// calm waits until as many defenders as there should be share everything.
func (g *group) calm(ctx context.Context) (*partition.Assignment, error) {
	within := g.Patience(recovered)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v: %d defenders STABLE", within, g.o.Defenders))
	defer cancel()
	for {
		a, err := g.current(ctx)
		if err == nil && a.Settled() && len(a.Workers) == g.o.Defenders && g.atWork(a) {
			return a, nil
		}
		if err := g.Defenders.Failed(); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// atWork reports whether all defenders, and no others, are in the map and STABLE.
func (g *group) atWork(a *partition.Assignment) bool {
	named := map[string]bool{}
	for _, w := range a.Workers {
		named[w.ID] = true
	}
	ms := g.Defenders.byID()
	for id, m := range ms {
		f, err := m.Gather()
		if err != nil || !named[id] || local.StateOf(f) != string(state.Stable) {
			return false
		}
	}
	return len(ms) == g.o.Defenders && len(g.Defenders.Running()) == g.o.Defenders
}
