package nodes_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
)

// racers are the processes that race for one cluster: each of them calls, sleeps and dies at any call, in an order that is drawn. Only one
// goroutine runs at a time, so a seed gives the same run again.
//
// The simulator's time moves with every call. A process that is not chosen stands still meanwhile, as one on a busy machine does.
type racers struct {
	*stage
	random  *rand.Rand
	broken  variant
	catalog appraisingSizer
	actors  []*actor
	queue   []message
	calm    bool // no more faults
	ids     int
	counts  map[fate]int
	panics  []string
	pauses  map[string][]pause // of ticks, by actor
}

// pause is a time in which a process stood still.
type pause struct{ from, to time.Time }

// appraisingSizer is what a price list with packing does for a reconciler.
type appraisingSizer interface {
	nodes.PoolSizer
	nodes.Fitter
}

// actor is a program that runs again and again: a daemon, or a function.
type actor struct {
	name     string
	holder   string
	every    time.Duration // between the beginnings of two ticks
	together bool          // what it does at the same time dies together, as in one process
	next     time.Time     // of the next tick
	running  []*racer
}

// message is an event of the cloud in a queue, which delivers it until it was handled.
type message struct {
	nodes.InterruptionEvent
	due   time.Time
	tries int
}

// fate is what happens to a process at its next call.
type fate byte

const (
	fateNone fate = iota
	fateBefore
	fateAfter
	fateLost
	fateLate
)

func (f fate) String() string {
	return [...]string{"calls", "killed before", "killed after", "lost replies", "late"}[f]
}

// racer is one tick, or the work on one event.
type racer struct {
	f       *racers
	actor   *actor
	message *message // nil: a tick
	wake    time.Time
	stopped chan bool // true: ended
	resume  chan fate
	fate    fate // of the call under way
	err     error
}

// newRacers sets up two daemons and a function on a stage.
func newRacers(sc *scenario, seed uint64, v variant) *racers {
	f := &racers{stage: newStage(sc), random: rand.New(rand.NewPCG(seed, 20)), broken: v, catalog: poolCatalog(), counts: map[fate]int{}, pauses: map[string][]pause{}}
	f.stage.stood = f.stood
	now := f.Clock().Now()
	f.actors = []*actor{
		{name: "daemon-1", holder: "host-1:9808", every: 10 * time.Second, together: true, next: now},
		{name: "daemon-2", holder: "host-2:9808", every: 10 * time.Second, together: true, next: now.Add(3 * time.Second)},
		{name: "lambda", every: time.Minute, next: now.Add(7 * time.Second)},
	}
	return f
}

func (f *racers) now() time.Time { return f.Clock().Now() }

