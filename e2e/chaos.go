package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-dev/muster/e2e/audit"
)

// smallChaos gives scenario chaos a cluster of three servers, and as many slots as
// three servers on one machine elect leaders for in a few seconds.
func smallChaos(o *Options, chosen func(flag string) bool) {
	suit(chosen, "defenders", &o.Defenders, 10)
	suit(chosen, "chambers", &o.Chambers, 240)
	suit(chosen, "slots", &o.Slots, 120)
	suit(chosen, "rate", &o.Rate, 60)
	suit(chosen, "servers", &o.Servers, 3)
	suit(chosen, "replicas", &o.Replicas, min(3, o.Servers))
	suit(chosen, "work", &o.Work, 50*time.Millisecond)
}

// setChaos has processes that can be killed, and disks where the power is cut, too.
func setChaos(o *Options) {
	o.Processes, o.ownBroker, o.chaotic = true, true, true
	o.onDisks = o.PowerCuts
}

// chaosRun is what scenario chaos keeps of its run.
type chaosRun struct {
	*faults
	auditor  *audit.Auditor
	counts   map[faultKind]int
	recovery []time.Duration
}

// chaos plays a schedule of faults under load, and has an auditor account for
// every message.
func chaos(ctx context.Context, s *session) error {
	g, err := openGroup(s)
	if err != nil {
		return err
	}
	auditor, err := audit.Begin(ctx, s.Conn, s.auditConfig())
	if err != nil {
		return err
	}
	r := &chaosRun{faults: &faults{group: g}, auditor: auditor, counts: map[faultKind]int{}}
	return errors.Join(r.run(ctx), auditor.Close())
}

func (r *chaosRun) run(ctx context.Context) error {
	faults := chaosSchedule(r.o.Seed, time.Duration(r.o.Minutes*float64(time.Minute)), costsFor(r.o))
	r.Say("Schedule of seed %d, %d faults; each begins at its time at the earliest, and when all have recovered from the one before:", r.o.Seed, len(faults))
	for _, f := range faults {
		r.Say("  %s", f)
	}
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.warmUp(ctx); err != nil {
		return err
	}
	if err := r.expect(ctx, r.o.Defenders); err != nil {
		return err
	}
	calling, err := r.startCalling(ctx)
	if err != nil {
		return err
	}
	err = r.playKeeping(ctx, faults)
	calls := calling.finish()
	if err != nil {
		return err
	}
	r.Traffic.hold.Store(0)
	for i := range r.Chambers {
		r.Traffic.publish(i, false)
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	if err := r.judge(ctx, faults); err != nil {
		return err
	}
	return r.judgeCalls(calls, r.freezes)
}

// playKeeping injects the faults, and has defenders that are gone replaced.
func (r *chaosRun) playKeeping(ctx context.Context, faults []fault) error {
	keeping, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.replace(keeping, stop) })
	err := r.play(keeping, faults)
	if cause := context.Cause(keeping); err != nil && cause != nil {
		err = cause
	}
	stop(nil)
	wg.Wait()
	return err
}

// replace starts a defender for each that is gone, as a Deployment would.
func (r *chaosRun) replace(ctx context.Context, fail context.CancelCauseFunc) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if r.hold.Load() || len(r.Defenders.Running()) >= r.o.Defenders {
			continue
		}
		if _, err := r.Defenders.Add(ctx, 1); err != nil {
			fail(err)
			return
		}
	}
}

func (r *chaosRun) play(ctx context.Context, faults []fault) error {
	began := time.Now()
	for i, f := range faults {
		select {
		case <-time.After(time.Until(began.Add(f.At))):
		case <-ctx.Done():
			return ctx.Err()
		}
		a, err := r.calm(ctx)
		if err != nil {
			return fmt.Errorf("before fault %d: %w", i+1, err)
		}
		r.Say("Fault %d of %d: %s", i+1, len(faults), f)
		r.over = time.Time{}
		if err := r.inject(ctx, f, a); err != nil {
			return fmt.Errorf("fault %d (%s): %w", i+1, f.Kind, err)
		}
		r.counts[f.Kind]++
		if r.over.IsZero() {
			r.over = time.Now()
		}
		if _, err := r.calm(ctx); err != nil {
			return fmt.Errorf("after fault %d (%s): %w", i+1, f.Kind, err)
		}
		r.recovery = append(r.recovery, time.Since(r.over))
	}
	return nil
}

