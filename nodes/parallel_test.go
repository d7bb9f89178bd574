package nodes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// manyActions lets actions be in flight at the same time.
func manyActions(c *nodes.Config) {
	c.Policy.MaxActions, c.Policy.MaxBatchUp, c.Policy.MaxWorkers = 10, 5, 100
}

// TestGrowthTakesFewTicks: 90 nodes in batches of 5 are 18 actions, of which 10 may be in flight.
func TestGrowthTakesFewTicks(t *testing.T) {
	s := newSet(t, "abababab", manyActions)
	s.AddPods(16, one("old"))
	s.AddPods(180, one("new"))
	ticks := 0
	for s.Fleet().Pending > 0 && ticks < 30 {
		s.ticks(t, 1)
		ticks++
	}
	launched := s.count(sim.Launched)
	t.Logf("%d nodes in %d ticks", launched, ticks)
	if ticks > 8 || launched > 92 {
		t.Errorf("%d nodes were launched in %d ticks, %d pods pending", launched, ticks, s.Fleet().Pending)
	}
	if alive := s.Fleet().Alive; alive > 100 {
		t.Errorf("%d workers, above MAX_WORKERS", alive)
	}
}

// TestADrainDelaysNoGrowth: with pods of a long grace period a tick without turns would be busy for 50 s.
func TestADrainDelaysNoGrowth(t *testing.T) {
	s := newSet(t, "aaabbb", func(c *nodes.Config) {
		manyActions(c)
		c.Policy.PendingUpFor, c.Policy.MinWorkers = 5*time.Second, 5
		c.Policy.DrainTimeout, c.Policy.ScaleDownStuck = 5*time.Minute, 15*time.Minute
	})
	s.SetLoad(0.1)
	s.AddPodOn("i-002", sim.PodSpec{Name: "slow", MilliCPU: 100, Grace: 250 * time.Second})
	s.ticks(t, 2) // the drain begins in the second tick and outlasts it
	if r := s.Record(); len(r.Actions()) != 1 || r.Actions()[0].Up() {
		t.Fatalf("no drain is under way: %+v", r.Actions())
	}
	came := s.Clock().Now()
	s.AddPods(20, one("new"))
	s.ticks(t, 1)
	for _, e := range s.Ledger() {
		if e.Kind == sim.Launched {
			t.Logf("launched %s after the pods came", e.At.Sub(came))
			if e.At.Sub(came) > 80*time.Second { // the next tick and PENDING_UP_SEC
				t.Errorf("a node was launched %s after the pods came", e.At.Sub(came))
			}
			return
		}
	}
	t.Error(fmt.Sprint("nothing was launched; ", s.Record().Actions()))
}
