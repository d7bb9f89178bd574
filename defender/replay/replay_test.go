package replay

import (
	"bytes"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// lines are what a collector writes.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *lines) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *lines) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.b.String(), text)
}

// TestStorageFull: a collector keeps what the servers have no room for, says so, and publishes it when there is room.
func TestStorageFull(t *testing.T) {
	t.Parallel()
	srv := natstest.Start(t)
	nc := natstest.Connect(t, srv.URL())
	p := defender.Partition(16)
	p.Storage.MaxBytes = 32 << 10
	if err := defender.Provision(t.Context(), nc, p); err != nil {
		t.Fatal(err)
	}
	const count = 300
	var out lines
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), Options{NATS: srv.URL(), Store: filepath.Join(t.TempDir(), "fdc.db"), Slots: 16, Seed: 1, Chambers: 16, Rate: 400, Count: count, Out: &out})
	}()
	for end := time.Now().Add(time.Minute); !out.has("the servers have no room for more"); time.Sleep(50 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the collector ends with %v", err)
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("the collector says\n%s", out.b.String())
		}
	}
	p.Storage.MaxBytes = 16 << 20
	if err := partition.Open(nc, p.Name).Provision(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	js := natstest.JetStream(t, nc)
	s, err := js.Stream(t.Context(), defender.Stream)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != count {
		t.Errorf("%d messages are stored, want %d", n, count)
	}
}
