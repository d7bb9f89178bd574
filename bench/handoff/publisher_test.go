package handoff

import (
	"context"
	"testing"
	"time"
)

// TestFlushWaitsForWhatIsQueuedByThen has a load that is more than can be published, so that
// something is queued at any time.
func TestFlushWaitsForWhatIsQueuedByThen(t *testing.T) {
	l := newLedger()
	p := newPublisher(l, 40, func(context.Context, message) error {
		time.Sleep(time.Millisecond)
		return nil
	})
	defer p.stop()
	stop := p.at(2*lanes*1000, p.every())
	defer stop()
	time.Sleep(20 * time.Millisecond)

	p.publish(7)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.flush(ctx); err != nil {
		t.Fatal(err)
	}
	published, _ := l.record()
	if len(published) == 0 {
		t.Error("nothing was published")
	}
}

// TestASteadyLoadQueuesNoMoreThanItMay has a sender that never returns before the end.
func TestASteadyLoadQueuesNoMoreThanItMay(t *testing.T) {
	held := make(chan struct{})
	p := newPublisher(newLedger(), lanes, func(context.Context, message) error {
		<-held
		return nil
	})
	defer p.stop()
	defer close(held)
	stop := p.at(lanes*mostQueued*100, p.every())
	longest := func() (n int) {
		for _, lane := range p.lane {
			n = max(n, len(lane))
		}
		return n
	}
	for longest() < mostQueued {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(20 * time.Millisecond)
	stop()
	if n := longest(); n != mostQueued {
		t.Errorf("%d are queued in a lane, want at most %d", n, mostQueued)
	}
}
