package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/report"
)

// lease is what workers have by default before they are taken for dead.
const lease = 6 * time.Second

// noHandoff is the case in which the node plane knows nothing of the defenders, as without WORKERS_NATS_URL: all that tells one to
// hand off is its pod's SIGTERM, and they aren't told how many they should be.
const noHandoff = "no-handoff"

// nodeRun is a run of a scenario whose defenders are pods on nodes.
type nodeRun struct {
	*local.Cluster
	s *session
}

func newNodeRun(ctx context.Context, s *session, zones []string, asks bool, pendingUp time.Duration) (*nodeRun, error) {
	t, err := s.OpenCluster(ctx, zones, asks, pendingUp)
	if err != nil {
		return nil, err
	}
	return &nodeRun{t, s}, nil
}

// nodePressure has both planes at work: more defenders are wanted than the nodes hold, pending pods bring a node, its defenders
// join; then load falls, and nodes go whose defenders have handed off.
func nodePressure(ctx context.Context, s *session) (err error) {
	n := s.o.Defenders
	more := n + s.o.joining()
	t, err := newNodeRun(ctx, s, local.ZonesFor(n+s.o.joining()*2/3), s.o.Case != noHandoff, 4*time.Second)
	if err != nil {
		return err
	}
	settled, err := t.begin(ctx, n)
	if err != nil {
		return err
	}
	fit := t.roomFor(more)
	s.Say("kubectl scale deployment defender --replicas=%d; %d fit, %d will wait for a node", more, fit, more-fit)
	asked := time.Now()
	s.forceOnMoves()
	if err := t.Scale(ctx, more); err != nil {
		return err
	}
	var partial *report.Map
	if err := t.Wait(ctx, 90*time.Second, fmt.Sprintf("%d defenders STABLE with %d pods pending", fit, more-fit), func() bool {
		if _, pending := t.Phases(); s.View.Stable(fit) && pending == more-fit {
			partial = s.View.Latest()
			return true
		}
		return s.View.Stable(more)
	}); err != nil {
		return err
	}
	if partial != nil {
		counts := s.Chambers.counts(partial)
		s.Say("%d defenders STABLE, %d to %d chambers each, %d pods pending", fit, slices.Min(counts), slices.Max(counts), more-fit)
	}
	if err := t.Wait(ctx, 2*time.Minute, fmt.Sprintf("%d defenders STABLE", more), func() bool { return s.View.Stable(more) }); err != nil {
		return err
	}
	if err := t.Wait(ctx, time.Minute, "the scale-up complete", func() bool { return !t.Region.Scaling(ctx) }); err != nil {
		return err
	}
	full := s.View.Latest()
	s.Say("%d defenders STABLE on %d nodes, map version %d", more, t.Fleet().Available, full.Version)
	t.checkGrowth(asked, settled, partial, full, fit, more)
	fell := time.Now()
	if err := t.shrink(ctx, n); err != nil {
		return err
	}
	runs, err := t.conclude(ctx, asked, n)
	if err != nil {
		return err
	}
	drains := time.Now()
	if cordoned := t.Ledger(sim.Cordoned, fell); len(cordoned) > 0 {
		drains = cordoned[0].At
	}
	t.checkPauses(runs, "pause_growth_ms", "... as defenders and nodes came", asked, fell)
	t.checkPauses(runs, "pause_replicas_ms", "... as fewer replicas were wanted", fell, drains)
	t.checkPauses(runs, "pause_drains_ms", "... as nodes were drained", drains, time.Now())
	return nil
}

// checkPauses tells the pauses of the slots that moved in a part of the run.
func (t *nodeRun) checkPauses(runs []run, key, name string, from, until time.Time) {
	d := distribution(pauses(runs, t.s.endings(), from, until))
	t.s.report.measure(key, d)
	t.s.report.check(name, "measured", true, "%s", d)
}

// roomFor returns how many of n defenders the nodes that are there hold.
func (t *nodeRun) roomFor(n int) int { return min(n, t.Fleet().Available*local.DefendersPerNode) }

