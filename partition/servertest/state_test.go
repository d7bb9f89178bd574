package servertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/partitiontest/await"
)

// tally is what the messages of a key add up to.
type tally struct {
	Count int    `json:"count"`
	Last  uint64 `json:"last"`
}

// ledger is the store of a group whose workers keep tallies in memory, too. It compares the two at
// each message.
type ledger struct {
	mu      sync.Mutex
	tallies map[string]tally
	reads   int // slots that were prepared
	exports int
	faults  []string
}

func newLedger() *ledger { return &ledger{tallies: map[string]tally{}} }

// tallying is a handler with tallies in memory that move with their slots.
type tallying struct {
	handler
	l      *ledger
	export func(ctx context.Context, state []byte) (io.Reader, error) // nil: as it is

	mu    *sync.Mutex
	slots map[int]map[string]tally // nil: the slot's state is not here
}

func (l *ledger) handler(g *group, name string) *tallying {
	return &tallying{handler: handler{g.rec, name}, l: l, mu: &sync.Mutex{}, slots: map[int]map[string]tally{}}
}

func (h *tallying) Handle(ctx context.Context, m partition.Message) error {
	if err := h.handler.Handle(ctx, m); err != nil {
		return err
	}
	var n uint64
	_, _ = fmt.Sscan(string(m.Data), &n)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	have, is := h.slots[m.Slot], h.slots[m.Slot] != nil
	switch {
	case !is:
		h.l.faults = append(h.l.faults, fmt.Sprintf("%s: slot %d begins without its state", h.name, m.Slot))
		return nil
	case have[m.Key] != h.l.tallies[m.Key]:
		h.l.faults = append(h.l.faults, fmt.Sprintf("%s: %s is %+v in memory, and %+v in the store", h.name, m.Key, have[m.Key], h.l.tallies[m.Key]))
	case n <= have[m.Key].Last:
		return nil // again
	}
	t := tally{have[m.Key].Count + 1, n}
	have[m.Key], h.l.tallies[m.Key] = t, t
	return nil
}

func (h *tallying) Export(ctx context.Context, slot partition.Slots) (io.Reader, error) {
	h.mu.Lock()
	state, err := json.Marshal(h.slots[slot.Slots[0]])
	h.mu.Unlock()
	h.l.mu.Lock()
	h.l.exports++
	h.l.mu.Unlock()
	if err == nil && h.export != nil {
		return h.export(ctx, state)
	}
	return bytes.NewReader(state), err
}

func (h *tallying) Import(_ context.Context, slot partition.Slots, state io.Reader) error {
	data, err := io.ReadAll(state)
	if err != nil {
		return err
	}
	tallies := map[string]tally{}
	if err := json.Unmarshal(data, &tallies); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots[slot.Slots[0]] = tallies
	return nil
}

func (h *tallying) Prepare(_ context.Context, slots partition.Slots) error {
	h.mu.Lock() // before the ledger's lock, as in Handle
	defer h.mu.Unlock()
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.l.reads += len(slots.Slots)
	for _, s := range slots.Slots {
		h.slots[s] = map[string]tally{}
		for key, t := range h.l.tallies {
			if partition.SlotOfKey(slots.Of, key) == s {
				h.slots[s][key] = t
			}
		}
	}
	return nil
}

func (h *tallying) Released(slots partition.Slots) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range slots.Slots {
		delete(h.slots, s)
	}
}

// plainly is a handler that writes the same store and keeps nothing in memory.
type plainly struct {
	handler
	l *ledger
}

func (h plainly) Handle(ctx context.Context, m partition.Message) error {
	if err := h.handler.Handle(ctx, m); err != nil {
		return err
	}
	var n uint64
	_, _ = fmt.Sscan(string(m.Data), &n)
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	if t := h.l.tallies[m.Key]; n > t.Last {
		h.l.tallies[m.Key] = tally{t.Count + 1, n}
	}
	return nil
}

// check compares the store with what was published, and the memory of the workers with the store.
func (l *ledger) check(g *group, hs ...*tallying) {
	g.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock() // nothing is published any more
	for _, f := range l.faults {
		g.t.Error(f)
	}
	for name, n := range g.n {
		key := strings.Replace(name, ".", ":", 1)
		if want := (tally{n, uint64(n)}); l.tallies[key] != want {
			g.t.Errorf("%s is %+v in the store, want %+v", key, l.tallies[key], want)
		}
	}
	if hs == nil {
		return
	}
	// A worker that has handed a slot off releases it when the state has gone, or can't.
	await.That(g.t, "what is in memory is what is in the store, each key once", func() bool {
		got, keys := map[string]tally{}, 0
		for _, h := range hs {
			keys += h.copyTo(got)
		}
		return keys == len(got) && maps.Equal(got, l.tallies)
	})
}

// copyTo adds what is in memory, and returns how many keys that are.
func (h *tallying) copyTo(all map[string]tally) (keys int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, tallies := range h.slots {
		keys += len(tallies)
		maps.Copy(all, tallies)
	}
	return keys
}

