// Package broker runs NATS servers with JetStream inside the process: one, or one
// of a cluster whose others may be in other processes.
package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
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
	// Sync says when what is acknowledged is synced to the disk.
	Sync Sync
	// MaxStore is how many bytes JetStream may keep on the disk; 0: three quarters of
	// what is free there.
	MaxStore int64

	// Name is the server's, one of its own in a cluster; default "muster".
	Name string
	// ClusterPort is the TCP port on 127.0.0.1 for the other servers of a
	// cluster; 0: the server is alone.
	ClusterPort int
	// Routes are the "host:port" of the cluster ports of all servers, its own
	// may be among them. Required with ClusterPort.
	Routes []string
	// Mappings change the subject of what is published, from and to, as in the
	// mappings of a server's configuration; the same for all of a cluster.
	Mappings map[string]string
	// Accounts is the block "accounts" of a server's configuration, as package accounts
	// writes it: who may connect, and what they may do. Empty: everybody may do
	// everything. With it, subject mappings are the accounts': Mappings must be empty.
	Accounts string
	// NoAdvertise keeps the server from telling its clients the addresses of
	// the others: they reach them in another way, through a proxy, say.
	NoAdvertise bool
}

// clusterName is what the servers of a cluster have in common.
const clusterName = "muster"

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
	if (o.ClusterPort == 0) != (len(o.Routes) == 0) {
		return nil, fmt.Errorf("starting the NATS server: a cluster port (%d) goes with routes to the other servers (%d given): give both or none", o.ClusterPort, len(o.Routes))
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
	name := o.Name
	if name == "" {
		name = clusterName
	}
	so := &server.Options{
		ServerName: name, Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: o.Dir, NoSigs: true,
		LogFile: o.LogFile, NoLog: o.LogFile == "", MaxPending: 256 << 20,
	}
	o.Sync.apply(so)
	so.JetStreamMaxStore = o.MaxStore
	if err := o.admit(so); err != nil {
		return nil, fmt.Errorf("starting the NATS server: %w", err)
	}
	if o.ClusterPort != 0 {
		if err := free(o.ClusterPort); err != nil {
			return nil, fmt.Errorf("starting the NATS server: %w: give another cluster port", err)
		}
		so.Cluster = server.ClusterOpts{Name: clusterName, Host: "127.0.0.1", Port: o.ClusterPort, NoAdvertise: o.NoAdvertise}
		so.Routes = server.RoutesFromStr("nats://" + strings.Join(o.Routes, ",nats://"))
	}
	s, err := server.NewServer(so)
	if err != nil {
		return nil, fmt.Errorf("starting the NATS server: %w", err)
	}
	if o.LogFile != "" {
		s.ConfigureLogger()
	}
	for from, to := range o.Mappings {
		if err := s.GlobalAccount().AddMapping(from, to); err != nil {
			s.Shutdown()
			return nil, fmt.Errorf("starting the NATS server: mapping subject %q to %q: %w: give the server's subject mapping functions", from, to, err)
		}
	}
	s.Start()
	if !s.ReadyForConnections(readyTimeout) {
		s.Shutdown()
		return nil, fmt.Errorf("starting the NATS server: it does not accept connections on port %d of 127.0.0.1 after %v; is the port in use?", o.Port, readyTimeout)
	}
	return &Server{s}, nil
}

// admit sets who may connect.
func (o Options) admit(so *server.Options) error {
	if o.Accounts == "" {
		return nil
	}
	if len(o.Mappings) > 0 {
		return errors.New("there are both accounts and subject mappings: write the mappings into the account of the publishers")
	}
	read := new(server.Options)
	if err := read.ProcessConfigString(o.Accounts); err != nil {
		return fmt.Errorf("reading the accounts: %w: give what muster broker accounts writes, and set the variables of the passwords", err)
	}
	if len(read.Accounts) == 0 {
		return errors.New("reading the accounts: there are none: give what muster broker accounts writes")
	}
	so.Accounts, so.Users, so.Nkeys, so.SystemAccount = read.Accounts, read.Users, read.Nkeys, read.SystemAccount
	return nil
}

// free reports whether a port can be listened on. The server itself would end the
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

// Stop stops the server and waits until its files are closed.
func (s *Server) Stop() {
	s.s.Shutdown()
	s.s.WaitForShutdown()
}
