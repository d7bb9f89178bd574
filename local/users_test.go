package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/broker/access"
	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/defender/service"
	"github.com/muster-dev/muster/defender/sqlite"
	"github.com/muster-dev/muster/defender/strategy"
	"github.com/muster-dev/muster/defender/uchart"
	"github.com/muster-dev/muster/defender/webhook"
	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/nodes/workers"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/reserve"
	"github.com/muster-dev/muster/partition/role"
	"github.com/muster-dev/muster/partition/servertest/natstest"
	"github.com/muster-dev/muster/partition/state"
)

// court is a server with the accounts that Muster ships, and a wire to it for each role.
type court struct {
	t     *testing.T
	group partition.Config
	users *users
	url   string
	log   string
	wires map[role.Role]*wire
	store *sqlite.Store
	path  string
	runs  int // of collect
	logs  []string
}

func newCourt(t *testing.T, shards int) *court {
	t.Helper()
	p := defender.Partition(8)
	p.Shards = shards
	p.Retry = service.Retry(50)
	p.Rebalance.ColdWindow, p.Rebalance.PlannedWindow = 300*time.Millisecond, 300*time.Millisecond
	c := &court{t: t, group: p, users: newUsers(p), log: filepath.Join(t.TempDir(), "nats.log"), wires: map[role.Role]*wire{}}
	text, err := c.users.config()
	if err != nil {
		t.Fatal(err)
	}
	srv, err := broker.Start(broker.Options{Dir: t.TempDir(), LogFile: c.log, Accounts: text})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Stop)
	c.url = srv.URL()
	for _, r := range role.All {
		c.wires[r] = newWire(t, c.url)
	}
	c.path = filepath.Join(t.TempDir(), "fdc.db")
	if c.store, err = sqlite.Open(t.Context(), sqlite.Config{Path: c.path}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.store.Close() })
	return c
}

// as connects as a role, over its wire.
func (c *court) as(r role.Role) *nats.Conn {
	c.t.Helper()
	nc, err := access.ConnectAs(c.wires[r].url, "test "+string(r), c.users.of(r))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}

func (c *court) harness() *nats.Conn {
	c.t.Helper()
	nc, err := access.ConnectAs(c.url, "test harness", c.users.harness())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(nc.Close)
	return nc
}

// defend starts a defender, and returns what kills it.
func (c *court) defend(pod string) (kill func()) {
	c.t.Helper()
	o := service.Options{NATS: c.wires[role.Worker].url, User: c.users.of(role.Worker), Store: c.path, Slots: c.group.Slots, Shards: c.group.Shards,
		Pod: pod, Node: "node-" + pod, RetryAttempts: 50, LogFile: filepath.Join(c.t.TempDir(), pod+".log"),
		Configure: func(c *defender.Config) {
			c.Judge = func([]uchart.Point, *uchart.Chart) uchart.Verdict { return uchart.Verdict{State: uchart.Alarm} }
		},
		Wrap: func(d *defender.Defender) partition.Handler { return failing{d} }}
	c.logs = append(c.logs, o.LogFile)
	d, err := service.Open(c.t.Context(), o, c.store)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := d.Provision(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := d.Run(ctx); err != nil {
			c.t.Logf("defender %s ended: %v", pod, err)
		}
	}()
	c.t.Cleanup(func() { stop(); <-done })
	return d.Disconnect
}

func (c *court) eventually(what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if ok() {
			return
		}
	}
	for r, w := range c.wires {
		w.mu.Lock()
		if len(w.refused) > 0 {
			c.t.Logf("refused to the %s: %v", r, w.refused)
		}
		w.mu.Unlock()
	}
	for _, file := range c.logs {
		if b, err := os.ReadFile(file); err == nil {
			c.t.Logf("%s:\n%s", file, b[max(0, len(b)-3000):])
		}
	}
	c.t.Fatalf("never: %s", what)
}

// ok fails the test on an error of a role's work.
func (c *court) ok(r role.Role, what string, err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("the %s: %s: %v", r, what, err)
	}
}

// settled reports whether N workers own all slots between them, and no slot is moving.
func (c *court) settled(nc *nats.Conn, workers int) bool {
	v, err := partition.Open(nc, defender.Group).Inspect(c.t.Context())
	return err == nil && v.Map() != nil && len(v.Map().Workers) == workers && len(v.Map().Moves) == 0
}

