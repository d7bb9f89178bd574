package e2e

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
)

// crashRun is a run of scenario crash.
type crashRun struct{ *session }

// crash kills one defender process after the other under load, each with a
// message pending on every slot it has, and replaces it.
func crash(ctx context.Context, s *session) error { return crashRun{s}.run(ctx) }

func (s crashRun) run(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	if err := s.warmUp(ctx); err != nil {
		return err
	}
	if err := s.expect(ctx, s.o.Defenders); err != nil {
		return err
	}
	calling, err := s.startCalling(ctx)
	if err != nil {
		return err
	}
	kills, err := s.killAll(ctx)
	calls := calling.finish()
	if err != nil {
		return err
	}
	if err := s.drain(ctx); err != nil {
		return err
	}
	if err := s.judgeCrash(kills); err != nil {
		return err
	}
	return s.judgeCalls(calls, nil)
}

// killAll kills one defender after the other.
func (s crashRun) killAll(ctx context.Context) ([]kill, error) {
	rng := rand.New(rand.NewPCG(s.o.Seed, 1))
	var kills []kill
	for i := range s.o.Kills {
		k, err := s.killOne(ctx, rng, i)
		if err != nil {
			return nil, err
		}
		kills = append(kills, k)
	}
	return kills, nil
}

// kill is one defender's death and what it had.
type kill struct {
	id     string
	leader bool
	at     time.Time
	slots  []int
}

func (s crashRun) killOne(ctx context.Context, rng *rand.Rand, i int) (kill, error) {
	a := s.View.Latest()
	victim := a.Workers[rng.IntN(len(a.Workers))]
	m := s.Defenders.byID()[victim.ID]
	if m == nil {
		return kill{}, fmt.Errorf("no process has the ID %s", victim.ID)
	}
	k := kill{id: victim.ID, leader: victim == a.Leader}
	chambers := s.Chambers.bySlot(s.o.Slots)
	for slot := range a.Owner {
		if a.OwnerOf(slot) == victim.ID && len(chambers[slot]) > 0 {
			k.slots = append(k.slots, slot)
			// Two: one is in flight when the kill comes, one waits.
			for range 2 {
				s.Traffic.publish(chambers[slot][0], true)
			}
		}
	}
	if err := s.Wait(ctx, time.Minute, "the forced messages published", func() bool { return s.Traffic.Ordered() == 0 }); err != nil {
		return k, err
	}
	k.at = m.Kill()
	if _, err := s.Defenders.Add(ctx, 1); err != nil {
		return k, err
	}
	if err := s.Wait(ctx, 60*time.Second, "all defenders STABLE again", func() bool {
		return !slices.Contains(s.View.Latest().Workers, victim) && s.View.Stable(s.o.Defenders)
	}); err != nil {
		return k, err
	}
	s.Say("Kill %d: %s (leader: %t) with %d slots; %d defenders STABLE again after %.1f s", i+1, k.id, k.leader, len(k.slots), s.o.Defenders, time.Since(k.at).Seconds())
	return k, nil
}

func (s crashRun) judgeCrash(kills []kill) error {
	runs, err := s.runs()
	if err != nil {
		return err
	}
	s.check.messages(s.Traffic.published(), runs)
	starts := map[int][]run{}
	for _, r := range runs {
		starts[r.slot] = append(starts[r.slot], r)
	}
	ended := s.endings()
	var all, of []time.Duration
	unresumed, idle, leaders := 0, 0, 0
	for _, k := range kills {
		for _, slot := range k.slots {
			d, was, ok := resumed(starts[slot], k, ended)
			switch {
			case !was:
				idle++
			case !ok:
				unresumed++
			default:
				all = append(all, d)
				if k.leader {
					of = append(of, d)
				}
			}
		}
		if k.leader {
			leaders++
		}
	}
	r := s.report
	d := distribution(all)
	r.measure("kills", len(kills))
	r.measure("kills_of_leader", leaders)
	r.measure("slots_taken", len(all))
	r.measure("slots_without_a_message_at_the_kill", idle)
	r.measure("kill_to_first_start_ms", d)
	r.measure("kill_of_leader_to_first_start_ms", distribution(of))
	equal(r, "kill -9", s.o.Kills, len(kills))
	// On a slow machine messages are rare, and many slots have none when their owner is killed.
	enough := 4*len(all) > idle
	r.check("slots with a message pending that resumed elsewhere", "all", unresumed == 0 && enough, "%d, %d did not; %d had none", len(all), unresumed, idle)
	// With replicas the proof of life is a replicated write and waited for 1.15 s longer, and so are the writes of a takeover.
	under := 1500.0
	if s.o.Replicas > 1 {
		under += 1500
	}
	r.timed("kill to first start at the new owner, ms", fmt.Sprintf("p99 under %.0f", under), d.P99 < under, "%s", d)
	var detections []time.Duration
	for _, k := range kills {
		for _, e := range s.View.Since(k.at) {
			if e.Kind == event.WorkerGone && e.Peer == k.id {
				detections = append(detections, e.At.Sub(k.at))
				break
			}
		}
	}
	dd := distribution(detections)
	r.measure("kill_to_declared_dead_ms", dd)
	r.check("deaths declared by the leader", fmt.Sprint(len(kills)), dd.N == len(kills), "%s", dd)
	last := s.View.Latest()
	counts := s.Chambers.counts(last)
	r.measure("min_chambers", slices.Min(counts))
	r.measure("max_chambers", slices.Max(counts))
	// Timed: whom a busy machine keeps from renewing its lease has none for a moment.
	r.timed("chambers each at the end", "as even as they can be", slices.Max(counts)-slices.Min(counts) <= 1 || math.Mod(float64(s.o.Chambers), float64(s.o.Defenders)) != 0, "%d to %d", slices.Min(counts), slices.Max(counts))
	return nil
}

// resumed returns how long after the kill another defender started a message of
// the slot that the server had at the kill. was reports whether it had one: a slot
// whose messages were all done waits for its next one, however ready its owner is.
// What an earlier kill cut off was not under way at this one; see [run.until] for
// ended.
func resumed(runs []run, k kill, ended map[string]int64) (d time.Duration, was, ok bool) {
	first, at := int64(math.MaxInt64), k.at.UnixNano()
	for _, r := range runs {
		switch {
		case r.published > at:
		case r.start > at:
			first, was = min(first, r.start), true
		case r.until(ended) >= at:
			was = true
		}
	}
	return time.Duration(first - at), was, first < math.MaxInt64
}
