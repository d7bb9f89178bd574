package partitiontest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/plan"
)

// settleLimit is how long Settle waits, in the time of the bubble.
const settleLimit = time.Hour

// Group is a simulated group. Its methods are for the test's goroutine.
type Group struct {
	t          testing.TB
	opts       Options
	newHandler func(worker string) partition.Handler

	mu       sync.Mutex      // of everything below, and of workers and slots
	changed  *sync.Cond      // something below has changed
	workers  []*worker       // that have not gone, in the order of their names
	away     map[string]bool // names of those that are paused and have gone
	slots    []*slot
	version  uint64 // of the plan
	claims   uint64 // the last one
	sequence uint64 // of the last message
	ids      map[string]bool
	dead     []partition.DeadLetter
	stopped  bool
}

// Run calls test with a group whose workers have got their slots, in a bubble of [synctest]. Each
// worker has a handler of its own, which newHandler returns; handlers that share a store share it as
// processes do. After test it cancels the handlers' contexts and waits until they return.
func Run(t *testing.T, o Options, newHandler func(worker string) partition.Handler, test func(*testing.T, *Group)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		if err := o.validate(); err != nil {
			t.Fatal(err)
		}
		g := &Group{t: t, opts: o.resolve(), newHandler: newHandler, away: make(map[string]bool), ids: make(map[string]bool)}
		g.changed = sync.NewCond(&g.mu)
		for n := range g.opts.Slots {
			g.slots = append(g.slots, &slot{g: g, number: n, work: make(map[string]*work)})
		}
		defer g.stop()

		for n := range g.opts.Workers {
			g.add(fmt.Sprint("worker-", n))
		}
		g.replan()
		g.Settle()
		test(t, g)
	})
}

func (g *Group) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stopped = true
	for _, w := range g.workers {
		w.cancel()
	}
	g.changed.Broadcast()
}

// Publish stores a message. One whose ID was published before is a duplicate, which is not stored.
func (g *Group) Publish(m partition.Outgoing) {
	g.t.Helper()
	if m.Key == "" {
		g.t.Fatal("publishing a message without a key: set Key")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.ID != "" && g.ids[m.ID] {
		return
	}
	g.ids[m.ID] = true
	g.sequence++
	s := g.slotOf(m.Key)
	s.queue = append(s.queue, &message{
		Outgoing: m, subject: "test." + strings.Join(partition.SplitKey(m.Key), "."), sequence: g.sequence, published: time.Now(),
	})
	s.dispatch()
}

// Owner returns the worker that owns a key, or that did before it was killed or paused; "" for none.
func (g *Group) Owner(key string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.slotOf(key); s.owner != nil {
		return s.owner.name
	}
	return ""
}

// DeadLetters returns the messages that were given up, in that order.
func (g *Group) DeadLetters() []partition.DeadLetter {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.dead)
}

// Settle waits until every slot is where it belongs and every message is handled, discarded or a
// dead letter. It fails the test if that takes longer than an hour of the bubble's time.
func (g *Group) Settle() {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	limit := time.Now().Add(settleLimit)
	defer g.wakeAt(limit).Stop()
	for {
		left := g.unsettled()
		if left == "" {
			return
		}
		if !time.Now().Before(limit) {
			g.t.Fatalf("the group has not settled within %s: %s", settleLimit, left)
		}
		g.changed.Wait()
	}
}

// unsettled says what Settle waits for, "" for nothing.
func (g *Group) unsettled() string {
	for _, s := range g.slots {
		switch {
		case s.moving || s.owner != s.want:
			return fmt.Sprintf("slot %d has not got to its owner", s.number)
		case s.owner == nil || s.owner.silent():
			return fmt.Sprintf("nobody works on slot %d", s.number)
		case len(s.queue) > 0:
			return fmt.Sprintf("message %d of key %s is not done, after %d attempts", s.queue[0].sequence, s.queue[0].Key, s.queue[0].attempts)
		case len(s.work) > 0:
			return fmt.Sprintf("a call of slot %d is not done", s.number)
		}
	}
	return ""
}

// wakeAt lets waiters look at the time.
func (g *Group) wakeAt(at time.Time) *time.Timer {
	return time.AfterFunc(time.Until(at), g.wake)
}

func (g *Group) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changed.Broadcast()
}

func (g *Group) slotOf(key string) *slot { return g.slots[partition.SlotOfKey(len(g.slots), key)] }

// replan shares the slots among the workers with the fewest moves, as the leader does.
func (g *Group) replan() {
	p := plan.Problem{Slots: len(g.slots), Budget: -1}
	index := make(map[*worker]int32)
	var takers []*worker
	for _, w := range g.workers {
		if w.leaving {
			continue
		}
		index[w] = int32(len(takers))
		takers = append(takers, w)
		p.Workers = append(p.Workers, plan.Worker{ID: w.name})
	}
	for _, s := range g.slots {
		at, ok := index[s.want]
		if !ok {
			at = plan.Gone
		}
		p.Owners = append(p.Owners, at)
	}
	next, err := plan.Sticky().Plan(p)
	if err != nil {
		g.t.Errorf("sharing %d slots among %d workers: %v", len(g.slots), len(takers), err)
		return
	}
	g.version++
	for i, s := range g.slots {
		var want *worker
		if at := next.Owners[i]; at != plan.None {
			want = takers[at]
		}
		if want != s.want {
			s.want, s.since = want, g.version
		}
		s.moveSoon()
	}
	g.changed.Broadcast()
}
