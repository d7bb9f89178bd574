package e2e

import (
	"testing"
	"time"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition/event"
)

// TestASlotHasNoOwnerFromItsReleaseUntilItIsAcquired adds up events as defenders send them.
func TestASlotHasNoOwnerFromItsReleaseUntilItIsAcquired(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	happened := func(ms int, kind event.Kind, worker string, slot int) local.SeenEvent {
		return local.SeenEvent{Event: event.Event{Time: at(ms), Kind: kind, Worker: worker, Slot: slot}, At: at(ms)}
	}
	gone := happened(7000, event.WorkerGone, "a", 0)
	gone.Peer, gone.Duration = "d", 6*time.Second
	left := happened(2600, event.WorkerGone, "a", 0)
	left.Peer, left.Duration = "c", 100*time.Millisecond // all that the leader saw was that its lease is gone
	events := []local.SeenEvent{
		happened(0, event.SlotAcquired, "a", 1), happened(0, event.SlotAcquired, "c", 2), happened(0, event.SlotAcquired, "d", 3),
		happened(100, event.SlotReleased, "a", 1), happened(150, event.SlotAcquired, "b", 1), // before the moment
		happened(1000, event.SlotReleased, "b", 1), happened(1030, event.SlotAcquired, "a", 1), // handed off
		happened(2500, event.Left, "c", 0), left, happened(3500, event.SlotAcquired, "a", 2), // it waited for a successor
		gone, happened(7200, event.SlotAcquired, "a", 3), // its owner fell silent
	}
	d := distribution(ownerless(events, at(500)))
	if d.N != 3 || d.P50 != 1000 || d.Max != 6200 {
		t.Errorf("%+v", d)
	}
	if n := silent(events[5:]); n != 1 {
		t.Errorf("%d fell silent", n)
	}
}
