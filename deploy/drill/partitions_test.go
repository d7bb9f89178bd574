package drill

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats-server/v2/server/ats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	prom "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/tchart"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
)

// group is a number of defenders on a NATS server, all of it in a bubble: the server is asked without a network.
type group struct {
	t         *testing.T
	dir       string
	store     *sqlite.Store
	prom      *prometheus
	chambers  []defender.Chamber
	options   groupOptions
	blob      []byte
	publisher *nats.Conn
	collector *collect.Collector
	fault     time.Time

	served atomic.Pointer[server.Server]
	mu     sync.Mutex
	all    []*member
	count  int // of contexts
}

type groupOptions struct {
	slots, chambers, defenders int
	every                      time.Duration // from one context to the next; 0: none
	configure                  func(*partition.Config)
	twice                      bool // the leader is scraped by two names
}

// member is one defender.
type member struct {
	name     string
	nc       *nats.Conn
	link     *link
	worker   *partition.Worker
	registry *prom.Registry
	stop     func()
	ended    chan struct{}
	judging  atomic.Int64 // ns that each verdict takes, whatever its context says
	failing  atomic.Pointer[string]
}

// link is a defender's way to the server.
type link struct {
	g    *group
	mu   sync.Mutex
	away bool
	conn net.Conn
}

// InProcessConn connects to the server that runs now.
func (l *link) InProcessConn() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.g.served.Load()
	if l.away || s == nil {
		return nil, errors.New("connection refused")
	}
	c, err := s.InProcessConn()
	l.conn = c
	return c, err
}

// cut takes the way away, or gives it back.
func (l *link) cut(away bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = away
	if away && l.conn != nil {
		_ = l.conn.Close()
	}
}

func (g *group) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *group) serve() {
	s, err := server.NewServer(&server.Options{ServerName: "drill", DontListen: true, JetStream: true, StoreDir: g.dir, NoSigs: true, NoLog: true, SyncInterval: time.Hour})
	g.must(err)
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		g.t.Fatal("the server does not accept connections")
	}
	g.served.Store(s)
}

func (g *group) unserve() {
	s := g.served.Swap(nil)
	if s != nil {
		s.Shutdown()
		s.WaitForShutdown()
	}
}

func (g *group) connect(name string) (*nats.Conn, *link) {
	l := &link{g: g}
	nc, err := nats.Connect("", nats.InProcessServer(l), nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(2))
	g.must(err)
	return nc, l
}

// startGroup begins a drill within a bubble: defenders that are STABLE, and contexts that come.
func startGroup(t *testing.T, o groupOptions) *group {
	t.Helper()
	g := &group{t: t, dir: t.TempDir(), prom: newPrometheus(t, "partitions"), options: o}
	var err error
	g.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(t.TempDir(), "fdc.db")})
	g.must(err)
	var infos []defender.ChamberInfo
	for i := range o.chambers {
		c := defender.Chamber{Tool: fmt.Sprintf("tool%03d", i/4+1), Name: fmt.Sprintf("chamber%d", i%4+1)}
		g.chambers = append(g.chambers, c)
		infos = append(infos, defender.ChamberInfo{Chamber: c, Weight: 1})
	}
	g.must(g.store.RegisterChambers(t.Context(), infos))
	g.blob, err = tchart.Encode(&new(trace.Generator).Wafer(0).Trace)
	g.must(err)
	g.serve()
	g.publisher, _ = g.connect("collector")
	g.must(defender.Provision(t.Context(), g.publisher, g.partition()))
	g.collector, err = collect.New(g.store, g.publisher)
	g.must(err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		for _, m := range g.members() {
			m.stop()
		}
		for _, m := range g.members() {
			<-m.ended
		}
		g.publisher.Close()
		g.unserve()
		_ = g.store.Close()
		synctest.Wait()
	})
	for range o.defenders {
		g.start(nil)
	}
	go func() {
		for ctx.Err() == nil {
			g.prom.scraped(time.Now(), g.scrape())
			g.prom.evaluate(t, time.Now())
			_ = sleep(ctx, scrapeEvery)
		}
	}()
	if o.every > 0 {
		go func() {
			for i := 0; sleep(ctx, o.every) == nil; i++ {
				g.publish(ctx, i%len(g.chambers))
			}
		}()
	}
	time.Sleep(3 * time.Minute)
	g.fault = time.Now()
	return g
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (g *group) partition() partition.Config {
	p := defender.Partition(g.options.slots)
	p.ProbeInterval = 500 * time.Millisecond // an hour has many of the usual ones
	if g.options.configure != nil {
		g.options.configure(&p)
	}
	return p
}

