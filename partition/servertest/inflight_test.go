package servertest_test

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// severalInFlight lets a slot have eight messages in flight.
func severalInFlight(on servers) servers {
	change := on.change
	on.change = func(c *partition.Config) {
		if change != nil {
			change(c)
		}
		c.Delivery.InFlight = 8
	}
	return on
}

// TestWorkersWithSeveralInFlight holds workers to their promises with several messages of a
// slot in flight.
func TestWorkersWithSeveralInFlight(t *testing.T) {
	t.Parallel()
	promises(t, func(t *testing.T) servers {
		t.Parallel()
		return severalInFlight(oneServer(t))
	})
}

// TestSlowKeyHoldsNobodyUp has one slot, and a handler of one of its keys that does not return.
// The other keys are processed meanwhile, in order, and the slow one afterwards: all that waits
// behind its message leaves room for theirs.
func TestSlowKeyHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	const keys, each = 20, 5
	g := startGroup(t, severalInFlight(oneServer(t)), 0, func(c *partition.Config) { c.Slots = 1 })
	w := g.start("only")
	await.That(t, "the worker holds the slot", g.settled(w))

	hold := make(chan struct{})
	g.rec.mu.Lock()
	g.rec.hold = hold
	g.rec.mu.Unlock()
	g.publish(1, 1)
	await.That(t, "the slow handler runs", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.running) == 1
	})
	g.rec.mu.Lock()
	g.rec.hold = nil
	g.rec.mu.Unlock()
	g.publish(keys, each)
	await.That(t, "all other keys are processed", func() bool {
		g.rec.mu.Lock()
		defer g.rec.mu.Unlock()
		return len(g.rec.done) == (keys-1)*each
	})
	close(hold)
	g.check(0)
}

// TestInFlightChanges: the number of messages in flight, and AckWait, are the consumers', and
// change while nobody works.
func TestInFlightChanges(t *testing.T) {
	t.Parallel()
	g := startGroup(t, oneServer(t), time.Millisecond)
	for _, inFlight := range []int{4, 1} {
		g.cfg.Delivery.InFlight, g.cfg.Delivery.AckWait = inFlight, time.Duration(10+inFlight)*time.Second
		if err := g.joins(g.cfg); err != nil {
			t.Fatal(err)
		}
		s, err := g.pub.Stream(t.Context(), g.cfg.Stream)
		if err != nil {
			t.Fatal(err)
		}
		consumers := s.ListConsumers(t.Context())
		n := 0
		for c := range consumers.Info() {
			n++
			if c.Config.MaxAckPending != inFlight || c.Config.AckWait != g.cfg.Delivery.AckWait {
				t.Fatalf("consumer %s has %d in flight and waits %v, want %d and %v", c.Name, c.Config.MaxAckPending, c.Config.AckWait, inFlight, g.cfg.Delivery.AckWait)
			}
		}
		if err := consumers.Err(); err != nil || n != g.cfg.Slots {
			t.Fatalf("there are %d consumers, %v; want %d", n, err, g.cfg.Slots)
		}
	}
}