func (l *ledger) counts() (reads, exports int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reads, l.exports
}

// tallyGroup is a group of workers with tallies.
type tallyGroup struct {
	*group
	l  *ledger
	ws []*runningWorker
	hs []*tallying
	n  int // workers that were started
}

func startTallies(t *testing.T, on servers, more ...func(*partition.Config)) *tallyGroup {
	t.Helper()
	g := startGroup(t, on, time.Millisecond, append(more, func(c *partition.Config) {
		c.Rebalance.ColdWindow, c.Rebalance.PlannedWindow = await.Patience, await.Patience // they end with the expected number
	})...)
	return &tallyGroup{group: g, l: newLedger()}
}

func (g *tallyGroup) add(change func(*tallying)) {
	g.n++
	h := g.l.handler(g.group, fmt.Sprint("w", g.n))
	if change != nil {
		change(h)
	}
	// A middleware that knows nothing of states keeps them.
	logs := func(next partition.Handler) partition.Handler { return partition.HandlerFunc(next.Handle) }
	g.hs, g.ws = append(g.hs, h), append(g.ws, g.startWith(h.name, partition.Wrap(h, logs)))
}

// settle waits until the workers have all slots, and publishes meanwhile.
func (g *tallyGroup) settle(keys int) {
	g.t.Helper()
	await.That(g.t, fmt.Sprintf("%d workers settled", len(g.ws)), func() bool {
		g.publish(keys, 1)
		return g.settled(g.ws...)()
	})
}

// prepared waits until the handlers have prepared for as many slots, and for no more. A worker has a
// slot before its handler has prepared for it.
func (g *tallyGroup) prepared(slots int) (reads int) {
	g.t.Helper()
	await.That(g.t, fmt.Sprintf("%d slots prepared", slots), func() bool {
		reads, _ = g.l.counts()
		return reads >= slots
	})
	if reads != slots {
		g.t.Errorf("%d slots were prepared, want %d", reads, slots)
	}
	return reads
}

func (g *tallyGroup) scaleTo(n, keys int) {
	g.t.Helper()
	g.expect(n)
	for ; len(g.ws) > n; g.ws, g.hs = g.ws[1:], g.hs[1:] {
		g.ws[0].stop()
	}
	for len(g.ws) < n {
		g.add(nil)
	}
	g.settle(keys)
}

// TestStateMoves: while workers join and leave under load, the tallies move with their slots. Nothing
// is read of the store again, and what is in memory always equals it.
func TestStateMoves(t *testing.T) {
	onEach(t, func(t *testing.T, on servers) { stateMoves(t, on) })
	t.Run("several in flight", func(t *testing.T) {
		t.Parallel()
		stateMoves(t, severalInFlight(oneServer(t)))
	})
}

func stateMoves(t *testing.T, on servers) {
	t.Helper()
	const keys = 120
	g := startTallies(t, on)
	g.scaleTo(4, keys)
	first := g.prepared(g.cfg.Slots)
	for _, n := range []int{6, 4, 7, 3} {
		g.scaleTo(n, keys)
	}
	g.publish(keys, 2)
	g.check(0)
	reads, exports := g.l.counts()
	moved := len(g.seen(event.StateMoved))
	g.l.check(g.group, g.hs...)
	// On a busy machine a worker may be taken for dead. Then slots are taken over, which is no handoff.
	others := -first
	for _, e := range g.seen(event.SlotAcquired) {
		if e.Reason != "handoff" {
			others++
		}
	}
	if reads-first > others || moved == 0 {
		t.Errorf("%d slots were read of the store again, and %d came by no handoff; %d states were exported and %d moved", reads-first, others, exports, moved)
	}
	if others > 0 {
		t.Skipf("the machine is too busy: %d slots were taken over", others)
	}
	if exports != moved {
		t.Errorf("%d states were exported and %d moved", exports, moved)
	}
	for _, e := range g.seen(event.StateNotMoved) {
		t.Errorf("a state did not move: %s", e.Text())
	}
	var slowest time.Duration
	for _, e := range g.seen(event.StateMoved) {
		slowest = max(slowest, e.Duration)
	}
	t.Logf("%d states moved, the slowest in %v", moved, slowest)
}

