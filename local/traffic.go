package local

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/tchart"
)

// Lanes is how many contexts are published at a time. A chamber is always in
// the same lane, so its contexts are published in order.
const Lanes = 8

// Traffic publishes contexts: in the background at a rate, and at once those that are
// ordered.
type Traffic struct {
	// Rate is how many messages are published in the background, in messages/s. A slow
	// machine publishes fewer: at most one for each chamber waits, and orders never wait
	// behind more than that.
	Rate atomic.Int64

	collector *collect.Collector
	source    replay.Source
	chambers  []defender.Chamber
	announce  Announce // of contexts in the background
	run       string   // stands before the number in a context's name
	lane      [Lanes]chan laneOrder
	ordered   atomic.Int64 // orders of callers that are not carried out
	behind    atomic.Int64 // orders of the background that are not carried out
	total     atomic.Int64 // messages that were published
	ctx       context.Context
	stop      context.CancelFunc
	wg        sync.WaitGroup

	mu     sync.Mutex
	faults []error
	next   []int              // by chamber, number of its next context
	staged map[int][]Prepared // by chamber, in order
}

// Order asks for a chamber's next context.
type Order struct {
	Chamber int
	Name    string // stands before the number in the context's name; empty: the run's
	// Stage only makes the T-chart durable, so that the chamber's next order finds it and
	// publishes at once.
	Stage    bool
	Announce Announce // publishes the message; nil: as in the background
}

// laneOrder is an order in its chamber's lane.
type laneOrder struct {
	Order
	of *atomic.Int64 // the count that it is one of until it is carried out
}

func newTraffic(c *collect.Collector, s replay.Source, chambers []defender.Chamber, announce Announce) *Traffic {
	if announce == nil {
		announce = announcePlainly
	}
	t := &Traffic{collector: c, source: s, chambers: chambers, announce: announce, run: "run",
		next: make([]int, len(chambers)), staged: map[int][]Prepared{}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	for i := range t.lane {
		t.lane[i] = make(chan laneOrder, 8*len(chambers)+1024)
		t.wg.Go(func() { t.work(t.lane[i]) })
	}
	t.wg.Go(t.background)
	return t
}

// announcePlainly publishes a context's message as a collector does.
func announcePlainly(ctx context.Context, c *collect.Collector, p Prepared) error {
	_, err := replay.Announce(ctx, c, p.Ref, nil, func(error) {})
	return err
}

// background publishes for one chamber after the other at the rate.
func (t *Traffic) background() {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var owed float64
	last := time.Now()
	for at := 0; ; {
		select {
		case <-t.ctx.Done():
			return
		case now := <-tick.C:
			owed = min(owed+now.Sub(last).Seconds()*float64(t.Rate.Load()), float64(len(t.chambers)))
			last = now
		}
		for ; owed >= 1 && t.behind.Load() < int64(len(t.chambers)); owed-- {
			t.queue(Order{Chamber: at}, &t.behind)
			at = (at + 1) % len(t.chambers)
		}
	}
}

// Queue carries out an order when those before it in its chamber's lane are.
func (t *Traffic) Queue(o Order) { t.queue(o, &t.ordered) }

func (t *Traffic) queue(o Order, of *atomic.Int64) {
	of.Add(1)
	t.lane[o.Chamber%Lanes] <- laneOrder{o, of} // the queues are long, and hold little
}

// Ordered returns how many orders of [Traffic.Queue] are not carried out. It becomes 0
// however slowly the machine publishes in the background.
func (t *Traffic) Ordered() int64 { return t.ordered.Load() }

// Waiting returns how many messages are not published, with those of the background.
func (t *Traffic) Waiting() int64 { return t.ordered.Load() + t.behind.Load() }

// Total returns how many messages were published.
func (t *Traffic) Total() int64 { return t.total.Load() }

// Count adds messages that were published beside the traffic.
func (t *Traffic) Count(n int64) { t.total.Add(n) }

// Faults returns what kept orders from being carried out.
func (t *Traffic) Faults() []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.faults)
}

func (t *Traffic) work(orders <-chan laneOrder) {
	var enc tchart.Encoder
	for {
		select {
		case <-t.ctx.Done():
			return
		case o := <-orders:
			if err := t.carryOut(&enc, o.Order); err != nil {
				t.mu.Lock()
				t.faults = append(t.faults, err)
				t.mu.Unlock()
			}
			o.of.Add(-1)
		}
	}
}

// carryOut stages a chamber's next context, or publishes it: the one that was staged first,
// or a new one.
func (t *Traffic) carryOut(enc *tchart.Encoder, o Order) error {
	p, ready := Prepared{}, false
	if !o.Stage {
		p, ready = t.takeStaged(o.Chamber)
	}
	if !ready {
		var err error
		if p, err = t.makeDurable(enc, o); err != nil {
			return err
		}
	}
	if o.Stage {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.staged[o.Chamber] = append(t.staged[o.Chamber], p)
		return nil
	}

	// The run ends when it is published, not when it was staged.
	p.Ref.End = time.Now()
	announce := t.announce
	if o.Announce != nil {
		announce = o.Announce
	}
	if err := announce(t.ctx, t.collector, p); err != nil {
		return err
	}
	t.total.Add(1)
	return nil
}

func (t *Traffic) takeStaged(chamber int) (p Prepared, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	staged := t.staged[chamber]
	if len(staged) == 0 {
		return p, false
	}
	t.staged[chamber] = staged[1:]
	return staged[0], true
}

// makeDurable stores the T-chart of a chamber's next context.
func (t *Traffic) makeDurable(enc *tchart.Encoder, o Order) (Prepared, error) {
	at, run := o.Chamber, t.run
	if o.Name != "" {
		run = o.Name
	}
	t.mu.Lock()
	n := t.next[at]
	t.next[at]++
	t.mu.Unlock()

	s := t.source.Sample(at, n)
	ref, trace := replay.Context(t.chambers[at], fmt.Sprintf("%s%06d", run, n), s.Trace, time.Now())
	p := Prepared{Ref: ref, Fault: s.Fault}
	blob, err := enc.Append(nil, &trace)
	if err != nil {
		return p, fmt.Errorf("encoding the T-chart of %s: %w", ref.TChart(), err)
	}
	return p, t.collector.MakeDurable(context.Background(), ref, blob)
}

// close stops publishing; what is queued stays unpublished.
func (t *Traffic) close() {
	t.stop()
	t.wg.Wait()
}
