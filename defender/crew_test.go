package defender_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/trace"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/state"
	"github.com/muster-dev/muster/tchart"
)

// crew is several running defenders on a stage.
type crew struct {
	*stage
	metrics []*defender.Metrics
	mu      sync.Mutex
	done    map[string]bool // contexts that are processed
	judge   defender.Judge  // nil: the usual one
	retry   bool
	stops   []func()

	published int
}

const crewPatience = time.Minute

// begin starts a defender, and returns a function that reports whether it has slots.
func (c *crew) begin() (ready func() bool) {
	c.t.Helper()
	nc, err := access.Connect(c.conn.ConnectedUrl(), "defender")
	if err != nil {
		c.t.Fatal(err)
	}
	metrics := defender.NewMetrics(nil)
	c.metrics = append(c.metrics, metrics)
	d := c.defender(func(o *defender.Config) {
		o.Conn, o.Metrics = nc, metrics
		if c.judge != nil {
			o.Judge = c.judge
		}
		o.Processed = func(p defender.Processed) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.done[p.Context.TChart().String()] = true
		}
	})
	p := defender.Partition(16)
	p.Rebalance.ColdWindow, p.Rebalance.PlannedWindow, p.Delivery.RetryDelay = 300*time.Millisecond, 100*time.Millisecond, 10*time.Millisecond
	p.Retry = partition.Retry{Disabled: true}
	if c.retry {
		p.Retry = partition.Retry{Attempts: 3, Delay: 10 * time.Millisecond}
	}
	w, err := partition.New(nc, p, d)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
		nc.Close()
	})
	c.t.Cleanup(stop)
	c.stops = append(c.stops, stop)
	return func() bool { return w.Status().State == state.Stable && len(w.Status().Slots) > 0 }
}

func (c *crew) start(n int) {
	c.t.Helper()
	for range n {
		defer c.until("it has slots", c.begin())
	}
}

func (c *crew) stop() {
	for _, stop := range c.stops {
		stop()
	}
	c.stops = nil
}

func (c *crew) until(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(crewPatience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("not within %v: %s", crewPatience, what)
		}
	}
}

