//go:build !race

package virtual

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/state"
)

// options are what a seed decides before a run begins.
type options struct {
	config  partition.Config
	pods    int // at most
	keys    int
	latency time.Duration
	every   time.Duration // from one message to the next, on average
	work    time.Duration // of a handler, at most
	failing int           // one message in this number fails at first; 0: none
	deaf    int           // one handler in this number does not notice that its context has ended; 0: none
	broken  broken
}

const (
	group, stream = "work", "jobs"
	attempts      = 30 // after which a message is given up; none fails as often
)

func optionsOf(seed uint64, rng *rand.Rand) options {
	// Without any latency, what repeats a request without a pause would stop time.
	o := options{latency: 100 * time.Microsecond, pods: 2 + rng.IntN(4), keys: 8 + rng.IntN(24), every: time.Duration(1000+rng.IntN(4000)) * time.Millisecond, work: time.Duration(rng.IntN(1500)) * time.Millisecond}
	if rng.IntN(2) == 0 {
		o.latency = time.Duration(1+rng.IntN(20)) * 100 * time.Microsecond
	}
	if rng.IntN(2) == 0 {
		o.deaf = 20
	}
	c := partition.Config{Name: group, Stream: stream, Subject: "jobs.*.*", Slots: 4 << rng.IntN(3), Lease: partition.Lease{ProbeInterval: time.Second}, Identity: partition.Identity{PoolSize: 24}, Retry: partition.Retry{Disabled: true}}
	if rng.IntN(2) == 0 { // as with replicas
		c.Lease.SuspicionGrace, c.Lease.SuspicionMargin = 1500*time.Millisecond, 300*time.Millisecond
	}
	if rng.IntN(2) == 0 {
		o.failing = 12
		c.Retry = partition.Retry{Delay: 500 * time.Millisecond, MaxDelay: 4 * time.Second, Attempts: attempts}
	}
	// Drawn by a generator of its own, so that a seed's faults are the same with one in flight.
	if rng := rand.New(rand.NewPCG(seed, 0x5e7)); rng.IntN(2) == 0 {
		c.Delivery.InFlight = 2 + rng.IntN(15)
	}
	o.config = c
	return o
}

// environment is a server, the workers of a group and a publisher, in a bubble.
type environment struct {
	t       *testing.T
	options options
	broker  *broker
	audit   *auditor
	log     *history

	operator  *nats.Conn // of the test
	publisher *nats.Conn
	js        jetstream.JetStream

	// publishing is full while a message is on its way. A mutex would stop the virtual
	// time for all that wait for it.
	publishing chan struct{}

	mu      sync.Mutex
	pods    []*pod
	started int
}

func (e *environment) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// newEnvironment starts a server, provisions the group and begins to publish. What it
// starts ends with the test.
func newEnvironment(t *testing.T, o options, log *history, rng *rand.Rand) *environment {
	t.Helper()
	e := &environment{t: t, options: o, broker: &broker{dir: t.TempDir(), spare: t.TempDir()}, log: log, audit: newAuditor(log), publishing: make(chan struct{}, 1)}
	e.must(e.broker.start())
	var err error
	e.operator, _, err = e.broker.connect("operator", 0)
	e.must(err)
	e.publisher, _, err = e.broker.connect("publisher", o.latency)
	e.must(err)
	e.js, err = jetstream.New(e.operator)
	e.must(err)
	e.must(partition.Open(e.operator, o.config.Name).Provision(t.Context(), o.config))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.publish(ctx, rng)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		for _, p := range e.all() {
			p.stop()
		}
		for _, p := range e.all() {
			<-p.ended
		}
		e.publisher.Close()
		e.operator.Close()
		e.broker.stop()
		for _, l := range e.broker.links {
			l.sever()
		}
		synctest.Wait()
	})
	return e
}

// publish publishes messages until ctx ends. One that the server does not acknowledge
// is not published again.
func (e *environment) publish(ctx context.Context, rng *rand.Rand) {
	js, err := jetstream.New(e.publisher)
	if err != nil {
		e.t.Errorf("publishing: %v", err)
		return
	}
	for {
		// A burst fills the slots, so that a fault meets messages that wait.
		burst := 1
		if rng.IntN(20) == 0 {
			burst = 30
		}
		wait := time.Duration(float64(e.options.every) * float64(burst) * rng.ExpFloat64())
		t := time.NewTimer(min(wait, time.Minute))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		for range burst {
			n, failures := rng.IntN(e.options.keys), 0
			if e.options.failing > 0 && rng.IntN(e.options.failing) == 0 {
				failures = 1 + rng.IntN(4)
			}
			e.publishOne(ctx, js, partition.JoinKey("tool"+strconv.Itoa(n/4), "chamber"+strconv.Itoa(n%4)), failures)
		}
	}
}

func (e *environment) publishOne(ctx context.Context, js jetstream.JetStream, key string, failures int) {
	e.publishing <- struct{}{}
	defer func() { <-e.publishing }()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	number := e.audit.next(key, failures)
	tokens := partition.SplitKey(key)
	_, err := js.Publish(ctx, "jobs."+strings.Join(tokens, "."), []byte(key+" "+strconv.Itoa(number)))
	e.audit.acknowledged(key, number, err)
}

// pod is a worker with its connection.
type pod struct {
	e      *environment
	name   string
	nc     *nats.Conn
	link   *link
	worker *partition.Worker
	leave  context.CancelFunc
	ended  chan struct{}
	dead   atomic.Bool // killed: what its handlers still do is nothing

	mu  sync.Mutex
	rng *rand.Rand        // of what its handlers do
	box map[string]string // the subscription that hears an inbox, for clients that are broken on purpose
}