// start starts a defender.
func (g *group) start(configure func(*partition.Config)) *member {
	g.mu.Lock()
	m := &member{name: fmt.Sprintf("pod-%03d", len(g.all)), registry: prom.NewRegistry(), ended: make(chan struct{})}
	g.all = append(g.all, m)
	g.mu.Unlock()
	m.nc, m.link = g.connect(m.name)
	metrics := defender.NewMetrics(nil)
	judge := func(h []uchart.Point, c *uchart.Chart) uchart.Verdict {
		time.Sleep(time.Duration(m.judging.Load()))
		return uchart.Judge(h, c, uchart.Policy{})
	}
	p := g.partition()
	def, err := defender.New(defender.Config{Store: g.store, Conn: m.nc, Judge: judge, Metrics: metrics, Retry: p.Retry.Enabled})
	g.must(err)
	p.Pod, p.Weights = m.name, def.Weights
	if configure != nil {
		configure(&p)
	}
	m.worker, err = partition.New(m.nc, p, failsFor{def, m})
	g.must(err)
	for _, c := range metrics.Collectors() {
		m.registry.MustRegister(c)
	}
	m.registry.MustRegister(m.worker.Collector(partition.MetricsOptions{Prefix: "defender", Keys: "chamber", Assigned: g.assigned}))
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go func() {
		defer close(m.ended)
		_ = m.worker.Run(ctx)
		m.nc.Close()
	}()
	return m
}

// failsFor fails for one chamber before its defender is asked.
type failsFor struct {
	*defender.Defender
	m *member
}

// Handle implements partition.Handler.
func (f failsFor) Handle(ctx context.Context, m partition.Message) error {
	if key := f.m.failing.Load(); key != nil && *key == m.Key {
		return errors.New("the store has no room for this chamber")
	}
	return f.Defender.Handle(ctx, m)
}

func (g *group) assigned(in partition.Slots) int {
	n := 0
	for _, c := range g.chambers {
		for _, s := range in.Slots {
			if partition.SlotOf(in.Of, c.Tool, c.Name) == s {
				n++
			}
		}
	}
	return n
}

// kill is what a kill -9 looks like from outside.
func (m *member) kill() {
	m.nc.Close()
	<-m.ended
}

func (g *group) members() []*member {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*member(nil), g.all...)
}

// running returns the defenders that have not ended, oldest first; the leader comes last.
func (g *group) running() []*member {
	var out, leading []*member
	for _, m := range g.members() {
		select {
		case <-m.ended:
			continue
		default:
		}
		if m.worker.Status().Leading {
			leading = append(leading, m)
		} else {
			out = append(out, m)
		}
	}
	return append(out, leading...)
}

func (g *group) scrape() map[string][]*dto.MetricFamily {
	targets := map[string][]*dto.MetricFamily{}
	for _, m := range g.running() {
		families, err := m.registry.Gather()
		if err != nil {
			g.t.Errorf("gathering: %v", err)
		}
		targets[m.name] = families
	}
	return targets
}

// publish publishes a chamber's next context; one that the server does not take is tried again by nobody.
func (g *group) publish(ctx context.Context, chamber int) {
	g.mu.Lock()
	g.count++
	id := fmt.Sprintf("context-%06d", g.count)
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	end := time.Now()
	ref := defender.ContextRef{Chamber: g.chambers[chamber], ID: id, Recipe: "etch", Start: end.Add(-time.Minute), End: end}
	_, _ = g.collector.Publish(ctx, ref, g.blob)
}

func (g *group) jetstream() jetstream.JetStream {
	js, err := jetstream.New(g.publisher)
	g.must(err)
	return js
}

type groupDrill struct {
	options groupOptions
	fires   []string
	play    func(*group)
}

var groupDrills = map[string]groupDrill{
	"server-away": {options: groupOptions{slots: 48, chambers: 240, defenders: 4, every: time.Second}, fires: []string{"PartitionsNoLeader", "PartitionsDegraded"}, play: func(g *group) {
		g.unserve()
		time.Sleep(2 * time.Minute)
		g.serve()
		time.Sleep(2 * time.Minute)
	}},
}

func TestPartitionAlerts(t *testing.T) {
	// The server's clock of accesses is one for the process, and would be the first bubble's.
	ats.Register()
	defer ats.Unregister()
	for name, d := range groupDrills {
		t.Run(name, func(t *testing.T) {
			// The client keeps timers for the next who needs one, and a bubble's must not be used in another.
			runtime.GC()
			runtime.GC()
			synctest.Test(t, func(t *testing.T) {
				g := startGroup(t, d.options)
				d.play(g)
				g.prom.check(t, name, g.fault, d.fires...)
			})
		})
	}
}
