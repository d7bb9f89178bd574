package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// results is a handlers' store that keeps the highest fence of each key, and each result
// once. It is not in NATS, so it forgets nothing.
type results struct {
	mu       sync.Mutex
	fences   map[string]partition.Fence
	last     map[string]int // key -> highest message stored
	stored   map[string]bool
	rejected int
	faults   []string
	events   []event.Event
}

func newResults() *results {
	return &results{fences: map[string]partition.Fence{}, last: map[string]int{}, stored: map[string]bool{}}
}

func (r *results) Handle(_ context.Context, m partition.Message) error {
	n, err := strconv.Atoi(string(m.Data))
	if err != nil {
		return partition.Discard(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.fences[m.Key]; m.Fence.Compare(have) < 0 {
		r.rejected++
		return fmt.Errorf("storing %d of %s: %w", n, m.Key, &partition.FencedError{Stored: have})
	}
	r.fences[m.Key] = m.Fence
	id := fmt.Sprint(m.Key, " ", n)
	if r.stored[id] {
		return nil // delivered again
	}
	if n < r.last[m.Key] {
		r.faults = append(r.faults, fmt.Sprintf("%s: %d after %d", m.Key, n, r.last[m.Key]))
	}
	r.stored[id], r.last[m.Key] = true, n
	return nil
}

func (r *results) Observe(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *results) saw(kind event.Kind) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind {
			return true
		}
	}
	return false
}

// forgetful is a server whose store directory can be taken away, and a group on it with
// results of its own.
type forgetful struct {
	*group
	srv     *natstest.Server
	dir     string
	results *results
	ws      []*runningWorker
}

func startForgetful(t *testing.T) *forgetful {
	t.Helper()
	srv := natstest.Start(t)
	f := &forgetful{srv: srv, dir: srv.Dir(), results: newResults()}
	f.group = startGroup(t, servers{url: f.srv.URL()}, 0, quickLeases, func(c *partition.Config) {
		c.Delivery.RetryDelay, c.Rebalance.LeaveTimeout = 50*time.Millisecond, 3*time.Second
		c.Retry = partition.Retry{Delay: 20 * time.Millisecond, MaxDelay: 100 * time.Millisecond, Attempts: 3}
	})
	return f
}

