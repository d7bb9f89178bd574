package servertest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// changeTo asks for a number of slots and publishes until the keys are divided
// so, and for a while longer.
func (g *group) changeTo(slots int, ws []*runningWorker, meanwhile func()) {
	g.t.Helper()
	nc := g.connect("operator")
	if err := partition.Open(nc, g.cfg.Name).Reshard(g.t.Context(), slots); err != nil {
		g.t.Fatal(err)
	}
	g.cfg.Slots = slots
	for end := time.Now().Add(await.Patience); ; {
		g.publish(100, 1)
		if meanwhile != nil {
			meanwhile()
			meanwhile = nil
		}
		// A server that is short of processors may not answer within the request's time.
		l, err := partition.Open(nc, g.cfg.Name).Resharding(g.t.Context())
		if err == nil && l.Done() && l.Slots == slots {
			break
		}
		if time.Now().After(end) {
			g.t.Fatalf("the layout is %+v, %v, want %d slots", l, err, slots)
		}
	}
	g.publish(100, 2)
	await.That(g.t, fmt.Sprintf("all settled at %d slots", slots), g.settled(ws...))
}

// TestTheNumberOfSlotsChangesUnderLoad doubles it, doubles that twice, and goes
// back, while handlers work: every message is processed once and in order, and
// the server has the consumers of the last generation only.
func TestTheNumberOfSlotsChangesUnderLoad(t *testing.T) { onEach(t, changesUnderLoad) }

func changesUnderLoad(t *testing.T, on servers) {
	g := startGroup(t, on, 3*time.Millisecond, func(c *partition.Config) { c.Slots = 32 })
	var ws []*runningWorker
	for i := range 4 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	await.That(t, "four workers settled", g.settled(ws...))
	for _, slots := range []int{64, 256, 32} {
		g.changeTo(slots, ws, nil)
		if v := ws[0].Status().SlotsOf; v != slots {
			t.Errorf("a worker says that there are %d slots, want %d", v, slots)
		}
	}
	g.check(0)
	if n := g.consumers(); n != 32 {
		t.Errorf("%d consumers are left, want 32", n)
	}
	// Who comes later may be configured for any of the slot counts, and makes
	// nothing that is not wanted any more.
	g.cfg.Slots = 64
	if err := partition.Open(g.connect("another"), g.cfg.Name).Provision(t.Context(), g.cfg); err != nil {
		t.Error(err)
	}
	g.cfg.Slots = 32
	ws = append(ws, g.start("later"))
	await.That(t, "five workers settled", g.settled(ws...))
	if n := g.consumers(); n != 32 {
		t.Errorf("%d consumers are there, want 32", n)
	}
}

// consumers counts those of all streams of the messages, which have as many each.
func (g *group) consumers() (n int) {
	g.t.Helper()
	for i, name := range g.cfg.Streams() {
		s, err := g.pub.Stream(g.t.Context(), name)
		if err != nil {
			g.t.Fatal(err)
		}
		here := s.CachedInfo().State.Consumers
		if n += here; n != (i+1)*here {
			g.t.Errorf("stream %s has %d consumers, those before it %d", name, here, n-here)
		}
	}
	return n
}

// TestTheLeaderDiesWhileTheNumberOfSlotsChanges: the next one goes on with it.
func TestTheLeaderDiesWhileTheNumberOfSlotsChanges(t *testing.T) { onEach(t, leaderDiesInAChange) }

func leaderDiesInAChange(t *testing.T, on servers) {
	g := startGroup(t, on, 3*time.Millisecond, nil)
	var ws []*runningWorker
	for i := range 4 {
		ws = append(ws, g.start(fmt.Sprint("w", i)))
	}
	await.That(t, "four workers settled", g.settled(ws...))
	var leader *runningWorker
	var others []*runningWorker
	for _, w := range ws {
		if w.Status().Leading {
			leader = w
		} else {
			others = append(others, w)
		}
	}
	nc := g.connect("observer")
	// Messages in work keep the slots of before until the leader is dead.
	hold := make(chan struct{})
	g.rec.mu.Lock()
	g.rec.hold = hold
	g.rec.mu.Unlock()
	g.publish(100, 1)
	await.That(t, "messages in work", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.running) >= 32
	})
	g.changeTo(256, others, func() {
		defer close(hold)
		await.That(t, "the change under way", func() bool {
			l, err := partition.Open(nc, g.cfg.Name).Resharding(t.Context())
			return err == nil && l.Former == 64
		})
		leader.nc.Close() // as a kill does
	})
	// What the dead one had in hand may have been processed and not acknowledged.
	await.That(t, "every message processed", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.done) >= g.published()
	})
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	for _, f := range g.rec.faults {
		t.Error(f)
	}
}

func TestALayoutThatCantBeIsRefused(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), 0, nil)
	nc := g.connect("operator")
	err := partition.Open(nc, g.cfg.Name).Reshard(t.Context(), 100)
	var refused *partition.ReshardError
	if !errors.As(err, &refused) || fmt.Sprint(refused.Choices) != "[64 128 256 512]" {
		t.Errorf("error %v", err)
	}
	if err := partition.Open(nc, "nobody").Reshard(t.Context(), 64); !errors.Is(err, jetstream.ErrBucketNotFound) {
		t.Errorf("error %v", err)
	}
	l, err := partition.Open(nc, g.cfg.Name).Resharding(t.Context())
	if err != nil || l.Slots != 64 || l.Wanted != 0 || !l.Done() {
		t.Errorf("layout %+v, %v", l, err)
	}
}
