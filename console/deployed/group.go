package deployed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/console"
	"github.com/muster-dev/muster/console/groupview"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
	"github.com/muster-dev/muster/partition/state"
)

// group shows one group of workers on a console.
type group struct {
	name     string
	link     link
	contact  *console.Contact
	page     *console.Console // set before anything runs
	failures *groupview.Failures
	moves    *groupview.Moves
	moments  groupview.Moments
	poll     *poller

	mu      sync.Mutex
	begun   bool // the kept events are known, without which a worker's failure can't be told from its absence
	view    *partition.View
	plane   console.WorkerPlane
	err     error // of the last reading
	rates   groupview.Rates
	load    console.Load
	missing map[string]time.Time // by stable ID: since when a worker of the map has no lease and no failure that was reported
	letters []partition.DeadLetter
	listed  time.Time // when letters were
}

const (
	groupEvery   = 2 * time.Second
	groupLeast   = 40 * time.Millisecond // a reading takes about 20 ms with 150 workers, and an event is to be on the screen within 250 ms
	lettersEvery = 10 * time.Second
	lettersMost  = 100
)

func newGroup(name string, l link) *group {
	g := &group{name: name, link: l, contact: console.NewContact("group " + name), failures: groupview.NewFailures(), moves: groupview.NewMoves()}
	g.plane = console.WorkerPlane{Group: name, Workers: []console.Worker{}, Owners: []int32{}, Next: []int32{}}
	g.poll = newPoller(groupEvery, groupLeast, g.read)
	return g
}

// run follows the group until ctx ends. Commands that were given before are replayed with the kept events.
func (g *group) run(ctx context.Context, before []console.Done) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { g.poll.run(ctx) })
	h := history{group: partition.Open(g.link.nc, g.name), link: g.link}
	h.follow(ctx, func(kept []event.Event) { g.recall(kept, before) }, g.tell)
}

// recall takes in what the group's stream of events has kept.
func (g *group) recall(kept []event.Event, before []console.Done) {
	var moments []console.Moment
	for _, e := range kept {
		g.failures.Follow(e, e.Time)
		if m, ok := g.moves.Follow(e); ok {
			g.page.SlotMoved(m)
		}
		if m, ok := g.moments.Of(e); ok {
			moments = append(moments, m)
		}
	}
	for _, d := range before {
		if d.Name == console.AcknowledgeFailure {
			g.failures.AcknowledgeAt(d.Target, d.At)
		}
	}
	g.page.Recall(moments)
	g.mu.Lock()
	g.begun = true
	g.mu.Unlock()
	g.poll.soon()
}

// tell takes in what happens.
func (g *group) tell(e event.Event) {
	g.failures.Follow(e, time.Now())
	if m, ok := g.moves.Follow(e); ok {
		g.page.SlotMoved(m)
	}
	if m, ok := g.moments.Of(e); ok {
		g.page.Say(m)
	}
	g.poll.soon()
}

// read reads the group as it is.
func (g *group) read(ctx context.Context) {
	if err := g.link.up(); err != nil {
		g.keep(func() { g.err = err })
		return
	}
	asked := time.Now()
	v, err := partition.Open(g.link.nc, g.name).Inspect(ctx)
	if err != nil {
		err = g.contact.Note(explained(g.name, err))
		g.keep(func() { g.err = err })
		return
	}
	_ = g.contact.Note(nil)
	tide, tideErr := g.tide(ctx, v)
	g.mu.Lock()
	begun, listed := g.begun, g.listed
	g.mu.Unlock()
	var letters []partition.DeadLetter
	var lettersErr error
	if time.Since(listed) > lettersEvery {
		letters, lettersErr = partition.Open(g.link.nc, g.name).DeadLetters(ctx, 0, lettersMost)
	}
	var plane console.WorkerPlane
	if begun {
		g.follow(asked, v)
		plane = g.show(v)
	}
	g.keep(func() {
		g.view, g.err = v, nil
		if begun {
			g.plane = plane
		}
		if time.Since(g.listed) > lettersEvery {
			g.listed = time.Now()
			if lettersErr == nil {
				g.letters = letters
			}
		}
		g.plane.DeadLetters = len(g.letters)
		g.load = console.Load{At: v.At.UTC(), Waiting: v.Pending, Oldest: v.Oldest}
		if tideErr != nil {
			return
		}
		if in, out, ok := g.rates.Add(tide); ok {
			g.load.In, g.load.Out = &in, &out
		}
	})
}

// explained says what to do about an error of a group that is not there.
func explained(name string, err error) error {
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return fmt.Errorf("%w: no worker of group %s has run on these servers, or --group is another", err, name)
	}
	return err
}

// keep changes what is shown.
func (g *group) keep(change func()) {
	g.mu.Lock()
	change()
	g.mu.Unlock()
	g.page.Changed()
}

// tide reads what the group's streams have stored.
func (g *group) tide(ctx context.Context, v *partition.View) (groupview.Tide, error) {
	t := groupview.Tide{At: v.At, Waiting: v.Pending}
	js, err := jetstream.New(g.link.nc)
	if err != nil {
		return t, err
	}
	for _, name := range streamsOf(v) {
		s, err := js.Stream(ctx, name)
		if err != nil {
			return t, fmt.Errorf("reading stream %s: %w", name, err)
		}
		t.Stored += s.CachedInfo().State.LastSeq
	}
	return t, nil
}