// begin starts workers.
func (f *forgetful) begin(n int) {
	f.t.Helper()
	for range n {
		nc := f.connect("w")
		w, err := partition.New(nc, f.cfg, f.results)
		if err != nil {
			f.t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		r := &runningWorker{Worker: w, nc: nc, stop: cancel, done: make(chan error, 1)}
		go func() { r.done <- w.Run(ctx) }()
		f.ws = append(f.ws, r)
		f.t.Cleanup(func() { r.kill(f.t) })
	}
	f.settle()
}

// settle waits until the workers share all slots out, and tells what each is at if they
// don't.
func (f *forgetful) settle() {
	f.t.Helper()
	settled := f.settled(f.ws...)
	for end := time.Now().Add(await.Patience); !settled(); time.Sleep(10 * time.Millisecond) {
		if time.Now().Before(end) && !f.ended() {
			continue
		}
		for i, w := range f.ws {
			f.t.Errorf("worker %d: %+v", i, w.Status())
		}
		f.results.mu.Lock()
		defer f.results.mu.Unlock()
		for _, e := range f.results.events {
			f.t.Log(e.Time.Format(time.StampMilli), e.Worker, e.Text())
		}
		f.t.Fatalf("%d workers have not settled within %v", len(f.ws), await.Patience)
	}
}

// ended reports a worker that no longer runs, and why.
func (f *forgetful) ended() bool {
	f.t.Helper()
	for i, w := range f.ws {
		select {
		case err := <-w.done:
			w.done <- err
			f.t.Errorf("worker %d ended: %v", i, err)
			return true
		default:
		}
	}
	return false
}

// kill ends a worker as SIGKILL does: it says nothing to anyone.
func (r *runningWorker) kill(t *testing.T) {
	r.nc.Close()
	r.stop()
	select {
	case err := <-r.done:
		r.done <- err
	case <-time.After(await.Patience):
		t.Error("a worker did not end")
	}
}

func (f *forgetful) killWorkers() {
	for _, w := range f.ws {
		w.kill(f.t)
	}
	f.ws = nil
}

// age has the group plan several times, so that its fences are well above those of a
// new one.
func (f *forgetful) age() {
	f.t.Helper()
	for range 3 {
		f.begin(1)
		f.publish(20, 2)
		f.stored()
		last := len(f.ws) - 1
		f.ws[last].stop()
		<-f.ws[last].done
		f.ws[last].done <- nil
		f.ws = f.ws[:last]
		f.settle()
		f.publish(20, 2)
		f.stored()
	}
}

// stored waits until everything that was published is stored.
func (f *forgetful) stored() {
	f.t.Helper()
	missing := func() (n int, first string) {
		f.results.mu.Lock()
		defer f.results.mu.Unlock()
		for key, last := range f.n {
			k := keyOf(key)
			for i := 1; i <= last; i++ {
				if id := fmt.Sprint(k, " ", i); !f.results.stored[id] {
					if n++; n == 1 {
						first = id
					}
				}
			}
		}
		return n, first
	}
	begun := time.Now()
	for {
		n, first := missing()
		if n == 0 {
			break
		}
		if time.Since(begun) > storedWithin {
			f.results.mu.Lock()
			defer f.results.mu.Unlock()
			f.t.Fatalf("%d of %d messages are not stored %v after they were published, the first is %s; %d rejections; faults: %q", n, f.published(), storedWithin, first, f.results.rejected, f.results.faults)
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.results.mu.Lock()
	defer f.results.mu.Unlock()
	for _, fault := range f.results.faults {
		f.t.Error(fault)
	}
}

// storedWithin is far more than it takes on a machine that is busy with all else.
const storedWithin = 40 * time.Second

func keyOf(subject string) string {
	for i := range subject {
		if subject[i] == '.' {
			return subject[:i] + partition.KeySeparator + subject[i+1:]
		}
	}
	return subject
}

// restart stops the server, does something to its store, and starts it again.
func (f *forgetful) restart(between func() error) {
	f.t.Helper()
	f.srv.Restart(f.t, between)
}

// TestBrokerForgets: the servers lose what they had, and the handlers' store keeps its
// fences. The group processes what is published afterwards, without an operator.
func TestBrokerForgets(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		older, running bool
		raised         bool // there is no other way than to raise the fences
	}{
		"everything, and every worker starts again":                  {raised: true},
		"everything, while workers run":                              {running: true},
		"what is younger than a copy, and every worker starts again": {older: true, raised: true},
		"what is younger than a copy, while workers run":             {older: true, running: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startForgetful(t)
			f.begin(2)
			f.publish(20, 2)
			f.stored()
			copied := filepath.Join(t.TempDir(), "copy")
			f.restart(func() error { return os.CopyFS(copied, os.DirFS(f.dir)) })
			f.age()
			if !tt.running {
				f.killWorkers()
			}
			f.restart(func() error {
				err := os.RemoveAll(f.dir)
				if tt.older {
					err = errors.Join(err, os.CopyFS(f.dir, os.DirFS(copied)))
				}
				return err
			})
			if !tt.running {
				f.begin(2)
			}
			await.That(t, "the streams are there again", func() bool {
				for _, s := range append(f.cfg.Streams(), f.cfg.Stream+"-retry") {
					if _, err := f.pub.Stream(t.Context(), s); errors.Is(err, jetstream.ErrStreamNotFound) || err != nil {
						return false
					}
				}
				return true
			})
			f.publish(20, 3)
			f.stored()
			f.begin(1) // plans go on
			f.publish(20, 3)
			f.stored()
			if tt.raised && !f.results.saw(event.FencesRaised) {
				t.Error("no event tells that fences were raised")
			}
		})
	}
}
