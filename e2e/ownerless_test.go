package e2e

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/local"

	"github.com/muster-dev/muster/partition"
)

// TestASlotHasNoOwnerFromItsReleaseUntilItIsAcquired adds up events as defenders send them.
func TestASlotHasNoOwnerFromItsReleaseUntilItIsAcquired(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	event := func(ms int, kind partition.EventKind, worker string, slot int) local.SeenEvent {
		return local.SeenEvent{Event: partition.Event{Time: at(ms), Kind: kind, Worker: worker, Slot: slot}, At: at(ms)}
	}
	gone := event(7000, partition.EventWorkerGone, "a", 0)
	gone.Peer, gone.Duration = "d", 6*time.Second
	left := event(2600, partition.EventWorkerGone, "a", 0)
	left.Peer, left.Duration = "c", 100*time.Millisecond // all that the leader saw was that its lease is gone
	events := []local.SeenEvent{
		event(0, partition.EventSlotAcquired, "a", 1), event(0, partition.EventSlotAcquired, "c", 2), event(0, partition.EventSlotAcquired, "d", 3),
		event(100, partition.EventSlotReleased, "a", 1), event(150, partition.EventSlotAcquired, "b", 1), // before the moment
		event(1000, partition.EventSlotReleased, "b", 1), event(1030, partition.EventSlotAcquired, "a", 1), // handed over
		event(2500, partition.EventLeft, "c", 0), left, event(3500, partition.EventSlotAcquired, "a", 2), // it waited for a successor
		gone, event(7200, partition.EventSlotAcquired, "a", 3), // its owner fell silent
	}
	d := distribution(ownerless(events, at(500)))
	if d.N != 3 || d.P50 != 1000 || d.Max != 6200 {
		t.Errorf("%+v", d)
	}
	if n := silent(events[5:]); n != 1 {
		t.Errorf("%d fell silent", n)
	}
}
