package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	beside "github.com/muster-dev/muster/partition/internal/natstest"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/partition/state"
)

// recorder is a handler that knows every call of every worker, and finds what
// must never happen.
type recorder struct {
	work time.Duration
	// fails reports whether a message fails; nil: none does. It is called with mu held.
	fails func(key string, n uint64, m partition.Message) bool
	// began is told of a message that begins; nil: nobody is. It is called with mu held.
	began func(key string)

	mu      sync.Mutex
	hold    chan struct{}     // not nil: handlers that begin end when it is closed
	running map[string]string // key -> worker
	last    map[string]uint64 // key -> sequence in the key's own count
	done    map[string]int    // message -> times
	faults  []string
	by      map[string]int // worker -> messages
	events  []event.Event
}

func newRecorder(work time.Duration) *recorder {
	return &recorder{work: work, running: map[string]string{}, last: map[string]uint64{}, done: map[string]int{}, by: map[string]int{}}
}

type handler struct {
	r    *recorder
	name string
}

func (h handler) Handle(ctx context.Context, m partition.Message) error {
	var n uint64
	_, _ = fmt.Sscan(string(m.Data), &n)
	h.r.mu.Lock()
	if other, busy := h.r.running[m.Key]; busy {
		h.r.faults = append(h.r.faults, fmt.Sprintf("%s runs on %s while on %s", m.Key, h.name, other))
	}
	if n < h.r.last[m.Key] {
		h.r.faults = append(h.r.faults, fmt.Sprintf("%s: %d after %d", m.Key, n, h.r.last[m.Key]))
	}
	if n > h.r.last[m.Key]+1 {
		h.r.faults = append(h.r.faults, fmt.Sprintf("%s: %d overtakes %d", m.Key, n, h.r.last[m.Key]+1))
	}
	h.r.running[m.Key] = h.name
	if h.r.began != nil {
		h.r.began(m.Key)
	}
	hold := h.r.hold
	h.r.mu.Unlock()
	select {
	case <-time.After(h.r.work):
	case <-ctx.Done():
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	delete(h.r.running, m.Key)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if h.r.fails != nil && h.r.fails(m.Key, n, m) {
		return errFails
	}
	h.r.last[m.Key] = n
	h.r.done[m.Key+" "+string(m.Data)]++
	h.r.by[h.name]++
	return nil
}

var errFails = errors.New("it fails")

func (h handler) Observe(e event.Event) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.r.events = append(h.r.events, e)
}

// servers is what workers are held to their promises on: every test on each.
type servers struct {
	url    string
	change func(*partition.Config) // what the workers' configuration needs there; may be nil
}

// promises are the tests.
func promises(t *testing.T, on func(t *testing.T) servers) {
	for name, f := range map[string]func(*testing.T, servers){
		"workers share out and hand over under load": shareOutAndHandOver,
		"a leaving worker hands off":                 leavingHandsOver,
		"a dead worker's slots are taken":            deadAreReplaced,
		"a group can be used once it is provisioned": provisionedIsProvisioned,
		"a key's slot is the server's hash":          slotOfIsTheServersHash,
		"workers on a node hand over and take back":  nodeHandsOver,
		"a failing key holds nobody up":              failingKeyHoldsNobodyUp,
		"failing keys keep their order over deaths":  failingKeysSurviveDeaths,
	} {
		t.Run(name, func(t *testing.T) { f(t, on(t)) })
	}
}

// TestWorkersOnAServer gives each test a server of its own.
func TestWorkersOnAServer(t *testing.T) {
	t.Parallel()
	promises(t, func(t *testing.T) servers {
		t.Parallel()
		return oneServer(t)
	})
}

// oneServer is a server for one group alone, whose names are the plain ones. It is in a process
// beside the test's: the race detector, which slows what it watches, need not watch the server.
func oneServer(t *testing.T) servers {
	t.Helper()
	return servers{url: beside.Start(t, beside.Options{}), change: plainNames}
}

// TestWorkersOnSeveralStreams gives each test four streams for one, and publishers that don't know of it.
func TestWorkersOnSeveralStreams(t *testing.T) {
	t.Parallel()
	promises(t, func(t *testing.T) servers {
		t.Parallel()
		return sharded(t)
	})
}

// sharded is a server for one group alone, in four streams, that maps what is published to them.
func sharded(t *testing.T) servers {
	t.Helper()
	change := func(c *partition.Config) {
		plainNames(c)
		c.Shards = 4
	}
	var c partition.Config
	change(&c)
	from, to := c.Mapping()
	return servers{url: beside.Start(t, beside.Options{MapFrom: from, MapTo: to}), change: change}
}

func plainNames(c *partition.Config) { c.Name, c.Stream, c.Subject = "worker", "jobs", "jobs.*.*" }

