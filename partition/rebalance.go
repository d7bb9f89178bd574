package partition

import (
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/plan"
)

// rebalance decides when the leader plans and what for, has the plan made, and makes the
// next map of it. It runs on the leader only, which calls review whenever the roster or the
// map has changed. A plan is made elsewhere, and the group may change meanwhile: planned
// drops a plan whose map is not the newest any more, and review asks for another.
type rebalance struct {
	*core
	roster      *roster
	maps        *mapStore
	absentees   *absentees
	incarnation *incarnation
	tuning      *tuning

	// window is the wait for more workers that join.
	window stabilizationWindow
	// leaveAt is when the wait for more workers that leave is over; zero: nobody leaves.
	leaveAt time.Time
	// unbalanced: another plan is to balance the slots once they are at rest. The last one left
	// slots in motion where they went, or a worker that drained takes slots again before it
	// was out of the map.
	unbalanced bool
	// balancedAt is when the last plan was made that could balance all slots: a map with this
	// Planned needs no other one.
	balancedAt time.Time
	// looked: this leader has looked whether the former one left the slots unbalanced, while
	// lookedGoing workers left or drained. A worker that restarts says that it leaves and is no
	// measure of the others' shares, so the look is repeated when it is back.
	looked      bool
	lookedGoing int
	// planning: a plan is being made. unbalancedMeanwhile: it does not know of all that there is
	// to balance.
	planning            bool
	unbalancedMeanwhile bool
}

// reset begins with nothing to do.
func (b *rebalance) reset() {
	*b = rebalance{core: b.core, roster: b.roster, maps: b.maps, absentees: b.absentees, incarnation: b.incarnation, tuning: b.tuning}
}

// changes are what the map does not know of the workers, in numbers.
type changes struct {
	failed  int // workers in the map that are not there and have slots
	leaving int // workers in the map that are to have none, and have some or get them
	joining int
}

func (c changes) none() bool { return c == (changes{}) }

// layoutDue reports whether the number of slots that is wanted is another one, and
// the group at rest.
func (b *rebalance) layoutDue() bool {
	if b.cur == nil || b.wanted == 0 || b.wanted == b.cur.Slots || !b.cur.Settled() || b.cur.Epoch != b.leaderLease.epoch || len(b.cur.Restarting) > 0 || !slices.Contains(b.cfg.slotCounts(), b.wanted) {
		return false
	}
	for s := range b.cur.Owner {
		if p := b.roster.peers.live(b.cur.OwnerAt(s)); p == nil || !p.takesSlots() {
			return false
		}
	}
	return true
}

// relayout plans for another number of slots. A key stays with its owner where
// that keeps the balance.
func (b *rebalance) relayout() {
	job := &planJob{reason: reasonResharding, base: b.curRev, generation: generation{b.cur.Layout + 1, b.wanted}}
	b.enlist(job, func(p *peerView) bool { return !b.roster.joiner(p) })
	at := job.index()
	job.problem.Slots, job.problem.Budget = b.wanted, -1
	job.problem.Weights = b.tuning.weights.of(b.wanted)
	job.problem.Owners = make([]int32, b.wanted)
	for s := range job.problem.Owners {
		job.problem.Owners[s] = plan.Gone
		if o, ok := at[b.cur.OwnerAt(s%b.cur.Slots)]; ok {
			job.problem.Owners[s] = o
		}
	}
	b.override(job)
	b.planning = true
	b.emit(event.Event{Kind: event.Rebalance, Reason: reasonResharding, Of: job.slots, After: b.roster.peers.staying()})
	b.do(planEffect{job})
}

