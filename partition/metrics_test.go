package partition

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/state"
)

func idleWorker(t *testing.T) *Worker {
	t.Helper()
	c := Config{Name: "orders", Stream: "S", Subject: "s.*"}
	w, err := New(new(nats.Conn), c, HandlerFunc(func(context.Context, Message) error { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	t.Run("before Run", func(t *testing.T) {
		t.Parallel()
		m := idleWorker(t).Metrics()
		if m.Group != "orders" || m.State != state.Init || m.StableID != -1 || m.Leading {
			t.Errorf("group %q, state %s, stable ID %d, leading %v", m.Group, m.State, m.StableID, m.Leading)
		}
		if m.Pending != nil {
			t.Errorf("a worker that does not lead says what is pending: %+v", *m.Pending)
		}
		if len(m.Counters.RecordsRejected) != len(records) {
			t.Errorf("rejected records by kind are %v, want every kind", m.Counters.RecordsRejected)
		}
	})

	t.Run("an expired lease does not lead", func(t *testing.T) {
		t.Parallel()
		w := idleWorker(t)
		for until, want := range map[time.Duration]bool{time.Minute: true, -time.Minute: false} {
			w.status.Store(&Status{ID: "orders-7", Leading: true, TrustedUntil: time.Now().Add(until)})
			if got := w.Metrics().Leading; got != want {
				t.Errorf("leading is %v with a lease that ends in %v", got, until)
			}
		}
	})

	t.Run("is a copy", func(t *testing.T) {
		t.Parallel()
		w := idleWorker(t)
		w.status.Store(&Status{SlotsOf: 4, Slots: []int{1, 2}})
		w.events.count(event.Event{Kind: event.RecordRejected, Reason: recordClaim})
		m := w.Metrics()
		m.Slots[0] = 3
		m.Counters.RecordsRejected[recordClaim] = 9
		m.HandoffPause.Buckets[0].Count = 9
		again := w.Metrics()
		if again.Slots[0] != 1 || again.Counters.RecordsRejected[recordClaim] != 1 || again.HandoffPause.Buckets[0].Count != 0 {
			t.Errorf("a change of what Metrics returned changed the worker's: %+v", again)
		}
	})

	t.Run("while events are counted", func(t *testing.T) {
		t.Parallel()
		w := idleWorker(t)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 1000 {
					w.events.count(event.Event{Kind: event.SlotResumed, Duration: time.Millisecond})
					w.events.count(event.Event{Kind: event.RecordRejected, Reason: recordMap})
					if h := w.Metrics().HandoffPause; h.Count != h.Buckets[0].Count {
						t.Errorf("%d durations, %d of them in the first bucket", h.Count, h.Buckets[0].Count)
					}
				}
			})
		}
		wg.Wait()
		if n := w.Metrics().Counters.RecordsRejected[recordMap]; n != 4000 {
			t.Errorf("%d rejected maps, want 4000", n)
		}
	})
}

func BenchmarkMetrics(b *testing.B) {
	w := &Worker{}
	w.status.Store(&Status{ID: "orders-7", SlotsOf: 4096, Slots: make([]int, 50)})
	for b.Loop() {
		_ = w.Metrics()
	}
}