// String implements fmt.Stringer.
func (p *pod) String() string { return p.name }

func (p *pod) chance(oneIn int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rng.IntN(oneIn) == 0
}

// heard notes which subscription a message to an inbox comes to.
func (p *pod) heard(subject, sid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.box[inboxOf(subject)] = sid
}

func (p *pod) answers(reply string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.box[inboxOf(reply)]
}

// inboxOf returns what the replies to one client have in common.
func inboxOf(reply string) string {
	if i := strings.LastIndexByte(reply, '.'); i > 0 {
		return reply[:i]
	}
	return reply
}

// begin starts a worker.
func (e *environment) begin() (*pod, error) {
	e.mu.Lock()
	e.started++
	n := e.started
	e.mu.Unlock()
	p := &pod{e: e, name: "pod-" + strconv.Itoa(n), ended: make(chan struct{}), box: make(map[string]string), rng: rand.New(rand.NewPCG(uint64(n), 7)), link: newLink(e.broker.running, e.options.latency)}
	if e.options.broken.tamper != nil {
		p.link.broken = e.options.broken.tamper(p)
	}
	var err error
	if p.nc, err = e.broker.connectBy(p.name, p.link); err != nil {
		return nil, err
	}
	c := e.options.config
	c.Identity.Pod = p.name
	if p.worker, err = partition.New(p.nc, c, p); err != nil {
		return nil, err
	}
	ctx, leave := context.WithCancel(context.Background())
	p.leave = leave
	e.mu.Lock()
	e.pods = append(e.pods, p)
	e.mu.Unlock()
	go func() {
		defer close(p.ended)
		defer p.nc.Close()
		if err := p.worker.Run(ctx); err != nil && !p.dead.Load() {
			e.log.add("%s ends: %v", p.name, err)
		}
	}()
	return p, nil
}

// kill ends a worker as a kill -9 does: nothing more is sent, and the server learns of
// it by the end of the connection, if at all.
func (p *pod) kill() {
	p.dead.Store(true)
	p.link.cut(true)
	p.nc.Close()
	<-p.ended
}

// stop ends a worker at the end of a run.
func (p *pod) stop() {
	p.dead.Store(true)
	p.nc.Close()
}

func (e *environment) all() []*pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]*pod(nil), e.pods...)
}

// live returns the pods that have not ended.
func (e *environment) live() []*pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	var live []*pod
	for _, p := range e.pods {
		select {
		case <-p.ended:
		default:
			live = append(live, p)
		}
	}
	e.pods = live
	return append([]*pod(nil), live...)
}

var errTransient = errors.New("the store is busy")

// Handle implements partition.Handler.
func (p *pod) Handle(ctx context.Context, m partition.Message) (err error) {
	number, err := numberOf(m)
	if err != nil {
		return err
	}
	p.mu.Lock()
	work := time.Duration(p.rng.Int64N(int64(p.e.options.work) + 1))
	p.mu.Unlock()
	deaf := p.e.options.deaf > 0 && p.chance(p.e.options.deaf)
	if b := p.e.options.broken.handler; b != nil {
		b(&m)
	}
	a := p.e.audit
	c := a.begin(ctx, p, m, number)
	defer func() {
		a.end(m.Key, c)
		p.e.log.add("%s ends %s %d: %v", p.name, m.Key, number, err)
	}()
	listen := ctx
	if deaf {
		listen, work = context.Background(), min(20*work, 30*time.Second)
	}
	p.e.log.add("%s begins %s %d of slot %d, attempt %d, from the retry queue: %t, for %v", p.name, m.Key, number, m.Slot, m.Attempt, m.Queued, work)
	t := time.NewTimer(work)
	defer t.Stop()
	select {
	case <-t.C:
	case <-listen.Done():
		if p.e.options.broken.careless {
			return nil
		}
		return listen.Err()
	}
	switch {
	case p.dead.Load():
		return errors.New("the process is dead")
	case ctx.Err() != nil && !deaf:
		return ctx.Err()
	case a.fails(m.Key, number):
		return errTransient
	}
	return a.write(m.Key, c)
}

// Observe implements partition.Observer.
func (p *pod) Observe(e event.Event) {
	if p.dead.Load() {
		return
	}
	p.e.log.event(p.name, e)
	if e.Kind == event.DeadLettered {
		p.e.audit.deadLettered(p, e)
	}
}

func numberOf(m partition.Message) (int, error) {
	key, number, ok := strings.Cut(string(m.Data), " ")
	n, err := strconv.Atoi(number)
	if !ok || err != nil || key != m.Key {
		return 0, fmt.Errorf("message %q of %s: not one that was published", m.Data, m.Key)
	}
	return n, nil
}

// unstable returns why the group is not stable, "" if it is: every worker is stable or
// stands by, and one of them leads.
func (e *environment) unstable() string {
	leaders := 0
	for _, p := range e.live() {
		s := p.worker.Status()
		if s.Leading {
			leaders++
		}
		if s.State != state.Stable && !s.Standby {
			return fmt.Sprintf("%s is %s, has %d slots of version %d", p.name, s.State, len(s.Slots), s.Version)
		}
	}
	if leaders != 1 {
		return fmt.Sprintf("%d workers lead", leaders)
	}
	return ""
}
