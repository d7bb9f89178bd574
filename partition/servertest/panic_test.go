package servertest_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	beside "github.com/muster-dev/muster/partition/internal/natstest"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// volatile is a handler of which every callback fails in a way of its own.
type volatile struct {
	handler
	how      func() // it ends an attempt at a poison message
	poison   func(m partition.Message) bool
	attempts *atomic.Int64 // at poison messages
	callback bool          // the other callbacks, too
}

func (v volatile) Handle(ctx context.Context, m partition.Message) error {
	if v.poison(m) {
		v.attempts.Add(1)
		v.how()
	}
	return v.handler.Handle(ctx, m)
}

func (v volatile) Prepare(context.Context, partition.Slots) error {
	if v.callback {
		v.how()
	}
	return nil
}

func (v volatile) Released(partition.Slots) {
	if v.callback {
		v.how()
	}
}

func (v volatile) Observe(e event.Event) {
	v.handler.Observe(e)
	if v.callback {
		v.how()
	}
}

// lines is where log lines go.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(s string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), s)
}

// TestHandlerPanic: a message that panics fails, and the worker lives.
func TestHandlerPanic(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(){
		"a panic":         func() { panic("boom") },
		"an index":        func() { var s []int; _ = s[len(os.Args)] },
		"runtime.Goexit":  runtime.Goexit,
		"a panicking nil": func() { panic(nil) }, //nolint:govet // as handlers do
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGroup(t, oneServer(t), 0, func(c *partition.Config) {
				c.Slots, c.Delivery.RetryDelay, c.Retry.Disabled = 16, 5*time.Millisecond, true
			})
			var attempts atomic.Int64
			var log lines
			g.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			const times = 5
			poison := func(m partition.Message) bool {
				return m.Key == "a0:b0" && string(m.Data) == "2" && attempts.Load() < times
			}
			var ws []*runningWorker
			for i := range 3 {
				ws = append(ws, g.startWith(fmt.Sprint("w", i), volatile{handler: handler{g.rec, fmt.Sprint("w", i)}, how: how, poison: poison, attempts: &attempts}))
			}
			await.That(t, "three workers settled", g.settled(ws...))
			g.publish(20, 4)
			g.check(0)
			if n := attempts.Load(); n != times {
				t.Errorf("%d attempts panicked, want %d", n, times)
			}
			await.That(t, "the workers tell of it", func() bool { return g.panicked("Handle") == times })
			if !log.has("panic_test.go") {
				t.Error("the log has no stack")
			}
			var panics, failed, calls uint64
			for _, w := range ws {
				m := w.Metrics()
				panics += m.Counters.HandlerPanics
				failed += m.Handlers.Failed
				calls += m.Handlers.Duration.Count
			}
			if panics != times || failed != times || calls != 20*4+times {
				t.Errorf("%d panics, %d failed calls of %d are counted, want %d, %d of %d", panics, failed, calls, times, times, 20*4+times)
			}
		})
	}
}

func (g *group) panicked(callback string) (n int) {
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	for _, e := range g.rec.events {
		if e.Kind == event.Panicked && e.Reason == callback && e.Err != "" {
			n++
		}
	}
	return n
}

// TestHandlerPanic/... with the retry queue: what panics is queued, the others of its
// slot are processed meanwhile, and it is given up after its attempts.
func TestHandlerPanicWithRetry(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), 0, withRetry, func(c *partition.Config) { c.Slots, c.Retry.KeepFailing, c.Retry.Attempts = 1, false, 3 })
	var attempts atomic.Int64
	poison := func(m partition.Message) bool { return m.Key == "a0:b0" && string(m.Data) == "2" }
	w := g.startWith("w0", volatile{handler: handler{g.rec, "w0"}, how: func() { panic("boom") }, poison: poison, attempts: &attempts})
	await.That(t, "one worker settled", g.settled(w))
	g.publish(4, 4)
	await.That(t, "all others are processed", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.done) == g.published()-1
	})
	await.That(t, "nothing is queued", func() bool { return g.retryQueue().Messages == 0 })
	letters := g.deadLetters()
	if attempts.Load() != 3 || len(letters) != 1 || !strings.Contains(letters[0].Stack, "panic_test.go") {
		t.Errorf("%d attempts, dead letters %+v, want three, and one with its stack", attempts.Load(), letters)
	}
}

