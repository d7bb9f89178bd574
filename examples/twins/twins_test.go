package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/examples/internal/program"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/partitiontest/await"
	"github.com/muster-dev/muster/partition/servertest/natstest"
)

// watcher asks for the twin of one device again and again.
type watcher struct {
	answers int
	fences  []partition.Fence // that answered, in this order
	last    twin
	back    []twin // answers with fewer readings than one before
	failed  error  // an error that a caller need not expect
}

// watch asks until ctx ends.
func (w *watcher) watch(ctx context.Context, calls *partition.Caller, name string) {
	for ctx.Err() == nil {
		t, err := askTwin(ctx, calls, name)
		var refused *partition.CallError
		switch {
		case err == nil:
			w.take(t)
		case ctx.Err() != nil, errors.Is(err, partition.ErrNoOwner), errors.As(err, &refused):
			// There is no owner for a moment, or the owner was killed meanwhile.
		default:
			w.failed = err
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func (w *watcher) take(t twin) {
	w.answers++
	if t.Readings < w.last.Readings {
		w.back = append(w.back, t)
	}
	if n := len(w.fences); t.Readings > 0 && (n == 0 || w.fences[n-1] != t.Fence) {
		w.fences = append(w.fences, t.Fence)
	}
	w.last = t
}

// TestTwins: three processes follow 20 devices, and one of them is killed while the devices send
// readings and somebody asks for the twin of each. No answer is older than one before, each twin
// has every reading once, and the devices of the killed worker are answered for by another one.
func TestTwins(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, natstest.In(t.TempDir()))
	nc := natstest.Connect(t, s.URL())
	built := program.Build(t)
	var processes []*program.Process
	for range 3 {
		processes = append(processes, program.Start(t, built, "--nats", s.URL(), "--expected", "3"))
	}
	group := partition.Open(nc, groupName)
	await.That(t, "three workers share the slots", func() bool {
		m, err := group.Map(t.Context())
		return err == nil && m != nil && len(m.Workers) == 3
	})
	calls, err := group.Caller(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watchers := make([]watcher, devices)
	done := make(chan struct{})
	for i := range watchers {
		go func() {
			defer func() { done <- struct{}{} }()
			watchers[i].watch(ctx, calls, device(i))
		}()
	}

	const each = 30 // readings of a device
	publishFrom(t, nc, 0, each/2)
	awaitReadings(t, calls, each/2)
	processes[0].Kill()
	publishFrom(t, nc, each/2, each)
	awaitReadings(t, calls, each)
	stop()
	for range watchers {
		<-done
	}

	replaced := 0
	for i, w := range watchers {
		if w.failed != nil {
			t.Errorf("asking for %s: %v", device(i), w.failed)
		}
		if len(w.back) > 0 {
			t.Errorf("%s: an answer was older than one before: %+v", device(i), w.back)
		}
		if have, err := askTwin(t.Context(), calls, device(i)); err != nil || have.Readings != each {
			t.Errorf("%s has %d readings, want %d (%v)", device(i), have.Readings, each, err)
		}
		if len(w.fences) > 1 {
			replaced++
		}
		if w.answers == 0 {
			t.Errorf("%s was never answered for", device(i))
		}
	}
	if replaced == 0 {
		t.Error("no device has another owner than before, although a worker was killed")
	}
	for _, p := range processes[1:] {
		if !p.Alive() {
			t.Error("a process that was not killed has ended")
		}
	}
}

// awaitReadings waits until each twin has at least n readings.
func awaitReadings(t *testing.T, calls *partition.Caller, n int) {
	t.Helper()
	for i := range devices {
		await.That(t, "the twin has the readings", func() bool {
			have, err := askTwin(t.Context(), calls, device(i))
			return err == nil && have.Readings >= n
		})
	}
}

func publishFrom(t *testing.T, nc *nats.Conn, from, to int) {
	t.Helper()
	publisher, err := partition.Open(nc, groupName).Publisher(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for number := from; number < to; number++ {
		for i := range devices {
			if err := publishReading(t.Context(), publisher, device(i), reading{Number: number, Celsius: float64(number)}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
