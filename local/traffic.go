package local

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/tchart"
)

// Lanes is how many contexts are published at a time. A chamber is always in
// the same lane, so its contexts are published in order.
const Lanes = 8

// traffic publishes contexts: in the background at a rate, and at once for
// chambers that are named. It knows every message that the server has taken.
type traffic struct {
	collector *collect.Collector
	source    replay.Source
	chambers  []defender.Chamber
	lane      [Lanes]chan *order
	Rate      atomic.Int64           // messages/s in the background
	limit     atomic.Int64           // of messages in the background; 0: none
	Hold      atomic.Int64           // ns that held messages are worked on longer
	HoldWhile atomic.Pointer[string] // they are only while this file is there; nil: it doesn't matter
	Slow      atomic.Int64           // ns that every message is worked on longer
	Padding   atomic.Int64           // bytes that every message is larger
	Refused   atomic.Int64           // publications that the servers refused for lack of room
	run       string                 // stands before the number in a context's name
	ctx       context.Context        // ends with it
	stop      context.CancelFunc
	wg        sync.WaitGroup
	Waiting   atomic.Int64
	Total     atomic.Int64
	Forced    atomic.Int64

	mu     sync.Mutex
	full   error // of the first publication that was refused for lack of room
	pubs   []Publication
	next   []int // by chamber, number of its next context
	faults []error
	Truth  map[defender.TChartKey]string
	staged map[int][]defender.ContextRef // by chamber, in order
}

type order struct {
	chamber int
	forced  bool
	held    bool   // worked on longer
	stage   bool   // only make its T-chart durable, to publish it at once later
	name    string // stands before the number in the context's name; empty: the run's
	fails   string // as long as this file is there; empty: never
}

func newTraffic(c *collect.Collector, s replay.Source, chambers []defender.Chamber) *traffic {
	t := &traffic{collector: c, source: s, chambers: chambers, run: "run",
		next: make([]int, len(chambers)), Truth: map[defender.TChartKey]string{}, staged: map[int][]defender.ContextRef{}}
	t.ctx, t.stop = context.WithCancel(context.Background())
	for i := range t.lane {
		t.lane[i] = make(chan *order, 8*len(chambers)+1024)
		t.wg.Add(1)
		go t.work(t.lane[i])
	}
	t.wg.Add(1)
	go t.background()
	return t
}

// background publishes for one chamber after the other at the rate.
func (t *traffic) background() {
	defer t.wg.Done()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var owed float64
	var count int64
	last := time.Now()
	for at := 0; ; {
		select {
		case <-t.ctx.Done():
			return
		case now := <-tick.C:
			owed = min(owed+now.Sub(last).Seconds()*float64(t.Rate.Load()), float64(len(t.chambers)))
			last = now
		}
		for ; owed >= 1; owed-- {
			if limit := t.limit.Load(); limit > 0 && count >= limit {
				return
			}
			count++
			t.Publish(at, false)
			at = (at + 1) % len(t.chambers)
		}
	}
}

// Publish queues one context of a chamber.
func (t *traffic) Publish(chamber int, forced bool) { t.queue(order{chamber: chamber, forced: forced}) }

// Press queues one that is worked on for longer.
func (t *traffic) Press(chamber int) { t.queue(order{chamber: chamber, forced: true, held: true}) }

// Named queues a context whose name begins with a word that its handler knows.
func (t *traffic) Named(chamber int, name string) {
	t.queue(order{chamber: chamber, forced: true, name: name})
}

// Failing queues a context whose handling fails as long as a file is there.
func (t *traffic) Failing(chamber int, name, file string) {
	t.queue(order{chamber: chamber, forced: true, name: name, fails: file})
}

// Stage makes the T-chart of a chamber's next context durable, so that its
// message can be published at once.
func (t *traffic) Stage(chamber int) { t.queue(order{chamber: chamber, stage: true}) }

func (t *traffic) queue(o order) {
	t.Waiting.Add(1)
	t.lane[o.chamber%Lanes] <- &o // the queues are long, and hold little
}

