package main

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/internal/natstest"
)

func TestServe(t *testing.T) {
	t.Parallel()
	in, requests := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serve(in, out) }()
	lines := bufio.NewReader(answers)
	ask := func(r natstest.Request) (a natstest.Answer) {
		t.Helper()
		if err := json.NewEncoder(requests).Encode(r); err != nil {
			t.Fatal(err)
		}
		line, err := lines.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(line, &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	reachable := func(url string) bool {
		nc, err := nats.Connect(url)
		if err == nil {
			nc.Close()
		}
		return err == nil
	}

	first := ask(natstest.Request{Start: &natstest.Options{Dir: t.TempDir()}})
	second := ask(natstest.Request{Start: &natstest.Options{NoJetStream: true}})
	if !reachable(first.URL) || !reachable(second.URL) || first.Version == "" {
		t.Fatalf("no servers at %+v and %+v", first, second)
	}
	if a := ask(natstest.Request{Stop: first.URL}); a.Err != "" || reachable(first.URL) || !reachable(second.URL) {
		t.Errorf("the wrong servers run after stopping the first: %+v", a)
	}
	if a := ask(natstest.Request{Stop: first.URL}); !strings.Contains(a.Err, first.URL) {
		t.Errorf("stopping it again: %+v, want an error that names it", a)
	}

	if err := requests.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	if reachable(second.URL) {
		t.Error("a server outlives the input")
	}
}
