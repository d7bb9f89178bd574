package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
)

const leaderGroupName = "leader-and-candidates-crash"

// caseRestarted: as many processes start at once in the place of those that are killed.
const caseRestarted = "restarted"

// leaderGroupRounds is how often the leader and its candidates are killed where --kills
// doesn't say.
const leaderGroupRounds = 5

// candidates is how many workers of the map, in its order and without the leader, probe
// the leader and campaign first.
const candidates = 2

// ledAgain bounds the time from the kill of the leader and its candidates until another
// worker leads: the lease of 6 s, a second until the servers have let it expire, and one
// for the election.
const ledAgain = 8 * time.Second

// smallLeaderGroup gives the scenario few defenders, since it waits for a lease's end in
// each round.
func smallLeaderGroup(o *Options, chosen func(flag string) bool) {
	suit(chosen, "defenders", &o.Defenders, 10)
	suit(chosen, "chambers", &o.Chambers, 240)
	suit(chosen, "slots", &o.Slots, 120)
	suit(chosen, "rate", &o.Rate, 60)
	suit(chosen, "kills", &o.Kills, leaderGroupRounds)
	suit(chosen, "work", &o.Work, 50*time.Millisecond)
}

// leaderGroup is a run of scenario leader-and-candidates-crash.
type leaderGroup struct {
	*session
	auditor *audit.Auditor
	rounds  []leaderGroupRound
}

// leaderGroupRound is one kill of the leader together with its candidates.
type leaderGroupRound struct {
	leader string
	ids    []string // of all that were killed
	at     time.Time
	epoch  uint64 // of the killed leader
	led    time.Duration
	// slots has, by slot that the killed ones had with a message pending, the time from
	// the kill until another worker had processed a message of it.
	slots map[int]time.Duration
	stuck []int
}

// leaderGroupCrash kills the leader and the workers that would campaign first with
// SIGKILL in one moment, again and again, and has an auditor account for every message.
func leaderGroupCrash(ctx context.Context, s *session) error {
	auditor, err := audit.Begin(ctx, s.Conn, s.auditConfig())
	if err != nil {
		return err
	}
	g := &leaderGroup{session: s, auditor: auditor}
	return errors.Join(g.run(ctx), auditor.Close())
}

