package partitiontest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-dev/muster/partition"
)

// worker is one incarnation of a worker: one that comes back after a pause is another, with a
// higher claim.
type worker struct {
	name    string
	claim   uint64
	handler partition.Handler
	ctx     context.Context
	cancel  context.CancelFunc
	killed  bool
	paused  bool
	gone    bool // the group has noticed that it is killed or paused
	leaving bool
	pauses  int   // how often it was killed or paused
	lost    []int // slots that were taken over from it, ascending
}

// silent reports whether it does nothing that the group would see.
func (w *worker) silent() bool { return w.killed || w.paused }

// add starts a worker, which has no slots yet.
func (g *Group) add(name string) {
	handler := g.newHandler(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.join(name, handler)
}

func (g *Group) join(name string, h partition.Handler) {
	g.claims++
	w := &worker{name: name, claim: g.claims, handler: h}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	g.workers = append(g.workers, w)
	slices.SortFunc(g.workers, func(a, b *worker) int { return strings.Compare(a.name, b.name) })
}

// named returns a worker, and fails the test if there is none of that name.
func (g *Group) named(name string) *worker {
	g.t.Helper()
	for _, w := range g.workers {
		if w.name == name {
			return w
		}
	}
	var names []string
	for _, w := range g.workers {
		names = append(names, w.name)
	}
	g.t.Fatalf("there is no worker %q: there are %s", name, strings.Join(names, ", "))
	return nil
}

// notice lets the group notice later that a worker is silent, if it is then.
func (g *Group) notice(w *worker) {
	w.pauses++
	pause := w.pauses
	time.AfterFunc(g.opts.Detection, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.stopped || w.pauses != pause || !w.silent() {
			return
		}
		w.gone = true
		g.away[w.name] = w.paused
		g.remove(w)
		g.replan()
	})
}

func (g *Group) remove(w *worker) {
	g.workers = slices.DeleteFunc(g.workers, func(other *worker) bool { return other == w })
}

// Workers returns the names of the workers, sorted, also of one that is paused or killed while the
// group has not noticed.
func (g *Group) Workers() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for _, w := range g.workers {
		names = append(names, w.name)
	}
	return names
}

// Join adds a worker, which gets its share of the slots by handoffs. It returns at once; Settle waits
// until they are done.
func (g *Group) Join() (name string) {
	g.mu.Lock()
	for n := 0; ; n++ {
		name = fmt.Sprint("worker-", n)
		if !g.away[name] && !slices.ContainsFunc(g.workers, func(w *worker) bool { return w.name == name }) {
			break
		}
	}
	g.mu.Unlock()

	g.add(name)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replan()
	return name
}

// Leave has a worker hand its slots off, and waits until it has.
func (g *Group) Leave(name string) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.named(name)
	w.leaving = true
	g.replan()
	for !w.gone && slices.ContainsFunc(g.slots, func(s *slot) bool { return s.owner == w || s.next == w }) {
		g.changed.Wait()
	}
	g.remove(w)
}

// Kill ends a worker as kill -9 does. The contexts of its handlers end, since a process that is no
// more does nothing; nothing that they return counts. The group notices after Options.Detection, and
// its other workers take the slots over.
func (g *Group) Kill(name string) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.named(name)
	w.killed = true
	for _, s := range g.slots {
		if s.owner == w {
			s.lose()
		}
	}
	w.cancel()
	g.notice(w)
	g.changed.Broadcast()
}

// Pause stops a worker for a time, as a long garbage collection or SIGSTOP does. Handlers that are
// running know nothing of it: their contexts end when the pause does, if the worker has lost its slots
// meanwhile. Until then they may still write to their store, with a lower fence than the new owner's.
// The worker joins again afterwards.
func (g *Group) Pause(name string, d time.Duration) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.named(name)
	w.paused = true
	g.notice(w)
	pause := w.pauses
	time.AfterFunc(d, func() { g.resume(w, pause) })
	g.changed.Broadcast()
}

// resume ends a pause, unless a later one or a kill has replaced it.
func (g *Group) resume(w *worker, pause int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped || w.pauses != pause {
		return
	}
	w.paused = false
	if !w.gone {
		for _, s := range g.slots {
			s.settleHeld()
			s.dispatch()
		}
		g.changed.Broadcast()
		return
	}
	w.cancel()
	g.unlocked(func() { release(w.handler, g.theSlots(w.lost...)) })
	delete(g.away, w.name)
	g.join(w.name, w.handler)
	g.replan()
}