// TestDefaults: a group of which nothing but names is given lives on with a message that panics.
// The other keys of its slot don't wait, and it becomes a dead letter with its stack.
func TestDefaults(t *testing.T) {
	t.Parallel()
	url := beside.Start(t, beside.Options{})
	cfg := partition.Config{Name: "orders", Stream: "ORDERS", Subject: "orders.*.*", Slots: 1}
	g := &group{t: t, url: url, cfg: cfg, rec: newRecorder(0), n: map[string]int{}}
	poison := func(m partition.Message) bool { return m.Key == "a0:b0" && string(m.Data) == "1" }
	var attempts atomic.Int64
	w := g.startWith("w0", volatile{handler: handler{g.rec, "w0"}, how: func() { panic("boom") }, poison: poison, attempts: &attempts})
	await.That(t, "one worker settled", g.settled(w))
	var err error
	if g.pub, err = jetstream.New(g.connect("publisher")); err != nil {
		t.Fatal(err)
	}
	g.publish(4, 3)
	await.That(t, "the other keys are processed", g.othersDone(map[string]bool{"a0:b0": true}))
	if n := len(g.deadLetters()); n > 0 {
		t.Errorf("%d dead letters, and the other keys have only just been processed", n)
	}
	await.That(t, "the later messages of the key, too", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.done) == g.published()-1
	})
	letters := g.deadLetters()
	if attempts.Load() != 5 || len(letters) != 1 || letters[0].Attempts != 5 || !strings.Contains(letters[0].Err, "boom") || !strings.Contains(letters[0].Stack, "panic_test.go") {
		t.Errorf("%d attempts, dead letters %+v, want one after five, with its stack", attempts.Load(), letters)
	}
}

// TestCallbackPanic: every callback panics, and the group shares out, hands off and
// processes as ever.
func TestCallbackPanic(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(){"a panic": func() { panic("boom") }, "runtime.Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := startGroup(t, oneServer(t), 0, func(c *partition.Config) {
				c.Slots = 16
				c.Rebalance.Expected = func() int { panic("nobody knows") }
				c.Rebalance.Weights = func(context.Context) (map[string]uint64, error) { how(); return nil, nil }
			})
			var attempts atomic.Int64
			var ws []*runningWorker
			for i := range 3 {
				ws = append(ws, g.startWith(fmt.Sprint("w", i), volatile{handler: handler{g.rec, fmt.Sprint("w", i)}, how: how, callback: true,
					poison: func(partition.Message) bool { return false }, attempts: &attempts}))
			}
			await.That(t, "three workers settled", g.settled(ws...))
			g.publish(20, 2)
			ws[0].stop()
			await.That(t, "two workers settled", g.settled(ws[1:]...))
			g.publish(20, 2)
			g.check(0)
			for _, callback := range []string{"Prepare", "Released", "Weights"} {
				await.That(t, callback+" panics and the workers tell of it", func() bool { return g.panicked(callback) > 0 })
			}
			panics := func() uint64 { return ws[1].Metrics().Counters.HandlerPanics }
			before := panics()
			if before == 0 {
				t.Error("no panic is counted")
			}
			// A scrape is a callback, too: it must answer, and count its own panic.
			slots := len(ws[1].Status().Slots)
			if n := ws[1].CountKeys(func(partition.Slots) int { panic("no keys") }); n != slots {
				t.Errorf("counting keys panicked and returned %d, want the number of slots, %d", n, slots)
			}
			await.That(t, "the panic of a scrape is counted", func() bool { return panics() > before })
		})
	}
}
