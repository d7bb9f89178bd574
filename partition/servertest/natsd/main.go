// Command natsd runs NATS servers for the tests of package partition, whose module does not
// have the server's. It reads requests of package natstest, a line each, and ends with its
// standard input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/muster-dev/muster/partition/internal/natstest"
	servers "github.com/muster-dev/muster/partition/servertest/natstest"
)

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "natsd:", err)
		os.Exit(1)
	}
}

// serve answers requests until there are no more, and stops what still runs then.
func serve(in io.Reader, out io.Writer) error {
	stop := make(map[string]func()) // by URL
	defer func() {
		for _, f := range stop {
			f()
		}
	}()

	answers := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var r natstest.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("reading a request: %w", err)
		}
		if err := answers.Encode(answer(r, stop)); err != nil {
			return fmt.Errorf("answering: %w", err)
		}
	}
	return nil
}

func answer(r natstest.Request, stop map[string]func()) natstest.Answer {
	a := natstest.Answer{Version: server.VERSION}
	if r.Start == nil {
		if f := stop[r.Stop]; f != nil {
			f()
			delete(stop, r.Stop)
			return a
		}
		a.Err = fmt.Sprintf("there is no server %q", r.Stop)
		return a
	}

	running, err := start(*r.Start)
	if err != nil {
		a.Err = err.Error()
		return a
	}
	a.URL = running.URL()
	stop[a.URL] = running.Stop
	return a
}

// start starts the server of a request.
func start(o natstest.Options) (*servers.Server, error) {
	s, err := servers.Run(options(o)...)
	if err != nil || o.MapTo == "" {
		return s, err
	}
	if err := s.AddMapping(o.MapFrom, o.MapTo); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// options returns how the server of a request runs.
func options(o natstest.Options) []servers.Option {
	all := []servers.Option{servers.In(o.Dir), servers.MaxStore(o.MaxStore)}
	if o.NoJetStream {
		all = append(all, servers.NoJetStream)
	}
	if o.Port != 0 {
		all = append(all, servers.On(o.Port))
	}
	if o.ClusterPort != 0 {
		all = append(all, servers.InCluster(o.Name, o.ClusterPort, o.ClusterPorts))
	}
	return all
}
