package partition

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/partitiontest/audit"
)

type simHandling = audit.Handling[*simWorker, Fence]

// simChecker knows everything that happens in a run and names what must never. It
// counts by slots of the largest slot count of the run: a slot of another one is
// some of them. Package audit judges the messages, handlers and fences; the rules of the
// protocol and its records are here.
type simChecker struct {
	mapLost bool // the map's bucket was deleted, and no map is in it yet

	s         *sim
	audit     *audit.Auditor[*simWorker, Fence]
	slots     []*audit.Slot[*simWorker, Fence]
	keys      []*audit.Key[*simWorker, Fence]
	violation *simViolation

	current  *record.Assignment // the newest map in the bucket
	taken    []map[Fence]bool   // by slot and whom it is taken for, whether it is done
	holders  []*simWorker
	total    int // messages that were processed
	redone   int // plans
	tuned    int // of them, for weights alone
	relaid   int // changes of the number of slots
	queued   int // messages
	raised   int // times that fences were
	cuts     int // of the power
	attempts simAttemptsCheck
	abandons int                  // messages that were given up
	services map[*simService]bool // requests that handlers work on, also of runs that have ended
	// forgotten: the buckets went back to an earlier state; see forget_sim_test.go.
	forgotten bool
}

type simViolation struct{ name, text string }

func newSimChecker(s *sim) *simChecker {
	n := s.fine
	c := &simChecker{s: s, taken: make([]map[Fence]bool, n), holders: make([]*simWorker, n), services: make(map[*simService]bool)}
	c.attempts = simAttemptsCheck{c: c, tries: make(map[simName]*simTries)}
	for i := range n {
		c.taken[i] = make(map[Fence]bool)
	}
	c.beginAudit()
	return c
}

// beginAudit begins with an auditor that knows nothing of what was.
func (c *simChecker) beginAudit() {
	c.audit = audit.New[*simWorker, Fence](func(v audit.Violation) { c.fail(string(v.Rule), "%s", v.Text) })
	for i := range c.s.fine {
		slot := c.audit.Slot(fmt.Sprint("slot ", i))
		slot.Parallel = c.s.variant.several
		c.slots = append(c.slots, slot)
	}
	for key := range simKeys {
		c.keys = append(c.keys, c.audit.Key(fmt.Sprintf("key %d:", key), c.slots[SlotOf(c.s.fine, fmt.Sprint(key))]))
	}
}

func (c *simChecker) fail(name, format string, args ...any) {
	if c.violation == nil {
		c.violation = &simViolation{name, fmt.Sprintf(format, args...)}
		c.s.logf("VIOLATION %s: %s", name, c.violation.text)
	}
}

// stepped looks at what a machine believes after a step.
//
// roster: what a leader counts along is what it would find by looking at every worker.
// one-owner: at most one worker that trusts its lease works on a slot.
// stands-still: a worker whose lease is not valid is about to renew it.
func (c *simChecker) stepped(w *simWorker) {
	if crowd := c.s.crowd; crowd != nil && !crowd.looksNow() {
		return
	}
	if err := checkRoster(&w.m.lead.roster); err != nil {
		c.fail("roster", "%v: %v", w, err)
	}
	c.standsBy(w)
	c.standsStill(w)
	if c.forgotten {
		return
	}
	clear(c.holders)
	for _, o := range c.s.workers {
		if o.dead || !o.trusted() {
			continue
		}
		for at := range o.delivery.slots {
			for slot := at.slot; slot < c.s.fine; slot += at.slots {
				if other := c.holders[slot]; other != nil {
					c.fail("one-owner", "slot %d: %v and %v both trust their leases and hold it", slot, other, o)
					return
				}
				c.holders[slot] = o
			}
		}
	}
}

