package servertest_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// TestSilentServer cuts a worker's connection when the next server of its list accepts
// connections and says nothing, as one that is stopped or behind a broken network does. The
// client waits for it with its lock held. The handlers are interrupted all the same, within
// Lease.SuspicionGrace, and what they had comes again when the connection is back.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		t.Run(map[bool]string{false: "idle", true: "busy"}[busy], func(t *testing.T) {
			t.Parallel()
			for range 3 { // it isn't certain that something waits for the client at that moment
				interruptedInTime(t, busy)
			}
		})
	}
}

func interruptedInTime(t *testing.T, busy bool) {
	on := oneServer(t)
	g := startGroup(t, on, 0, func(c *partition.Config) { c.Rebalance.Expected = func() int { return 1 } })
	front, silent := newFrontDoor(t, strings.TrimPrefix(on.url, "nats://")), newFrontDoor(t, "")
	silent.cut()
	h := &waitingHandler{began: make(chan struct{}, 1), interrupted: make(chan time.Time, 1)}
	nc, err := nats.Connect(front.url()+","+silent.url(), nats.DontRandomize(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	w, err := partition.New(nc, g.cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	if err := w.Ready(ctx); err != nil {
		t.Fatal(err)
	}

	g.publish(1, 1)
	<-h.began
	if busy { // acknowledgements are on their way whenever the connection is cut
		go func() {
			for ctx.Err() == nil {
				_ = nc.Publish("nobody.listens", nil)
				_ = nc.Flush()
			}
		}()
	}
	time.Sleep(50 * time.Millisecond)
	cut := time.Now()
	front.cut()

	// The grace is 500 ms; without the interrupts it was up to nats.Timeout, 2 s.
	if took := (<-h.interrupted).Sub(cut); took > 1500*time.Millisecond {
		t.Errorf("the handler was interrupted after %v", took)
	}
	front.open()
	await.That(t, "the message comes again", func() bool { return h.handled() })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// waitingHandler waits in its first call until it is interrupted.
type waitingHandler struct {
	began       chan struct{}
	interrupted chan time.Time

	mu    sync.Mutex
	calls int
	done  bool
}

func (h *waitingHandler) Handle(ctx context.Context, _ partition.Message) error {
	h.mu.Lock()
	h.calls++
	first := h.calls == 1
	h.done = h.done || !first
	h.mu.Unlock()
	if !first {
		return nil
	}

	h.began <- struct{}{}
	<-ctx.Done()
	h.interrupted <- time.Now()
	return ctx.Err()
}

func (h *waitingHandler) handled() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.done
}

// frontDoor forwards connections to a server. While it is cut it accepts them and says nothing.
type frontDoor struct {
	l  net.Listener
	to string

	mu     sync.Mutex
	conns  []net.Conn
	silent bool
}

func newFrontDoor(t *testing.T, to string) *frontDoor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &frontDoor{l: l, to: to}
	t.Cleanup(func() { _ = l.Close(); d.cut() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.accept(c)
		}
	}()
	return d
}

func (d *frontDoor) accept(c net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conns = append(d.conns, c)
	if d.silent {
		return
	}

	s, err := net.Dial("tcp", d.to)
	if err != nil {
		_ = c.Close()
		return
	}
	d.conns = append(d.conns, s)
	go func() { _, _ = io.Copy(s, c); _ = s.Close() }()
	go func() { _, _ = io.Copy(c, s); _ = c.Close() }()
}

func (d *frontDoor) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = true
	for _, c := range d.conns {
		_ = c.Close()
	}
	d.conns = nil
}

func (d *frontDoor) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = false
}

func (d *frontDoor) url() string { return "nats://" + d.l.Addr().String() }
