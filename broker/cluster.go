package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ClusterOptions returns the options of n servers of one cluster, each with a
// directory below dir, a log below logDir (none if it is empty) and ports that
// are free at this moment. One server alone is no cluster; port is then its
// client port, 0 for a free one, and otherwise must be 0.
func ClusterOptions(n, port int, dir, logDir string) ([]Options, error) {
	if n < 1 || n%2 == 0 {
		return nil, fmt.Errorf("laying out %d NATS servers: a majority needs an odd number, give 1, 3 or 5", n)
	}
	if n > 1 && port != 0 {
		return nil, fmt.Errorf("laying out %d NATS servers: port %d can be only one's: give 0", n, port)
	}
	log := func(name string) string {
		if logDir == "" {
			return ""
		}
		return filepath.Join(logDir, name+".log")
	}
	if n == 1 {
		if port == 0 {
			ports, err := freePorts(1)
			if err != nil {
				return nil, fmt.Errorf("laying out a NATS server: %w", err)
			}
			port = ports[0]
		}
		return []Options{{Dir: filepath.Join(dir, "nats"), Port: port, LogFile: log("nats")}}, nil
	}
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, fmt.Errorf("laying out %d NATS servers: %w", n, err)
	}
	var routes []string
	for _, p := range ports[n:] {
		routes = append(routes, net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
	}
	var all []Options
	for i := range n {
		name := fmt.Sprintf("nats-%d", i+1)
		all = append(all, Options{Name: name, Dir: filepath.Join(dir, name), Port: ports[i], LogFile: log(name), ClusterPort: ports[n+i], Routes: routes})
	}
	return all, nil
}

// freePorts returns n ports of 127.0.0.1 that nobody listens on now. All are held
// open until the last is found, so that they differ.
func freePorts(n int) ([]int, error) {
	var ports []int
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for range n {
		l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		held = append(held, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// StartCluster starts all servers in this process at once: none is ready before
// the others are there. Those that were started are stopped on an error.
func StartCluster(all []Options) ([]*Server, error) {
	servers := make([]*Server, len(all))
	errs := make([]error, len(all))
	done := make(chan struct{})
	for i, o := range all {
		go func() {
			servers[i], errs[i] = Start(o)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	if err := errors.Join(errs...); err != nil {
		for _, s := range servers {
			if s != nil {
				s.Stop()
			}
		}
		return nil, err
	}
	return servers, nil
}

// URLs joins the client addresses of servers as access.Connect takes them.
func URLs(all []Options) string {
	var urls []string
	for _, o := range all {
		urls = append(urls, "nats://"+net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
	}
	return strings.Join(urls, ",")
}

// probeStream is made and deleted again to see whether streams can be made.
const probeStream = "muster-probe"

// WaitReplicated waits until a stream with this number of replicas can be made: until
// the servers of a cluster have found each other and elected a leader.
func WaitReplicated(ctx context.Context, nc *nats.Conn, replicas int) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("waiting for the NATS servers: %w", err)
	}
	for last := error(nil); ; {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		_, err := js.CreateOrUpdateStream(try, jetstream.StreamConfig{Name: probeStream, Subjects: []string{probeStream}, Replicas: replicas, Storage: jetstream.MemoryStorage})
		if err == nil {
			err = js.DeleteStream(try, probeStream)
		}
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for NATS servers that keep %d replicas: %w; at last: %w", replicas, ctx.Err(), last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
