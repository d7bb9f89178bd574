package handoff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/plan"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// musterGroup is package partition as anybody uses it: work queues whose consumers
// keep their state in memory.
type musterGroup struct {
	*natsSender
	env
	nc       *nats.Conn
	cfg      partition.Config
	workers  []*musterWorker
	crashed  []*musterWorker
	slotKeys [][]int
	latest   atomic.Pointer[report.Map]
	unwatch  context.CancelFunc
	watching sync.WaitGroup

	mu     sync.Mutex
	moving func([]int)
	after  uint64 // the version before the change
}

// startHalved is startMuster with half as many slots as the case has.
func startHalved(ctx context.Context, e env) (group, error) {
	e.Slots /= 2
	return startMuster(ctx, e)
}

type musterWorker struct {
	*partition.Worker
	nc    *nats.Conn
	leave context.CancelFunc
	ended chan struct{}
	err   error // when ended is closed
}

func musterConfig(e env) partition.Config {
	c := partition.Config{Name: "bench", Stream: "dc", Subject: "dc.*.*.completion", Slots: e.Slots, Shards: e.shards,
		Storage: partition.Storage{Replicas: e.replicas}, Delivery: partition.Delivery{AckWait: ackWait, InFlight: e.inFlight}}
	if e.sourced {
		c.Source.Stream = "history"
	}
	return c
}

// makeSource creates the existing stream that the group's messages come from, if they do.
func (g *musterGroup) makeSource(ctx context.Context) error {
	if !g.sourced {
		return nil
	}
	js, err := jetstream.New(g.nc)
	if err != nil {
		return err
	}
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: g.cfg.Source.Stream, Subjects: []string{g.cfg.Subject}, Replicas: g.replicas})
	return err
}

func startMuster(ctx context.Context, e env) (group, error) {
	g := &musterGroup{env: e, slotKeys: make([][]int, e.Slots),
		cfg: musterConfig(e)}
	for key := range e.Keys {
		s := g.slotOf(key)
		g.slotKeys[s] = append(g.slotKeys[s], key)
	}
	var err error
	if g.natsSender, err = newNATSSender(e.url, subjectOf); err != nil {
		return nil, err
	}
	if err := g.open(ctx); err != nil {
		g.stop()
		return nil, err
	}
	return g, nil
}

func (g *musterGroup) open(ctx context.Context) (err error) {
	if g.nc, err = access.Connect(g.url, "bench"); err != nil {
		return err
	}
	if err := g.makeSource(ctx); err != nil {
		return err
	}
	if err := partition.Open(g.nc, g.cfg.Name).Provision(ctx, g.cfg); err != nil {
		return err
	}
	if g.batched {
		if err := allowBatches(ctx, g.nc, g.cfg.Streams()...); err != nil {
			return err
		}
		g.streamOf = func(key int) int { return g.slotOf(key) % max(1, g.shards) }
	}
	ctx, g.unwatch = context.WithCancel(context.WithoutCancel(ctx))
	maps, err := partition.Open(g.nc, g.cfg.Name).WatchMap(ctx)
	if err != nil {
		return err
	}
	g.watching.Go(func() { g.follow(maps) })
	return nil
}

func (g *musterGroup) slotOf(key int) int {
	tool, chamber := tokens(key)
	return partition.SlotOf(g.Slots, tool, chamber)
}

// follow sees each map; the first of a change that moves slots is told.
func (g *musterGroup) follow(maps <-chan *report.Map) {
	for a := range maps {
		g.latest.Store(a)
		g.mu.Lock()
		tell := g.moving
		if tell != nil && a.Version > g.after && len(a.Moves) > 0 {
			g.moving = nil
		} else {
			tell = nil
		}
		g.mu.Unlock()
		if tell != nil {
			var keys []int
			for s := range a.Moves {
				keys = append(keys, g.slotKeys[s]...)
			}
			slices.Sort(keys)
			tell(keys)
		}
	}
}

