package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/nodes"
	"github.com/muster-dev/muster/nodes/sim"
	"github.com/muster-dev/muster/partition"
)

// nodePressure is the story of both planes: more defenders are wanted than the nodes hold, pending pods bring a node, its defenders
// join; then load falls, and nodes go whose defenders have handed over.
func nodePressure(ctx context.Context, s *session) (err error) {
	n := s.o.Defenders
	more := n + s.o.newcomers()
	t, err := openSite(ctx, s, zonesFor(n+s.o.newcomers()*2/3), s.o.Case != "no-hand-over", 4*time.Second)
	if err != nil {
		return err
	}
	settled, err := t.begin(ctx, n)
	if err != nil {
		return err
	}
	fit := t.roomFor(more)
	s.say("kubectl scale deployment defender --replicas=%d; %d fit, %d will wait for a node", more, fit, more-fit)
	asked := time.Now()
	s.forceOnMoves()
	if err := t.deploy.scale(ctx, more); err != nil {
		return err
	}
	var partial *partition.Assignment
	if err := t.wait(ctx, 90*time.Second, fmt.Sprintf("%d defenders STABLE with %d pods pending", fit, more-fit), func() bool {
		if _, pending := t.phases(); s.view.stable(fit) && pending == more-fit {
			partial = s.view.latest()
			return true
		}
		return s.view.stable(more)
	}); err != nil {
		return err
	}
	if partial != nil {
		counts := s.chamberCounts(partial)
		s.say("%d defenders STABLE, %d to %d chambers each, %d pods pending", fit, slices.Min(counts), slices.Max(counts), more-fit)
	}
	if err := t.wait(ctx, 2*time.Minute, fmt.Sprintf("%d defenders STABLE", more), func() bool { return s.view.stable(more) }); err != nil {
		return err
	}
	if err := t.wait(ctx, time.Minute, "the scale-up complete", func() bool { return !t.region.Scaling(ctx) }); err != nil {
		return err
	}
	full := s.view.latest()
	s.say("%d defenders STABLE on %d nodes, map version %d", more, t.ground.fleet().Available, full.Version)
	t.checkGrowth(asked, settled, partial, full, fit, more)
	if err := t.shrink(ctx, n); err != nil {
		return err
	}
	return t.conclude(ctx, asked, n)
}

// zonesFor returns the zones of as many nodes as hold so many defenders, in turn.
func zonesFor(defenders int) []string {
	var zones []string
	for i := 0; i*defendersPerNode < defenders; i++ {
		zones = append(zones, string("ab"[i%2]))
	}
	return zones
}

// roomFor returns how many of so many defenders the nodes that are there hold.
func (t *site) roomFor(n int) int { return min(n, t.ground.fleet().Available*defendersPerNode) }

// begin lets the first defenders start as pods and gives every chamber history.
func (t *site) begin(ctx context.Context, n int) (*partition.Assignment, error) {
	a, err := t.start(ctx, n)
	if err != nil {
		return nil, err
	}
	if err := t.s.warmUp(ctx); err != nil {
		return nil, err
	}
	return a, nil
}

// start lets the first defenders start as pods, and then the traffic.
func (t *site) start(ctx context.Context, n int) (*partition.Assignment, error) {
	s := t.s
	s.say("%s; %d nodes", t.ground.describe(), t.ground.fleet().Available)
	s.say("Starting %d defenders as pods, %d chambers in %d slots", n, s.o.Chambers, s.o.Slots)
	if err := t.deploy.scale(ctx, n); err != nil {
		return nil, err
	}
	if err := t.wait(ctx, 2*time.Minute, "all defenders STABLE", func() bool { return s.view.stable(n) }); err != nil {
		return nil, err
	}
	s.traffic.rate.Store(int64(s.o.Rate))
	a := s.view.latest()
	s.say("%d defenders STABLE, assignment map version %d", n, a.Version)
	return a, nil
}