func (t *traffic) work(orders <-chan *order) {
	defer t.wg.Done()
	var enc tchart.Encoder
	for {
		select {
		case <-t.ctx.Done():
			return
		case o := <-orders:
			if err := t.publishNow(&enc, *o); err != nil {
				t.mu.Lock()
				t.faults = append(t.faults, err)
				t.mu.Unlock()
			}
			t.Waiting.Add(-1)
		}
	}
}

// publishNow publishes a chamber's next context: the one that was staged, or a
// new one.
func (t *traffic) publishNow(enc *tchart.Encoder, o order) error {
	t.mu.Lock()
	var ref defender.ContextRef
	staged := t.staged[o.chamber]
	ready := len(staged) > 0 && !o.stage
	if ready {
		ref, t.staged[o.chamber] = staged[0], staged[1:]
	}
	t.mu.Unlock()
	if !ready {
		var err error
		if ref, err = t.makeDurable(enc, o); err != nil {
			return err
		}
	}
	if o.stage {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.staged[o.chamber] = append(t.staged[o.chamber], ref)
		return nil
	}
	// The run ends when it is published, not when it was staged.
	ref.End = time.Now()
	at := ref.End.UnixNano()
	var header nats.Header
	if hold := t.Hold.Load(); o.held && hold > 0 {
		// Not all end at the same moment, as they would not in life.
		spread := time.Duration(rand.Int64N(int64(time.Second)))
		header = nats.Header{holdHeader: []string{(time.Duration(hold) + spread).String()}}
		if file := t.HoldWhile.Load(); file != nil {
			header.Set(holdWhileHeader, *file)
		}
	}
	if o.fails != "" {
		header = nats.Header{failHeader: []string{o.fails}}
	}
	if slow := t.Slow.Load(); slow > 0 && header == nil {
		header = nats.Header{holdHeader: []string{time.Duration(slow).String()}}
	}
	if n := t.Padding.Load(); n > 0 {
		if header == nil {
			header = nats.Header{}
		}
		header.Set(paddingHeader, strings.Repeat("x", int(n)))
	}
	seq, err := replay.Announce(t.ctx, t.collector, ref, header, t.noteRefused)
	if err != nil {
		return err
	}
	acked := time.Now().UnixNano()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pubs = append(t.pubs, Publication{Seq: seq, Key: ref.Chamber.String(), At: at, Acked: acked, Forced: o.forced, Ref: ref})
	t.Total.Add(1)
	if o.forced {
		t.Forced.Add(1)
	}
	return nil
}

func (t *traffic) noteRefused(err error) {
	t.Refused.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full = cmp.Or(t.full, err)
}

// makeDurable stores the T-chart of a chamber's next context.
func (t *traffic) makeDurable(enc *tchart.Encoder, o order) (defender.ContextRef, error) {
	at, run := o.chamber, t.run
	if o.name != "" {
		run = o.name
	}
	t.mu.Lock()
	n := t.next[at]
	t.next[at]++
	t.mu.Unlock()
	s := t.source.Sample(at, n)
	ref, trace := replay.Context(t.chambers[at], fmt.Sprintf("%s%06d", run, n), s.Trace, time.Now())
	blob, err := enc.Append(nil, &trace)
	if err != nil {
		return ref, fmt.Errorf("encoding the T-chart of %s: %w", ref.TChart(), err)
	}
	if s.Fault != "" {
		t.mu.Lock()
		t.Truth[ref.TChart()] = s.Fault
		t.mu.Unlock()
	}
	return ref, t.collector.MakeDurable(context.Background(), ref, blob)
}

// FirstRefused returns the error of the first publication that the servers refused for lack of room.
func (t *traffic) FirstRefused() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full
}

// Add notes a message that was published beside the traffic.
func (t *traffic) Add(p Publication) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pubs = append(t.pubs, p)
}

// Published returns what the server has taken so far.
func (t *traffic) Published() []Publication {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]Publication(nil), t.pubs...)
}

// close stops publishing; what is queued stays unpublished.
func (t *traffic) close() {
	t.stop()
	t.wg.Wait()
}

// Publication is one message that the publisher got an acknowledgement for.
type Publication struct {
	Seq    uint64
	Key    string
	At     int64 // ns, before it was published
	Acked  int64 // ns, when the server's acknowledgement was there
	Forced bool
	Ref    defender.ContextRef
}
