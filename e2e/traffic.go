package e2e

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/defender/collect"
	"github.com/muster-dev/muster/defender/replay"
	"github.com/muster-dev/muster/local"
)

// traffic is the stack's traffic, with messages that handlers take longer for or fail at. It
// knows every message that the servers have taken.
type traffic struct {
	*local.Traffic

	hold      atomic.Int64           // ns that pressed messages are worked on longer
	holdWhile atomic.Pointer[string] // they are only while this file is there; nil: it doesn't matter
	slow      atomic.Int64           // ns that every message is worked on longer
	padding   atomic.Int64           // bytes that every message is larger
	refused   atomic.Int64           // publications that the servers refused for lack of room
	forced    atomic.Int64           // messages published that were forced

	mu    sync.Mutex
	full  error // of the first publication that was refused for lack of room
	pubs  []publication
	truth map[defender.TChartKey]string // the faults that are known
}

// publication is one message that the publisher got an acknowledgement for.
type publication struct {
	Seq    uint64
	Key    string
	At     int64 // ns, before it was published
	Acked  int64 // ns, when the server's acknowledgement was there
	Forced bool
	Ref    defender.ContextRef
}

// mark says what is special about a message.
type mark struct {
	forced bool   // published for its own sake, not by the background's rate
	held   bool   // worked on longer
	fails  string // as long as this file is there; empty: never
}

// publish queues one context of a chamber.
func (t *traffic) publish(chamber int, forced bool) {
	t.queue(local.Order{Chamber: chamber}, mark{forced: forced})
}

// press queues one that is worked on for longer.
func (t *traffic) press(chamber int) {
	t.queue(local.Order{Chamber: chamber}, mark{forced: true, held: true})
}

// named queues a context whose name begins with a word that its handler knows.
func (t *traffic) named(chamber int, name string) {
	t.queue(local.Order{Chamber: chamber, Name: name}, mark{forced: true})
}

// failing queues a context whose handling fails as long as a file is there.
func (t *traffic) failing(chamber int, name, file string) {
	t.queue(local.Order{Chamber: chamber, Name: name}, mark{forced: true, fails: file})
}

// stage makes the T-chart of a chamber's next context durable, so that its message can be
// published at once.
func (t *traffic) stage(chamber int) { t.Queue(local.Order{Chamber: chamber, Stage: true}) }

func (t *traffic) queue(o local.Order, m mark) {
	o.Announce = func(ctx context.Context, c *collect.Collector, p local.Prepared) error {
		return t.announce(ctx, c, p, m)
	}
	t.Queue(o)
}

// background publishes what the stack publishes by itself.
func (t *traffic) background(ctx context.Context, c *collect.Collector, p local.Prepared) error {
	return t.announce(ctx, c, p, mark{})
}

// announce publishes a message and notes it.
func (t *traffic) announce(ctx context.Context, c *collect.Collector, p local.Prepared, m mark) error {
	if p.Fault != "" {
		t.mu.Lock()
		t.truth[p.Ref.TChart()] = p.Fault
		t.mu.Unlock()
	}
	seq, err := replay.Announce(ctx, c, p.Ref, t.header(m), t.noteRefused)
	if err != nil {
		return err
	}
	t.add(publication{Seq: seq, Key: p.Ref.Chamber.String(), At: p.Ref.End.UnixNano(), Acked: time.Now().UnixNano(), Forced: m.forced, Ref: p.Ref})
	if m.forced {
		t.forced.Add(1)
	}
	return nil
}

// header tells the recorder of the message's defender what to do with it.
func (t *traffic) header(m mark) nats.Header {
	h := nats.Header{}
	hold, slow := t.hold.Load(), t.slow.Load()
	switch {
	case m.fails != "":
		h.Set(failHeader, m.fails)
	case m.held && hold > 0:
		// Not all end at the same moment, as they would not in life.
		spread := time.Duration(rand.Int64N(int64(time.Second)))
		h.Set(holdHeader, (time.Duration(hold) + spread).String())
		if file := t.holdWhile.Load(); file != nil {
			h.Set(holdWhileHeader, *file)
		}
	case slow > 0:
		h.Set(holdHeader, time.Duration(slow).String())
	}
	if n := t.padding.Load(); n > 0 {
		h.Set(paddingHeader, strings.Repeat("x", int(n)))
	}
	if len(h) == 0 {
		return nil
	}
	return h
}

func (t *traffic) noteRefused(err error) {
	t.refused.Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.full = cmp.Or(t.full, err)
}

// firstRefused returns the error of the first publication that the servers refused for lack of room.
func (t *traffic) firstRefused() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.full
}

// add notes a message that was published.
func (t *traffic) add(p publication) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pubs = append(t.pubs, p)
}

// published returns what the server has taken so far.
func (t *traffic) published() []publication {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.pubs)
}

// fault returns what is known to be wrong with a trace; "" for nothing.
func (t *traffic) fault(key defender.TChartKey) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.truth[key]
}
