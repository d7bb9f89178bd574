package partition_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/partition"
)

// recorder is a handler that knows every call of every worker, and finds what
// must never happen.
type recorder struct {
	work time.Duration

	mu      sync.Mutex
	running map[string]string // key -> worker
	last    map[string]uint64 // key -> sequence in the key's own count
	done    map[string]int    // message -> times
	faults  []string
	by      map[string]int // worker -> messages
	events  []partition.Event
}

func newRecorder(work time.Duration) *recorder {
	return &recorder{work: work, running: map[string]string{}, last: map[string]uint64{}, done: map[string]int{}, by: map[string]int{}}
}

type member struct {
	r    *recorder
	name string
}

func (h member) Handle(ctx context.Context, m partition.Message) error {
	var n uint64
	_, _ = fmt.Sscan(string(m.Data), &n)
	h.r.mu.Lock()
	if other, busy := h.r.running[m.Key]; busy {
		h.r.faults = append(h.r.faults, fmt.Sprintf("%s runs on %s while on %s", m.Key, h.name, other))
	}
	if n < h.r.last[m.Key] {
		h.r.faults = append(h.r.faults, fmt.Sprintf("%s: %d after %d", m.Key, n, h.r.last[m.Key]))
	}
	h.r.running[m.Key] = h.name
	h.r.mu.Unlock()
	select {
	case <-time.After(h.r.work):
	case <-ctx.Done():
	}
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	delete(h.r.running, m.Key)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	h.r.last[m.Key] = n
	h.r.done[m.Key+" "+string(m.Data)]++
	h.r.by[h.name]++
	return nil
}

func (h member) Observe(e partition.Event) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	h.r.events = append(h.r.events, e)
}

type group struct {
	t   *testing.T
	url string
	cfg partition.Config
	rec *recorder
	pub jetstream.JetStream
	n   map[string]int
}

func startGroup(t *testing.T, work time.Duration, change func(*partition.Config)) *group {
	t.Helper()
	srv, err := broker.Start(broker.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	cfg := partition.Config{Name: "worker", Stream: "jobs", Subject: "jobs.*.*", Slots: 64,
		ColdWindow: 500 * time.Millisecond, PlannedWindow: 300 * time.Millisecond}
	if change != nil {
		change(&cfg)
	}
	g := &group{t: t, url: srv.URL(), cfg: cfg, rec: newRecorder(work), n: map[string]int{}}
	nc := g.connect("publisher")
	if err := partition.Provision(t.Context(), nc, cfg); err != nil {
		t.Fatal(err)
	}
	if g.pub, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *group) connect(name string) *nats.Conn {
	g.t.Helper()
	nc, err := broker.Connect(g.url, name)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(nc.Close)
	return nc
}

type runningWorker struct {
	*partition.Worker
	nc   *nats.Conn
	stop context.CancelFunc
	done chan error
}

func (g *group) start(name string) *runningWorker {
	g.t.Helper()
	nc := g.connect(name)
	w, err := partition.New(nc, g.cfg, member{g.rec, name})
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
		case <-time.After(40 * time.Second): // more than LeaveTimeout
			g.t.Errorf("worker %s did not stop", name)
		}
	})
	return r
}

func (g *group) publish(keys, each int) {
	g.t.Helper()
	for i := range each {
		for k := range keys {
			key := fmt.Sprintf("a%d.b%d", k, k%3)
			g.n[key]++
			if _, err := g.pub.Publish(g.t.Context(), "jobs."+key, fmt.Append(nil, g.n[key])); err != nil {
				g.t.Fatalf("publishing round %d: %v", i, err)
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

func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", within, what)
}

func (g *group) settled(ws ...*runningWorker) func() bool {
	return func() bool {
		total := 0
		for _, w := range ws {
			s := w.Status()
			if s.State != partition.StateStable || len(s.Slots) == 0 {
				return false
			}
			total += len(s.Slots)
		}
		return total == g.cfg.Slots
	}
}

func (g *group) check() {
	g.t.Helper()
	eventually(g.t, 20*time.Second, "every message processed", func() bool {
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
		if n != 1 {
			g.t.Errorf("%s was processed %d times", m, n)
		}
	}
}

func TestWorkersShareOutAndHandOverUnderLoad(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 5*time.Millisecond, nil)
	var ws []*runningWorker
	for i := range 3 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	eventually(t, 10*time.Second, "three workers settled", g.settled(ws...))
	g.publish(100, 5)
	for i := range 3 {
		ws = append(ws, g.start(fmt.Sprint("w", 3+i)))
	}
	stop := make(chan struct{})
	go func() {
		eventually(t, 10*time.Second, "six workers settled", g.settled(ws...))
		close(stop)
	}()
	for open := true; open; {
		g.publish(100, 1)
		select {
		case <-stop:
			open = false
		default:
		}
	}
	g.publish(100, 3)
	g.check()
	for i, w := range ws {
		if id := w.Status().ID; id == "" {
			t.Errorf("worker %d has no ID", i)
		}
	}
	if v := ws[0].Status().Version; v != 2 {
		t.Errorf("map version %d, want 2: one plan for three, one for six", v)
	}
}

func TestALeavingWorkerHandsOver(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 5*time.Millisecond, nil)
	var ws []*runningWorker
	for i := range 4 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	eventually(t, 10*time.Second, "four workers settled", g.settled(ws...))
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
		case <-time.After(10 * time.Second):
			t.Fatal("it does not leave")
		}
	}
	eventually(t, 10*time.Second, "two workers settled", g.settled(ws[2:]...))
	g.publish(100, 2)
	g.check()
}

func TestADeadWorkersSlotsAreTaken(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 5*time.Millisecond, nil)
	var ws []*runningWorker
	for i := range 4 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	eventually(t, 10*time.Second, "four workers settled", g.settled(ws...))
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
	eventually(t, 10*time.Second, "three workers settled", g.settled(alive...))
	t.Logf("settled %v after the connection was gone", time.Since(killed))
	g.check()
}

func TestWorkersOnANodeHandOverAndTakeBack(t *testing.T) {
	t.Parallel()
	g := startGroup(t, 5*time.Millisecond, nil)
	var ws []*runningWorker
	for i := range 4 {
		g.cfg.Node = fmt.Sprint("node-", i%2)
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	eventually(t, 10*time.Second, "four workers settled", g.settled(ws...))
	g.publish(100, 5)
	nc := g.connect("operator")
	onNode := func(m partition.MemberInfo) bool { return m.Node == "node-1" }
	until := time.Now().Add(time.Minute)
	left := func() (n int) {
		held, err := partition.HandOver(t.Context(), nc, "worker", onNode, until)
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
	eventually(t, 10*time.Second, "nothing left on the node", func() bool { return left() == 0 })
	eventually(t, 10*time.Second, "the others settled", g.settled(ws[0], ws[2]))
	g.publish(100, 3)
	members, err := partition.Members(t.Context(), nc, "worker")
	if err != nil || len(members) != 4 || members[0].Node == "" {
		t.Errorf("members %+v, %v", members, err)
	}
	for _, m := range members {
		if m.Yielding != onNode(m) {
			t.Errorf("%s on %s: yielding is %v", m.ID, m.Node, m.Yielding)
		}
	}
	if _, err := partition.HandOver(t.Context(), nc, "worker", onNode, time.Time{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "all four settled again", g.settled(ws...))
	g.publish(100, 2)
	g.check()
}
