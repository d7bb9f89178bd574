package local

import (
	"bufio"
	"context"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// wire passes on what clients and a NATS server say to each other, and notes the subjects
// that the clients publish and subscribe to, and what the server refuses.
type wire struct {
	url string

	mu                    sync.Mutex
	published, subscribed map[string]bool
	refused               []string
	responses             map[string]bool // subjects that messages asked to answer to
}

func newWire(t *testing.T, serverURL string) *wire {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{url: "nats://" + l.Addr().String(), published: map[string]bool{}, subscribed: map[string]bool{}, responses: map[string]bool{}}
	to := strings.TrimPrefix(serverURL, "nats://")
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := new(net.Dialer).DialContext(ctx, "tcp", to)
			if err != nil {
				_ = client.Close()
				continue
			}
			closeBoth := func() { _ = client.Close(); _ = server.Close() }
			context.AfterFunc(ctx, closeBoth)
			wg.Go(func() { defer closeBoth(); w.pass(server, client) })
			wg.Go(func() { defer closeBoth(); w.pass(client, server) })
		}
	})
	return w
}

// pass copies the protocol line by line until it ends.
func (w *wire) pass(to io.Writer, from io.Reader) {
	in := bufio.NewReaderSize(from, 1<<20)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		size := w.note(line)
		if _, err := io.WriteString(to, line); err != nil {
			return
		}
		if size < 0 {
			continue
		}
		if _, err := io.CopyN(to, in, int64(size)+2); err != nil {
			return
		}
	}
}

// note notes a line, and returns the size of the payload that follows; -1 for none.
func (w *wire) note(line string) int {
	words := strings.Fields(line)
	if len(words) < 2 {
		return -1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch words[0] {
	case "SUB":
		w.subscribed[words[1]] = true
		return -1
	case "-ERR":
		w.refused = append(w.refused, strings.TrimSpace(line))
		return -1
	case "PUB", "HPUB":
		w.published[words[1]] = true
	case "MSG", "HMSG":
		// SUBJECT SID [REPLY] [HEADERS] SIZE
		sizes := map[string]int{"MSG": 1, "HMSG": 2}[words[0]]
		if len(words) == 3+sizes+1 {
			w.responses[words[3]] = true
		}
	default:
		return -1
	}
	n, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		return -1
	}
	return n
}

// covers reports whether a subject with wildcards covers another.
func covers(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i, token := range p {
		switch {
		case token == ">":
			return len(s) > i
		case i >= len(s) || token != "*" && token != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}
