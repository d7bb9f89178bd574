// Package broker runs a NATS server with JetStream inside the process.
package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// Options say how the server runs.
type Options struct {
	// Dir is where JetStream keeps its files; it is made if it is missing.
	// Required.
	Dir string
	// Port is the TCP port on 127.0.0.1; 0 takes a free one.
	Port int
	// LogFile gets the server's log; empty: none.
	LogFile string
}

// Server is a running server.
type Server struct{ s *server.Server }

// readyTimeout is how long the server may take to accept connections. A large
// store takes its time to recover.
const readyTimeout = 30 * time.Second

// Start starts a server and waits until it accepts connections.
func Start(o Options) (*Server, error) {
	if o.Dir == "" {
		return nil, errors.New("starting the NATS server: no directory is given")
	}
	if err := writable(o.Dir); err != nil {
		return nil, fmt.Errorf("starting the NATS server: %w", err)
	}
	port := o.Port
	if port == 0 {
		port = server.RANDOM_PORT
	} else if err := free(port); err != nil {
		return nil, fmt.Errorf("starting the NATS server: %w: give another port, or 0 for a free one", err)
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "muster", Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: o.Dir, NoSigs: true,
		LogFile: o.LogFile, NoLog: o.LogFile == "", MaxPending: 256 << 20,
		// One writer, one disk: the page cache survives the process, and a
		// sync every two minutes is what a machine's crash may cost.
		SyncInterval: 2 * time.Minute,
	})
	if err != nil {
		return nil, fmt.Errorf("starting the NATS server: %w", err)
	}
	if o.LogFile != "" {
		s.ConfigureLogger()
	}
	s.Start()
	if !s.ReadyForConnections(readyTimeout) {
		s.Shutdown()
		return nil, fmt.Errorf("starting the NATS server: it does not accept connections on port %d of 127.0.0.1 after %v; is the port in use?", o.Port, readyTimeout)
	}
	return &Server{s}, nil
}

// free tells whether a port can be listened on. The server itself would end the
// process if it can't.
func free(port int) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}

func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making its directory: %w", err)
	}
	probe := filepath.Join(dir, ".writable")
	f, err := os.Create(probe)
	if err != nil {
		return fmt.Errorf("its directory %s can't be written to: %w", dir, err)
	}
	return errors.Join(f.Close(), os.Remove(probe))
}

// URL is where clients connect to.
func (s *Server) URL() string { return s.s.ClientURL() }

// Connect opens a connection that outlives the server's restarts.
func Connect(url, name string) (*nats.Conn, error) {
	nc, err := nats.Connect(url, nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectJitter(100*time.Millisecond, time.Second), nats.PingInterval(5*time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		return nil, fmt.Errorf("connecting to NATS at %s: %w", url, err)
	}
	return nc, nil
}

// Stop stops the server and waits until its files are closed.
func (s *Server) Stop() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}