// drainAndTakeBack has one role drain a worker and another take it back, and waits until it
// has slots again. A slot that is drained before its worker has it has no state to move
// yet: the next drain expects that every state moves.
func (c *court) drainAndTakeBack(drains, takesBack role.Role, who func(report.Lease) bool) {
	c.t.Helper()
	drainer, back, inspector := c.as(drains), c.as(takesBack), c.harness()
	held := func(r role.Role, nc *nats.Conn, until time.Time) int {
		c.t.Helper()
		slots, err := partition.Open(nc, defender.Group).Drain(c.t.Context(), who, until)
		c.ok(r, "draining a worker or taking it back", err)
		n := 0
		for _, s := range slots {
			n += s
		}
		return n
	}

	c.eventually("the worker drained", func() bool { return held(drains, drainer, time.Now().Add(time.Minute)) == 0 })
	c.eventually("the worker with slots again", func() bool {
		return held(takesBack, back, time.Time{}) > 0 && c.settled(inspector, 2)
	})
}

// unused are permissions that nothing here needs, and why they are there.
var unused = map[string]string{
	"$JS.API.STREAM.UPDATE.defender-events":                                                      "for other replicas, of which one server has one",
	"$JS.API.STREAM.UPDATE.dc-notifications-retry":                                               "the same",
	"$JS.API.CONSUMER.DELETE.dc-alarms.*":                                                        "an ordered consumer begins again behind a gap, and deletes what it had",
	"$JS.API.CONSUMER.DELETE.defender-events.*":                                                  "the same",
	"$JS.API.STREAM.MSG.DELETE.dc-notifications":                                                 "of a message that is in the retry queue, by a worker that died in between",
	"$JS.API.STREAM.MSG.DELETE.dc-notifications-0":                                               "the same",
	"$JS.API.STREAM.MSG.DELETE.dc-notifications-1":                                               "the same",
	"$JS.API.DIRECT.GET.KV_stable-ids.$KV.stable-ids.>":                                          "creating a key that somebody else created reads it",
	"$JS.API.DIRECT.GET.KV_defender-heartbeats.$KV.defender-heartbeats.>":                        "the same",
	"$JS.FC.KV_stable-ids.>":                                                                     "after a megabyte of changes to stable IDs, by a worker that waits for one",
	"worker: dc.*.*.completion":                                                                  "which asks whether the servers have the mapping, by the worker that provisions the group",
	"$JS.API.STREAM.DELETE.KV_stable-ids":                                                        "of a bucket whose revisions have gone back, to create it again",
	"$JS.API.STREAM.DELETE.KV_defender-heartbeats":                                               "the same",
	"$JS.API.STREAM.DELETE.KV_defender-assignments":                                              "the same",
	"caller: $JS.FC.KV_defender-assignments.>":                                                   "after a megabyte of maps, by a caller that is slow",
	"caller: $JS.API.DIRECT.GET.KV_defender-assignments.$KV.defender-assignments.assignment-map": "by a caller whose watch of the map has stopped, or whose key has no owner",
	"muster.defender.worker.*.*.fence":                                                           "reports that the results' store has a higher fence, after a loss",
	"muster.defender.refusals":                                                                   "which asks why leases are not written, when they are not",
	"muster.defender.standbys":                                                                   "for a worker that waits for a stable ID: as many work as there are IDs",
}

// TestPermissions/suffice_and_nothing_is_left_over has each role do all of its work on a
// server with the accounts that are shipped. Nothing may be refused, and each permission
// must be used by something.
func TestPermissions(t *testing.T) {
	for _, shards := range []int{1, 2} {
		t.Run("suffice and nothing is left over/"+map[int]string{1: "one stream", 2: "two streams"}[shards], func(t *testing.T) {
			t.Parallel()
			c := newCourt(t, shards)
			c.work()
			c.compare()
		})
	}
}