// publish publishes contexts of each of twelve chambers.
func (c *crew) publish(each int) {
	c.t.Helper()
	collector, err := collect.New(c.store, c.conn)
	if err != nil {
		c.t.Fatal(err)
	}
	blob, err := tchart.Encode(&new(trace.Generator).Wafer(0).Trace)
	if err != nil {
		c.t.Fatal(err)
	}
	for range each {
		for i := range 12 {
			c.published++
			end := now.Add(time.Duration(c.published) * time.Second)
			ref := defender.ContextRef{Chamber: defender.Chamber{Tool: fmt.Sprintf("tool%03d", i/4+1), Name: fmt.Sprintf("chamber%d", i%4+1)},
				ID: fmt.Sprintf("run%04d", c.published), Recipe: "etch", Start: end.Add(-time.Second), End: end}
			if _, err := collector.Publish(c.t.Context(), ref, blob); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

func (c *crew) processed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done)
}

func (c *crew) rejections() (n float64) {
	c.t.Helper()
	for _, m := range c.metrics {
		n += counted(c.t, m, "defender_fence_rejections_total")
	}
	return n
}

// forgetFences does what docs/debug.md says, in its words.
func (c *crew) forgetFences() {
	c.t.Helper()
	page, err := os.ReadFile("../docs/debug.md")
	if err != nil {
		c.t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^\$ sqlite3 fdc.db '(.+)'$`).FindSubmatch(page)
	if found == nil {
		c.t.Fatal("docs/debug.md says nothing of sqlite3")
	}
	db, err := sql.Open("sqlite", c.path)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.ExecContext(c.t.Context(), string(found[1])); err != nil {
		c.t.Fatal(err)
	}
}

// forgetClaims does what docs/debug.md says of the retry queue.
func (c *crew) forgetClaims() {
	c.t.Helper()
	page, err := os.ReadFile("../docs/debug.md")
	if err != nil {
		c.t.Fatal(err)
	}
	found := regexp.MustCompile("`nats stream purge (\\S+)\\s+--subject '(.+?)'`").FindStringSubmatch(string(page))
	if found == nil {
		c.t.Fatal("docs/debug.md does not purge the claims")
	}
	stream, err := c.js.Stream(c.t.Context(), found[1])
	if err != nil {
		c.t.Fatal(err)
	}
	before, err := stream.Info(c.t.Context(), jetstream.WithSubjectFilter(found[2]))
	if err != nil || len(before.State.Subjects) == 0 {
		c.t.Fatalf("docs/debug.md names a subject without claims, %s: %v", found[2], err)
	}
	if err := stream.Purge(c.t.Context(), jetstream.WithPurgeSubject(found[2])); err != nil {
		c.t.Fatal(err)
	}
	info, err := stream.Info(c.t.Context(), jetstream.WithSubjectFilter(found[2]))
	if err != nil || len(info.State.Subjects) != 0 {
		c.t.Fatalf("claims are left: %v, %v", info, err)
	}
}

// TestFencesRemoved: after an operator has removed the fences and claims of a stopped group, as
// docs/debug.md says, the group works on.
func TestFencesRemoved(t *testing.T) {
	t.Parallel()
	c := newWornCrew(t, true)
	c.forgetFences()
	c.forgetClaims()
	c.start(3)
	c.publish(5)
	c.until("everything is processed, without the old fences", c.all)
	if n := len(c.letters()); n != 0 {
		t.Errorf("%d messages are dead letters", n)
	}
}

// TestBucketsLost: the group's buckets are gone, and the store has the fences of the
// maps that were in them. No message becomes a dead letter.
func TestBucketsLost(t *testing.T) {
	t.Parallel()
	for _, retry := range []bool{false, true} {
		// The streams of messages show that there was a group, so its new map is above
		// all earlier ones, and the group recovers by itself.
		t.Run(fmt.Sprint("alone, Retry ", retry), func(t *testing.T) {
			t.Parallel()
			c := newWornCrew(t, retry)
			c.loseBuckets()
			c.publish(5)
			c.start(3)
			c.until("everything is processed", c.all)
			if n := len(c.letters()); n != 0 {
				t.Errorf("%d of %d messages are dead letters", n, 5*12)
			}
		})

		// Without any stream it looks like a new group: map versions begin at 1, below the
		// stored fences.
		t.Run(fmt.Sprint("with every stream, Retry ", retry), func(t *testing.T) {
			t.Parallel()
			c := newWornCrew(t, retry)
			c.loseBuckets()
			for _, stream := range []string{defender.Stream, defender.Stream + "-retry", defender.Group + "-events"} {
				if err := c.js.DeleteStream(t.Context(), stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
					t.Fatal(err)
				}
			}
			c.start(3)
			c.publish(5)
			c.until("everything is processed, under raised fences", c.all)
			if c.rejections() == 0 {
				t.Error("no fence was rejected, so none had to be raised")
			}
			if n := len(c.letters()); n != 0 {
				t.Errorf("%d of %d messages are dead letters", n, 5*12)
			}
		})
	}
}

// newWornCrew returns a stopped crew whose map had several versions, each of which is
// in the store's fences.
func newWornCrew(t *testing.T, retry bool) *crew {
	c := &crew{stage: newStage(t), done: map[string]bool{}, retry: retry}
	c.start(1)
	for range 6 { // each raises the map's version
		c.start(1)
		c.publish(1)
		c.until("everything is processed", c.all)
	}
	c.stop()
	return c
}

// letters returns the group's dead letters.
func (c *crew) letters() []partition.DeadLetter {
	c.t.Helper()
	all, err := partition.Open(c.conn, defender.Group).DeadLetters(c.t.Context(), 0, 1000)
	if err != nil {
		c.t.Fatal(err)
	}
	return all
}

// all reports whether everything that was published is processed.
func (c *crew) all() bool { return c.processed() == c.published }

// loseBuckets deletes every bucket of the group.
func (c *crew) loseBuckets() {
	for bucket := range c.js.KeyValueStoreNames(c.t.Context()).Name() {
		if err := c.js.DeleteKeyValue(c.t.Context(), strings.TrimPrefix(bucket, "KV_")); err != nil {
			c.t.Fatal(err)
		}
	}
}

// TestPanic: a context whose processing panics is dead-lettered after its attempts,
// and the defenders live.
func TestPanic(t *testing.T) {
	t.Parallel()
	var panics atomic.Int64
	c := &crew{stage: newStage(t), done: map[string]bool{}, retry: true}
	c.judge = func(h []uchart.Point, chart *uchart.Chart) uchart.Verdict {
		if len(h) == 1 { // each chamber's second context
			panics.Add(1)
			panic("index out of range")
		}
		return uchart.Judge(h, chart, uchart.Policy{})
	}
	c.start(2)
	c.publish(1)
	c.until("the first contexts are processed", func() bool { return c.processed() == 12 })
	c.publish(1)
	c.until("the second ones are dead letters", func() bool { return len(c.letters()) == 12 })
	if n := panics.Load(); n != 3*12 {
		t.Errorf("%d attempts, want three of each of twelve messages", n)
	}
	for _, l := range c.letters() {
		if l.Attempts != 3 || !strings.Contains(l.Err, "panicked: index out of range") || l.Stack == "" {
			t.Errorf("a dead letter is %+v", l)
		}
	}
}