// standsStill checks that a worker that works on nothing, since its lease is not valid, doesn't
// wait for the next Heartbeat before it renews the lease.
func (c *simChecker) standsStill(w *simWorker) {
	m := w.m.membership
	joined := m.stage == stageJoined || m.stage == stageLeaving
	needsRenewal := !m.lease.valid && m.lease.doubts(m.lease.renewed) // a round trip alone doesn't help
	if w.dead || !joined || !m.lease.connected || !needsRenewal || m.renewing {
		return
	}
	if idle := m.due.Sub(m.now); idle > retryInterval {
		c.fail("stands-still", "%v: the lease is not valid, and will be renewed in %v", w, idle)
	}
}

// held: the fence, and reset-before-hold.
func (c *simChecker) held(w *simWorker, at place, f Fence, handed bool) {
	if c.forgotten {
		return
	}
	for slot := at.slot; slot < c.s.fine; slot += at.slots {
		c.slots[slot].Held(w, f, w.trusted())
		c.heldOne(w, at, slot, f, handed)
	}
}

func (c *simChecker) heldOne(w *simWorker, at place, slot int, f Fence, handed bool) {
	// Who holds it already had it from the dead one by a finished handoff, and so
	// has who is handed it before it knows of the other's end.
	finished := w.delivery.slots[at] != nil || handed && !w.m.cur.Taking[at.slot]
	if taken, is := c.taken[slot][f]; is && !taken && !finished {
		c.fail("reset-before-hold", "slot %d: %v holds it as of version %d, whose takeover from a dead owner was not carried out", slot, w, f.Version)
	}
}

// resetDone books a RESET, which serves the takeover that the bucket shows.
func (c *simChecker) resetDone(at place) {
	for slot := at.slot; slot < c.s.fine; slot += at.slots {
		for v := range c.taken[slot] {
			c.taken[slot][v] = true
		}
	}
}

// remade takes what went with the streams: no worker can process it any more. What a
// worker still has of it counts for nothing.
func (c *simChecker) remade() {
	c.attempts.lost()
	for _, k := range c.keys {
		for n := 1; n <= k.Published(); n++ {
			k.Take(n)
		}
	}
}

// publish returns the number of a key's next message.
func (c *simChecker) publish(key int) int {
	n := c.keys[key].Publish()
	c.keys[key].Acknowledge(n)
	return n
}

// begins looks at a handler that begins.
func (c *simChecker) begins(w *simWorker, h *simHandler) {
	key := c.keys[h.msg.key]
	exempt := key.Exempt(h.msg.n) || c.forgotten
	c.attempts.begins(w, h, exempt)
	if exempt {
		return
	}
	c.beginsByRight(w, h)
	c.withinLimit(w)
	c.aloneWithKey(w, strconv.Itoa(h.msg.key), nil, h)
	c.inOnePlace(w, h)
	key.Begin(&h.handling)
}

// standing says what the auditor may rely on.
func (h *simHandler) standing() audit.Standing {
	switch w := h.r.w; {
	case !h.atWork() || w.dead:
		return audit.Over
	case h.cancelled:
		return audit.Interrupted
	case w.trusted():
		return audit.Valid
	}
	return audit.Stale
}

// processed is the write of a handler to a store that knows fences.
func (c *simChecker) processed(w *simWorker, h *simHandler) bool {
	switch c.keys[h.msg.key].Write(&h.handling) {
	case audit.Rejected:
		h.rejectedBy = c.slots[h.msg.fine].Stored()
		c.s.logf("%s: slot %d, the store refuses fence %v", w, h.msg.fine, h.fence)
		return false
	case audit.Applied:
		c.total++
		c.s.states.applied(w, h)
	case audit.Repeated:
	}
	return true
}

// waits reports whether a message has yet to be processed.
func (c *simChecker) waits(m simMessage) bool { return c.keys[m.key].Waits(m.n) }

// removed notes a message that leaves the streams.
func (c *simChecker) removed(m simMessage) {
	if !c.s.srv.isQueued(m) {
		c.keys[m.key].Remove(m.n)
	}
}

