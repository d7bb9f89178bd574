package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/muster-dev/muster/broker"
	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/internal/misuse"
	"github.com/muster-dev/muster/internal/powercut"
	"github.com/muster-dev/muster/partition/event"
)

const (
	powerCutName  = "power-cut"
	caseOneServer = "one-server"
)

// onDisks gives each server a process and a disk of its own.
func onDisks(o *Options) { o.Processes, o.ownBroker, o.chaotic, o.onDisks = true, true, true, true }

// smallPowerCut gives scenario power-cut few enough slots that every one has a message
// several times a second, and that three servers elect their leaders soon.
func smallPowerCut(o *Options, chosen func(flag string) bool) {
	suit(chosen, "defenders", &o.Defenders, 6)
	suit(chosen, "chambers", &o.Chambers, 96)
	suit(chosen, "slots", &o.Slots, 32)
	suit(chosen, "rate", &o.Rate, 60)
	suit(chosen, "kills", &o.Kills, 6)
	suit(chosen, "replicas", &o.Replicas, min(3, max(o.Servers, 1)))
	suit(chosen, "work", &o.Work, 20*time.Millisecond)
	suit(chosen, "sync", &o.Sync, broker.SyncAlways)
}

// checkPowerCuts returns what is wrong with asking for power cuts with these options.
func checkPowerCuts(name string, o Options) error {
	switch {
	case o.Ext4Data != "" && name != powerCutName && !o.PowerCuts:
		return misuse.Errorf("--ext4-data: scenario %s cuts no power: play %s, or %s with --power-cuts", name, powerCutName, chaosName)
	case !o.PowerCuts:
		return nil
	case name != chaosName:
		return misuse.Errorf("--power-cuts is for scenario %s: scenario %s does nothing else", chaosName, powerCutName)
	case o.Sync != broker.SyncAlways:
		return misuse.Errorf("--power-cuts with --sync %s: the auditor's copies are lost with the messages: give --sync always, or play scenario %s", o.Sync.String(), powerCutName)
	}
	return nil
}

// powerCutRun is what scenario power-cut keeps of its cuts.
type powerCutRun struct {
	*group
	auditor *audit.LossAuditor
	rng     *rand.Rand
	all     bool // servers lose power together
	slots   slotStarts
	begun   []time.Duration // until the first message of any slot
	resumed []time.Duration // until every slot had begun one
	stable  []time.Duration
}

// Bounds of how long processing waits after a cut. On several servers each slot is a Raft
// group, which elects a leader in 4 to 9 s, or, when votes are split, in twice that.
const (
	beginWithin           = 10 * time.Second
	resumeWithin          = 10 * time.Second
	resumeWithinOnSeveral = 20 * time.Second
)

// powerCut cuts the power of the servers under load: first as soon as the group is
// there, then again and again, and has an auditor account for every message.
func powerCut(ctx context.Context, s *session) error {
	g, err := openGroup(s)
	if err != nil {
		return err
	}
	r := &powerCutRun{group: g, rng: rand.New(rand.NewPCG(s.o.Seed, 0x90e5)), all: s.o.Case != caseOneServer,
		slots: slotStarts{pattern: filepath.Join(s.rig.records, "*")}}
	if r.auditor, err = audit.BeginLoss(ctx, s.Conn, s.auditConfig()); err != nil {
		return err
	}
	return errors.Join(r.run(ctx), r.auditor.Close())
}