// applyLayout makes the first map of a new generation.
func (b *rebalance) applyLayout(job *planJob) (*record.Assignment, uint64) {
	next := b.blank(job)
	at := job.index()
	next.Former = &record.OldGeneration{Layout: b.cur.Layout, Slots: b.cur.Slots, Version: next.Version, Owner: make(record.OwnerColumn, b.cur.Slots)}
	for s := range next.Former.Owner {
		next.Former.Owner[s] = record.None
		if o, ok := at[b.cur.OwnerAt(s)]; ok {
			next.Former.Owner[s] = o
		}
	}
	weight := b.tuning.weights.of(next.Slots)
	var keys uint64
	for s := range next.Owner {
		to := job.result.Owners[s]
		next.Owner[s], next.Since[s] = to, next.Version
		if to == plan.None {
			next.Owner[s] = record.None
		} else {
			next.Taking[s] = true
		}
		if next.Worker(next.Owner[s]) != b.cur.OwnerAt(s%b.cur.Slots) {
			next.Moved++
			keys += weightOf(weight, s)
		}
	}
	return next, keys
}

// keepFormer carries the old generation over to the next map. The dead have
// given everything up.
func (b *rebalance) keepFormer(next *record.Assignment, at map[record.Process]int32) {
	if b.cur == nil || b.cur.Former == nil {
		return
	}
	f := *b.cur.Former
	f.Owner = make(record.OwnerColumn, f.Slots)
	for s, i := range b.cur.Former.Owner {
		f.Owner[s] = record.None
		if o, ok := at[b.cur.Worker(i)]; ok {
			f.Owner[s] = o
		}
	}
	next.Former = &f
}

// extendWindow opens a window for workers that join, or starts it again.
func (b *rebalance) extendWindow() {
	length, opened := b.window.extend(b.now, b.roster.coldStart(), &b.cfg)
	if opened && b.roster.synced {
		b.tellWindow(length)
	}
}

func (b *rebalance) tellWindow(length time.Duration) {
	b.emit(event.Event{Kind: event.WindowStarted, Reason: b.window.kind(), Duration: length})
}

// windowDue opens a window for workers that join, and closes one that has ended.
func (b *rebalance) windowDue(joining int) {
	w := &b.window
	if joining == 0 {
		w.over = false
	}
	if !w.open() {
		if joining > 0 && !w.over {
			b.extendWindow()
		}
		return
	}
	if why := w.ended(b.now, joining, b.complete()); why != "" {
		b.emit(event.Event{Kind: event.WindowDone, Reason: why, After: b.roster.peers.staying(), Duration: w.close(b.now, joining)})
	}
}

// complete reports whether exactly the workers are there that are expected. More than
// these, or a suspect, means that somebody is dead or about to leave, which is better
// known first.
func (b *rebalance) complete() bool {
	expected := b.expected()
	if expected == 0 && b.window.cold {
		expected = b.workersInMap()
	}
	return expected > 0 && b.roster.peers.staying() == expected && b.roster.peers.count(markSuspect) == 0
}

// planForJoining plans for everybody who is there.
func (b *rebalance) planForJoining() {
	w := &b.window
	w.take()
	reason := "scale-up"
	if w.cold {
		reason = "cold start"
	}
	b.replan(reason, func(*peerView) bool { return true })
}

// replan starts a planning for the workers that include names, without those
// that leave; these only give.
func (b *rebalance) replan(reason string, include func(*peerView) bool) {
	job := &planJob{reason: reason, base: b.curRev, generation: b.nextGeneration()}
	joining := b.enlist(job, include)
	job.problem.Slots = job.slots
	job.problem.Weights = b.tuning.weights.of(job.slots)
	// After a death only what was its owner's moves, and to joining workers what is
	// theirs; a plan for other reasons tunes the balance.
	balances := reason != reasonCrash && reason != reasonOverrides && reason != reasonWeights || joining
	job.frozen = owners(&job.problem, b.cur, job.workers)
	if balances {
		job.problem.Budget = -1
		job.balances = len(job.frozen) == 0
		if !job.balances {
			b.unbalance()
		}
	}
	b.keepOutdated(job)
	b.override(job)
	b.planning, b.unbalancedMeanwhile = true, false
	if reason == reasonWeights {
		job.problem.Budget, job.problem.TuneOnly = b.tuning.budget(), true
	}
	if !job.optional() {
		b.emit(event.Event{Kind: event.Topology, Before: b.workersInMap(), After: b.roster.peers.staying()})
		b.emit(event.Event{Kind: event.Rebalance, Reason: reason, Of: job.slots, After: b.roster.peers.staying()})
	}
	b.do(planEffect{job})
}

