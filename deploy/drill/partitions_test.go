//go:build !race

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
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitionprom"
	"github.com/muster-dev/muster/partition/plan"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/tchart"
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

	served  atomic.Pointer[natstest.Server]
	twice   atomic.Bool  // the leader is scraped by two names
	wanted  atomic.Int64 // defenders
	mu      sync.Mutex
	all     []*process
	started int
	count   int // of contexts
}

type groupOptions struct {
	slots, chambers, defenders int
	every                      time.Duration // from one context to the next; 0: none
	configure                  func(*partition.Config)
	lags                       bool  // links can be delayed
	expect                     bool  // the defenders are told how many there should be
	maxStore                   int64 // bytes that the server may keep; 0: its default
}

// process is one defender.
type process struct {
	name     string
	nc       *nats.Conn
	link     *link
	worker   *partition.Worker
	registry *prom.Registry
	stop     func()
	ended    chan struct{}
	judging  atomic.Int64                              // ns that each verdict takes, whatever its context says
	failing  atomic.Pointer[func(chamber string) bool] // for which chambers it fails; nil: none
	deaf     atomic.Bool                               // its handler does not notice that its context has ended
}

// link is a defender's way to the server.
type link struct {
	g     *group
	delay atomic.Int64 // ns by which whatever comes and goes is late, of groups that lag

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
	if err != nil {
		return nil, err
	}
	l.conn = c
	if l.g.options.lags {
		l.conn = newLagging(c, &l.delay)
	}
	return l.conn, nil
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

// freeze lets nothing through any more, and lets nobody see it: the connection stays as it is.
func (l *link) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = true
	l.delay.Store(int64(time.Hour))
}

func (g *group) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// The server's users: mapless may not watch the assignment map, by an oversight in its permissions.
const anybody, mapless = "anybody", "mapless"

func (g *group) serve() {
	s, err := natstest.Run(natstest.In(g.dir), natstest.InProcess, natstest.MaxStore(g.options.maxStore), func(o *server.Options) {
		noMap := &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.CREATE.KV_defender-assignments.>"}}}
		o.Users = []*server.User{{Username: anybody, Password: anybody}, {Username: mapless, Password: mapless, Permissions: noMap}}
	})
	g.must(err)
	g.served.Store(s)
}

func (g *group) unserve() {
	s := g.served.Swap(nil)
	if s != nil {
		s.Stop()
	}
}

