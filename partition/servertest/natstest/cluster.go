package natstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const clusterName = "muster"

// FreePort returns a port of 127.0.0.1 that nothing listens on. It is below those that systems
// give to connections, so that none takes it while a server is restarted.
func FreePort(t testing.TB) int {
	t.Helper()
	var last error
	for range 100 {
		port := 10_000 + rand.IntN(20_000)
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", local(port))
		if err == nil {
			_ = l.Close()
			return port
		}
		last = err
	}
	t.Fatalf("looking for a free port: %v", last)
	return 0
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// InCluster makes the server one of a cluster: it listens for the others on a port, and they do
// on all of the ports.
func InCluster(name string, port int, all []int) Option {
	var routes []string
	for _, p := range all {
		routes = append(routes, "nats://"+local(p))
	}
	return func(o *server.Options) {
		o.ServerName = name
		o.Cluster = server.ClusterOpts{Name: clusterName, Host: "127.0.0.1", Port: port}
		o.Routes = server.RoutesFromStr(strings.Join(routes, ","))
	}
}

// StartCluster starts n servers, nats-1 and so on, in the test's process and waits until they
// keep streams on all of them.
func StartCluster(t testing.TB, n int) []*Server {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		ports[i] = FreePort(t)
	}

	// At once: none is ready before the others are there.
	servers, errs := make([]*Server, n), make([]error, n)
	var started sync.WaitGroup
	for i, port := range ports {
		dir := filepath.Join(t.TempDir(), "nats")
		started.Go(func() { servers[i], errs[i] = Run(In(dir), InCluster(nodeName(i), port, ports)) })
	}
	started.Wait()

	for i, s := range servers {
		if errs[i] == nil {
			t.Cleanup(s.Stop)
		} else {
			t.Error(errs[i])
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	say(t, "NATS, embedded")
	WaitReplicated(t, URLs(servers), n)
	return servers
}

func nodeName(i int) string { return fmt.Sprintf("nats-%d", i+1) }

// URLs joins the addresses of servers for [Connect].
func URLs(servers []*Server) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.URL())
	}
	return strings.Join(all, ",")
}

// probeStream is made and deleted again to find out whether streams can be made.
const probeStream = "natstest-probe"

// WaitReplicated waits until streams with this number of replicas can be made: until the
// servers have found each other and elected a leader.
func WaitReplicated(t testing.TB, url string, replicas int) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatalf("connecting to %s: %v", url, err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}

	probe := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		config := jetstream.StreamConfig{Name: probeStream, Subjects: []string{probeStream}, Replicas: replicas, Storage: jetstream.MemoryStorage}
		if _, err := js.CreateOrUpdateStream(ctx, config); err != nil {
			return err
		}
		return js.DeleteStream(ctx, probeStream)
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := probe()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the servers at %s don't keep %d replicas: %v", url, replicas, err)
		}
	}
}
