package servertest_test

import (
	"testing"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/report"
)

// TestJoiningDuringAHandoff: a worker that joins while slots are handed to another one gets its
// full share, as soon as these have arrived.
func TestJoiningDuringAHandoff(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), 0, quickLeases)
	first := g.start("w0")
	await.That(t, "a worker settled", g.settled(first))
	now := func() *report.Map {
		m, err := partition.Open(first.nc, g.cfg.Name).Map(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}

	// A handler in each slot keeps the slot from being released.
	g.rec.hold = make(chan struct{})
	g.publish(200, 1)
	await.That(t, "a handler of each slot runs", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.running) == g.cfg.Slots
	})
	second := g.start("w1")
	await.That(t, "slots are on their way to the second worker", func() bool { return len(now().Moves) == g.cfg.Slots/2 })
	third := g.start("w2")
	await.That(t, "the third worker is planned for", func() bool { return len(now().Workers) == 3 })
	if m := now(); len(m.Moves) < g.cfg.Slots/2 {
		t.Fatalf("the slots arrived before the third worker was planned for: %+v", m)
	}
	close(g.rec.hold)

	ws := []*runningWorker{first, second, third}
	await.That(t, "three workers settled", g.settled(ws...))
	await.That(t, "each has a third of the slots", func() bool {
		for _, w := range ws {
			if n := len(w.Status().Slots); n < g.cfg.Slots/3 || n > g.cfg.Slots/3+1 {
				return false
			}
		}
		return true
	})
	g.check(0)
}