// written looks at what reaches the buckets.
func (c *simChecker) written(w *simWorker, e kvEffect) {
	switch {
	case e.key == record.AssignmentKey:
		a, err := record.DecodeAssignment(e.value)
		if err != nil {
			c.fail("map-valid", "%v writes a map: %v", w, err)
			return
		}
		c.s.logf("bucket: map %s", describe(a))
		w.freezeMap(a)
		c.mapWritten(w, a)
		c.current = a
		c.s.mapWritten(a)
	case e.purpose == forFencing:
		if e.rev > 0 {
			c.fenced(w, e.key)
		}
	}
}

// identity: nobody gives up who it is while name and lease are what it wrote itself,
// whatever became of its renewals.
func (c *simChecker) identityLost(w *simWorker, self record.Process, reason string) {
	if c.forgotten {
		return
	}
	for _, bucket := range []string{c.s.cfg.bucketIDs(), c.s.cfg.bucketLeases()} {
		var v record.Heartbeat // with the fields of a name's, too
		kv := c.s.srv.buckets[bucket].last[self.ID]
		if kv == nil || kv.deleted || json.Unmarshal(kv.value, &v) != nil || v.Instance != w.m.instance || v.Claim != 0 && v.Claim != self.Claim {
			return
		}
	}
	c.fail("identity", "%v gives up its identity (%s), which nobody has taken", w, reason)
}

func (c *simChecker) mapWritten(w *simWorker, a *record.Assignment) {
	if c.forgotten {
		if c.current != nil && a.Version > c.current.Version+1 && w.m.lead.incarnation.notSoon.After(w.m.now) {
			c.raised++
		}
		return
	}
	// Where no map is, as after a loss, a new leader has none to write again under its epoch
	// first. A former leader's write, carried out late, is then a map for it to write over.
	noneBefore := c.current == nil || c.mapLost
	for _, o := range c.s.workers {
		if held := o.m.leaderLease; !o.dead && held.held && o.m.lead.maps.ready && held.epoch > a.Epoch && !noneBefore {
			c.fail("former-leader", "%v writes a map of epoch %d after %v of epoch %d has begun", w, a.Epoch, o, held.epoch)
		}
	}
	for s := range c.taken {
		if at := s % a.Slots; a.Taking[at] {
			if _, known := c.taken[s][fenceOf(a, at)]; !known {
				c.taken[s][fenceOf(a, at)] = false
			}
		}
	}
	if c.current == nil {
		return
	}
	if a.Epoch < c.current.Epoch {
		c.fail("former-leader", "%v writes a map of epoch %d over one of epoch %d", w, a.Epoch, c.current.Epoch)
	}
	// What a leader remembers of a map that is lost may be what was written before, and
	// it makes up for that; it moves nothing that it knows of.
	again := c.mapLost
	c.mapLost = false
	follows := a.Version == c.current.Version || a.Version == c.current.Version+1 || (again && a.Version > c.current.Version)
	if !follows {
		c.fail("version", "%v writes version %d after %d", w, a.Version, c.current.Version)
	}
	for s := range c.s.fine {
		is, was := s%a.Slots, s%c.current.Slots
		if a.OwnerAt(is) != c.current.OwnerAt(was) && a.Since[is] <= c.current.Since[was] && !succeeds(a.OwnerAt(is), c.current.OwnerAt(was)) {
			c.fail("since-grows", "slot %d: owner %v since %d after %v since %d", s, a.OwnerAt(is), a.Since[is], c.current.OwnerAt(was), c.current.Since[was])
		}
	}
	if again {
		return
	}
	if generationOf(a) != generationOf(c.current) {
		c.redivided(w, a)
		return
	}
	c.successions(w, a)
	c.movement(w, a)
}

