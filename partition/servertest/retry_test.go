package servertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition"
	beside "github.com/muster-dev/muster/partition/internal/natstest"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/report"
)

func withRetry(c *partition.Config) {
	c.Slots = 16
	c.Retry = partition.Retry{KeepFailing: true, Delay: 20 * time.Millisecond, MaxDelay: 200 * time.Millisecond}
}

func withoutRetry(c *partition.Config) { c.Retry = partition.Retry{Disabled: true} }

// queued returns what is in the retry queue. A server that has just been restarted may
// not answer at once.
func (g *group) retryQueue() partition.RetryQueue {
	g.t.Helper()
	for end := time.Now().Add(await.Patience); ; time.Sleep(100 * time.Millisecond) {
		p, err := partition.Open(g.pub.Conn(), g.cfg.Name).RetryQueue(g.t.Context())
		if err == nil {
			return p
		}
		if !time.Now().Before(end) {
			g.t.Fatal(err)
		}
	}
}

// othersDone reports whether all but the failing keys' messages are processed.
func (g *group) othersDone(failing map[string]bool) func() bool {
	return func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		for key, n := range g.n {
			key = strings.Replace(key, ".", partition.KeySeparator, 1)
			if !failing[key] && g.rec.last[key] != uint64(n) {
				return false
			}
		}
		return true
	}
}

// failingKeyHoldsNobodyUp has two keys fail while their slots are handed off, taken from a dead worker and
// resharded; all others go on, and when they don't fail any more what was queued comes in order.
func failingKeyHoldsNobodyUp(t *testing.T, on servers) {
	g := startGroup(t, on, time.Millisecond, withRetry)
	failing := map[string]bool{"a0:b0": true, "a7:b1": true}
	g.rec.fails = func(key string, _ uint64, _ partition.Message) bool { return failing[key] }
	ws := []*runningWorker{g.start("w0"), g.start("w1"), g.start("w2")}
	await.That(t, "three workers settled", g.settled(ws...))
	allQueued := func() bool {
		p := g.retryQueue()
		return len(p.Keys) == 2 && p.Messages == g.n["a0.b0"]+g.n["a7.b1"] && !p.Oldest.IsZero()
	}
	g.publish(40, 4)
	await.That(t, "everybody else goes on", g.othersDone(failing))
	await.That(t, "what fails is queued", allQueued)

	ws[0].stop()
	await.That(t, "two workers settled", g.settled(ws[1:]...))
	g.publish(40, 2)
	await.That(t, "everybody else goes on after a handoff", g.othersDone(failing))
	await.That(t, "what fails is queued after a handoff", allQueued)

	ws[1].nc.Close() // as a kill does
	await.That(t, "one worker settled", g.settled(ws[2]))
	g.publish(40, 2)
	await.That(t, "everybody else goes on after a death", g.othersDone(failing))
	await.That(t, "what fails is queued after a death", allQueued)

	g.cfg.Slots *= 2
	if err := partition.Open(g.pub.Conn(), g.cfg.Name).Reshard(t.Context(), g.cfg.Slots); err != nil {
		t.Fatal(err)
	}
	await.That(t, "twice the slots", g.settled(ws[2]))
	g.publish(40, 2)
	await.That(t, "everybody else goes on in other slots", g.othersDone(failing))
	await.That(t, "what fails is queued in other slots", allQueued)
	here := ws[2].Metrics()
	if here.Retry.Keys != 2 || here.Retry.Messages != g.retryQueue().Messages || here.Retry.Oldest == 0 {
		t.Errorf("the owner knows of %+v, queued is %+v", here.Retry, g.retryQueue())
	}
	if here.Counters.Retried == 0 {
		t.Error("the owner has counted no attempt of a message of the retry queue")
	}

	view, err := partition.Open(g.pub.Conn(), g.cfg.Name).Inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	queue := view.Report().RetryQueue
	owner := ws[2].Status().ID
	want := report.RetryKey{Key: "a0:b0", Messages: g.n["a0.b0"], Slot: partition.SlotOfKey(g.cfg.Slots, "a0:b0"), Owner: owner}
	if len(queue.Keys) != 2 || queue.Keys[0] != want || queue.Messages != g.retryQueue().Messages || queue.Oldest <= 0 {
		t.Errorf("the report tells of %+v, want %+v first", queue, want)
	}

	g.rec.mu.Lock()
	clear(failing)
	g.rec.mu.Unlock()
	g.publish(40, 2)
	g.check(0)
	await.That(t, "nothing is queued", func() bool { return g.retryQueue().Messages == 0 })
	g.publish(40, 2)
	g.check(0)
}