// checkGrowth compares the way from the request to its end with what it should be.
func (t *site) checkGrowth(asked time.Time, before, partial, full *partition.Assignment, fit, more int) {
	r, s := t.s.report, t.s
	equal(r, "map version increments", 2, int(full.Version-before.Version))
	r.check("partial share, before the node came", fmt.Sprintf("%d defenders", fit), partial != nil, "settled: %t", partial != nil)
	if partial != nil {
		counts := s.chamberCounts(partial)
		low, high := s.o.Chambers/fit, (s.o.Chambers+fit-1)/fit
		r.check("chambers each on those that fit", fmt.Sprintf("%d to %d", low, high), slices.Min(counts) >= low && slices.Max(counts) <= high, "%d to %d", slices.Min(counts), slices.Max(counts))
	}
	s.checkSpread(full, more)
	launches := t.ledger(sim.Launched, asked)
	want := (more - fit + defendersPerNode - 1) / defendersPerNode
	equal(r, "nodes launched", want, len(launches))
	ready := map[string]time.Time{}
	for _, e := range t.ledger(sim.BecameReady, asked) {
		ready[e.Instance] = e.At
	}
	var first, last, owns time.Time
	for _, e := range launches {
		if first.IsZero() {
			first = e.At
		}
		if at := ready[e.Instance]; at.After(last) {
			last = at
		}
	}
	for _, e := range s.view.since(asked) {
		if e.Kind == partition.EventSlotAcquired {
			owns = e.at
		}
	}
	if !first.IsZero() {
		r.measure("pending_to_launched_s", seconds(first.Sub(asked)))
		r.measure("launched_to_ready_s", seconds(last.Sub(first)))
		r.measure("ready_to_slots_owned_s", seconds(owns.Sub(last)))
		r.check("from pending to launched, to Ready, to owning slots, s", "measured", true, "%.1f, %.1f, %.1f", first.Sub(asked).Seconds(), last.Sub(first).Seconds(), owns.Sub(last).Seconds())
	}
}

// shrink lets the load fall: fewer defenders, then nodes that are drained and go.
func (t *site) shrink(ctx context.Context, n int) error {
	s := t.s
	t.ground.setLoad(0.1)
	s.say("Load falls: kubectl scale deployment defender --replicas=%d", n)
	if err := t.deploy.scale(ctx, n); err != nil {
		return err
	}
	least := max((n+defendersPerNode-1)/defendersPerNode, t.plane.Policy.MinWorkers)
	if err := t.wait(ctx, 5*time.Minute, fmt.Sprintf("%d defenders on %d nodes", n, least), func() bool {
		f := t.ground.fleet()
		running, pending := t.phases()
		return f.Alive == least && f.Available == least && f.Ghosts == 0 && running == n && pending == 0 && s.view.stable(n)
	}); err != nil {
		return err
	}
	s.say("%d defenders STABLE on %d nodes", n, least)
	return nil
}

// conclude has everything processed and checks what holds for both scenarios.
func (t *site) conclude(ctx context.Context, asked time.Time, n int) error {
	s, r := t.s, t.s.report
	runs, err := s.finish(ctx)
	if err != nil {
		return err
	}
	s.checkSpread(s.view.latest(), n)
	s.checkEpochs()
	evicted, holding := t.evictions(), 0
	for _, slots := range evicted {
		if slots > 0 {
			holding++
		}
	}
	r.measure("evictions", len(evicted))
	r.measure("evictions_of_owners", holding)
	if s.o.Case == "no-hand-over" {
		r.check("pods evicted by drains", "measured", len(evicted) > 0, "%d, %d of them with slots", len(evicted), holding)
	} else {
		r.check("pods evicted by drains", "some, none of them with slots", len(evicted) > 0 && holding == 0, "%d, %d of them with slots", len(evicted), holding)
	}
	equal(r, "nodes that went with defenders running on them", 0, t.cutOff(asked))
	equal(r, "hand-overs that were forced", 0, s.countEvents(asked, partition.EventHandoverForced))
	pause := distribution(s.pauses(runs, asked))
	r.measure("pause_ms", pause)
	r.check("pause of a slot that moved, ms", "measured", pause.N > 0, "%s", pause)
	r.measure("node_hours", t.nodeHours())
	r.check("node-hours", "measured", true, "%.3f", t.nodeHours())
	return nil
}

// cutOff returns how many nodes were terminated or taken away since a time while a defender ran on them.
func (t *site) cutOff(since time.Time) int {
	n := 0
	for _, e := range slices.Concat(t.ledger(sim.Terminated, since), t.ledger(sim.TakenAway, since)) {
		t.mu.Lock()
		for _, p := range t.pods {
			if p.node == e.Instance && p.cut {
				n++
				break
			}
		}
		t.mu.Unlock()
	}
	return n
}