// enlist adds the workers that a planning is for, and reports whether any of them
// is new.
func (b *rebalance) enlist(job *planJob, include func(*peerView) bool) (joining bool) {
	quits := b.absentees.quits()
	for _, p := range b.roster.peers.all() {
		inMap := !b.roster.joiner(p)
		gives := quits(p) || p.outdated()
		if (gives && !inMap) || (!gives && !include(p)) {
			continue
		}
		joining = joining || (!inMap && !gives)
		job.workers = append(job.workers, p.Process)
		job.problem.Workers = append(job.problem.Workers, plan.Worker{ID: p.ID, Weight: p.lease.Weight, Zone: p.lease.Zone, Draining: gives})
	}
	b.joinAwaited(job)
	return joining
}

// nextGeneration is that of the map, before the first one the group's first.
func (b *rebalance) nextGeneration() generation {
	if b.cur != nil {
		return generationOf(b.cur)
	}
	return generation{1, b.cfg.Slots}
}

func (b *rebalance) planned(in plannedInput) {
	if !b.leaderLease.held {
		return
	}
	b.planning = false
	job := in.job
	if in.err != nil {
		b.cfg.Logger.Error("Planning failed; the map stays as it is.", "err", in.err)
		return
	}
	if job.base != b.curRev || b.maps.writer.busy() || b.mapHidden() {
		b.review() // the map has moved on; what was due still is
		return
	}
	if job.optional() {
		if !worthIt(job) {
			b.unbalanced = b.unbalanced && (job.reason != reasonBalance || b.unbalancedMeanwhile)
			b.review() // what came up meanwhile
			return
		}
		b.emit(event.Event{Kind: event.Rebalance, Reason: job.reason, Of: job.slots, After: b.roster.peers.staying()})
	}
	// Changes that came up meanwhile rest on the map before this plan, and would
	// undo it. They are reported again, and entered in the new map.
	b.maps.writer.drop()
	var next *record.Assignment
	var keys uint64
	if job.reason == reasonResharding {
		next, keys = b.applyLayout(job)
	} else {
		next, keys = b.apply(job)
	}
	if job.balances && !b.unbalancedMeanwhile {
		b.balancedAt = next.Planned
	}
	if b.cur == nil && next.Version > sequenceGap {
		// A live worker may hold slots by the lost map, which this leader never saw.
		takeAll(next)
	}
	for _, note := range slices.Concat(job.notes, job.result.Notes) {
		b.emit(event.Event{Kind: event.PlanNote, Reason: note})
	}
	total, staying := job.slots, 0
	for _, w := range job.problem.Workers {
		if !w.Draining {
			staying++
		}
	}
	b.maps.write(next, []event.Event{
		{Kind: event.Planned, Reason: job.reason, Before: total, After: staying, Count: next.Moved, Keys: keys, Duration: job.took},
		{Kind: event.MapPublished, Version: next.Version, After: staying, Count: next.Moved, Reason: job.reason},
	})
}