// redivided: layout, a map of another generation is a new version, of a group at
// rest; it says whose everything was, and that all of it has to be taken.
func (c *simChecker) redivided(w *simWorker, a *record.Assignment) {
	c.relaid++
	f := a.Former
	if a.Version == c.current.Version || !c.current.Settled() || a.Layout <= c.current.Layout || f == nil || oldGenerationOf(f) != generationOf(c.current) {
		c.fail("layout", "%v writes %s over %s", w, describe(a), describe(c.current))
		return
	}
	for s := range f.Owner {
		if a.Worker(f.Owner[s]) != c.current.OwnerAt(s) {
			c.fail("layout", "%v says that slot %d was %v's, it was %v's", w, s, a.Worker(f.Owner[s]), c.current.OwnerAt(s))
		}
	}
	for s := range a.Owner {
		if !a.Taking[s] {
			c.fail("layout", "%v gives slot %d of the new generation away at once", w, s)
		}
	}
}

// movement: a re-plan moves what its plan says; after a crash, only what was the
// dead one's. A write that is no re-plan changes no destination.
func (c *simChecker) movement(w *simWorker, a *record.Assignment) {
	if a.Version == c.current.Version && !sameDestinations(c.current, a) {
		c.fail("movement", "%v moves slots without a new version", w)
	}
	if a.Version == c.current.Version || w.lastPlan == nil {
		return
	}
	if len(a.Workers) != len(w.lastPlan.problem.Workers) {
		return // it was on its way when its leader asked for another plan
	}
	c.redone++
	moved, mustNot := 0, 0
	live := make(map[record.Process]bool)
	for i, m := range a.Workers {
		live[m] = !w.lastPlan.problem.Workers[i].Draining
	}
	for s := range a.Owner {
		before := c.current.Worker(c.current.Destination(s))
		if before == a.Worker(a.Destination(s)) {
			continue
		}
		moved++
		if to := a.Worker(a.Destination(s)); w.yielders[to] {
			c.fail("yields", "%v gives slot %d to %v, which yields", w, s, to)
		}
		if live[before] { // and stays
			mustNot++
		}
	}
	if w.lastPlan.reason == reasonWeights {
		c.tuned++
	}
	switch {
	case w.lastPlan.reason == reasonWeights && c.s.overrides == nil && moved > w.m.tuning.budget():
		c.fail("tuning", "version %d moves %d slots for their weights alone, at most %d may", a.Version, moved, w.m.tuning.budget())
	case moved != a.Moved:
		c.fail("movement", "version %d moves %d slots and says %d", a.Version, moved, a.Moved)
	case w.lastPlan.reason == reasonCrash && mustNot > 0 && c.s.overrides == nil && c.s.weights == nil && c.balanced(live):
		c.fail("movement", "version %d, after a crash, moves %d slots of the living", a.Version, mustNot)
	}
}

// yielders are the workers that yield, as a leader knows, unless nobody else is
// there.
func yielders(m *machine) map[record.Process]bool {
	out := make(map[record.Process]bool)
	for _, p := range m.lead.roster.peers.byID {
		if p.lease.Draining && m.lead.roster.peers.takers() > 0 {
			out[p.Process] = true
		}
	}
	return out
}

// balanced reports whether the slots are spread evenly over these workers; if not,
// a plan evens them out.
func (c *simChecker) balanced(live map[record.Process]bool) bool {
	n := make(map[record.Process]int)
	for s := range c.current.Owner {
		if to := c.current.Worker(c.current.Destination(s)); live[to] {
			n[to]++
		} else {
			n[c.current.OwnerAt(s)]++ // who has it back, if alive
		}
	}
	low, high := c.current.Slots, 0
	for m, stays := range live {
		if stays {
			low, high = min(low, n[m]), max(high, n[m])
		}
	}
	return high-low <= 1
}

// succeeds reports whether b is a as it came back.
func succeeds(b, a record.Process) bool { return b.ID == a.ID && b.Claim > a.Claim }