// begin lets the first defenders start as pods and gives every chamber history.
func (t *nodeRun) begin(ctx context.Context, n int) (*report.Map, error) {
	a, err := t.Start(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := t.s.warmUp(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// checkGrowth compares the way from the request to its end with what it should be.
func (t *nodeRun) checkGrowth(asked time.Time, before, partial, full *report.Map, fit, more int) {
	r, s := t.s.report, t.s
	equal(r, "map version increments", 2, int(full.Version-before.Version))
	launches := t.Ledger(sim.Launched, asked)
	if partial == nil && t.nodeFirst(launches, asked, fit) {
		r.check("partial share, before the node came", "measured", true, "the node was Ready before they could settle")
	} else {
		r.check("partial share, before the node came", fmt.Sprintf("%d defenders", fit), partial != nil, "settled: %t", partial != nil)
	}
	if partial != nil {
		counts := s.Chambers.counts(partial)
		low, high := s.o.Chambers/fit, (s.o.Chambers+fit-1)/fit
		r.check("chambers each on those that fit", fmt.Sprintf("%d to %d", low, high), slices.Min(counts) >= low && slices.Max(counts) <= high, "%d to %d", slices.Min(counts), slices.Max(counts))
	}
	s.check.spread(full, more)
	want := (more - fit + local.DefendersPerNode - 1) / local.DefendersPerNode
	equal(r, "nodes launched", want, len(launches))
	if len(launches) == 0 {
		return
	}
	steps := []struct {
		key, name string
		at        time.Time
	}{
		{"", "", asked},
		{"pending_to_launched_s", "from pending to launched, s", launches[0].At},
		{"launched_to_joined_s", "... to joined, s", t.last(sim.Joined, launches)},
		{"joined_to_ready_s", "... to Ready, s", t.last(sim.BecameReady, launches)},
		{"ready_to_slots_owned_s", "... to owning its slots, s", s.View.last(asked, event.SlotAcquired, nil)},
	}
	for i, step := range steps[1:] {
		took := seconds(step.at.Sub(steps[i].at))
		r.measure(step.key, took)
		r.check(step.name, "measured", took >= 0, "%.1f", took) // of what was not seen it is far below
	}
	r.measure("launched_to_ready_s", seconds(steps[3].at.Sub(steps[1].at)))
	all := steps[4].at.Sub(asked)
	r.measure("pending_to_slots_owned_s", seconds(all))
	r.check("... all together, s", "measured", all > 0, "%.1f", all.Seconds())
}

// nodeFirst reports whether the launched node was Ready before the defenders that fit without it could settle. A real node that boots
// quickly takes less time than the group waits for further defenders.
func (t *nodeRun) nodeFirst(launches []sim.Entry, asked time.Time, fit int) bool {
	const settling = 5 * time.Second // the handoffs of a plan
	ready := t.last(sim.BecameReady, launches)
	if ready.IsZero() {
		return false // none was launched, or one never was
	}
	for _, m := range t.s.View.Versions() {
		if m.At.After(asked) && len(m.Workers) == fit {
			return ready.Before(m.At.Add(settling))
		}
	}
	return false
}

// last returns when the last of the instances that were launched had an entry of a kind, zero if not all have.
func (t *nodeRun) last(kind sim.Kind, launched []sim.Entry) time.Time {
	var last time.Time
	for _, l := range launched {
		i := slices.IndexFunc(t.Ledger(kind, l.At), func(e sim.Entry) bool { return e.Instance == l.Instance })
		if i < 0 {
			return time.Time{}
		}
		if at := t.Ledger(kind, l.At)[i].At; at.After(last) {
			last = at
		}
	}
	return last
}

// shrink lets the load fall: fewer defenders, then nodes that are drained and go.
func (t *nodeRun) shrink(ctx context.Context, n int) error {
	s := t.s
	t.SetLoad(0.1)
	s.Say("Load falls: kubectl scale deployment defender --replicas=%d", n)
	if err := t.Scale(ctx, n); err != nil {
		return err
	}
	least := max((n+local.DefendersPerNode-1)/local.DefendersPerNode, t.Policy().MinWorkers)
	if err := t.Wait(ctx, 5*time.Minute, fmt.Sprintf("%d defenders on %d nodes", n, least), func() bool {
		f := t.Fleet()
		running, pending := t.Phases()
		return f.Alive == least && f.Available == least && f.StaleNodes == 0 && running == n && pending == 0 && s.View.Stable(n)
	}); err != nil {
		return err
	}
	s.Say("%d defenders STABLE on %d nodes", n, least)
	return nil
}

// conclude has everything processed and checks what holds for both scenarios. It returns what was processed.
func (t *nodeRun) conclude(ctx context.Context, asked time.Time, n int) ([]run, error) {
	s, r := t.s, t.s.report
	runs, err := s.finish(ctx)
	if err != nil {
		return nil, err
	}
	s.check.spread(s.View.Latest(), n)
	s.check.epochs()
	t.checkEvictions(asked)
	equal(r, "nodes that went with defenders running on them", 0, t.cutOff(asked))
	equal(r, "handoffs that were forced", 0, s.View.count(asked, event.HandoffForced))
	r.measure("node_hours", t.NodeHours())
	r.check("node-hours", "measured", true, "%.3f", t.NodeHours())
	t.checkPauses(runs, "pause_ms", "pause of a slot that moved, ms", asked, time.Now())
	return runs, nil
}

// checkEvictions checks that no drain took a defender by surprise: it had handed its slots off before, or, where it isn't asked to,
// it did so when its pod got SIGTERM, within its grace.
func (t *nodeRun) checkEvictions(asked time.Time) {
	s, r := t.s, t.s.report
	evicted := t.s.pods.evictions(t.Ledger(sim.Evicted, time.Time{}))
	holding, unknown, ended := 0, 0, 0
	var took []time.Duration
	for _, e := range evicted {
		switch {
		case e.left == unknownSlots:
			unknown++
		case e.left > 0:
			holding++
		}
		if e.took > 0 && !e.cut {
			ended++
			took = append(took, e.took)
		}
	}
	r.measure("evictions", len(evicted))
	r.measure("evictions_of_owners", holding)
	equal(r, "evicted defenders that could not be asked for their slots", 0, unknown)
	if t.Asks {
		r.check("pods evicted by drains", "some, none of them with slots", len(evicted) > 0 && holding == 0, "%d, %d of them with slots", len(evicted), holding)
	} else {
		r.check("pods evicted by drains", "some with slots, as nobody asked", holding > 0, "%d, %d of them with slots", len(evicted), holding)
	}
	equal(r, "evicted defenders that ended by themselves within their grace", len(evicted), ended)
	if t.s.o.Processes {
		equal(r, "defenders that were not processes of their own", 0, t.goroutines())
	}
	d := distribution(took)
	r.measure("sigterm_to_end_ms", d)
	r.check("from SIGTERM to the end of an evicted defender, ms", "measured", d.N > 0, "%s", d)
	equal(r, "defenders that fell silent", 0, silent(s.View.Since(asked)))
	free := distribution(ownerless(s.View.Since(time.Time{}), asked))
	r.measure("ownerless_ms", free)
	r.timed("time without an owner of a slot that moved, ms", fmt.Sprintf("under the lease of %v that a crash costs", lease), free.N > 0 && free.Max < float64(lease.Milliseconds()), "%s", free)
}

// goroutines counts the pods' defenders that were not processes of their own.
func (t *nodeRun) goroutines() int {
	n := 0
	for _, p := range t.s.pods.started() {
		if p.OS == nil {
			n++
		}
	}
	return n
}

// cutOff returns how many nodes were terminated or taken away since a time while a defender ran on them.
func (t *nodeRun) cutOff(since time.Time) int {
	n := 0
	for _, e := range slices.Concat(t.Ledger(sim.Terminated, since), t.Ledger(sim.TakenAway, since)) {
		for _, p := range t.s.pods.started() {
			if p.node == e.Instance && p.wasCut() {
				n++
				break
			}
		}
	}
	return n
}

// spotInterruption takes a node away with two minutes' notice: its defenders hand off at once, a replacement comes, the node is
// drained before the cloud takes it.
func spotInterruption(ctx context.Context, s *session) error {
	n := s.o.Defenders
	// As by default, pods may wait for longer than a node takes to come: what waits for the replacement asks for no other node.
	t, err := newNodeRun(ctx, s, local.ZonesFor(n), s.o.Case != noHandoff, 2*local.BootTime)
	if err != nil {
		return err
	}
	if _, err := t.begin(ctx, n); err != nil {
		return err
	}
	before := s.View.Latest()
	victim := t.victim()
	var onIt []string
	for name, p := range t.livePods() {
		if p.node == victim {
			onIt = append(onIt, name)
		}
	}
	s.Traffic.hold.Store(int64(300 * time.Millisecond))
	if err := s.busy(ctx, before, t.idsOn(victim), 1); err != nil {
		return err
	}
	ids := t.idsOn(victim)
	warned := t.Region.Simulator.Clock().Now()
	event := t.Region.Simulator.Announce(nodes.Warning, victim)
	s.Say("Spot interruption warning of %s, with %d defenders on it: 120 s", victim, len(onIt))
	t.Interrupt(ctx, event)
	if err := t.Wait(ctx, 4*time.Minute, "the instance gone, all defenders STABLE elsewhere", func() bool {
		f := t.Fleet()
		running, _ := t.Phases()
		return !t.Region.Simulator.Instance(victim).Alive() && f.Available == len(local.ZonesFor(n)) && f.StaleNodes == 0 && running == n && s.View.Stable(n) && t.Region.OpenInterruptions(ctx) == 0
	}); err != nil {
		return err
	}
	s.Say("%d defenders STABLE again", n)
	t.checkInterruption(warned, victim, ids)
	_, err = t.conclude(ctx, warned, n)
	return err
}

// victim returns a node with defenders on it, not the leader's if there is a choice.
func (t *nodeRun) victim() string {
	count := map[string]int{}
	for _, p := range t.livePods() {
		count[p.node]++
	}
	leader := ""
	if m := t.s.Defenders.byID()[t.s.View.Latest().Leader.ID]; m != nil {
		leader = m.Options.Node
	}
	best := ""
	for node, n := range count {
		if best == "" || node != leader && (best == leader || n > count[best] || n == count[best] && node < best) {
			best = node
		}
	}
	return best
}

func (t *nodeRun) livePods() map[string]*pod {
	out := map[string]*pod{}
	for name, p := range t.s.pods.started() {
		if !p.Ended() {
			out[name] = p
		}
	}
	return out
}

// idsOn returns the stable IDs of the defenders on a node.
func (t *nodeRun) idsOn(node string) []string {
	var ids []string
	for id, m := range t.s.Defenders.byID() {
		if m.Options.Node == node {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// checkInterruption says how the 120 seconds were spent.
func (t *nodeRun) checkInterruption(warned time.Time, victim string, ids []string) {
	r := t.s.report
	launched := t.Ledger(sim.Launched, warned)
	equal(r, "replacements launched", 1, len(launched))
	if len(launched) == 0 {
		return
	}
	replacement := launched[0].Instance
	at := func(kind sim.Kind, instance string) time.Time {
		for _, e := range t.Ledger(kind, warned) {
			if e.Instance == instance {
				return e.At
			}
		}
		return time.Time{}
	}
	ready := at(sim.BecameReady, replacement)
	var firstOut, lastOut time.Time
	if evictions := t.Ledger(sim.Evicted, warned); len(evictions) > 0 {
		firstOut, lastOut = evictions[0].At, evictions[len(evictions)-1].At
	}
	var firstTold, lastTold, ended time.Time // of the defenders on the node
	for _, p := range t.s.pods.started() {
		if p.node != victim {
			continue
		}
		if told := p.toldAt(); !told.IsZero() && (firstTold.IsZero() || told.Before(firstTold)) {
			firstTold = told
		}
		lastTold, ended = later(lastTold, p.toldAt()), later(ended, p.endedAt())
	}
	steps := t.s.pods.interruption()
	handed := t.s.View.last(warned, event.SlotReleased, func(e local.SeenEvent) bool {
		// Their names are free again, and taken, only when the replacement is Ready.
		return slices.Contains(ids, e.Worker) && e.Time.Before(ready)
	})
	limit := "before 110"
	for _, step := range []struct {
		key, name, want string
		at              time.Time
		from, to        float64 // s after the warning; to is 0 if there is no bound
	}{
		{"seen_s", "the node plane has noted it", "at most 5", steps["openInterruption"], 0, 5},
		{"cordoned_s", "the node is cordoned", "at most 5", at(sim.Cordoned, victim), 0, 5},
		{"replacement_launched_s", "the replacement is launched", "at most 20", launched[0].At, 0, 20},
		{"slots_handed_off_s", "the last slot is handed off", limit, handed, 0, 110},
		{"first_eviction_s", "the first pod is evicted", limit, firstOut, 0, 110},
		{"last_eviction_s", "the last pod is evicted", limit, lastOut, 0, 110},
		{"first_sigterm_s", "the first defender gets SIGTERM", limit, firstTold, 0, 110},
		{"last_sigterm_s", "the last defender gets SIGTERM", limit, lastTold, 0, 110},
		{"last_defender_ended_s", "its last defender has ended", limit, ended, 0, 110},
		{"drained_s", "the node is drained", limit, steps["drained"], 0, 110},
		{"replacement_joined_s", "the replacement has joined", "measured", at(sim.Joined, replacement), 0, 0},
		{"replacement_ready_s", "the replacement is Ready", "measured", ready, 0, 0},
		{"replacement_owns_s", "its defenders own their slots", "measured", t.s.View.last(ready, event.SlotAcquired, nil), 0, 0},
		{"taken_away_s", "the instance is taken away", "about 120", at(sim.TakenAway, victim), 110, 130},
		{"closed_s", "the node plane has closed it", "measured", steps["closeInterruption"], 0, 0},
	} {
		s := -1.0
		if !step.at.IsZero() {
			s = seconds(step.at.Sub(warned))
		}
		r.measure(step.key, s)
		left := ""
		if s < 120 {
			left = fmt.Sprintf(", %.1f left", 120-s)
		}
		name := "s after the warning: " + step.name
		if s < 0 || step.to == 0 {
			r.check(name, step.want, s >= 0, "%.1f%s", s, left)
		} else {
			r.timed(name, step.want, s >= step.from && s <= step.to, "%.1f%s", s, left)
		}
	}
	if t.Asks {
		r.check("slots handed off", "before the last SIGTERM", !handed.IsZero() && handed.Before(lastTold), "%.1f s before", lastTold.Sub(handed).Seconds())
		r.check("slots handed off", "before the first eviction", !handed.IsZero() && !handed.After(firstOut.Add(time.Second)), "%.1f s before", firstOut.Sub(handed).Seconds())
	}
}