// blank makes the next map of a plan without what the plan decides.
func (b *rebalance) blank(job *planJob) *record.Assignment {
	next := &record.Assignment{Schema: record.MapSchema, Epoch: b.leaderLease.epoch, Leader: b.self, Layout: job.number, Slots: job.slots, Version: 1, Overrides: job.overrides,
		FirstAssigned: b.now, Planned: b.now, Workers: job.workers, Owner: make(record.OwnerColumn, job.slots), Since: make(record.VersionColumn, job.slots),
		Moves: make(map[int]record.Move), Taking: make(map[int]bool), Restarting: make(map[int]bool)}
	switch {
	case b.cur != nil:
		next.Version = b.cur.Version + 1
		next.FirstAssigned = b.cur.FirstAssigned
	case b.leaderLease.epoch > sequenceGap:
		// The bucket was created again, and no worker is left that knows the map that
		// was in it. Its versions are in fences yet: this one is above them.
		next.Version = b.leaderLease.epoch
	}
	for i, w := range job.workers {
		if b.cur != nil && b.roster.flagged(w) {
			next.Restarting[i] = true
		}
	}
	return next
}

// apply makes the next map of a plan, and counts the weight that moves.
func (b *rebalance) apply(job *planJob) (*record.Assignment, uint64) {
	next, at := b.blank(job), job.index()
	b.keepFormer(next, at)
	weight := b.tuning.weights.of(job.slots)
	var keys uint64
	for s := range next.Owner {
		to := job.result.Owners[s]
		if w, ok := job.frozen[s]; ok {
			to = at[w]
		}
		if b.cur == nil {
			next.Owner[s], next.Since[s] = to, next.Version
			next.Moved++
			continue
		}
		b.applySlot(next, s, to, at)
		if b.cur.Worker(b.cur.Destination(s)) != next.Worker(next.Destination(s)) {
			next.Moved++
			keys += weightOf(weight, s)
		}
	}
	return next, keys
}

// applySlot carries one slot from the current map to the next, where it should
// go to worker "to".
func (b *rebalance) applySlot(next *record.Assignment, s int, to int32, at map[record.Process]int32) {
	owner := b.cur.OwnerAt(s)
	o, lives := at[owner]
	mv, moving := b.cur.Moves[s]
	switch {
	case lives && to == o:
		// Stays, or comes back from a move whose other end died. In the
		// second case the owner may have let go already; then it says so.
		next.Owner[s], next.Since[s] = o, b.cur.Since[s]
		if b.cur.Taking[s] {
			next.Taking[s] = true
		}
	case lives && moving && b.cur.Worker(mv.Next) == next.Worker(to):
		next.Owner[s], next.Since[s] = o, b.cur.Since[s]
		next.Moves[s] = record.Move{Next: to, Version: mv.Version}
	case lives && to == plan.None:
		next.Owner[s], next.Since[s] = o, b.cur.Since[s]
	case lives:
		next.Owner[s], next.Since[s] = o, b.cur.Since[s]
		next.Moves[s] = record.Move{Next: to, Version: next.Version}
	case to == plan.None:
		next.Owner[s], next.Since[s] = record.None, next.Version
	default:
		// From the dead, or from nobody after a time when nobody was there:
		// the leader takes it.
		next.Owner[s], next.Since[s] = to, next.Version
		next.Taking[s] = true
	}
}

func (b *rebalance) tellAlone() {
	for _, p := range b.roster.peers.all() {
		if p.lease.Leaving {
			b.send(p.Process, record.Alone, nil)
		}
	}
}

// keepOutdated has outdated workers of a planning keep what they have. The plan shares
// out the load of the other slots. One that leaves gives its slots away as any other.
func (b *rebalance) keepOutdated(job *planJob) {
	keeps, quits := make([]bool, len(job.workers)), b.absentees.quits()
	for i, w := range job.workers {
		if b.roster.isOutdated(w) {
			job.notes = append(job.notes, outdatedNote(w.ID))
			keeps[i] = !quits(b.roster.peers.get(w.ID))
		}
	}
	keepSlots(&job.problem, keeps, func(slot int, owner int32) { job.frozen[slot] = job.workers[owner] })
}

// overridesDue reports whether the map rests on other overrides than there are now, or was
// planned while the worker of an override took no slots, which it does now. While a
// worker of the map is not there, its coming back or its death is known first.
func (b *rebalance) overridesDue() bool {
	if b.cur == nil || b.cur.Overrides == b.overrides.rev && !b.overrideUnkept() || !b.cur.Settled() || b.roster.takersInMap() == 0 {
		return false
	}
	return b.roster.allThere()
}