// successions: alive-succeeded, nobody takes the place of a worker that may still
// act; and what a predecessor had in flight is taken before it is held.
func (c *simChecker) successions(w *simWorker, a *record.Assignment) {
	for i, m := range a.Workers {
		old := c.current.Predecessor(m)
		if old == record.None {
			continue
		}
		was := c.current.Worker(old)
		for _, o := range c.s.workers {
			if !o.dead && !o.stopped && o.m.stage != stageGone && o.m.self == was && o.trusted() {
				c.fail("alive-succeeded", "%v gives the place of %v, who trusts its lease, to %v", w, o, m)
			}
		}
		for s := range a.Owner {
			if a.Owner[s] == int32(i) && !a.Taking[s] {
				c.fail("succession-takes", "slot %d: %v follows %v without a takeover", s, m, was)
			}
		}
	}
}

func sameDestinations(a, b *record.Assignment) bool {
	for s := range a.Owner {
		if x, y := a.Worker(a.Destination(s)), b.Worker(b.Destination(s)); x != y && !succeeds(y, x) {
			return false
		}
	}
	return true
}

// fenced: a worker whose lease is deleted was disconnected, or is dead.
func (c *simChecker) fenced(by *simWorker, id string) {
	if c.forgotten {
		return
	}
	for _, w := range c.s.workers {
		if !w.dead && w.m.self.ID == id && w.trusted() && !w.stopped {
			c.fail("fenced-alive", "%v deletes the lease of %v, who trusts it", by, w)
		}
	}
}

// atRest reports whether everything is done: every slot is with a live owner that
// pulls, the one it is pinned to if it is, the workers have equally many, and the stream is
// empty.
func (c *simChecker) atRest() bool { return c.quiet() && c.overridesKept() && c.evenAtRest() }

func (c *simChecker) quiet() bool {
	if c.current == nil || !c.current.Settled() {
		return false
	}
	for _, stored := range c.s.srv.stored {
		if len(stored) > 0 {
			return false
		}
	}
	for _, sp := range c.s.srv.spaces {
		if len(sp.queued) > 0 {
			return false
		}
	}
	if c.s.wanted != 0 && c.current.Slots != c.s.wanted {
		return false
	}
	for s := range c.current.Owner {
		i := slices.IndexFunc(c.s.workers, func(w *simWorker) bool { return !w.dead && w.m.self == c.current.OwnerAt(s) })
		if i < 0 || !c.s.workers[i].trusted() || c.s.workers[i].delivery.slots[generationOf(c.current).place(s)] == nil {
			return false
		}
	}
	for _, w := range c.s.workers {
		if !w.dead && w.m.stage == stageJoined && c.current.Index(w.m.self) == record.None {
			return false
		}
	}
	return true
}

// whyNotAtRest explains a liveness violation.
func (c *simChecker) whyNotAtRest() string {
	out := ""
	if c.current != nil {
		out = describe(c.current)
	}
	for _, sl := range c.s.srv.slots {
		if sl.consumer != nil && len(sl.stream()) > 0 {
			out += fmt.Sprintf("; slot %d has %d messages, first published at %v", sl.slot, len(sl.stream()), sl.stream()[0].published.Round(time.Millisecond))
			if k := sl.consumer; k != nil {
				out += fmt.Sprintf(" (pin %d, pending %v, %d pulls, sseq %d)", k.pin, k.pending, len(k.waiting), k.sseq)
			}
		}
	}
	for i, sp := range c.s.srv.spaces {
		for _, p := range sp.queued {
			out += fmt.Sprintf("; space %d has message %d (key %d, %d)", i, p.msg.seq, p.msg.key, p.msg.n)
		}
	}
	for _, w := range c.s.workers {
		if !w.dead {
			out += fmt.Sprintf("; %v stage %d state %s trusted %v leads %v holds", w, w.m.stage, w.m.state, w.trusted(), w.m.leaderLease.held)
			for s := range c.s.fine {
				if st := w.m.own.slots[s]; st != nil {
					out += fmt.Sprintf(" %d:%d", s, st.phase)
					if w.delivery.slots[w.m.own.at(s)] == nil {
						out += "-"
					}
				}
			}
			for s, st := range w.m.own.old.slots {
				out += fmt.Sprintf(" former %d:%d", s, st.phase)
			}
		}
	}
	return out
}
