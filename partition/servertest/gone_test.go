package servertest_test

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// TestWorkersLeaveThoughTheServerIsGone: a user that stops everything at once must
// not wait for workers that wait for the server.
func TestWorkersLeaveThoughTheServerIsGone(t *testing.T) {
	t.Parallel()
	for name, when := range map[string]func(g *group, w *runningWorker){
		"with messages in work": func(g *group, w *runningWorker) {
			g.rec.hold = make(chan struct{})
			g.publish(8, 2)
			await.That(g.t, "handlers run", func() bool {
				g.rec.mu.Lock()
				defer g.rec.mu.Unlock()
				return len(g.rec.running) == 8
			})
		},
		"idle":             func(*group, *runningWorker) {},
		"before it joined": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := natstest.Start(t)
			g := startGroup(t, servers{url: srv.URL()}, 0, func(c *partition.Config) { c.Rebalance.LeaveTimeout = 500 * time.Millisecond })
			w := g.start("w0")
			if when != nil {
				await.That(t, "the worker has all slots", g.settled(w))
				when(g, w)
			}
			srv.Stop()
			w.stop()
			select {
			case err := <-w.done:
				if err != nil && when != nil { // who has not begun can't
					t.Errorf("it left with %v", err)
				}
				w.done <- nil // for the cleanup
			case <-time.After(await.Patience):
				t.Fatal("it did not leave")
			}
		})
	}
}