// follow compares the leases with the workers that have joined.
func (g *group) follow(asked time.Time, v *partition.View) {
	held := map[string]report.Lease{}
	states := map[string]state.State{}
	for _, m := range v.Leases {
		held[m.ID], states[m.ID] = m, m.State
	}
	g.failures.Leases(asked, held, states)
}

// show makes of a view what the console shows.
func (g *group) show(v *partition.View) console.WorkerPlane {
	r := v.Report()
	out := console.WorkerPlane{At: v.At.UTC(), Group: g.name, Epoch: r.Epoch, Version: r.Version, Expected: r.Expected, Keys: r.Keys, Waiting: r.Pending, Oldest: v.Oldest, Queued: r.RetryQueue.Messages,
		Workers: []console.Worker{}, Owners: []int32{}, Next: []int32{}}
	live := map[string]state.State{}
	for _, w := range r.Workers {
		if w.State != state.Gone {
			live[w.ID] = w.State
		}
	}
	failed := g.failures.Now(time.Now(), live, r.Expected)
	until := map[string]time.Time{}
	for _, d := range r.Drains {
		until[d.Worker] = d.Until.UTC()
	}

	missing := map[string]time.Time{}
	leads := v.State() != state.Election && v.State() != state.Init
	for _, w := range r.Workers {
		x := console.Worker{ID: w.ID, Pod: w.Pod, Node: w.Node, State: string(w.State), Slots: w.Slots, Keys: w.Keys, Gaining: w.Incoming, Losing: w.Outgoing, Drained: until[w.ID]}
		_, alive := live[w.ID]
		f, hasFailed := failed[w.ID]
		switch {
		case hasFailed:
			x.State, x.Failed = console.StateFailed, &f
			delete(failed, w.ID)
		case w.State == state.Gone && w.Restarting:
			x.State = string(state.Init) // its slots wait for it
		case !alive && w.Slots+w.Incoming == 0:
			continue // it left, or its failure is over or acknowledged
		case !alive: // nothing reported it yet
			since, known := g.missing[w.ID]
			if !known {
				since = v.At.UTC()
			}
			missing[w.ID] = since
			x.State, x.Failed = console.StateFailed, &console.Failure{At: since, Reason: "no lease"}
		case w.Leading && leads:
			out.Leader, x.Leading = w.ID, true
		}
		out.Workers = append(out.Workers, x)
	}
	for id, f := range failed { // those that the map has forgotten
		out.Workers = append(out.Workers, console.Worker{ID: id, State: console.StateFailed, Failed: &f})
	}
	slices.SortFunc(out.Workers, func(a, b console.Worker) int {
		return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	g.missing = missing // read by this goroutine alone
	own(&out, v.Map())
	return out
}

// own says of each slot which worker has it and which one gets it.
func own(out *console.WorkerPlane, m *report.Map) {
	if m == nil {
		return
	}
	at := map[string]int32{}
	for i, w := range out.Workers {
		at[w.ID] = int32(i)
	}
	place := func(worker int32) int32 {
		if worker < 0 {
			return -1
		}
		if i, ok := at[m.Workers[worker].ID]; ok {
			return i
		}
		return -1
	}
	for slot, o := range m.Owner {
		next := int32(-1)
		if move, moving := m.Moves[slot]; moving {
			next = place(move.Next)
		}
		if m.Taking[slot] {
			out.TakingOver++
		}
		out.Owners, out.Next = append(out.Owners, place(o)), append(out.Next, next)
	}
}

// streamsOf names the streams of a group's messages.
func streamsOf(v *partition.View) []string {
	if v.Shards <= 1 {
		return []string{v.Stream}
	}
	var all []string
	for k := range v.Shards {
		all = append(all, fmt.Sprintf("%s-%d", v.Stream, k))
	}
	return all
}

// workers is the worker plane as it was read last.
func (g *group) workers(context.Context) (console.WorkerPlane, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.plane
	if g.err == nil && !g.begun {
		return v, errReading
	}
	return v, g.err
}

// errReading says that there is nothing to look up yet.
var errReading = errors.New("the group's history is still being read: try again in a moment")

// measured is the load as it was read last.
func (g *group) measured(context.Context) (console.Load, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil && g.view == nil {
		return g.load, errReading
	}
	return g.load, g.err
}

// seen returns the newest view, or why there is none.
func (g *group) seen() (*partition.View, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.view != nil:
		return g.view, nil
	case g.err != nil:
		return nil, g.err
	}
	return nil, errReading
}

// preview plans as muster partitions plan does, on what was read last.
func (g *group) preview(_ context.Context, w console.WhatIf) (report.Forecast, error) {
	v, err := g.seen()
	if err != nil {
		return report.Forecast{}, err
	}
	return groupview.Preview(v, w)
}

// listLetters lists the oldest dead letters.
func (g *group) listLetters(context.Context) ([]console.DeadLetter, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := []console.DeadLetter{}
	for _, d := range g.letters {
		out = append(out, console.DeadLetter{Number: d.Number, At: d.Time.UTC(), Key: d.Key, Subject: d.Subject, Attempts: d.Attempts, Error: d.Err, Worker: d.Worker})
	}
	return out, nil
}
