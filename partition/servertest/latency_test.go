package servertest_test

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// prompt bounds how long a message may wait because its slot changes its owner. Every
// repair of a slot that stands still takes longer: a look at its silence comes after 5 s
// and once more, AckWait ends after 30 s, a pin after 90 s. So none can hide a bug.
const prompt = 2 * time.Second

// TestLatency bounds the pauses of handoffs and takeovers on a server, by the times of
// the events: a busy machine may be late to look. It runs before the parallel tests:
// beside simulations that need every processor it would measure those.
func TestLatency(t *testing.T) {
	t.Run("handoff", handoffIsPrompt)
	t.Run("takeover of a killed worker", func(t *testing.T) {
		takeoverIsPrompt(t, func(w *runningWorker, _ *cutDialer) { w.nc.Close() }, func(gone event.Event, _ time.Time) time.Time { return gone.Time })
	})
	t.Run("takeover after the lease has expired", func(t *testing.T) {
		takeoverIsPrompt(t, func(_ *runningWorker, d *cutDialer) { d.cut.Store(true) }, func(_ event.Event, renewed time.Time) time.Time { return renewed.Add(shortLease) })
	})
}

// shortLease is a Lease.TTL that a test can wait for.
const shortLease = 3 * time.Second

func handoffIsPrompt(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, func(c *partition.Config) {
		c.Rebalance.ColdWindow, c.Rebalance.PlannedWindow = await.Patience, await.Patience
	})
	var ws []*runningWorker
	scaleTo := func(n int) {
		g.expect(n)
		for len(ws) < n {
			ws = append(ws, g.start(fmt.Sprint("w", len(ws))))
		}
		await.That(t, fmt.Sprintf("%d workers settled", n), func() bool {
			g.publish(100, 10) // so that most slots have work in hand when they move
			return g.settled(ws...)()
		})
		g.publish(100, 1)
		g.check(0)
	}

	// A handoff may be over between two messages. So there are some more, until messages
	// waited for one.
	var pauses []time.Duration
	scaleTo(2)
	for n := 4; n <= 12 && len(pauses) == 0; n += 2 {
		scaleTo(n)
		for _, e := range g.seen(event.SlotResumed) {
			pauses = append(pauses, e.Duration)
		}
	}
	if len(pauses) == 0 {
		t.Fatal("no message waited for a handoff: nothing is measured")
	}
	t.Logf("%d slots had messages that waited for a handoff, with %d workers at the end", len(pauses), len(ws))
	if longest := slices.Max(pauses); longest > prompt {
		t.Errorf("a message waited %v for the handoff of its slot, want at most %v", longest, prompt)
	}
	if healed := g.seen(event.StalePinFreed); len(healed) > 0 {
		t.Errorf("%d slots stood still until they were repaired", len(healed))
	}
}

// takeoverIsPrompt fails a worker that has messages in hand, and looks when those begin
// at their next owners. since is the moment from which that is bounded.
func takeoverIsPrompt(t *testing.T, fail func(*runningWorker, *cutDialer), since func(gone event.Event, renewed time.Time) time.Time) {
	t.Parallel()
	g := startGroup(t, oneServer(t), 0, func(c *partition.Config) {
		c.Lease.TTL, c.Lease.Heartbeat, c.Rebalance.LeaveTimeout = shortLease, shortLease/3, 500*time.Millisecond
	})
	mu := &g.rec.mu
	begun := make(map[string]time.Time) // by key, when it began after the failure
	hold := make(chan struct{})
	g.rec.hold = hold

	dialers := make(map[*runningWorker]*cutDialer)
	var ws []*runningWorker
	for i := range 3 {
		d := &cutDialer{}
		g.dialer = d
		w := g.start(fmt.Sprint("w", i))
		dialers[w] = d
		ws = append(ws, w)
	}
	g.dialer = nil
	await.That(t, "three workers settled", g.settled(ws...))
	failing := slices.IndexFunc(ws, func(w *runningWorker) bool { return !w.Status().Leading })
	victim, name := ws[failing], fmt.Sprint("w", failing)
	id := victim.Status().ID
	inHand := func() (keys []string) {
		mu.Lock()
		defer mu.Unlock()
		for key, by := range g.rec.running {
			if by == name {
				keys = append(keys, key)
			}
		}
		return keys
	}
	g.publish(30, 1)
	await.That(t, "every slot with a message has it in hand", func() bool {
		mu.Lock()
		defer mu.Unlock()
		slots := make(map[int]bool)
		for key := range g.n {
			slots[partition.SlotOf(g.cfg.Slots, strings.Split(key, ".")...)] = true
		}
		return len(g.rec.running) == len(slots)
	})
	keys := inHand()
	if len(keys) == 0 {
		t.Fatal("the worker has nothing in hand")
	}

	fail(victim, dialers[victim])
	await.That(t, "its handlers are interrupted", func() bool { return len(inHand()) == 0 })
	renewed := victim.Status().LeaseRenewed
	mu.Lock()
	g.rec.began = func(key string) {
		if begun[key].IsZero() {
			begun[key] = time.Now()
		}
	}
	g.rec.hold = nil
	mu.Unlock()
	close(hold)
	waits := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.ContainsFunc(keys, func(key string) bool { return begun[key].IsZero() })
	}
	for end := time.Now().Add(10 * prompt); waits(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not all of its messages begin within %v", 10*prompt)
		}
	}

	gone := slices.DeleteFunc(g.seen(event.WorkerGone), func(e event.Event) bool { return e.Peer != id })
	if len(gone) == 0 {
		t.Fatalf("no event says that %s is gone", id)
	}
	from := since(gone[0], renewed)
	mu.Lock()
	defer mu.Unlock()
	longest := time.Duration(0)
	for _, key := range keys {
		longest = max(longest, begun[key].Sub(from))
	}
	t.Logf("%d messages in hand, %s; the last begins %v later", len(keys), gone[0].Reason, longest)
	if longest > prompt {
		t.Errorf("a message that was in hand begins %v after its owner was gone, want at most %v", longest, prompt)
	}
}

// seen returns the events of a kind that any worker told.
func (g *group) seen(kind event.Kind) (out []event.Event) {
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	for _, e := range g.rec.events {
		if e.Kind == kind {
			out = append(out, e)
		}
	}
	return out
}

// cutDialer connects a client, until it is cut off: then neither end hears of the other,
// and neither is told.
type cutDialer struct{ cut atomic.Bool }

var errCutOff = errors.New("cut off")

// Dial implements [nats.CustomDialer].
func (d *cutDialer) Dial(network, address string) (net.Conn, error) {
	if d.cut.Load() {
		return nil, errCutOff
	}
	conn, err := net.DialTimeout(network, address, 2*time.Second)
	return &cutConn{conn, d}, err
}

var _ nats.CustomDialer = (*cutDialer)(nil)

type cutConn struct {
	net.Conn
	d *cutDialer
}

func (c *cutConn) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		if err != nil || !c.d.cut.Load() {
			return n, err
		}
	}
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.d.cut.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