// overrideUnkept reports whether a slot is elsewhere than with the worker of the map
// that it is overridden to, though that worker takes slots. An outdated worker keeps its
// slots until it leaves, overridden elsewhere or not.
func (b *rebalance) overrideUnkept() bool {
	if len(b.overrides.overrides) == 0 {
		return false
	}
	for s, override := range bySlot(b.overrides.overrides, b.cur.Slots) {
		p := b.roster.peers.get(override.Worker)
		if p == nil || !p.takesSlots() {
			continue
		}
		i, to := b.roster.index().index(p.Process), b.cur.Destination(s)
		if i != record.None && to != i && !b.roster.isOutdated(b.cur.Worker(to)) {
			return true
		}
	}
	return false
}

// override enters the overrides in a planning. A slot does not go to a worker that is only
// awaited, and one in motion arrives first; then the plan does not count as one
// that rests on the overrides.
func (b *rebalance) override(job *planJob) {
	job.overrides = b.overrides.rev
	overrides := bySlot(b.overrides.overrides, job.slots)
	there := make(map[string]bool, len(job.workers))
	for _, w := range job.workers {
		there[w.ID] = b.roster.peers.get(w.ID) == nil // and awaited
	}
	for s := range job.slots {
		p, ok := overrides[s]
		if !ok {
			continue
		}
		awaited, live := there[p.Worker]
		at := job.problem.Owners[s]
		elsewhere := at < 0 || job.problem.Workers[at].ID != p.Worker
		if live && awaited && elsewhere {
			job.overrides = 0
			continue
		}
		if to, frozen := job.frozen[s]; frozen && live && elsewhere && !b.roster.isOutdated(to) {
			job.overrides = 0
		}
		job.problem.Overrides = append(job.problem.Overrides, plan.Override{Slot: s, Worker: p.Worker})
	}
}

// changes counts them.
func (b *rebalance) changes() changes {
	var c changes
	placed := b.roster.placement()
	c.joining = b.roster.joiningTakers()
	for i := range placed.missing {
		if placed.index.uses(i) && !b.absentees.awaited(i) {
			c.failed++
		}
	}
	quits := b.absentees.quits()
	for _, p := range b.roster.peers.marked[markGoing] {
		i := placed.index.index(p.Process)
		if i != record.None && placed.index.gets[i] > 0 && quits(p) {
			c.leaving++
		}
	}
	return c
}

// mayPlan reports whether the leader knows what it takes to plan, and is not doing so.
func (b *rebalance) mayPlan() bool {
	knows := b.maps.ready && b.roster.synced && b.tuning.weighed() && !b.mapHidden()
	busy := b.planning || b.maps.writer.busy()
	return b.mayAct() && knows && !busy
}

// review decides whether it is time to plan.
func (b *rebalance) review() {
	if !b.mayPlan() {
		return
	}
	if b.maps.writer.pending != nil {
		// A plan rests on a map that is written. What is not urgent waits for
		// that until the pending changes are due.
		if b.changes().failed > 0 || b.maps.writer.isDue(b.now) {
			b.maps.flush()
		}
		return
	}
	if b.absentees.adopt() || b.incarnation.raise() {
		return
	}

	c := b.changes()
	if b.absentees.reserve(c.failed > 0) {
		return
	}
	b.windowDue(c.joining)
	if c.leaving > 0 && b.leaveAt.IsZero() && b.roster.peers.takers() > 0 && b.cur.Settled() {
		// What was on its way to one that leaves has arrived there meanwhile.
		b.leaveAt = b.now
	}
	b.planFor(c)
	if c.leaving == 0 {
		b.leaveAt = time.Time{}
	}
}

