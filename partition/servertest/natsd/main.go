// Command natsd runs NATS servers for the tests of package partition, whose module does not
// have the server's. It reads requests of package natstest, a line each, and ends with its
// standard input.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/partition/internal/natstest"
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

	start := startBroker
	if r.Start.NoJetStream {
		start = startPlain
	}
	url, end, err := start(*r.Start)
	if err != nil {
		a.Err = err.Error()
		return a
	}
	a.URL, stop[url] = url, end
	return a
}

func startBroker(o natstest.Options) (url string, stop func(), err error) {
	b, err := broker.Start(broker.Options{Dir: o.Dir, MaxStore: o.MaxStore})
	if err != nil {
		return "", nil, err
	}
	return b.URL(), b.Stop, nil
}

func startPlain(natstest.Options) (url string, stop func(), err error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		return "", nil, err
	}
	go s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		s.Shutdown()
		return "", nil, errors.New("the server did not get ready")
	}
	return s.ClientURL(), s.Shutdown, nil
}