func (g *group) connect(name, user string) (*nats.Conn, *link) {
	l := &link{g: g}
	nc, err := nats.Connect("", nats.InProcessServer(l), nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(2), nats.UserInfo(user, user),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
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
	g.publisher, _ = g.connect("collector", anybody)
	g.must(defender.Provision(t.Context(), g.publisher, g.partition()))
	g.collector, err = collect.New(g.store, g.publisher)
	g.must(err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() {
		stop()
		for _, m := range g.processes() {
			m.stop()
		}
		for _, m := range g.processes() {
			<-m.ended
		}
		g.publisher.Close()
		g.unserve()
		_ = g.store.Close()
		synctest.Wait()
	})
	g.wanted.Store(int64(o.defenders))
	for range o.defenders {
		g.start(nil)
	}
	g.prom.watch(t, 0, 15*time.Second, g.scrape)
	if o.every > 0 {
		go func() {
			for i := 0; sleep(ctx, o.every) == nil; i++ {
				g.publish(ctx, i%len(g.chambers))
			}
		}()
	}
	time.Sleep(2 * time.Minute)
	g.fault = time.Now()
	return g
}

func (g *group) partition() partition.Config {
	p := defender.Partition(g.options.slots)
	p.Lease.ProbeInterval = 2 * time.Second // an hour has many of the usual ones
	if g.options.expect {
		p.Rebalance.Expected = func() int { return int(g.wanted.Load()) }
	}
	if g.options.configure != nil {
		g.options.configure(&p)
	}
	return p
}

// start starts a defender.
func (g *group) start(configure func(*partition.Config)) *process {
	return g.startAs(anybody, configure)
}

func (g *group) startAs(user string, configure func(*partition.Config)) *process {
	g.mu.Lock()
	m := &process{name: fmt.Sprintf("pod-%03d", g.started), registry: prom.NewRegistry(), ended: make(chan struct{})}
	g.started++
	g.mu.Unlock()
	m.nc, m.link = g.connect(m.name, user)
	metrics := defender.NewMetrics(nil)
	judge := func(h []uchart.Point, c *uchart.Chart) uchart.Verdict {
		time.Sleep(time.Duration(m.judging.Load()))
		return uchart.Judge(h, c, uchart.Policy{})
	}
	p := g.partition()
	def, err := defender.New(defender.Config{Store: g.store, Conn: m.nc, Judge: judge, Metrics: metrics})
	g.must(err)
	p.Identity.Pod, p.Rebalance.Weights = m.name, def.Weights
	if configure != nil {
		configure(&p)
	}
	m.worker, err = partition.New(m.nc, p, failsFor{def, m})
	g.must(err)
	for _, c := range metrics.Collectors() {
		m.registry.MustRegister(c)
	}
	m.registry.MustRegister(partitionprom.NewCollector(m.worker, defender.WorkerMetrics(g.assigned)))
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	g.mu.Lock()
	g.all = append(g.all, m)
	g.mu.Unlock()
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
	m *process
}

// Handle implements partition.Handler.
func (f failsFor) Handle(ctx context.Context, m partition.Message) error {
	if fails := f.m.failing.Load(); fails != nil && (*fails)(m.Key) {
		return errors.New("the store has no room for this chamber")
	}
	if f.m.deaf.Load() {
		ctx = context.WithoutCancel(ctx)
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
func (m *process) kill() {
	m.nc.Close()
	<-m.ended
}

func (g *group) processes() []*process {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]*process(nil), g.all...)
}

// running returns the defenders that have not ended, oldest first; the leader comes last.
func (g *group) running() []*process {
	var out, leading []*process
	for _, m := range g.processes() {
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
		if g.twice.Load() && m.worker.Status().Leading {
			if targets[m.name+".example"], err = m.registry.Gather(); err != nil {
				g.t.Errorf("gathering: %v", err)
			}
		}
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

// usual is what most drills begin with.
var usual = groupOptions{slots: 24, chambers: 120, defenders: 4, every: 2 * time.Second}

func (o groupOptions) with(change func(*groupOptions)) groupOptions {
	change(&o)
	return o
}

// withoutRetry has a message that fails hold up its slot.
func withoutRetry(o *groupOptions) {
	o.configure = func(p *partition.Config) { p.Retry = partition.Retry{Disabled: true} }
}

type groupDrill struct {
	options groupOptions
	fires   []string
	play    func(*group)
}

// groupDrills fire the alerts of the defenders, by the names under which docs/alerts.md has them.
var groupDrills = map[string]groupDrill{
	"quiet": {options: usual.with(func(o *groupOptions) { o.every, o.expect = 4*time.Second, true }), play: quietDefenders},
	"server-away": {options: usual, fires: []string{"PartitionsNoLeader", "PartitionsDegraded", "PartitionsNotStable"}, play: func(g *group) {
		g.unserve()
		time.Sleep(2 * time.Minute)
		g.serve()
		time.Sleep(2 * time.Minute)
	}},
	"scraped-twice": {options: usual, fires: []string{"PartitionsTwoLeaders"}, play: func(g *group) {
		g.twice.Store(true)
		time.Sleep(2 * time.Minute)
	}},
	"joins-trickle": {options: usual, fires: []string{"PartitionsNotStable", "PartitionsJoinedIdle"}, play: func(g *group) {
		for range 15 {
			g.start(nil)
			time.Sleep(8 * time.Second)
		}
		time.Sleep(time.Minute)
	}},
	"cut-off": {options: usual, fires: []string{"PartitionsDegraded", "PartitionsMapNotSeen"}, play: func(g *group) {
		g.running()[0].link.cut(true)
		time.Sleep(2 * time.Minute)
		g.running()[0].link.cut(false)
	}},
	"planner-fails": {options: usual.with(func(o *groupOptions) {
		o.configure = func(p *partition.Config) {
			p.Rebalance.Strategy = &moody{Strategy: plan.Sticky(), fails: &plannerFails}
		}
	}), fires: []string{"PartitionsJoinedIdle", "PartitionsNotStable"}, play: func(g *group) {
		plannerFails.Store(true)
		defer plannerFails.Store(false)
		g.start(nil)
		time.Sleep(3 * time.Minute)
	}},
	"map-not-seen": {options: usual, fires: []string{"PartitionsMapNotSeen"}, play: func(g *group) {
		g.startAs(mapless, nil)
		time.Sleep(3 * time.Minute)
	}},
	"crash-loop": {options: usual.with(func(o *groupOptions) { o.chambers = 2400 }),
		fires: []string{"PartitionsRebalanceStorm", "PartitionsMovementsHigh", "PartitionsEmergencies"}, play: func(g *group) {
			for range 5 {
				g.running()[0].kill()
				time.Sleep(40 * time.Second)
				g.start(nil)
				time.Sleep(40 * time.Second)
			}
		}},
	"capacity-differs": {options: usual, fires: []string{"PartitionsUneven"}, play: func(g *group) {
		g.start(func(p *partition.Config) { p.Identity.Capacity = 3 })
		time.Sleep(3 * time.Minute)
	}},
	"frozen-with-a-long-lease": {options: usual.with(func(o *groupOptions) {
		o.lags = true
		o.configure = func(p *partition.Config) { p.Lease.TTL, p.Lease.Heartbeat = 20*time.Second, 5*time.Second }
	}), fires: []string{"PartitionsDetectionSlow"}, play: func(g *group) {
		m := g.running()[0]
		m.link.freeze() // its connection stays open, so that only its lease tells
		time.Sleep(40 * time.Second)
		m.kill()
		time.Sleep(time.Minute)
		m.link.delay.Store(0)
	}},
	"deaf-handlers": {options: usual.with(func(o *groupOptions) { o.every = 200 * time.Millisecond }), fires: []string{"PartitionsHandoffsForced"}, play: func(g *group) {
		for _, m := range g.running() {
			m.judging.Store(int64(time.Minute))
			m.deaf.Store(true)
		}
		time.Sleep(15 * time.Second)
		g.start(nil)
		time.Sleep(time.Minute)
		for _, m := range g.running() {
			m.judging.Store(0)
		}
		time.Sleep(2 * time.Minute)
	}},
	"pins-stolen": {options: usual.with(func(o *groupOptions) { o.slots, o.every = 8, 500*time.Millisecond }), fires: []string{"PartitionsStalePins"}, play: stealPins},
	"bucket-deleted": {options: usual, fires: []string{"PartitionsResourceRecreated"}, play: func(g *group) {
		operator, _ := g.connect("operator", anybody)
		defer operator.Close()
		js, err := jetstream.New(operator)
		g.must(err)
		g.must(js.DeleteKeyValue(g.t.Context(), "defender-assignments"))
		time.Sleep(2 * time.Minute)
	}},
	"fences-kept": {options: usual, fires: []string{"PartitionsFencesRaised"}, play: func(g *group) {
		// As of a time that the server has forgotten.
		for _, c := range g.chambers {
			g.must(g.store.RaiseFence(g.t.Context(), c, defender.Fence{MapVersion: 5000, ClaimRevision: 1}))
		}
		time.Sleep(2 * time.Minute)
	}},
	// A large message would be refused by the client; the stream's limit is small instead.
	"stream-fills": {options: usual.with(func(o *groupOptions) {
		o.every = 500 * time.Millisecond
		o.configure = func(p *partition.Config) { p.Storage.MaxBytes = 64 << 10 }
	}), fires: []string{"PartitionsStorageNearlyFull", "PartitionsProcessingSlow"}, play: func(g *group) {
		for _, m := range g.running() {
			m.judging.Store(int64(8 * time.Second))
		}
		time.Sleep(6 * time.Minute)
		for _, m := range g.running() {
			m.judging.Store(0)
		}
		time.Sleep(2 * time.Minute)
	}},
	"storage-full": {options: usual.with(func(o *groupOptions) { o.maxStore = 256 << 20 }),
		fires: []string{"PartitionsWritesRefused", "PartitionsDegraded", "PartitionsNoLeader", "PartitionsNotStable"}, play: func(g *group) {
			operator, _ := g.connect("operator", anybody)
			defer operator.Close()
			js, err := jetstream.New(operator)
			g.must(err)
			_, err = js.CreateStream(g.t.Context(), jetstream.StreamConfig{Name: "foreign", Subjects: []string{"foreign"}})
			g.must(err)
			for err == nil {
				_, err = js.Publish(g.t.Context(), "foreign", make([]byte, 512<<10))
			}
			if !partition.IsFull(err) {
				g.t.Errorf("the storage is not full: %v", err)
			}
			time.Sleep(3 * time.Minute)
			g.must(js.DeleteStream(g.t.Context(), "foreign"))
			time.Sleep(2 * time.Minute)
		}},
	"zombie": {options: usual.with(func(o *groupOptions) { o.every = 100 * time.Millisecond }), fires: []string{"PartitionsFenceRejections", "PartitionsRebalanceStorm"}, play: func(g *group) {
		m := g.running()[0]
		m.deaf.Store(true)
		m.judging.Store(int64(45 * time.Second))
		time.Sleep(10 * time.Second)
		m.link.cut(true)
		time.Sleep(50 * time.Second)
		m.judging.Store(0)
		m.link.cut(false)
		time.Sleep(2 * time.Minute)
	}},
	"dead-letters": {options: usual, fires: []string{"PartitionsDeadLetters"}, play: func(g *group) {
		g.must(g.publisher.Publish(defender.CompletionSubject(g.chambers[0]), []byte("garbage")))
		time.Sleep(2 * time.Minute)
	}},
	"processing-panics": {options: usual, fires: []string{"PartitionsPanics"}, play: func(g *group) {
		var panics atomic.Int64
		g.fail(func(chamber string) bool {
			// One more, and the message would become a dead letter.
			if chamber == g.chambers[0].String() && panics.Add(1) < defender.RetryAttempts {
				panic("index out of range")
			}
			return false
		})
		time.Sleep(8 * time.Minute)
	}},
	"stream-made-again": {options: usual, fires: []string{"PartitionsStreamRolledBack"}, play: func(g *group) {
		js, err := jetstream.New(g.publisher)
		g.must(err)
		g.must(js.DeleteStream(g.t.Context(), defender.Stream))
		g.must(defender.Provision(g.t.Context(), g.publisher, g.partition()))
		time.Sleep(2 * time.Minute)
	}},
	"chamber-fails": {options: usual.with(withoutRetry), fires: []string{"PartitionsOldestPending"}, play: func(g *group) {
		g.fail(func(chamber string) bool { return chamber == g.chambers[0].String() })
		time.Sleep(11 * time.Minute)
	}},
	"chamber-queued": {options: usual.with(func(o *groupOptions) {
		o.configure = func(p *partition.Config) { p.Retry = partition.Retry{KeepFailing: true} }
	}), fires: []string{"PartitionsRetryQueueOld"}, play: func(g *group) {
		g.fail(func(chamber string) bool { return chamber == g.chambers[0].String() })
		time.Sleep(17 * time.Minute)
	}},
	"most-fails": {options: usual.with(func(o *groupOptions) { o.every = 8 * time.Second }).with(withoutRetry), fires: []string{"PartitionsProcessingDrops", "PartitionsOldestPending"}, play: func(g *group) {
		time.Sleep(time.Hour) // what was usual is what an hour had
		g.fault = time.Now()
		for _, m := range g.running()[:3] {
			all := func(string) bool { return true }
			m.failing.Store(&all)
		}
		time.Sleep(18 * time.Minute)
	}},
	// Messages wait in most slots, so that a handoff meets some, and the new worker is far away. By the usual grace it would not work at all.
	"far-joining-worker": {options: usual.with(func(o *groupOptions) {
		o.lags = true
		o.configure = func(p *partition.Config) {
			p.Lease.SuspicionGrace = 3 * time.Second
		}
	}),
		fires: []string{"PartitionsHandoffSlow"}, play: func(g *group) {
			for _, m := range g.processes() {
				m.judging.Store(int64(1500 * time.Millisecond))
			}
			time.Sleep(30 * time.Second)
			m := g.start(nil)
			m.judging.Store(int64(1500 * time.Millisecond))
			time.Sleep(5 * time.Second) // it has joined, and others are still waited for
			for range 3 {
				for i := range g.chambers {
					g.publish(g.t.Context(), i)
				}
			}
			m.link.delay.Store(int64(700 * time.Millisecond))
			time.Sleep(2 * time.Minute)
			m.link.delay.Store(0)
		}},
	"store-slow": {options: usual, fires: []string{"PartitionsProcessingSlow"}, play: func(g *group) {
		for _, m := range g.running() {
			m.judging.Store(int64(15 * time.Second))
		}
		time.Sleep(8 * time.Minute)
	}},
}

// fail makes every defender fail for some chambers.
func (g *group) fail(chambers func(string) bool) {
	for _, m := range g.running() {
		m.failing.Store(&chambers)
	}
}

var plannerFails atomic.Bool

// moody is a planner that fails when it is told to.
type moody struct {
	plan.Strategy
	fails *atomic.Bool
}

// Plan implements plan.Strategy.
func (m *moody) Plan(p plan.Problem) (plan.Plan, error) {
	if m.fails.Load() {
		return plan.Plan{}, errors.New("no plan comes to mind")
	}
	return m.Strategy.Plan(p)
}

// stealPins has a stranger, a person with a tool say, pull from the slots' consumers and go away with what it got.
func stealPins(g *group) {
	thief, _ := g.connect("thief", anybody)
	defer thief.Close()
	js, err := jetstream.New(thief)
	g.must(err)
	stream, err := js.Stream(g.t.Context(), defender.Stream)
	g.must(err)
	var names []string
	for name := range stream.ConsumerNames(g.t.Context()).Name() {
		names = append(names, name)
	}
	for range 2 {
		for _, name := range names {
			inbox := nats.NewInbox()
			_, err := thief.SubscribeSync(inbox)
			g.must(err)
			g.must(thief.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+defender.Stream+"."+name, inbox, []byte(`{"batch":1,"expires":60000000000,"group":"owner"}`)))
			_, err = thief.Request("$JS.API.CONSUMER.UNPIN."+defender.Stream+"."+name, []byte(`{"group":"owner"}`), 2*time.Second)
			g.must(err)
		}
		time.Sleep(30 * time.Second)
	}
}

// quietDefenders is an ordinary day: a scale-up, a scale-down, a rolling update, a crash.
func quietDefenders(g *group) {
	g.wanted.Store(6)
	for range 2 {
		g.start(nil)
	}
	time.Sleep(10 * time.Minute)
	g.wanted.Store(4)
	for _, m := range g.processes()[4:] {
		m.stop()
	}
	time.Sleep(10 * time.Minute)
	for _, m := range g.running() {
		m.stop()
		<-m.ended
		time.Sleep(2 * time.Second)
		g.start(nil)
		time.Sleep(20 * time.Second)
	}
	time.Sleep(10 * time.Minute)
	g.running()[0].kill()
	time.Sleep(5 * time.Second)
	g.start(nil)
	time.Sleep(10 * time.Minute)
	if n := len(g.running()); n != 4 || g.count < 500 {
		g.t.Errorf("%d defenders run, %d contexts were published", n, g.count)
	}
}

func TestPartitionAlerts(t *testing.T) {
	t.Parallel()
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