// work has every role do its work.
func (c *court) work() {
	t, ctx := c.t, c.t.Context()
	// The operator provisions, and changes the limits of what is there.
	operator := c.as(role.Operator)
	p := c.group
	c.ok(role.Operator, "provisioning", defender.Provision(ctx, operator, p))
	p.Storage.MaxAge /= 2
	c.age()
	c.ok(role.Operator, "provisioning again", defender.Provision(ctx, operator, p))

	c.age()
	kill := c.defend("a")
	c.defend("b")
	c.eventually("two workers with all slots", func() bool { return c.settled(operator, 2) })

	c.fill(true) // while workers follow the buckets
	c.fill(false)
	// The collector and the publisher.
	chambers := replay.Chambers(4)
	if err := replay.Register(ctx, c.store, chambers); err != nil {
		t.Fatal(err)
	}
	collects := c.as(role.Collector)
	group, err := replay.Group(ctx, collects, 8, c.group.Shards)
	c.ok(role.Collector, "reading the layout", err)
	_, err = partition.Open(collects, defender.Group).Publisher(ctx)
	c.ok(role.Collector, "preparing to publish by key", err)
	c.collect(group, chambers)
	c.ingest(group, replay.Chambers(5)[4])
	calls, err := partition.Open(c.as(role.Caller), defender.Group).Caller(ctx)
	c.ok(role.Caller, "following the map", err)
	answer, err := calls.Call(ctx, partition.JoinKey("tool001", "chamber1"), []byte("?"))
	c.ok(role.Caller, "calling a key", err)
	if string(answer) != "tool001:chamber1" {
		t.Errorf("a call is answered with %q", answer)
	}
	calls.Close()
	publisher, err := collect.New(c.store, c.as(role.Publisher))
	if err != nil {
		t.Fatal(err)
	}
	publisher.For(group)
	missing := defender.ContextRef{Chamber: chambers[0], ID: "no-trace", Recipe: "etch", Start: time.Now().Add(-time.Minute), End: time.Now()}
	_, err = publisher.Announce(ctx, missing, nil) // is dead-lettered
	c.ok(role.Publisher, "publishing", err)
	js := natstest.JetStream(t, c.as(role.Publisher))
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.failing(group, chambers, broken) // waits in the retry queue
	c.eventually("a message queued for retry", func() bool {
		queued, err := partition.Open(c.harness(), defender.Group).RetryQueue(ctx)
		return err == nil && queued.Messages > 0
	})
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	_, err = js.Publish(ctx, defender.CompletionSubject(chambers[1]), []byte("garbage"))
	c.ok(role.Publisher, "publishing to the mapped subject", err)
	var letters []partition.DeadLetter
	c.eventually("two dead letters", func() bool {
		letters, err = partition.Open(operator, defender.Group).DeadLetters(ctx, 0, 10)
		return err == nil && len(letters) == 2
	})

	// Draining, before the buckets are filled: a minute later the heartbeats among it have expired.
	only := func(pod string) func(report.Lease) bool {
		return func(m report.Lease) bool { return m.Pod == pod }
	}
	c.drainAndTakeBack(role.Console, role.Operator, only("b"))

	c.fill(true)
	defer c.fill(false)
	// The viewer and the console.
	viewer := c.as(role.Viewer)
	view, err := newView(ctx, viewer, func(SeenEvent) {})
	c.ok(role.Viewer, "following events and the map", err)
	var alarmsSeen []defender.AlarmStatus
	c.eventually("alarms of all chambers", func() bool {
		alarmsSeen, err = defender.ListAlarms(ctx, viewer, defender.AlarmListQuery{Limit: 100})
		return err == nil && len(alarmsSeen) == len(chambers)+1 // one is of the run that was sent
	})
	c.look(role.Viewer, viewer)
	c.ok(role.Viewer, "reading events", partition.Open(viewer, defender.Group).Events(ctx, event.Query{}, func(event.Event) error { return nil }))
	c.ok(role.Viewer, "reading some events", partition.Open(viewer, defender.Group).Events(ctx, event.Query{Kinds: []event.Kind{event.Elected}}, func(event.Event) error { return nil }))
	if _, err := deadState(ctx, viewer); err != nil {
		t.Fatal(err)
	}
	c.look(role.Operator, operator)
	for r, nc := range map[role.Role]*nats.Conn{role.Viewer: viewer, role.Console: c.as(role.Console)} {
		shown := &screen{standing: map[standing]bool{}}
		if shown.Console, err = newConsole(); err != nil {
			t.Fatal(err)
		}
		c.ok(r, "following the alarms", shown.followAlarms(ctx, nc))
	}
	console := c.as(role.Console)
	_, err = newView(ctx, console, func(SeenEvent) {})
	c.ok(role.Console, "following events and the map", err)
	c.look(role.Console, console)
	_, err = deadState(ctx, console)
	c.ok(role.Console, "counting dead letters", err)
	for r, nc := range map[role.Role]*nats.Conn{role.Viewer: viewer, role.Console: console} {
		_, err = partition.Open(nc, defender.Group).DeadLetters(ctx, 0, 10)
		c.ok(r, "listing dead letters", err)
	}
	c.ok(role.Console, "reading events", partition.Open(console, defender.Group).Events(ctx, event.Query{}, func(event.Event) error { return nil }))
	c.ok(role.Console, "reading some events", partition.Open(console, defender.Group).Events(ctx, event.Query{Kinds: []event.Kind{event.Elected}}, func(event.Event) error { return nil }))
	for i, nc := range []*nats.Conn{console, c.as(role.Worker), operator} {
		a := alarmsSeen[i]
		_, err = defender.Acknowledge(ctx, nc, defender.Acknowledgement{Chamber: a.Chamber, Opened: a.Opened, By: "op", At: time.Now().UTC()})
		c.ok(role.Console, "acknowledging", err)
		_, err = firstOf(ctx, nc, a)
		c.ok(role.Console, "reading an acknowledgement", err)
	}
	// The node plane.
	c.write("defender-heartbeats") // again: see look
	plane := workers.New(c.as(role.Nodes), defender.Group)
	c.eventually("node-b drained", func() bool {
		left, err := plane.DrainWorkers(ctx, "node-b", time.Now().Add(time.Minute))
		return err == nil && left == 0
	})
	c.eventually("the states of node-b's slots moved", func() bool {
		moved := 0
		query := event.Query{Kinds: []event.Kind{event.StateMoved, event.StateNotMoved}}
		err := partition.Open(operator, defender.Group).Events(ctx, query, func(e event.Event) error {
			if e.Kind == event.StateNotMoved {
				t.Fatalf("a state did not move: %s", e.Text())
			}
			moved++
			return nil
		})
		return err == nil && moved > 0
	})
	c.ok(role.Nodes, "taking a node back", plane.TakeBack(ctx, "node-b"))
	_, err = plane.Cost(ctx, []string{"node-a"})
	c.ok(role.Nodes, "asking for the cost", err)
	c.ok(role.Nodes, "telling how many workers there should be", partition.Open(c.as(role.Nodes), defender.Group).Expect(ctx, 0))

	// The operator's other commands.
	c.eventually("node-b has slots again", func() bool {
		costs, err := plane.Cost(ctx, []string{"node-b"})
		return err == nil && costs["node-b"] > 0
	})
	c.ok(role.Operator, "telling how many workers there should be", partition.Open(operator, defender.Group).Expect(ctx, 0))
	c.ok(role.Operator, "pinning", partition.Open(operator, defender.Group).Override(ctx, partition.Override{Slot: 1, Worker: "defender-0"}))
	c.ok(role.Operator, "unpinning", partition.Open(operator, defender.Group).RemoveOverrides(ctx, 1))
	c.ok(role.Operator, "reading events", partition.Open(operator, defender.Group).Events(ctx, event.Query{}, func(event.Event) error { return nil }))
	c.ok(role.Operator, "reading some events", partition.Open(operator, defender.Group).Events(ctx, event.Query{Kinds: []event.Kind{event.Elected}}, func(event.Event) error { return nil }))
	for _, l := range letters {
		_, err := partition.Open(operator, defender.Group).Requeue(ctx, l.Number)
		c.ok(role.Operator, "sending a dead letter again", err)
	}
	c.ok(role.Operator, "changing the number of slots", partition.Open(operator, defender.Group).Reshard(ctx, 16))
	c.eventually("16 slots", func() bool {
		l, err := partition.Open(operator, defender.Group).Resharding(ctx)
		return err == nil && l.Slots == 16 && l.Former == 0
	})
	from, _ := c.group.Mapping()
	if from != "" {
		c.ok(role.Operator, "checking the mapping", partition.Open(operator, c.group.Name).CheckMapping(ctx))
	}

	// A worker's webhooks.
	posting, stop := context.WithCancel(ctx)
	posted := make(chan error, 1)
	go func() {
		posted <- webhook.New(webhook.Config{Conn: c.as(role.Worker), Strategies: strategy.Default}).Run(posting)
	}()
	defer func() { stop(); <-posted }()

	// A crash, and the loss of every stream and bucket in turn.
	kill()
	c.defend("c")
	view.close()
	c.lose()
}

