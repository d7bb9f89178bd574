package servertest_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestWorkerOnAnIsolatedServer: with one replica on a cluster, a worker is connected to a
// server that is cut off from the others. That server still answers the worker, while the
// others see at once that it is unreachable, and its slots are given away. It must have
// stopped by then.
func TestWorkerOnAnIsolatedServer(t *testing.T) {
	t.Parallel()
	c := startSeparable(t)
	g := startGroup(t, servers{url: c.urls[0]}, time.Millisecond, func(cfg *partition.Config) { cfg.Slots = 16 })
	near := []*runningWorker{g.start("near-0"), g.start("near-1")}
	g.url = c.urls[2]
	isolated := g.start("isolated")
	await.That(t, "three workers settled", g.settled(near[0], near[1], isolated))

	// Handlers run as long as their contexts last.
	hold := make(chan struct{})
	g.rec.mu.Lock()
	g.rec.hold = hold
	g.rec.mu.Unlock()
	g.publish(60, 1)
	await.That(t, "each worker is busy", func() bool { return g.rec.busy("near-0") && g.rec.busy("near-1") && g.rec.busy("isolated") })

	cut := time.Now()
	c.isolate(2)
	await.That(t, "the isolated server has no routes", func() bool { return c.servers[2].Routes() == 0 })
	await.That(t, "the isolated worker's lease is not valid", func() bool { return !time.Now().Before(isolated.Status().TrustedUntil) })
	stopped := time.Since(cut)
	await.That(t, "the others have its slots", g.settled(near...))
	given := time.Since(cut)
	t.Logf("it stopped after %v; the others had its slots after %v", stopped.Round(time.Millisecond), given.Round(time.Millisecond))
	if given > 5*time.Second {
		t.Errorf("the others had its slots after %v: that is its lease's end", given)
	}
	g.rec.mu.Lock()
	g.rec.hold = nil
	g.rec.mu.Unlock()
	close(hold)
	g.publish(60, 2)

	c.join(2)
	await.That(t, "three workers settled again", g.settled(near[0], near[1], isolated))
	g.publish(60, 2)
	g.check(60)
}

// busy reports whether a handler of a worker runs.
func (r *recorder) busy(worker string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, by := range r.running {
		if by == worker {
			return true
		}
	}
	return false
}

// separable is a cluster of three servers whose routes go through gates. The third has no
// JetStream, so that all streams and buckets are on the other two.
type separable struct {
	urls    []string
	servers []*natstest.Server
	gates   map[[2]int]*gate // by the server that opens the route, and the one it leads to
}

func startSeparable(t *testing.T) *separable {
	t.Helper()
	const n = 3
	c := &separable{gates: map[[2]int]*gate{}}
	var ports [n]int
	for i := range n {
		ports[i] = natstest.FreePort(t)
	}
	for from := range n {
		for to := range n {
			if from != to {
				c.gates[[2]int{from, to}] = newGate(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[to])))
			}
		}
	}
	for i := range n {
		c.start(t, i, ports[i])
	}
	c.wait(t)
	return c
}

// nowhere is what the servers tell each other of where they listen for routes. With the
// true address they would also open routes past the gates.
const nowhere = "127.0.0.1:1"

// start starts one server.
func (c *separable) start(t *testing.T, i, port int) {
	t.Helper()
	var routes string
	for ends, g := range c.gates {
		if ends[0] == i {
			routes += ",nats://" + g.listener.Addr().String()
		}
	}
	s := natstest.Start(t, func(o *server.Options) {
		o.ServerName, o.JetStream = fmt.Sprintf("nats-%d", i+1), i < 2
		o.Cluster = server.ClusterOpts{Name: "separable", Host: "127.0.0.1", Port: port, NoAdvertise: true, Advertise: nowhere, PoolSize: -1}
		o.Routes = server.RoutesFromStr(routes[1:])
	})
	c.urls, c.servers = append(c.urls, s.URL()), append(c.servers, s)
}

// wait waits until the two have elected a leader, asked of the server without JetStream.
func (c *separable) wait(t *testing.T) {
	t.Helper()
	nc, err := nats.Connect(c.urls[2])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := natstest.JetStream(t, nc)
	await.That(t, "JetStream answers", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err == nil
	})
}

// isolate cuts one server off from the others; join connects it again.
func (c *separable) isolate(i int) { c.each(i, (*gate).shut) }
func (c *separable) join(i int)    { c.each(i, (*gate).open) }

func (c *separable) each(i int, do func(*gate)) {
	for ends, g := range c.gates {
		if slices.Contains(ends[:], i) {
			do(g)
		}
	}
}

// gate passes the connections of one route on. Shut, it ends them and takes no others.
type gate struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	isShut bool
	conns  map[net.Conn]bool
}

func newGate(t *testing.T, to string) *gate {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{listener: l, to: to, conns: map[net.Conn]bool{}}
	go g.accept()
	t.Cleanup(func() {
		_ = l.Close()
		g.shut()
	})
	return g
}

func (g *gate) accept() {
	for {
		c, err := g.listener.Accept()
		if err != nil {
			return
		}
		go g.pass(c)
	}
}

func (g *gate) pass(from net.Conn) {
	defer func() { _ = from.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	to, err := new(net.Dialer).DialContext(ctx, "tcp", g.to)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	if !g.hold(from, to) {
		return
	}
	defer g.forget(from, to)

	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
		})
	}
	both.Wait()
}

// hold notes connections, so that shut can end them; false if the gate is shut.
func (g *gate) hold(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if !g.isShut {
			g.conns[c] = true
		}
	}
	return !g.isShut
}

func (g *gate) forget(conns ...net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		delete(g.conns, c)
	}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isShut = true
	for c := range g.conns {
		_ = c.Close()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isShut = false
}
