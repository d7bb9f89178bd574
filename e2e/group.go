package e2e

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// group is a session whose servers may be away: it reads the assignment map, and waits by
// that and by what the defenders say, rather than by events.
type group struct {
	*session
	js jetstream.JetStream
}

func openGroup(s *session) (*group, error) {
	g := &group{session: s}
	var err error
	if g.js, err = jetstream.New(s.Conn); err != nil {
		return nil, err
	}
	return g, nil
}

// recovered bounds how long the cluster takes to have every slot with a live
// owner again.
const recovered = 90 * time.Second

// current reads the assignment map.
func (g *group) current(ctx context.Context) (*report.Map, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return readMap(ctx, g.Conn)
}

// calm waits until as many defenders as there should be share everything.
func (g *group) calm(ctx context.Context) (*report.Map, error) {
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
func (g *group) atWork(a *report.Map) bool {
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