// onEach runs a test with the messages in one stream, and in four.
func onEach(t *testing.T, f func(t *testing.T, on servers)) {
	t.Parallel()
	for name, on := range map[string]func(*testing.T) servers{"one stream": oneServer, "four streams": sharded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, on(t))
		})
	}
}

type group struct {
	t   *testing.T
	url string
	cfg partition.Config
	rec *recorder
	pub jetstream.JetStream
	n   map[string]int

	dialer nats.CustomDialer // of the next workers; nil: the plain one
}

// groups counts them, so that each has names of its own on servers that it shares with others.
var groups atomic.Int64

func startGroup(t *testing.T, on servers, work time.Duration, more ...func(*partition.Config)) *group {
	t.Helper()
	n := groups.Add(1)
	cfg := partition.Config{Name: fmt.Sprint("worker-", n), Stream: fmt.Sprint("jobs-", n), Subject: fmt.Sprintf("jobs-%d.*.*", n), Slots: 64,
		Rebalance: partition.Rebalance{ColdWindow: 500 * time.Millisecond, PlannedWindow: 300 * time.Millisecond}}
	for _, change := range append([]func(*partition.Config){on.change}, more...) {
		if change != nil {
			change(&cfg)
		}
	}
	g := &group{t: t, url: on.url, cfg: cfg, rec: newRecorder(work), n: map[string]int{}}
	nc := g.connect("publisher")
	if err := partition.Open(nc, cfg.Name).Provision(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.pub, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *group) connect(name string) *nats.Conn {
	g.t.Helper()
	options := []nats.Option{nats.Name(name)}
	if g.dialer != nil {
		options = append(options, nats.SetCustomDialer(g.dialer))
	}
	return natstest.Connect(g.t, g.url, options...)
}

type runningWorker struct {
	*partition.Worker
	nc   *nats.Conn
	stop context.CancelFunc
	done chan error
}

func (g *group) start(name string) *runningWorker {
	g.t.Helper()
	return g.startWith(name, handler{g.rec, name})
}

func (g *group) startWith(name string, h partition.Handler) *runningWorker {
	g.t.Helper()
	nc := g.connect(name)
	w, err := partition.New(nc, g.cfg, h)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &runningWorker{Worker: w, nc: nc, stop: cancel, done: make(chan error, 1)}
	go func() { r.done <- w.Run(ctx) }()
	g.t.Cleanup(func() {
		cancel()
		select {
		case <-r.done:
		case <-time.After(await.Patience):
			g.t.Errorf("worker %s did not stop", name)
		}
	})
	return r
}

// publish publishes to each key in turn. What is not acknowledged is published again; the server knows it by its ID.
func (g *group) publish(keys, each int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), await.Patience)
	defer cancel()
	for range each {
		for k := range keys {
			key := fmt.Sprintf("a%d.b%d", k, k%3)
			g.n[key]++
			subject, id := strings.Replace(g.cfg.Subject, "*.*", key, 1), jetstream.WithMsgID(fmt.Sprint(key, " ", g.n[key]))
			for {
				try, stop := context.WithTimeout(ctx, 2*time.Second) // it may be lost with the server that got it
				_, err := g.pub.Publish(try, subject, fmt.Append(nil, g.n[key]), id)
				stop()
				if err == nil {
					break
				}
				if ctx.Err() != nil {
					g.t.Fatalf("publishing message %d of %s: %v", g.n[key], key, err)
				}
			}
		}
	}
}

func (g *group) published() int {
	n := 0
	for _, v := range g.n {
		n += v
	}
	return n
}

func (g *group) settled(ws ...*runningWorker) func() bool {
	return func() bool {
		total := 0
		for _, w := range ws {
			s := w.Status()
			if s.State != state.Stable || len(s.Slots) == 0 {
				return false
			}
			total += len(s.Slots)
		}
		return total == g.cfg.Slots
	}
}

// check waits until every message is processed and tells how many were more than once, after most of which it complains.
func (g *group) check(most int) (again int) {
	g.t.Helper()
	return g.checkWithin(await.Patience, most)
}

// checkWithin is check with a time of its own.
func (g *group) checkWithin(patience time.Duration, most int) (again int) {
	g.t.Helper()
	g.explainIfFailed()
	await.Within(g.t, patience, "every message processed", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.done) >= g.published()
	})
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	for _, f := range g.rec.faults {
		g.t.Error(f)
	}
	for m, n := range g.rec.done {
		if again += n - 1; again > most {
			g.t.Fatalf("%s was processed %d times, and with it %d messages again, want %d at most", m, n, again, most)
		}
	}
	return again
}

// expect tells the workers how many they should be.
func (g *group) expect(n int) {
	g.t.Helper()
	if err := partition.Open(g.pub.Conn(), g.cfg.Name).Expect(g.t.Context(), n); err != nil {
		g.t.Fatal(err)
	}
}

// gone reports whether a worker was taken for dead, which is a reason for a plan.
func (g *group) gone() bool {
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	return slices.ContainsFunc(g.rec.events, func(e event.Event) bool { return e.Kind == event.WorkerGone })
}

