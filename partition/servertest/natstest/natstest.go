// Package natstest starts real NATS servers for tests, on free ports of 127.0.0.1 and with a
// store of their own: in the test's process by [Start], as processes that can be killed by
// [StartProcesses]. Whatever a test starts is stopped with it.
//
// It is in this module, which requires the NATS server, so that package partition doesn't:
// the root's tests use it too, and dependencies lead one way.
package natstest

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// readyTimeout is how long a server may take to accept connections, on a machine that is busy
// with other tests.
const readyTimeout = time.Minute

// Option changes how a server runs. Any function of the server's options will do.
type Option = func(*server.Options)

// In has the server keep its streams in a directory. Without it, they are gone with the test.
func In(dir string) Option { return func(o *server.Options) { o.StoreDir = dir } }

// On has the server listen on a port. Without it, it takes a free one.
func On(port int) Option { return func(o *server.Options) { o.Port = port } }

// plentyOfStore is how many bytes the server may keep unless a test limits it. Without a number,
// the server takes three quarters of what the disk has free, and what a test may reserve would
// depend on the machine.
const plentyOfStore = 1 << 40

// MaxStore limits how many bytes the server keeps on the disk; 0: no limit that a test meets.
func MaxStore(bytes int64) Option { return func(o *server.Options) { o.JetStreamMaxStore = bytes } }

// NoJetStream is a server without streams.
func NoJetStream(o *server.Options) { o.JetStream = false }

// InProcess has the server listen on no port: clients reach it by [Server.InProcessConn] alone, as
// in virtual time, where nothing may wait for the network. It syncs nothing to the disk while it
// runs.
func InProcess(o *server.Options) { o.DontListen, o.SyncInterval = true, time.Hour }

// Server is a running server.
type Server struct {
	options *server.Options
	running *server.Server
}

// Start starts a server with JetStream in the test's process, and stops it with the test.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	s, err := Run(append([]Option{In(filepath.Join(t.TempDir(), "nats"))}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	say(t, "NATS, embedded")
	return s
}

// say writes into the test's log what it runs on, as Muster's suites of real components read
// it.
func say(t testing.TB, name string) {
	t.Helper()
	t.Logf("running on %q version %q", name, server.VERSION)
}

// Run is Start for programs: the caller gives a directory by [In], and stops the server.
func Run(options ...Option) (*Server, error) {
	o := &server.Options{
		ServerName: "nats", Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, NoSigs: true, NoLog: true,
		MaxPending: 256 << 20, // a busy machine is slow to read, which is no reason to cut it off
	}
	for _, change := range options {
		change(o)
	}
	if o.JetStreamMaxStore == 0 {
		o.JetStreamMaxStore = plentyOfStore
	}

	s := &Server{options: o}
	if err := s.start(); err != nil {
		return nil, err
	}
	if address, listens := s.running.Addr().(*net.TCPAddr); listens {
		o.Port = address.Port // a server that is started again is found at the same address
	}
	return s, nil
}

func (s *Server) start() error {
	running, err := server.NewServer(s.options.Clone())
	if err != nil {
		return fmt.Errorf("starting a NATS server: %w", err)
	}
	running.Start()
	if !running.ReadyForConnections(readyTimeout) {
		running.Shutdown()
		return errors.New("starting a NATS server: it does not accept connections after " + readyTimeout.String())
	}
	s.running = running
	return nil
}

// URL is where clients connect to.
func (s *Server) URL() string { return s.running.ClientURL() }

// MonitorURL is where the server reports on itself, if its HTTPHost and HTTPPort are set.
func (s *Server) MonitorURL() string { return "http://" + s.running.MonitorAddr().String() }

// InProcessConn connects to the server without the network. It implements
// [nats.InProcessConnProvider].
func (s *Server) InProcessConn() (net.Conn, error) { return s.running.InProcessConn() }

// Routes counts the connections to the other servers of the cluster.
func (s *Server) Routes() int { return s.running.NumRoutes() }

// Dir is where the server keeps its streams.
func (s *Server) Dir() string { return s.options.StoreDir }

// Map changes the subject of what is published, as the mappings of a server's configuration do.
func (s *Server) Map(t testing.TB, from, to string) {
	t.Helper()
	if err := s.AddMapping(from, to); err != nil {
		t.Fatal(err)
	}
}

// AddMapping is Map for programs.
func (s *Server) AddMapping(from, to string) error {
	if err := s.running.GlobalAccount().AddMapping(from, to); err != nil {
		return fmt.Errorf("mapping subject %q to %q: %w", from, to, err)
	}
	return nil
}

// Stop stops the server and waits until its files are closed. A second call does nothing.
func (s *Server) Stop() {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// Restart stops the server, calls a function that may change its files, and starts it at the
// same address. What is mapped must be mapped again.
func (s *Server) Restart(t testing.TB, between func() error) {
	t.Helper()
	s.Stop()
	if err := between(); err != nil {
		t.Fatal(err)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// Connect opens a connection that outlives restarts of the server, and closes it with the test.
// Of several URLs there are commas between.
func Connect(t testing.TB, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	patient := []nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(100 * time.Millisecond), nats.ReconnectJitter(100*time.Millisecond, time.Second),
		nats.PingInterval(5 * time.Second), nats.MaxPingsOutstanding(2),
	}
	nc, err := nats.Connect(url, append(patient, options...)...)
	if err != nil {
		t.Fatalf("connecting to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// JetStream returns the JetStream of a connection.
func JetStream(t testing.TB, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}