// lose has a worker create again whatever is lost.
func (c *court) lose() {
	t, ctx := c.t, c.t.Context()
	js := natstest.JetStream(t, c.harness())
	// Defender c is to be one of them: for as long as the lease of the killed one lasts, two
	// are there without it.
	working := func() bool {
		v, err := partition.Open(c.harness(), defender.Group).Inspect(ctx)
		if err != nil || v.Map() == nil || len(v.Map().Workers) != 2 || len(v.Map().Moves) > 0 || len(v.Leases) != 2 {
			return false
		}
		return slices.ContainsFunc(v.Leases, func(m report.Lease) bool { return m.Pod == "c" && m.State == state.Stable })
	}
	c.eventually("two workers after a crash", working)
	// It is created again with the first stream whose limit is sought.
	if err := js.DeleteStream(ctx, reserve.TurnStream); err != nil {
		t.Fatal(err)
	}
	streams := []string{"KV_stable-ids", "KV_defender-heartbeats", "KV_defender-assignments", "defender-events", defender.Stream + "-retry",
		defender.AlarmStream, defender.DeadStream}
	for _, name := range append(streams, c.group.Streams()...) {
		if err := js.DeleteStream(ctx, name); err != nil {
			t.Fatal(err)
		}
		switch name {
		case defender.AlarmStream: // which is missed when there is an alarm
			c.collect(c.group, replay.Chambers(1))
		case defender.DeadStream:
			if _, err := js.Publish(ctx, "dc.tool001.chamber1.completion", []byte("garbage")); err != nil {
				t.Fatal(err)
			}
		}
		c.eventually("stream "+name+" created again", func() bool { _, err := js.Stream(ctx, name); return err == nil })
	}
	c.eventually("all works again", working)
}

