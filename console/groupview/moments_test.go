package groupview

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

func TestMoments(t *testing.T) {
	t.Parallel()
	elected := func(worker, leader string, epoch uint64) event.Event {
		return event.Event{Time: time.Now(), Kind: event.Elected, Worker: worker, Peer: leader, Epoch: epoch}
	}
	var m Moments
	var lines []string
	for _, e := range []event.Event{
		elected("w-0", "w-0", 3), elected("w-1", "w-0", 3), elected("w-0", "w-0", 3), // by the watch, and by the answer
		elected("w-1", "w-1", 8), elected("w-1", "w-1", 8),
		elected("w-1", "w-1", 2), // the bucket was lost, and its revisions begin again
		{Kind: event.WorkerGone, Worker: "w-1", Peer: "w-0", Reason: "left"}, {Kind: event.WorkerGone, Worker: "w-1", Peer: "w-0", Reason: "left"},
	} {
		if line, ok := m.Of(e); ok {
			lines = append(lines, line.Text)
		}
	}
	want := []string{"w-0: is the leader, epoch 3", "w-1: is the leader, epoch 8", "w-1: is the leader, epoch 2", "w-1: w-0 is gone (left)", "w-1: w-0 is gone (left)"}
	if !slices.Equal(lines, want) {
		t.Errorf("the timeline has %q, want %q", lines, want)
	}
}