func shareOutAndHandOver(t *testing.T, on servers) {
	// Windows that end when all are there, not when a machine that is busy has had its time.
	g := startGroup(t, on, 5*time.Millisecond, func(c *partition.Config) {
		c.Rebalance.ColdWindow, c.Rebalance.PlannedWindow = await.Patience, await.Patience
	})
	var ws []*runningWorker
	g.expect(3)
	for i := range 3 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	await.That(t, "three workers settled", g.settled(ws...))
	g.publish(100, 5)
	g.expect(6)
	for i := range 3 {
		ws = append(ws, g.start(fmt.Sprint("w", 3+i)))
	}
	await.That(t, "six workers settled", func() bool {
		g.publish(100, 1)
		return g.settled(ws...)()
	})
	g.publish(100, 3)
	g.check(0)
	for i, w := range ws {
		if id := w.Status().ID; id == "" {
			t.Errorf("worker %d has no ID", i)
		}
	}
	if v := ws[0].Status().Version; v != 2 && !g.gone() {
		t.Errorf("map version %d, want 2: one plan for three, one for six", v)
	}
}

func leavingHandsOver(t *testing.T, on servers) {
	g := startGroup(t, on, 5*time.Millisecond)
	var ws []*runningWorker
	for i := range 4 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	await.That(t, "four workers settled", g.settled(ws...))
	g.publish(100, 5)
	for _, w := range ws[:2] { // the leader, maybe, and another
		w.stop()
	}
	g.publish(100, 5)
	for _, w := range ws[:2] {
		select {
		case err := <-w.done:
			w.done <- err
			if err != nil {
				t.Error(err)
			}
		case <-time.After(await.Patience):
			t.Fatal("it does not leave")
		}
	}
	await.That(t, "two workers settled", g.settled(ws[2:]...))
	g.publish(100, 2)
	g.check(0)
}

func deadAreReplaced(t *testing.T, on servers) {
	g := startGroup(t, on, 5*time.Millisecond)
	var ws []*runningWorker
	for i := range 4 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	await.That(t, "four workers settled", g.settled(ws...))
	var dead *runningWorker
	var alive []*runningWorker
	for _, w := range ws {
		if dead == nil && !w.Status().Leading {
			dead = w
		} else {
			alive = append(alive, w)
		}
	}
	dead.nc.Close() // as a kill does
	killed := time.Now()
	g.publish(100, 3)
	await.That(t, "three workers settled", g.settled(alive...))
	t.Logf("settled %v after the connection was gone", time.Since(killed))
	g.check(0)
}

func nodeHandsOver(t *testing.T, on servers) {
	g := startGroup(t, on, 5*time.Millisecond)
	var ws []*runningWorker
	for i := range 4 {
		g.cfg.Identity.Node = fmt.Sprint("node-", i%2)
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	await.That(t, "four workers settled", g.settled(ws...))
	g.publish(100, 5)
	nc := g.connect("operator")
	onNode := func(m report.Lease) bool { return m.Node == "node-1" }
	until := time.Now().Add(time.Minute)
	left := func() (n int) {
		held, err := partition.Open(nc, g.cfg.Name).Drain(t.Context(), onNode, until)
		if err != nil || len(held) != 2 {
			t.Fatalf("answers %v, %v", held, err)
		}
		for _, k := range held {
			n += k
		}
		return n
	}
	if n := left(); n != g.cfg.Slots/2 {
		t.Errorf("two of four workers hold %d of %d slots at first", n, g.cfg.Slots)
	}
	g.publish(100, 3)
	await.That(t, "nothing left on the node", func() bool { return left() == 0 })
	await.That(t, "the others settled", g.settled(ws[0], ws[2]))
	g.publish(100, 3)
	leases, err := partition.Open(nc, g.cfg.Name).Leases(t.Context())
	if err != nil || len(leases) != 4 || leases[0].Node == "" {
		t.Errorf("leases %+v, %v", leases, err)
	}
	for _, m := range leases {
		if m.Draining != onNode(m) {
			t.Errorf("%s on %s: yielding is %v", m.ID, m.Node, m.Draining)
		}
	}
	if _, err := partition.Open(nc, g.cfg.Name).Drain(t.Context(), onNode, time.Time{}); err != nil {
		t.Fatal(err)
	}
	await.That(t, "all four settled again", g.settled(ws...))
	g.publish(100, 2)
	g.check(0)
}

// provisionedIsProvisioned provisions many groups, each again at once, as workers that start together do.
func provisionedIsProvisioned(t *testing.T, on servers) {
	for range 10 {
		g := startGroup(t, on, 0, func(c *partition.Config) { c.Slots = max(1, c.Shards) })
		if err := partition.Open(g.connect("another"), g.cfg.Name).Provision(t.Context(), g.cfg); err != nil {
			t.Fatal(err)
		}
	}
}
