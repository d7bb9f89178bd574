package servertest_test

import (
	"testing"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// TestMaxHandlers has a backlog in many slots of one worker, whose handlers wait until as many
// of them run as may. Then all of it is processed, in order, and never by more at once.
func TestMaxHandlers(t *testing.T) {
	t.Parallel()
	const most, keys, each = 3, 30, 4
	g := startGroup(t, oneServer(t), 0, func(c *partition.Config) {
		c.Slots, c.Delivery.MaxHandlers = 16, most
	})
	g.publish(keys, each)

	peak := 0
	hold := make(chan struct{})
	g.rec.hold = hold
	g.rec.began = func(string) { peak = max(peak, len(g.rec.running)) }
	w := g.start("only")
	running := func() int {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.running)
	}
	await.That(t, "the worker holds every slot", g.settled(w))
	await.That(t, "handlers run", func() bool { return running() == most })

	close(hold)
	g.check(0)
	g.rec.mu.Lock()
	defer g.rec.mu.Unlock()
	if peak != most {
		t.Errorf("%d handlers ran at once, want %d", peak, most)
	}
}