// until lets the processes race until a time.
func (f *racers) until(end time.Time) {
	for f.now().Before(end) {
		f.start()
		var ready []*racer
		soonest := end
		for _, a := range f.actors {
			for _, r := range a.running {
				if !r.wake.After(f.now()) {
					ready = append(ready, r)
				}
				soonest = earliest(soonest, r.wake)
			}
			if !a.ticking() {
				soonest = earliest(soonest, a.next)
			}
		}
		for _, m := range f.queue {
			soonest = earliest(soonest, m.due)
		}
		if len(ready) == 0 {
			f.Advance(max(soonest.Sub(f.now()), time.Millisecond))
			continue
		}
		f.step(ready[f.random.IntN(len(ready))])
	}
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func (a *actor) ticking() bool {
	return slices.ContainsFunc(a.running, func(r *racer) bool { return r.message == nil })
}

// start begins the ticks and delivers the events that are due.
func (f *racers) start() {
	for _, a := range f.actors {
		if !a.ticking() && !a.next.After(f.now()) {
			a.next = f.now().Add(a.every)
			f.begin(a, nil, tickOnce)
		}
	}
	for i := 0; i < len(f.queue); i++ {
		m := f.queue[i]
		if m.due.After(f.now()) {
			continue
		}
		f.queue = slices.Delete(f.queue, i, i+1)
		i--
		m.tries++
		f.begin(f.actors[f.random.IntN(len(f.actors))], &m, func(ctx context.Context, r *nodes.Reconciler) error { return r.Interrupt(ctx, m.InterruptionEvent) })
	}
}

// begin starts a process, which stands still at once.
func (f *racers) begin(a *actor, m *message, do func(context.Context, *nodes.Reconciler) error) {
	r := &racer{f: f, actor: a, message: m, wake: f.now(), stopped: make(chan bool), resume: make(chan fate)}
	reconciler := f.reconciler(r)
	a.running = append(a.running, r)
	go func() {
		defer func() {
			if v := recover(); v != nil {
				r.err = errCrashed
				if err, ok := v.(error); !ok || !errors.Is(err, errCrashed) {
					f.panics = append(f.panics, fmt.Sprint(v))
				}
			}
			r.stopped <- true
		}()
		r.stand(time.Time{})
		r.err = do(context.Background(), reconciler)
	}()
	<-r.stopped
}

func (f *racers) reconciler(r *racer) *nodes.Reconciler {
	c := f.Client(r.actor.name, r)
	ports := ports{c, c, c, c, c, c, c, c}
	if f.broken != nil {
		ports = f.broken(f.stage, ports)
	}
	out, err := nodes.New(nodes.Config{Holder: r.actor.holder, Policy: f.policy, Signals: ports.Signals, Cloud: ports.Cloud, Cluster: ports.Cluster,
		Store: ports.Store, EventLog: ports.EventLog, WorkerPlane: ports.WorkerPlane, EvictionRequester: ports.EvictionRequester, Clock: racerClock{f.Clock(), r}, Templates: templatesOf(f.policy),
		Sizer: f.catalog, Fitter: f.catalog, Screener: f.catalog, Appraiser: f.catalog,
		NewID: func() string { f.ids++; return fmt.Sprintf("x%d", f.ids) }})
	if err != nil {
		panic(err)
	}
	return out
}

// step lets a process go on to its next call, and there meet what was drawn for it.
func (f *racers) step(r *racer) {
	at := f.draw()
	if at == fateLate || !f.calm && f.random.IntN(250) == 0 { // it stands still for long: its lease or claim may run out
		r.wake = f.now().Add(time.Duration(1+f.random.IntN(100)) * time.Second)
		if at != fateLate {
			return
		}
		// The call that it makes now was sent in time; the others go on until it arrives.
	}
	f.counts[at]++
	f.resume(r, at)
	if r.err != nil && errors.Is(r.err, errCrashed) {
		f.killed(r)
	}
}

// draw returns what happens at a call.
func (f *racers) draw() fate {
	n := f.random.IntN(2000)
	switch {
	case f.calm:
		return fateNone
	case n < 3:
		return fateBefore
	case n < 6:
		return fateAfter
	case n < 14:
		return fateLost
	case n < 17:
		return fateLate
	}
	return fateNone
}

// resume lets a process run until it stands still or ends.
func (f *racers) resume(r *racer, at fate) {
	r.resume <- at
	if ended := <-r.stopped; !ended {
		return
	}
	r.actor.running = slices.DeleteFunc(r.actor.running, func(o *racer) bool { return o == r })
	if m := r.message; m != nil && r.err != nil && m.tries < 8 {
		m.due = f.now().Add(time.Duration(2+f.random.IntN(10)) * time.Second)
		f.queue = append(f.queue, *m)
	}
}

// killed ends what ran in the same process, which is started again a little later.
func (f *racers) killed(r *racer) {
	a := r.actor
	if a.together {
		for len(a.running) > 0 {
			f.resume(a.running[0], fateBefore)
		}
	}
	a.next = f.now().Add(time.Duration(1+f.random.IntN(20)) * time.Second)
}

// stand waits for the process's turn and returns what happens to it. Until a time it sleeps, and after it it stands still.
func (r *racer) stand(sleeps time.Time) fate {
	from := r.f.now()
	if from.Before(sleeps) {
		from = sleeps
	}
	r.stopped <- false
	at := <-r.resume
	if now := r.f.now(); r.message == nil && now.After(from) {
		r.f.pauses[r.actor.name] = append(r.f.pauses[r.actor.name], pause{from, now})
	}
	if at == fateBefore {
		panic(errCrashed)
	}
	return at
}

// stood is how long an actor's ticks stood still between two times.
func (f *racers) stood(actor string, since, until time.Time) time.Duration {
	total := time.Duration(0)
	for _, p := range f.pauses[actor] {
		if p.from.Before(since) {
			p.from = since
		}
		if d := earliest(p.to, until).Sub(p.from); d > 0 {
			total += d
		}
	}
	return total
}

// Before is sim.Hook's.
func (r *racer) Before(string) error {
	r.fate = r.stand(time.Time{})
	if r.fate == fateLate {
		for r.f.now().Before(r.wake) {
			if r.stand(time.Time{}) == fateAfter {
				panic(errCrashed)
			}
		}
		return sim.ErrLate
	}
	return nil
}

// After is sim.Hook's.
func (r *racer) After(_ string, err error) error {
	switch r.fate {
	case fateAfter:
		panic(errCrashed)
	case fateLost:
		return cmp.Or(err, errReplyLost)
	}
	return err
}

// racerClock lets the others go on while a process sleeps.
type racerClock struct {
	sim.Clock
	r *racer
}

func (c racerClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	end := c.Now().Add(d)
	for c.Now().Before(end) {
		c.r.wake = end
		if c.r.stand(end) == fateAfter {
			panic(errCrashed)
		}
	}
	return ctx.Err()
}