// failingKeysSurviveDeaths kills owners while many messages fail at first and are queued.
func failingKeysSurviveDeaths(t *testing.T, on servers) {
	g := startGroup(t, on, time.Millisecond, withRetry)
	tries := make(map[string]int)
	g.rec.fails = func(key string, n uint64, _ partition.Message) bool {
		at := fmt.Sprint(key, " ", n)
		tries[at]++
		return n%3 == 0 && tries[at] < 3
	}
	ws := []*runningWorker{g.start("w0"), g.start("w1")}
	await.That(t, "two workers settled", g.settled(ws...))
	for round := range 3 {
		g.publish(40, 2)
		ws[0].nc.Close()
		ws = []*runningWorker{ws[1], g.start(fmt.Sprint("w", 2+round))}
		g.publish(40, 2)
		await.That(t, "two workers settled", g.settled(ws...))
	}
	// What a handler had ended when its worker died, and nobody was told, comes again.
	again := g.check(3 * g.cfg.Slots)
	await.That(t, "nothing is queued", func() bool { return g.retryQueue().Messages == 0 })
	t.Logf("%d messages processed again", again)
}

// TestQueuedMessagesAreBounded: where no more may be queued the slot waits, and nothing is lost or overtaken.
func TestQueuedMessagesAreBounded(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), 0, withRetry, func(c *partition.Config) { c.Slots, c.Retry.PerKey = 1, 3 })
	fails := true
	g.rec.fails = func(key string, _ uint64, _ partition.Message) bool { return fails && key == "a0:b0" }
	w := g.start("w0")
	await.That(t, "one worker settled", g.settled(w))
	g.publish(2, 6)
	await.That(t, "as many are queued as may be", func() bool { return g.retryQueue().Messages == 3 })
	await.That(t, "the other key's messages of before", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return g.rec.last["a1:b1"] == 3
	})
	g.rec.mu.Lock()
	fails = false
	g.rec.mu.Unlock()
	g.check(0)
	await.That(t, "nothing is queued", func() bool { return g.retryQueue().Messages == 0 })
}

// TestRetryIsTheWholeGroups: workers with a retry queue and workers without are not there together.
func TestRetryIsTheWholeGroups(t *testing.T) {
	t.Parallel()
	g := startGroup(t, servers{url: beside.Start(t, beside.Options{})}, 0, withoutRetry)
	w := g.start("w0")
	await.That(t, "one worker settled", g.settled(w))
	on := g.cfg
	on.Retry = partition.Retry{}
	nc := g.connect("another")
	run := func(cfg partition.Config) error {
		t.Helper()
		w, err := partition.New(nc, cfg, handler{g.rec, "w1"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
		defer cancel()
		return w.Run(ctx)
	}
	if err := run(on); err == nil || !strings.Contains(err.Error(), "Retry is off in the group and on here") {
		t.Errorf("with Retry among those without: %v", err)
	}
	w.stop()
	err := <-w.done
	w.done <- err
	if err != nil {
		t.Error(err)
	}
	if err := partition.Open(nc, on.Name).Provision(t.Context(), on); err != nil {
		t.Errorf("turning it on while nobody works: %v", err)
	}
	if c, err := partition.Open(nc, on.Name).Config(t.Context()); err != nil || c.Retry.Disabled || c.Retry.Attempts != 5 {
		t.Errorf("a publisher is told of Retry %+v, %v", c.Retry, err)
	}
	if err := partition.Open(nc, g.cfg.Name).Provision(t.Context(), g.cfg); err != nil {
		t.Errorf("turning it off while nothing is queued: %v", err)
	}
}

// TestRetryStreamIsNotSearched: the retry stream has a claim of each slot. If the server had to search it for what an owner
// asks, a start of all slots would cost the square of their number.
func TestRetryStreamIsNotSearched(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond, withRetry)
	g.rec.fails = func(key string, _ uint64, _ partition.Message) bool { return key == "a0:b0" }
	var mu sync.Mutex
	lasts := 0
	tap, err := g.connect("tap").Subscribe("$JS.API.STREAM.MSG.GET.*", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		var request struct {
			Last string `json:"last_by_subj"`
			Next string `json:"next_by_subj"`
		}
		if err := json.Unmarshal(m.Data, &request); err != nil {
			t.Errorf("request %q: %v", m.Data, err)
		}
		// Of one slot: an operator's question about the whole queue is rare.
		isRetry := func(subject string) bool {
			return strings.Contains(subject, ".retry.") && !strings.Contains(subject, ".retry.*.")
		}
		switch {
		case isRetry(request.Last):
			lasts++
		case isRetry(request.Next) && strings.ContainsAny(request.Next, "*>"):
			t.Errorf("the server has to search for %s", m.Data)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tap.Unsubscribe() }()

	ws := []*runningWorker{g.start("w0"), g.start("w1")}
	await.That(t, "two workers settled", g.settled(ws...))
	g.publish(8, 40)
	await.That(t, "a message is queued", func() bool { return g.retryQueue().Messages > 0 })
	g.changeTo(32, ws, nil)
	ws = append(ws, g.start("w2"))
	await.That(t, "three workers settled", g.settled(ws...))

	mu.Lock()
	defer mu.Unlock()
	if lasts < 32 {
		t.Errorf("only %d requests for the last message of a subject were seen", lasts)
	}
}