// judge has the auditor account for all messages.
func (r *chaosRun) judge(ctx context.Context, faults []fault) error {
	pubs := r.Traffic.published()
	if err := r.keepPublished(pubs); err != nil {
		return err
	}
	published := make([]audit.Published, len(pubs))
	for i, p := range pubs {
		published[i] = audit.Published{Sequence: p.Seq, Key: p.Key, Context: p.Ref.ID, Poison: strings.HasPrefix(p.Ref.ID, poisonContext)}
	}
	deaths := map[string]time.Time{}
	for file, ns := range r.endings() {
		deaths[file] = time.Unix(0, ns)
	}
	a, err := r.auditor.Account(ctx, published, deaths, r.freezes)
	if err != nil {
		return err
	}
	for _, f := range a.Faults {
		r.Say("The auditor: %s", f)
	}
	rep := r.report
	rep.measure("seed", r.o.Seed)
	rep.measure("faults", len(faults))
	rep.measure("account", a)
	rep.measure("deaths", len(deaths))
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(r.counts)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, r.counts[k]))
	}
	rep.check("faults injected, and recovered from", fmt.Sprintf("%d, of each kind", len(faults)), len(r.recovery) == len(faults) && len(r.counts) == len(costsFor(r.o)), "%d: %s", len(r.recovery), strings.Join(kinds, ", "))
	rep.check("messages that the stream took", "some", a.Messages > 0, "%d, %d of them again, %d not confirmed to the publisher", a.Messages, a.Resent, a.Unconfirmed)
	equal(rep, "messages that nobody knows anything of", 0, a.Unknown)
	equal(rep, "messages lost", 0, a.Lost)
	equal(rep, "messages still in the stream", 0, a.Left)
	equal(rep, "messages accounted for", a.Messages, a.Stored+a.DeadLetters)
	equal(rep, "results stored twice, changed, or of nothing published", 0, a.StoredTwice+a.FromNowhere)
	equal(rep, "begun while another of the chamber went on", 0, a.Concurrent)
	equal(rep, "begun before the one before was done", 0, a.OutOfOrder)
	equal(rep, "results stored out of order, or under an older fence", 0, a.EffectsDisorder+a.FenceBack)
	rep.check("poison messages dead-lettered, once, without a result", fmt.Sprint(a.Poison), a.Poison > 0 && a.DeadLetters-a.WronglyDead == a.Poison && a.PoisonStored+a.DeadTwice+a.StoredAndDead == 0, "%d", a.DeadLetters-a.WronglyDead)
	equal(rep, "healthy messages dead-lettered", 0, a.WronglyDead)
	rep.check("results stored by a zombie after its successor's", "0", a.ZombieEffects == 0 && a.Freezes > 0, "%d, of %d stopped past their lease, which had %d runs to end; %d stored before a successor had come to the chamber", a.ZombieEffects, a.Freezes, a.ZombieTails, a.ZombieStores)
	rep.measure("fence_rejections", r.Defenders.total("defender_fence_rejections_total"))
	rep.check("slots moved by servers that were restarted", "0, no plan", r.moved == 0 && r.plans == 0, "%d, %d plans %s", r.moved, r.plans, strings.Join(r.mishaps, "; "))
	if n := r.counts[faultFailing]; chambersFail(r.o) {
		rep.check("chambers that went on while the one beside them failed", fmt.Sprint(n), n > 0 && r.beside == n, "%d", r.beside)
	}
	rep.check("published again: same ID, other ID", "no second result", r.again > 0 && r.copies > 0 && a.StoredTwice == 0, "%d (%d known to the server), %d", r.again, r.known, r.copies)
	d := distribution(r.recovery)
	rep.measure("recovery_ms", d)
	rep.check("end of a fault to all defenders STABLE, ms", "measured", true, "%s", d)
	r.check.epochs()
	return nil
}