// planFor plans for the most urgent reason that there is, if there is one.
func (b *rebalance) planFor(c changes) {
	known := func(p *peerView) bool { return !b.roster.joiner(p) }
	everybody := func(*peerView) bool { return true }
	switch {
	case c.failed > 0 && b.roster.takersInMap() > 0:
		b.replaceFailed()
	case c.leaving > 0 && !b.leaveAt.IsZero() && !b.now.Before(b.leaveAt):
		b.replaceLeaving()
	case c.joining > 0 && b.window.over:
		b.planForJoining()
	case c.none() && b.layoutDue():
		b.relayout()
	case c.none() && b.balanceDue():
		b.replan(reasonBalance, everybody)
	case b.overridesDue():
		b.replan(reasonOverrides, known)
	case c.joining == 0 && c.leaving == 0 && !b.window.open() && b.tuning.due():
		b.tuning.weights.uneven = 0
		b.replan(reasonWeights, known)
	default:
		b.absentees.prune()
	}
}

// replaceFailed plans for the slots of failed workers. A joining worker whose window is over takes
// part: a replacement gets what the failed worker had, in one move.
func (b *rebalance) replaceFailed() {
	together := b.window.take()
	b.replan(reasonCrash, func(p *peerView) bool { return together || !b.roster.joiner(p) })
}

// replaceLeaving plans for the slots of workers that leave or drain. Joining workers take part
// if there are no others.
func (b *rebalance) replaceLeaving() {
	b.leaveAt = time.Time{}
	if b.roster.peers.takers() == 0 {
		b.tellAlone()
		return
	}
	joiningToo := b.roster.takersInMap() == 0
	b.replan("scale-down", func(p *peerView) bool { return joiningToo || !b.roster.joiner(p) })
}

// unbalance has another plan made once the group is at rest.
func (b *rebalance) unbalance() {
	b.unbalanced, b.balancedAt, b.unbalancedMeanwhile = true, time.Time{}, true
}

// balanceDue reports whether the group is at rest, and its slots are to be balanced.
func (b *rebalance) balanceDue() bool {
	atRest := b.cur != nil && b.cur.Settled() && b.roster.allThere()
	if !atRest {
		return false
	}
	if b.cur.Planned.Equal(b.balancedAt) {
		b.unbalanced = false
	}
	if going := b.roster.peers.count(markGoing); !b.looked || going != b.lookedGoing {
		b.looked, b.lookedGoing = true, going
		b.unbalanced = b.unbalanced || b.uneven()
	}
	return b.unbalanced
}

// uneven reports whether some workers have more or fewer slots than their share. Weights are estimates: where there are any, tuning looks at them, and waits for a
// second reading.
func (b *rebalance) uneven() bool {
	if b.cfg.Rebalance.Weights != nil {
		return false
	}
	problem, owners := b.tuning.balance()
	now, err := plan.Measure(problem, owners)
	return err == nil && (now.Excess > 0 || now.Short > 0)
}

// joinAwaited adds the workers that are awaited to a planning: they keep what
// they have.
func (b *rebalance) joinAwaited(job *planJob) {
	if b.cur == nil {
		return
	}
	for i, w := range b.cur.Workers {
		if b.roster.peers.get(w.ID) == nil && b.absentees.awaited(int32(i)) {
			lease := b.absentees.absent[w].lease
			job.workers = append(job.workers, w)
			job.problem.Workers = append(job.problem.Workers, plan.Worker{ID: w.ID, Weight: lease.Weight, Zone: lease.Zone})
		}
	}
}

// worthIt reports whether a plan that nothing but the balance asks for is to be carried out.
func worthIt(job *planJob) bool {
	if len(job.result.Moves) == 0 {
		return false
	}
	if job.reason == reasonBalance {
		return true
	}
	before, err := plan.Measure(job.problem, job.problem.Owners)
	if err != nil {
		return false
	}
	after, err := plan.Measure(job.problem, job.result.Owners)
	return err == nil && after.Excess < before.Excess && before.Excess-after.Excess >= before.Excess/tuneFraction
}