// TestStateOfAKilledWorker: an old owner that is killed while it exports is not waited for. Nothing is
// lost, and the new owners have the right tallies.
func TestStateOfAKilledWorker(t *testing.T) {
	t.Parallel()
	const keys = 100
	g := startTallies(t, oneServer(t), func(c *partition.Config) { c.State.Timeout = await.Patience })
	exporting := make(chan struct{}, 1)
	g.expect(2)
	g.add(func(h *tallying) {
		h.export = func(ctx context.Context, state []byte) (io.Reader, error) {
			return io.MultiReader(bytes.NewReader(bytes.Repeat([]byte(" "), 1<<17)), blocking{ctx, exporting}, bytes.NewReader(state)), nil
		}
	})
	g.add(nil)
	g.settle(keys)

	g.expect(3)
	g.add(nil)
	<-exporting
	g.ws[0].nc.Close() // as a kill does
	g.ws, g.hs = g.ws[1:], g.hs[1:]
	g.expect(2)
	g.settle(keys)
	g.publish(keys, 2)
	g.check(g.published())
	g.l.check(g.group, g.hs...)
	failed := g.seen(event.StateNotMoved)
	if len(failed) == 0 {
		t.Fatal("every state moved, although a worker was killed while it exported")
	}
	for _, e := range failed {
		if e.Duration > 5*time.Second {
			t.Errorf("the killed worker was waited for: %s", e.Text())
		}
	}
}

// blocking is a reader that says when it is read, and gives nothing.
type blocking struct {
	ctx  context.Context
	read chan<- struct{}
}

func (b blocking) Read([]byte) (int, error) {
	select {
	case b.read <- struct{}{}:
	default:
	}
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

// TestStateThatCantMove: an exporter that fails, in whatever way, costs the handoff no more than the
// bound, and the new owner has the right tallies from the store.
func TestStateThatCantMove(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		export func(ctx context.Context, state []byte) (io.Reader, error)
		change func(*partition.Config)
		reason string
	}{
		"an error": {func(context.Context, []byte) (io.Reader, error) { return nil, errors.New("broken") }, nil, "broken"},
		"a panic":  {func(context.Context, []byte) (io.Reader, error) { panic("as it was asked to") }, nil, "panicked"},
		"a hang": {func(ctx context.Context, _ []byte) (io.Reader, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, nil, ""},
		"garbage":             {func(context.Context, []byte) (io.Reader, error) { return strings.NewReader("garbage"), nil }, nil, "invalid character"},
		"more than the limit": {nil, func(c *partition.Config) { c.State.MaxBytes = 10 }, "MaxBytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys = 100
			timeout := func(c *partition.Config) { c.State.Timeout = time.Second; c.Slots = 16 }
			g := startTallies(t, oneServer(t), timeout, func(c *partition.Config) {
				if tt.change != nil {
					tt.change(c)
				}
			})
			g.expect(1)
			g.add(func(h *tallying) { h.export = tt.export })
			g.settle(keys)
			g.check(0) // each slot's state has a key by now
			g.expect(2)
			g.add(nil)
			g.settle(keys)
			g.publish(keys, 2)
			g.check(0)
			g.l.check(g.group, g.hs...)
			failed := g.seen(event.StateNotMoved)
			if len(failed) != g.cfg.Slots/2 {
				t.Errorf("%d states did not move, want all of %d", len(failed), g.cfg.Slots/2)
			}
			for _, e := range failed {
				if !strings.Contains(e.Err, tt.reason) || e.Duration > g.cfg.State.Timeout+2*time.Second {
					t.Errorf("want the reason %q within %v: %s", tt.reason, g.cfg.State.Timeout, e.Text())
				}
			}
			if n := g.ws[1].Metrics().Counters; n.StatesNotMoved != uint64(len(failed)) || n.StatesMoved != 0 {
				t.Errorf("it counts %d states that did not move, and %d that did", n.StatesNotMoved, n.StatesMoved)
			}
		})
	}
}

// TestStateOfAMixedGroup: a worker whose handler has no state to move works beside others. They
// prepare for its slots, and export nothing for it, so it isn't waited for.
func TestStateOfAMixedGroup(t *testing.T) {
	t.Parallel()
	const keys = 100
	g := startTallies(t, oneServer(t), func(c *partition.Config) { c.State.Timeout = await.Patience })
	g.expect(1)
	plain := g.startWith("plain", plainly{handler{g.rec, "plain"}, g.l})
	await.That(t, "the plain worker has every slot", g.settled(plain))
	g.publish(keys, 2)

	g.expect(2)
	g.add(nil)
	g.ws = append(g.ws, plain)
	g.settle(keys)
	g.prepared(g.cfg.Slots / 2)
	if _, exports := g.l.counts(); exports != 0 {
		t.Errorf("%d states were exported for a worker that has none", exports)
	}
	for _, e := range g.seen(event.StateNotMoved) {
		if e.Duration > 5*time.Second {
			t.Errorf("a worker without state was waited for: %s", e.Text())
		}
	}

	leaving := time.Now()
	g.expect(1)
	g.ws[0].stop()
	err := <-g.ws[0].done
	g.ws[0].done <- err
	if took := time.Since(leaving); err != nil || took > 10*time.Second {
		t.Errorf("the worker left after %v: %v", took, err)
	}
	await.That(t, "the plain worker has every slot again", g.settled(plain))
	g.publish(keys, 2)
	g.check(0)
	g.l.check(g.group)
	if _, exports := g.l.counts(); exports != 0 {
		t.Errorf("%d states were exported for a worker that has no use for them", exports)
	}
}