func (g *musterGroup) change(ctx context.Context, n int, moving func([]int)) error {
	if err := g.announce(ctx, n, moving); err != nil {
		return err
	}
	for len(g.workers) < n {
		if err := g.join(); err != nil {
			return err
		}
	}
	leavers := g.workers[n:]
	for _, w := range leavers {
		w.leave()
	}
	for _, w := range leavers {
		<-w.ended
		w.nc.Close()
		if w.err != nil {
			return w.err
		}
	}
	g.workers = g.workers[:n]
	return g.settle(ctx, n)
}

// announce tells the group how many workers to expect, so that no window is waited for.
func (g *musterGroup) announce(ctx context.Context, n int, moving func([]int)) error {
	g.mu.Lock()
	g.moving = moving
	if a := g.latest.Load(); a != nil {
		g.after = a.Version
	}
	g.mu.Unlock()
	return partition.Open(g.nc, g.cfg.Name).Expect(ctx, n)
}

func (g *musterGroup) settle(ctx context.Context, n int) error {
	return eventually(ctx, fmt.Sprintf("%d workers are STABLE", n), g.stable)
}

func (g *musterGroup) stable() bool {
	a := g.latest.Load()
	if a == nil || !a.Settled() || len(a.Workers) != len(g.workers) {
		return false
	}
	slots := 0
	for _, w := range g.workers {
		s := w.Status()
		if s.State != state.Stable || s.Version != a.Version {
			return false
		}
		slots += len(s.Slots)
	}
	return slots == g.Slots
}

func (g *musterGroup) join() error {
	i := len(g.workers)
	nc, err := access.Connect(g.url, workerName(i))
	if err != nil {
		return err
	}
	p, err := partition.New(nc, g.cfg, partition.HandlerFunc(func(ctx context.Context, m partition.Message) error {
		g.ledger.delivered.Add(1)
		return g.ledger.handle(ctx, i, m.Slot, m.Data, m.Published)
	}))
	if err != nil {
		nc.Close()
		return err
	}
	ctx, leave := context.WithCancel(context.Background())
	w := &musterWorker{Worker: p, nc: nc, leave: leave, ended: make(chan struct{})}
	g.workers = append(g.workers, w)
	go func() {
		defer close(w.ended)
		w.err = p.Run(ctx)
	}()
	return nil
}

// crash cuts the connections of the last n workers, as the end of their processes would, and
// then lets them end.
func (g *musterGroup) crash(n int) {
	left := len(g.workers) - n
	for i, w := range g.workers[left:] {
		g.ledger.crash(left + i)
		w.nc.Close()
		w.leave()
	}
	g.crashed = append(g.crashed, g.workers[left:]...)
	g.workers = g.workers[:left:left]
}

// predicted makes the leader's plan: it depends on nothing but its inputs.
func (g *musterGroup) predicted(n int) ([]int, error) {
	a := g.latest.Load()
	if a == nil {
		return nil, errors.New("there is no assignment map")
	}
	leaving := map[string]bool{}
	for i := n; i < len(g.workers); i++ {
		leaving[g.workers[i].Status().ID] = true
	}
	p := plan.Problem{Slots: g.Slots, Budget: -1}
	index := make([]int32, len(a.Workers))
	for i, w := range a.Workers {
		index[i] = plan.Gone
		if !leaving[w.ID] {
			index[i] = int32(len(p.Workers))
			p.Workers = append(p.Workers, plan.Worker{ID: w.ID, Weight: 1})
		}
	}
	for i := len(a.Workers); i < n; i++ {
		p.Workers = append(p.Workers, plan.Worker{ID: fmt.Sprintf("%s-%d", g.cfg.Name, i), Weight: 1})
	}
	for _, o := range a.Owner {
		p.Owners = append(p.Owners, index[o])
	}
	next, err := plan.Sticky().Plan(p)
	if err != nil {
		return nil, err
	}
	var keys []int
	for _, m := range next.Moves {
		keys = append(keys, g.slotKeys[m.Slot]...)
	}
	return keys, nil
}

func (g *musterGroup) stop() {
	for _, w := range g.workers {
		w.leave()
	}
	for _, w := range append(g.workers, g.crashed...) {
		// Nobody takes their slots any more: they need not wait for that.
		w.nc.Close()
		<-w.ended
	}
	if g.unwatch != nil {
		g.unwatch()
		g.watching.Wait()
	}
	if g.nc != nil {
		g.nc.Close()
	}
	g.close()
}