func (r *powerCutRun) run(ctx context.Context) error {
	r.Say("The servers sync %s", syncText(r.o.Sync))
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.expect(ctx, r.o.Defenders); err != nil {
		return err
	}
	for i := range r.o.Kills {
		if err := r.cut(ctx, i); err != nil {
			return fmt.Errorf("power cut %d: %w", i+1, err)
		}
	}
	for i := range r.Chambers {
		r.Traffic.publish(i, false)
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	return r.judge(ctx)
}

func syncText(s broker.Sync) string {
	switch s {
	case broker.SyncAlways:
		return "before they acknowledge"
	case broker.SyncDefault:
		return "every two minutes"
	default:
		return "every " + s.String()
	}
}

// cut draws how the power is cut, of all servers or of one, and cuts it.
func (r *powerCutRun) cut(ctx context.Context, i int) error {
	keep := powercut.KeepNothing
	if i > 1 {
		keep = []powercut.Keep{powercut.KeepNothing, powercut.KeepPrefix, powercut.KeepTorn}[r.rng.IntN(3)]
	}
	settled, err := r.prepare(ctx, i)
	if err != nil {
		return err
	}
	if err := r.cutOnce(ctx, i, keep, settled); err != nil {
		return fmt.Errorf("%s, %s: %w", settled, keep, err)
	}
	return nil
}

// cutOnce cuts the power, gives it back, and waits until all slots are processed again.
func (r *powerCutRun) cutOnce(ctx context.Context, i int, keep powercut.Keep, settled string) error {
	victims := r.Servers.Places()
	if !r.all {
		at := r.rng.IntN(len(victims))
		victims = victims[at : at+1]
	}
	// With all servers gone the auditor looks at the streams before the defenders do.
	if r.all {
		r.eachLinks(func(l links) { l.cut(cutBoth) })
	}
	killed, err := r.rig.cutPower(r.Servers, keep, r.rng, victims...)
	if err != nil {
		return err
	}
	back := time.Now()
	if err := r.Servers.Start(ctx); err != nil {
		return err
	}
	from := time.Now()
	left, err := r.auditor.Cut(ctx, audit.Cut{Killed: killed, Back: back})
	if err != nil {
		return err
	}
	looked := time.Since(from)
	if r.all {
		r.eachLinks(func(l links) { l.heal(cutAndReset) })
	} else {
		from = killed // the other servers continue
	}
	begun, resumed, err := r.resume(ctx, from)
	if err != nil {
		return err
	}
	if _, err := r.calm(ctx); err != nil {
		return err
	}
	stable := time.Since(from)
	if !r.all {
		if err := r.caughtUp(ctx); err != nil {
			return err
		}
	}
	r.begun, r.resumed, r.stable = append(r.begun, begun), append(r.resumed, resumed), append(r.stable, stable)
	r.Say("Power cut %d of %d, %s, %s, %s: %d messages are left (read in %.2f s); processing again after %.2f s, every slot after %.2f s, all STABLE after %.2f s",
		i+1, r.o.Kills, which(victims, len(r.Servers.Places())), settled, keep, left, looked.Seconds(), begun.Seconds(), resumed.Seconds(), stable.Seconds())
	return nil
}

func which(victims []int, of int) string {
	switch {
	case of == 1:
		return "the only server"
	case len(victims) == of:
		return fmt.Sprintf("all %d servers", of)
	default:
		return fmt.Sprintf("server %d of %d", victims[0]+1, of)
	}
}

// prepare lets the load continue for a moment before a cut, and says what the disks have
// then. The first cut comes as soon as the group is there: what was created last may not
// be on the disk. The second comes when the disks are synced, as they are about half a
// minute later; of the others, half do.
func (r *powerCutRun) prepare(ctx context.Context, i int) (string, error) {
	settled := i == 1 || i > 1 && r.rng.IntN(2) == 0
	load := 300*time.Millisecond + time.Duration(r.rng.Int64N(int64(1200*time.Millisecond)))
	if settled {
		if err := r.rig.disks.Sync(r.Servers.Places()...); err != nil {
			return "", err
		}
	}
	text := "nothing synced but by the servers"
	switch {
	case i == 0:
		text = "right after the group's creation"
	case settled:
		text = fmt.Sprintf("disks synced %.1f s before", load.Seconds())
	}
	if err := pause(ctx, load); err != nil {
		return "", err
	}
	return text, r.burst(ctx)
}

// burst publishes two messages for each chamber, and returns in the middle of it: many
// have just been acknowledged then and wait to be processed.
func (r *powerCutRun) burst(ctx context.Context) error {
	want := r.Traffic.Total() + int64(len(r.Chambers))
	for range 2 {
		for i := range r.Chambers {
			r.Traffic.publish(i, false)
		}
	}
	return r.Wait(ctx, recovered, "a burst published", func() bool { return r.Traffic.Total() >= want })
}

// eachLinks does something with the network of every defender.
func (r *powerCutRun) eachLinks(do func(links)) {
	for _, m := range r.Defenders.Running() {
		do(r.rig.linksOf(m))
	}
}

// resume waits until every slot has begun a message since a moment, and returns how long
// the first and the last took.
func (r *powerCutRun) resume(ctx context.Context, since time.Time) (begun, took time.Duration, err error) {
	var waits []int
	within := r.Patience(recovered)
	err = r.Wait(ctx, within, "every slot processed again", func() bool {
		first, err := r.slots.firstSince(since)
		if err != nil {
			return false
		}
		waits, begun, took = nil, 0, 0
		for slot, chambers := range r.Chambers.bySlot(r.o.Slots) {
			if len(chambers) == 0 {
				continue
			}
			at, ok := first[slot]
			if !ok {
				waits = append(waits, slot)
				continue
			}
			if after := at.Sub(since); took == 0 || after < begun {
				begun = after
			}
			took = max(took, at.Sub(since))
		}
		return len(waits) == 0
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; slots %v wait", err, waits)
	}
	return begun, took, err
}

// caughtUp waits until the servers have caught up with each other: a second cut may come
// to another server only when the first one's has what the others have.
func (r *powerCutRun) caughtUp(ctx context.Context) error {
	return r.Wait(ctx, recovered, "all servers have all replicas", func() bool {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		for _, name := range append(r.Partition().Streams(), "KV_"+defender.Group+"-heartbeats", "KV_"+defender.Group+"-assignments", "KV_stable-ids") {
			s, err := r.js.Stream(try, name)
			if err != nil || s.CachedInfo().Cluster == nil || s.CachedInfo().Cluster.Leader == "" {
				return false
			}
			for _, p := range s.CachedInfo().Cluster.Replicas {
				if !p.Current || p.Offline {
					return false
				}
			}
		}
		return true
	})
}

// judge has the auditor account for all messages.
func (r *powerCutRun) judge(ctx context.Context) error {
	pubs := r.Traffic.published()
	if err := r.keepPublished(pubs); err != nil {
		return err
	}
	published := make([]audit.Published, len(pubs))
	for i, p := range pubs {
		published[i] = audit.Published{Sequence: p.Seq, Key: p.Key, Context: p.Ref.ID, Acked: time.Unix(0, p.Acked)}
	}
	a, err := r.auditor.Account(ctx, published, nil)
	if err != nil {
		return err
	}
	for _, f := range a.Faults {
		r.Say("The auditor: %s", f)
	}
	rep, always := r.report, r.o.Sync == broker.SyncAlways
	rep.measure("sync", r.o.Sync.String())
	rep.measure("servers", r.o.Servers)
	rep.measure("account", a)
	begun, resumed, stable := distribution(r.begun), distribution(r.resumed), distribution(r.stable)
	rep.measure("begun_ms", begun)
	rep.measure("resumed_ms", resumed)
	rep.measure("stable_ms", stable)
	rep.measure("streams_rolled_back", r.View.count(time.Time{}, event.StreamRolledBack))
	rep.measure("streams_created_again", r.View.count(time.Time{}, event.ResourceRecreated))
	equal(rep, "power cuts, after which every slot was processed again and all were STABLE", r.o.Kills, len(r.resumed))
	rep.check("messages acknowledged to the publisher", "some", a.Messages > 0, "%d", a.Messages)
	if always {
		equal(rep, "acknowledged messages lost", 0, a.Lost+a.LostOtherwise)
	} else {
		rep.check("acknowledged messages lost with a cut", "all of them known", a.Lost+a.Stored+a.LostOtherwise == a.Messages, "%d, acknowledged up to %.2f s before it; by cut %v", a.Lost, float64(a.OldestMS)/1000, a.LostByCut)
		equal(rep, "acknowledged messages lost otherwise", 0, a.LostOtherwise)
	}
	equal(rep, "messages stored or lost with a cut", a.Messages, a.Stored+a.Lost)
	rep.check("acknowledged by a worker without being processed", "0", a.SilentAcks == 0 && a.Acks > 0, "%d of %d", a.SilentAcks, a.Acks)
	equal(rep, "messages dead-lettered", 0, a.DeadLetters)
	equal(rep, "results stored twice, changed, or of nothing published", 0, a.AppliedTwice+a.FromNowhere)
	equal(rep, "results stored out of order, or under an older fence", 0, a.EffectsDisorder+a.FenceBack)
	equal(rep, "begun before the one before was done", 0, a.OutOfOrder)
	equal(rep, "begun while another of the chamber went on", 0, a.Concurrent)
	equal(rep, "messages still in the stream", 0, a.Left)
	from, every := "power to", resumeWithin
	if !r.all {
		from = "cut to"
	}
	if r.o.Servers > 1 {
		every = resumeWithinOnSeveral
	}
	rep.timed(from+" processing again, ms", fmt.Sprintf("at most %d", beginWithin.Milliseconds()), begun.Max <= float64(beginWithin.Milliseconds()), "%s", begun)
	rep.timed("... to every slot processed again, ms", fmt.Sprintf("at most %d", every.Milliseconds()), resumed.Max <= float64(every.Milliseconds()), "%s", resumed)
	rep.check("... to all defenders STABLE, ms", "measured", true, "%s", stable)
	if always {
		r.check.epochs()
	}
	return nil
}