func (g *leaderGroup) run(ctx context.Context) error {
	if err := g.begin(ctx); err != nil {
		return err
	}
	if err := g.warmUp(ctx); err != nil {
		return err
	}
	if err := g.expect(ctx, g.o.Defenders); err != nil {
		return err
	}
	for i := range g.o.Kills {
		if err := g.round(ctx, i); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	g.Traffic.hold.Store(0)
	for i := range g.Chambers {
		g.Traffic.publish(i, false)
	}
	if err := g.drain(ctx); err != nil {
		return err
	}
	return g.judge(ctx)
}

// round kills the leader and its candidates, waits until another worker leads, starts
// as many workers again, and waits until all share everything.
func (g *leaderGroup) round(ctx context.Context, i int) error {
	a := g.View.Latest()
	r := leaderGroupRound{leader: a.Leader.ID, ids: leaderAndCandidates(a), epoch: a.Epoch, slots: map[int]time.Duration{}}
	all := g.Defenders.byID()
	var victims []*local.Process
	for _, id := range r.ids {
		m := all[id]
		if m == nil {
			return fmt.Errorf("no process has the ID %s", id)
		}
		victims = append(victims, m)
	}
	g.Traffic.hold.Store(int64(time.Second))
	if err := g.busy(ctx, a, r.ids, 2); err != nil {
		return err
	}
	for _, id := range r.ids {
		for _, slot := range g.Chambers.slotsOf(a, id) {
			r.slots[slot] = 0
		}
	}
	r.at = time.Now()
	var wg sync.WaitGroup
	for _, m := range victims {
		wg.Go(func() { m.Kill() })
	}
	wg.Wait()
	g.Say("Round %d: the leader, %s, and its candidates, %s, are killed with %d slots", i+1, r.leader, strings.Join(r.ids[1:], " and "), len(r.slots))
	replaced := 0
	if g.o.Case == caseRestarted {
		// As a Deployment does: new processes come while no worker leads.
		if _, err := g.Defenders.Add(ctx, len(victims)); err != nil {
			return err
		}
		replaced = len(victims)
	}
	if err := g.Wait(ctx, 90*time.Second, "another worker leads", func() bool {
		r.led = g.ledAfter(r)
		return r.led > 0
	}); err != nil {
		return err
	}
	g.Say("Led again after %.1f s", r.led.Seconds())
	if _, err := g.Defenders.Add(ctx, len(victims)-replaced); err != nil {
		return err
	}
	if err := g.Wait(ctx, 90*time.Second, "all defenders STABLE again", func() bool {
		b := g.View.Latest()
		return b.Epoch > r.epoch && !slices.Contains(b.Workers, a.Leader) && g.View.Stable(g.o.Defenders)
	}); err != nil {
		return err
	}
	g.Say("%d defenders STABLE %.1f s after the kill", g.o.Defenders, time.Since(r.at).Seconds())
	g.rounds = append(g.rounds, r)
	return nil
}

// leaderAndCandidates returns the leader's ID and those of its candidates.
func leaderAndCandidates(a *partition.Assignment) []string {
	ids := []string{a.Leader.ID}
	for _, w := range a.Workers {
		if w != a.Leader && len(ids) <= candidates {
			ids = append(ids, w.ID)
		}
	}
	return ids
}

// ledAfter returns how long after the kill another worker was elected, 0 if none was.
func (g *leaderGroup) ledAfter(r leaderGroupRound) time.Duration {
	for _, e := range g.View.Since(r.at) {
		if e.Kind == event.Elected && e.Peer == e.Worker && e.Epoch > r.epoch {
			return e.At.Sub(r.at)
		}
	}
	return 0
}

func (g *leaderGroup) judge(ctx context.Context) error {
	runs, err := g.runs()
	if err != nil {
		return err
	}
	g.resumed(runs)
	account, err := g.account(ctx, g.auditor)
	if err != nil {
		return err
	}
	var led, processed, all []time.Duration
	stuck, slots := 0, 0
	for _, r := range g.rounds {
		led = append(led, r.led)
		last := time.Duration(0)
		for _, d := range r.slots {
			processed = append(processed, d)
			last = max(last, d)
		}
		all = append(all, last)
		stuck += len(r.stuck)
		slots += len(r.slots)
	}
	rep := g.report
	dl, dp, da := distribution(led), distribution(processed), distribution(all)
	rep.measure("rounds", len(g.rounds))
	rep.measure("killed_to_led_again_ms", dl)
	rep.measure("killed_to_slot_processed_ms", dp)
	rep.measure("killed_to_all_slots_processed_ms", da)
	equal(rep, "leader and candidates killed with SIGKILL, rounds", g.o.Kills, len(g.rounds))
	bound := ledAgain
	if g.o.Replicas > 1 {
		bound += 2 * time.Second // a replicated write for the proof of life, and the election's
	}
	rep.timed("killed to led again, ms", fmt.Sprintf("all under %d", bound.Milliseconds()), dl.N > 0 && dl.Max < float64(bound.Milliseconds()), "%s", dl)
	rep.check("slots of the killed that another worker processed", "all", stuck == 0 && slots > 0, "%d of %d; ms after the kill: %s", slots-stuck, slots, dp)
	rep.check("killed to all slots processed, ms", "measured", da.N > 0, "%s", da)
	g.check.account(account)
	g.check.spread(g.View.Latest(), g.o.Defenders)
	g.check.epochs()
	return nil
}

// resumed finds, for each round and slot, when a worker that was not killed had first
// processed a message of the slot that was published before the kill. A slot without
// one is left out.
func (g *leaderGroup) resumed(runs []run) {
	bySlot := map[int][]run{}
	for _, x := range runs {
		bySlot[x.slot] = append(bySlot[x.slot], x)
	}
	gone := g.endings()
	for i, r := range g.rounds {
		for slot := range r.slots {
			first, pending := int64(0), false
			for _, x := range bySlot[slot] {
				switch {
				case x.published > r.at.UnixNano():
				case x.start > r.at.UnixNano() && x.ok:
					pending = true
					if first == 0 || x.end < first {
						first = x.end
					}
				case x.start > r.at.UnixNano() || x.until(gone) > r.at.UnixNano():
					pending = true
				}
			}
			switch {
			case first > 0:
				r.slots[slot] = time.Duration(first - r.at.UnixNano())
			case pending:
				g.rounds[i].stuck = append(g.rounds[i].stuck, slot)
				fallthrough
			default:
				delete(r.slots, slot)
			}
		}
	}
}