// age gives streams and buckets the settings of an earlier version.
func (c *court) age() {
	c.t.Helper()
	ctx := c.t.Context()
	js := natstest.JetStream(c.t, c.harness())
	for name, change := range map[string]func(*jetstream.StreamConfig){
		"KV_stable-ids":           func(s *jetstream.StreamConfig) { s.SubjectDeleteMarkerTTL = 50 * time.Second },
		"KV_defender-heartbeats":  func(s *jetstream.StreamConfig) { s.SubjectDeleteMarkerTTL = 50 * time.Second },
		"KV_defender-assignments": func(s *jetstream.StreamConfig) { s.SubjectDeleteMarkerTTL = 50 * time.Second },
		defender.AlarmStream:      func(s *jetstream.StreamConfig) { s.Subjects = []string{"dc-alarm.*.*.>"} },
	} {
		s, err := js.Stream(ctx, name)
		if err != nil {
			c.t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		change(&cfg)
		if _, err := js.UpdateStream(ctx, cfg); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := js.DeleteStream(ctx, defender.DeadStream); err != nil { // who needs it creates it
		c.t.Fatal(err)
	}
}

// widen gives a bucket room for what fill writes.
func (c *court) widen(stream string) {
	c.t.Helper()
	js := natstest.JetStream(c.t, c.harness())
	s, err := js.Stream(c.t.Context(), stream)
	if err != nil {
		c.t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxBytes = 64 << 20
	if _, err := js.UpdateStream(c.t.Context(), cfg); err != nil {
		c.t.Fatal(err)
	}
}

// look reads what the group's state is, from buckets that are full: the leader deletes heartbeats that nobody renews.
func (c *court) look(r role.Role, nc *nats.Conn) {
	c.t.Helper()
	c.write("defender-heartbeats")
	_, err := partition.Open(nc, defender.Group).Inspect(c.t.Context())
	c.ok(r, "looking", err)
}

// fill writes so much into the buckets that the server wants those who follow them to
// confirm what they have, or removes it.
func (c *court) fill(on bool) {
	c.t.Helper()
	for _, bucket := range []string{"stable-ids", "defender-heartbeats", "defender-assignments"} {
		if on {
			c.widen("KV_" + bucket)
			c.write(bucket)
		} else {
			c.purge(bucket)
		}
	}
}

// filling returns the keys that fill a bucket.
func filling() (keys []string) {
	for i := range 20 {
		keys = append(keys, fmt.Sprintf("test-%d", i))
	}
	return keys
}

func (c *court) write(bucket string) {
	c.t.Helper()
	kv := c.bucket(bucket)
	for _, key := range filling() {
		if _, err := kv.Put(c.t.Context(), key, make([]byte, 200<<10)); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *court) purge(bucket string) {
	c.t.Helper()
	kv := c.bucket(bucket)
	for _, key := range filling() {
		if err := kv.Purge(c.t.Context(), key); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *court) bucket(name string) jetstream.KeyValue {
	c.t.Helper()
	kv, err := natstest.JetStream(c.t, c.harness()).KeyValue(c.t.Context(), name)
	if err != nil {
		c.t.Fatal(err)
	}
	return kv
}

// failWhile is the header of a message that can't be handled while the file that it names is
// there.
const failWhile = "Fail-While"

// failing is a defender that heeds that header.
type failing struct{ *defender.Defender }

func (f failing) Handle(ctx context.Context, m partition.Message) error {
	if file := m.Header.Get(failWhile); file != "" {
		if _, err := os.Stat(file); err == nil {
			return fmt.Errorf("it fails as long as %s is there", file)
		}
	}
	return f.Defender.Handle(ctx, m)
}

// Export and Import have a state move with each slot, as that of a handler with tallies in memory does.
func (f failing) Export(context.Context, partition.Slots) (io.Reader, error) {
	return strings.NewReader("state"), nil
}

func (f failing) Import(_ context.Context, _ partition.Slots, state io.Reader) error {
	data, err := io.ReadAll(state)
	if err == nil && string(data) != "state" {
		err = fmt.Errorf("the state is %q", data)
	}
	return err
}

// HandleCall answers the worker's part of each call.
func (f failing) HandleCall(_ context.Context, call partition.Call) ([]byte, error) {
	return []byte(call.Key), nil
}

// failing publishes a context that can't be handled while a file is there.
func (c *court) failing(group partition.Config, chambers []defender.Chamber, file string) {
	c.t.Helper()
	c.publishing(group, chambers, func(t *Traffic) {
		t.Queue(Order{Chamber: 2, Announce: func(ctx context.Context, to *collect.Collector, p Prepared) error {
			_, err := replay.Announce(ctx, to, p.Ref, nats.Header{failWhile: []string{file}}, func(error) {})
			return err
		}})
	})
}

// collect publishes a context of each chamber.
func (c *court) collect(group partition.Config, chambers []defender.Chamber) {
	c.t.Helper()
	c.publishing(group, chambers, func(t *Traffic) {
		for at := range chambers {
			t.Queue(Order{Chamber: at})
		}
	})
}

func (c *court) publishing(group partition.Config, chambers []defender.Chamber, what func(*Traffic)) {
	c.t.Helper()
	source, err := replay.GenerateTraces(1)
	if err != nil {
		c.t.Fatal(err)
	}
	collector, err := collect.New(c.store, c.as(role.Collector))
	if err != nil {
		c.t.Fatal(err)
	}
	collector.For(group)
	traffic := newTraffic(collector, source, chambers, nil)
	c.runs++
	traffic.run = fmt.Sprintf("run%d-", c.runs)
	what(traffic)
	c.eventually("all published", func() bool { return traffic.Waiting() == 0 })
	traffic.close()
	c.ok(role.Collector, "publishing", errors.Join(traffic.Faults()...))
}

// compare checks that nothing was refused, and that each permission was used.
func (c *court) compare() {
	for _, r := range role.All {
		p, err := defender.Permissions(c.group, r)
		if err != nil {
			c.t.Fatal(err)
		}
		w := c.wires[r]
		w.mu.Lock()
		for _, e := range w.refused {
			c.t.Errorf("the server refused to the %s: %s", r, e)
		}
		for _, list := range []struct {
			what    string
			allowed []string
			used    map[string]bool
		}{{"publish to", p.Publish, w.published}, {"subscribe to", p.Subscribe, w.subscribed}} {
			for _, pattern := range list.allowed {
				used := slices.ContainsFunc(slices.Collect(maps.Keys(list.used)), func(s string) bool { return covers(pattern, s) })
				if !used && unused[pattern] == "" && unused[string(r)+": "+pattern] == "" {
					c.t.Errorf("the %s may %s %s, and never does", r, list.what, pattern)
				}
			}
		}
		w.mu.Unlock()
	}
	lines, err := audit.PermissionErrors(c.log)
	if err != nil || len(lines) > 0 {
		c.t.Errorf("the server's log has refusals: %v, %v", lines, err)
	}
}

// deadState reads how many dead letters there are.
func deadState(ctx context.Context, nc *nats.Conn) (uint64, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return 0, err
	}
	s, err := js.Stream(ctx, defender.DeadStream)
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Msgs, nil
}

// firstOf has an alarm acknowledged a second time by somebody who does not know of the
// first, and so reads who was first.
func firstOf(ctx context.Context, nc *nats.Conn, a defender.AlarmStatus) (*jetstream.RawStreamMsg, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, defender.AlarmStream)
	if err != nil {
		return nil, err
	}
	return s.GetLastMsgForSubject(ctx, defender.AcknowledgementSubject(a.Chamber, a.Opened))
}

func newConsole() (*console.Console, error) { return console.New(console.Options{Title: "test"}) }