// spotInterruption takes a node away with two minutes' notice: its defenders hand over at once, a replacement comes, the node is
// drained before the cloud takes it.
func spotInterruption(ctx context.Context, s *session) error {
	n := s.o.Defenders
	// As by default, pods may wait for longer than a node takes to come: what waits for the replacement asks for no other node.
	t, err := openSite(ctx, s, zonesFor(n), s.o.Case != "no-hand-over", 2*siteBoot)
	if err != nil {
		return err
	}
	if _, err := t.begin(ctx, n); err != nil {
		return err
	}
	before := s.view.latest()
	victim := t.victim()
	var onIt []string
	for name, p := range t.livePods() {
		if p.node == victim {
			onIt = append(onIt, name)
		}
	}
	s.traffic.hold.Store(int64(300 * time.Millisecond))
	if err := s.busy(ctx, before, t.idsOn(victim), 1); err != nil {
		return err
	}
	ids := t.idsOn(victim)
	warned := t.region.World.Clock().Now()
	event := t.region.World.Announce(nodes.Warning, victim)
	s.say("Spot interruption warning of %s, with %d defenders on it: 120 s", victim, len(onIt))
	t.interrupt(ctx, event)
	if err := t.wait(ctx, 4*time.Minute, "the instance gone, all defenders STABLE elsewhere", func() bool {
		f := t.ground.fleet()
		running, _ := t.phases()
		return !t.region.World.Instance(victim).Alive() && f.Available == len(zonesFor(n)) && f.Ghosts == 0 && running == n && s.view.stable(n) && t.region.OpenInterruptions(ctx) == 0
	}); err != nil {
		return err
	}
	s.say("%d defenders STABLE again", n)
	t.checkInterruption(warned, victim, ids)
	return t.conclude(ctx, warned, n)
}

// victim returns a node with defenders on it, not the leader's if there is a choice.
func (t *site) victim() string {
	count := map[string]int{}
	for _, p := range t.livePods() {
		count[p.node]++
	}
	leader := ""
	if m := t.s.memberOf(t.s.view.latest().Leader.ID); m != nil {
		leader = m.options.Node
	}
	best := ""
	for node, n := range count {
		if best == "" || node != leader && (best == leader || n > count[best] || n == count[best] && node < best) {
			best = node
		}
	}
	return best
}

func (t *site) livePods() map[string]*podProcess {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string]*podProcess{}
	for name, p := range t.pods {
		select {
		case <-p.done:
		default:
			out[name] = p
		}
	}
	return out
}

// idsOn returns the stable IDs of the defenders on a node.
func (t *site) idsOn(node string) []string {
	var ids []string
	for id, m := range t.s.byID() {
		if m.options.Node == node {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// checkInterruption says how the 120 seconds were spent.
func (t *site) checkInterruption(warned time.Time, victim string, ids []string) {
	r := t.s.report
	at := func(kind sim.Kind, match func(sim.Entry) bool) float64 {
		for _, e := range t.ledger(kind, warned) {
			if match(e) {
				return seconds(e.At.Sub(warned))
			}
		}
		return -1
	}
	its := func(e sim.Entry) bool { return e.Instance == victim }
	first := func(sim.Entry) bool { return true }
	launched := t.ledger(sim.Launched, warned)
	replacement := ""
	if len(launched) > 0 {
		replacement = launched[0].Instance
	}
	equal(r, "replacements launched", 1, len(launched))
	cordoned, launch := at(sim.Cordoned, its), at(sim.Launched, first)
	ready := at(sim.BecameReady, func(e sim.Entry) bool { return e.Instance == replacement })
	evictions := t.ledger(sim.Evicted, warned)
	evictedFirst, evictedLast := -1.0, -1.0
	for i, e := range evictions {
		if i == 0 {
			evictedFirst = seconds(e.At.Sub(warned))
		}
		evictedLast = seconds(e.At.Sub(warned))
	}
	handed := -1.0
	for _, e := range t.s.view.since(warned) {
		// Their names are free again, and taken, only when the replacement is Ready.
		if e.Kind == partition.EventSlotReleased && slices.Contains(ids, e.Worker) && seconds(e.Time.Sub(warned)) < ready {
			handed = max(handed, seconds(e.Time.Sub(warned)))
		}
	}
	taken := at(sim.TakenAway, its)
	for name, v := range map[string]float64{"cordoned_s": cordoned, "replacement_launched_s": launch, "slots_handed_over_s": handed, "first_eviction_s": evictedFirst, "last_eviction_s": evictedLast, "replacement_ready_s": ready, "taken_away_s": taken} {
		r.measure(name, v)
	}
	r.timed("cordoned, s after the warning", "at most 5", cordoned >= 0 && cordoned <= 5, "%.1f", cordoned)
	r.timed("replacement launched, s", "at most 20", launch >= 0 && launch <= 20, "%.1f", launch)
	r.timed("first and last eviction, s", "before 110", evictedFirst >= 0 && evictedLast < 110, "%.1f, %.1f", evictedFirst, evictedLast)
	r.check("replacement Ready, s", "measured", ready > 0, "%.1f", ready)
	if t.s.o.Case != "no-hand-over" {
		r.check("slots handed over, s", "before the first eviction", handed >= 0 && handed <= evictedFirst+1, "%.1f", handed)
	}
	r.timed("instance taken away, s", "about 120", taken > 110 && taken < 130, "%.1f", taken)
}
