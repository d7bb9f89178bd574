package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/defender"
	"github.com/muster-dev/muster/e2e/audit"
	"github.com/muster-dev/muster/internal/powercut"
	"github.com/muster-dev/muster/local"
	"github.com/muster-dev/muster/partition"
	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/state"
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

// chaosRun is what scenario chaos keeps of its faults.
type chaosRun struct {
	*session
	js      jetstream.JetStream
	maps    jetstream.KeyValue
	auditor *audit.Auditor
	hold    atomic.Bool // no server is there to start a defender with

	counts   map[faultKind]int
	freezes  []audit.Freeze
	moved    int // slots that a server's restart has moved
	plans    int // versions of the map that it has added
	mishaps  []string
	again    int       // messages published again under the same ID
	known    int       // of them, such as the server took for known
	copies   int       // messages published again under another ID
	beside   int       // chambers processed while the one beside them was queued
	over     time.Time // when the last fault ended
	recovery []time.Duration
}

// recovered bounds how long the cluster takes to have every slot with a live
// owner again.
const recovered = 90 * time.Second

// chaos plays a schedule of faults under load, and has an auditor account for
// every message.
func chaos(ctx context.Context, s *session) error {
	r := &chaosRun{session: s, counts: map[faultKind]int{}}
	var err error
	if r.js, err = jetstream.New(s.Conn); err != nil {
		return err
	}
	if r.maps, err = r.js.KeyValue(ctx, defender.Group+"-assignments"); err != nil {
		return fmt.Errorf("opening the bucket of the assignment map: %w", err)
	}
	if r.auditor, err = audit.Begin(ctx, s.Conn, audit.Config{Streams: r.Partition().Streams(), Dead: defender.DeadStream,
		Results: s.StorePath, Records: filepath.Join(s.Dir, "record")}); err != nil {
		return err
	}
	return errors.Join(r.run(ctx), r.auditor.Close())
}

func (r *chaosRun) run(ctx context.Context) error {
	faults := chaosSchedule(r.o.Seed, time.Duration(r.o.Minutes*float64(time.Minute)), r.o.faultCosts())
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
	keeping, stop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { r.replace(keeping, stop) })
	err := r.play(keeping, faults)
	if cause := context.Cause(keeping); err != nil && cause != nil {
		err = cause
	}
	stop(nil)
	wg.Wait()
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
	return r.judge(ctx, faults)
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

// current reads the assignment map.
func (r *chaosRun) current(ctx context.Context) (*partition.Assignment, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	e, err := r.maps.Get(ctx, partition.AssignmentKey)
	if err != nil {
		return nil, fmt.Errorf("reading the assignment map: %w", err)
	}
	return partition.DecodeAssignment(e.Value())
}

// calm waits until as many defenders as there should be share everything.
func (r *chaosRun) calm(ctx context.Context) (*partition.Assignment, error) {
	within := r.Patience(recovered)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not within %v: %d defenders STABLE", within, r.o.Defenders))
	defer cancel()
	for {
		a, err := r.current(ctx)
		if err == nil && a.Settled() && len(a.Workers) == r.o.Defenders && r.atWork(a) {
			return a, nil
		}
		if err := r.Defenders.Failed(); err != nil {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// atWork reports whether all members, and no others, are in the map and STABLE.
func (r *chaosRun) atWork(a *partition.Assignment) bool {
	named := map[string]bool{}
	for _, w := range a.Workers {
		named[w.ID] = true
	}
	ms := r.Defenders.byID()
	for id, m := range ms {
		f, err := m.Gather()
		if err != nil || !named[id] || local.StateOf(f) != string(state.Stable) {
			return false
		}
	}
	return len(ms) == r.o.Defenders && len(r.Defenders.Running()) == r.o.Defenders
}

// victim returns the member that a fault picks, who is not the leader.
func (r *chaosRun) victim(f fault, a *partition.Assignment) (partition.Member, *local.Process, error) {
	var others []partition.Member
	for _, w := range a.Workers {
		if w != a.Leader {
			others = append(others, w)
		}
	}
	w := others[f.Pick%len(others)]
	// Every third may be the leader after all.
	if f.Pick%3 == 0 && f.Kind != faultLeader {
		w = a.Workers[f.Pick%len(a.Workers)]
	}
	m := r.Defenders.byID()[w.ID]
	if m == nil {
		return w, nil, fmt.Errorf("no process has the ID %s", w.ID)
	}
	return w, m, nil
}

// occupy gives every slot of a worker a message that is worked on for a while:
// half of them before their result is stored, half after it.
func (r *chaosRun) occupy(ctx context.Context, a *partition.Assignment, id string) error {
	r.Traffic.hold.Store(int64(500 * time.Millisecond))
	chambers := r.Chambers.bySlot(r.o.Slots)
	want := r.Traffic.forced.Load()
	for i, slot := range r.Chambers.slotsOf(a, id) {
		if i%2 == 0 {
			r.Traffic.named(chambers[slot][0], slowContext)
		} else {
			r.Traffic.press(chambers[slot][0])
		}
		want++
	}
	if err := r.Wait(ctx, time.Minute, "the forced messages published", func() bool { return r.Traffic.forced.Load() >= want }); err != nil {
		return err
	}
	return pause(ctx, 150*time.Millisecond)
}

func (r *chaosRun) inject(ctx context.Context, f fault, a *partition.Assignment) error {
	switch f.Kind {
	case faultServer, faultServers, faultPower:
		return r.endServers(ctx, f, a)
	case faultStepDown:
		return r.stepDown(ctx, f)
	case faultDuplicates:
		return r.publishAgain(ctx, f)
	case faultPoison:
		return r.doom(ctx, f)
	case faultFailing:
		return r.failChamber(ctx, f, a)
	default:
	}
	w, m, err := r.victim(f, a)
	if err != nil {
		return err
	}
	if err := r.occupy(ctx, a, w.ID); err != nil {
		return err
	}
	switch f.Kind {
	case faultFreeze:
		return r.freeze(ctx, f, w, m)
	case faultCut:
		r.Say("The network of %s is cut %s", w.ID, f.Cut)
		r.rig.linksOf(m).cut(f.Cut)
		err := pause(ctx, f.For)
		r.rig.linksOf(m).heal(f.Cut)
		r.over = time.Now()
		return err
	case faultLeader:
		return r.killPublishing(ctx, a, w, m)
	default:
		r.Say("%s is killed", w.ID)
		m.Kill()
		return nil
	}
}

// freeze stops a process past its lease, with messages in its hands.
func (r *chaosRun) freeze(ctx context.Context, f fault, w partition.Member, m *local.Process) error {
	z := audit.Freeze{Record: r.rig.recordOf(m.Options), Claim: w.Claim, Stopped: time.Now()}
	if err := freeze(m.OS); err != nil {
		return fmt.Errorf("stopping %s: %w", w.ID, err)
	}
	r.Say("%s is stopped", w.ID)
	err := pause(ctx, f.For)
	for err == nil && !z.Replaced {
		var a *partition.Assignment
		if a, err = r.current(ctx); err == nil && !slices.Contains(a.Workers, w) {
			z.Replaced = true
		} else if err == nil && time.Since(z.Stopped) > r.Patience(recovered) {
			err = fmt.Errorf("%s has been stopped for %v and is not declared dead", w.ID, time.Since(z.Stopped).Round(time.Second))
		} else if err == nil {
			err = pause(ctx, 200*time.Millisecond)
		}
	}
	z.Resumed = time.Now()
	r.over = z.Resumed
	r.freezes = append(r.freezes, z)
	r.Say("%s goes on after %.1f s", w.ID, z.Resumed.Sub(z.Stopped).Seconds())
	return errors.Join(err, thaw(m.OS))
}

// killPublishing kills a worker, and then the leader at the moment when it has
// begun to plan for that, so that its map is being written or is just out.
func (r *chaosRun) killPublishing(ctx context.Context, a *partition.Assignment, w partition.Member, m *local.Process) error {
	plans := make(chan string, 1)
	on := func(e local.SeenEvent) { // of a.Leader, or of its successor
		if e.Kind == event.Rebalance {
			select {
			case plans <- e.Worker:
			default:
			}
		}
	}
	r.View.SetOnEvent(on)
	defer r.View.SetOnEvent(nil)
	r.Say("%s is killed, and the leader, %s, is going to be when it plans for that", w.ID, a.Leader.ID)
	m.Kill()
	select {
	case id := <-plans:
		leader := r.Defenders.byID()[id]
		if leader == nil {
			return fmt.Errorf("no process has the leader's ID %s", id)
		}
		leader.Kill()
		r.Say("The leader, %s, is killed while it publishes", id)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(r.Patience(30 * time.Second)):
		return fmt.Errorf("no leader has planned for the death of %s", w.ID)
	}
}

// endServers kills one server, or all, or cuts their power, and starts them again. That
// must move nothing.
func (r *chaosRun) endServers(ctx context.Context, f fault, before *partition.Assignment) error {
	victims := r.Servers.Places()
	if f.Kind == faultServer || f.Kind == faultPower && f.Pick%2 == 0 {
		victims = victims[f.Pick%len(victims):][:1]
	}
	r.hold.Store(true)
	defer r.hold.Store(false)
	how := "are killed"
	if f.Kind == faultPower {
		how = "lose power"
		if _, err := r.rig.cutPower(r.Servers, powercut.KeepTorn, rand.New(rand.NewPCG(r.o.Seed, uint64(f.Pick))), victims...); err != nil {
			return err
		}
	} else {
		r.Servers.Kill(victims...)
	}
	r.Say("%d of %d NATS servers %s", len(victims), len(r.Servers.Places()), how)
	if err := pause(ctx, f.For); err != nil {
		return err
	}
	if err := r.Servers.Start(ctx); err != nil {
		return err
	}
	r.over = time.Now()
	r.Say("They are started again")
	after, err := r.calm(ctx)
	if err != nil {
		return err
	}
	moved := 0
	for slot := range after.Owner {
		if before.OwnerOf(slot) != after.OwnerOf(slot) {
			moved++
		}
	}
	if moved > 0 || after.Version != before.Version {
		r.mishaps = append(r.mishaps, fmt.Sprintf("%s: %d slots moved, map version %d to %d", f.Kind, moved, before.Version, after.Version))
	}
	r.moved += moved
	r.plans += int(after.Version - before.Version)
	return nil
}

// stepDown has the leader of a stream among the servers hand over to another.
func (r *chaosRun) stepDown(ctx context.Context, f fault) error {
	main := r.Partition().Streams()
	streams := []string{main[f.Pick/4%len(main)], "KV_" + defender.Group + "-heartbeats", "KV_" + defender.Group + "-assignments", "KV_stable-ids"}
	stream := streams[f.Pick%len(streams)]
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	msg, err := r.Conn.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil)
	if err != nil {
		return fmt.Errorf("asking the leader of stream %s to step down: %w", stream, err)
	}
	r.Say("The leader of stream %s steps down: %s", stream, strings.TrimSpace(string(msg.Data)))
	return nil
}

// copiesEach is how many messages are published again, under the same ID and
// under another.
const copiesEach = 20

func (r *chaosRun) publishAgain(ctx context.Context, f fault) error {
	recent := r.Traffic.published()
	recent = slices.DeleteFunc(recent, func(p publication) bool { return strings.HasPrefix(p.Ref.ID, poisonContext) })
	recent = recent[max(0, len(recent)-20*copiesEach):]
	for i := range 2 * copiesEach {
		p := recent[(f.Pick+i*7)%len(recent)]
		id := p.Ref.TChart().String()
		if i%2 == 1 {
			id = fmt.Sprintf("%s-copy-%d-%d", id, f.Pick, i)
		}
		ack, err := r.announce(ctx, p.Ref, id)
		if err != nil {
			return err
		}
		switch {
		case i%2 == 1:
			r.copies++
		case ack.Duplicate:
			r.known++
			fallthrough
		default:
			r.again++
		}
		if ack.Duplicate && ack.Sequence == 0 {
			continue
		}
		seq, err := r.Partition().Sequence(ack.Stream, ack.Sequence)
		if err != nil {
			return err
		}
		r.Traffic.add(publication{Seq: seq, Key: p.Key, At: time.Now().UnixNano(), Ref: p.Ref})
	}
	r.Say("%d messages are published again under the same ID and %d under another", copiesEach, copiesEach)
	return nil
}

func (r *chaosRun) announce(ctx context.Context, ref defender.ContextRef, id string) (*jetstream.PubAck, error) {
	data, err := json.Marshal(defender.NewCompletion(ref))
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		ack, err := r.js.PublishMsg(try, &nats.Msg{Subject: defender.CompletionSubject(ref.Chamber), Data: data}, jetstream.WithMsgID(id))
		cancel()
		if err == nil || tries == 10 || ctx.Err() != nil {
			return ack, err
		}
	}
}

// doom publishes a message that kills its handler, and waits until it has been
// dead-lettered.
func (r *chaosRun) doom(ctx context.Context, f fault) error {
	var before uint64
	// The servers may have just been restarted.
	if err := r.Wait(ctx, recovered, "the dead letters counted", func() (counted bool) {
		n, err := r.deadLetters(ctx)
		before = n
		return err == nil
	}); err != nil {
		return err
	}
	chamber := f.Pick % len(r.Chambers)
	r.Say("A message of %s kills its handler", r.Chambers[chamber])
	r.Traffic.named(chamber, poisonContext)
	r.Traffic.publish(chamber, true) // and has a successor
	return r.Wait(ctx, recovered, "the poison message dead-lettered", func() bool {
		n, err := r.deadLetters(ctx)
		return err == nil && n > before
	})
}

// failChamber has a chamber's messages fail until another chamber of its slot has been
// processed, by a new owner: the one that queued them is killed.
func (r *chaosRun) failChamber(ctx context.Context, f fault, a *partition.Assignment) error {
	chambers := r.Chambers.bySlot(r.o.Slots)
	slot := f.Pick % r.o.Slots
	for len(chambers[slot]) < 2 {
		slot = (slot + 1) % r.o.Slots
	}
	sick, other := chambers[slot][0], chambers[slot][1]
	key := r.Chambers[sick].String()
	file := filepath.Join(r.Dir, "failing")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return fmt.Errorf("having a chamber fail: %w", err)
	}
	r.Say("%s fails, and %s, beside it in slot %d, does not", key, r.Chambers[other], slot)
	r.Traffic.failing(sick, "failing", file)
	r.Traffic.publish(sick, true) // waits behind it
	if err := r.Wait(ctx, recovered, "its messages queued", func() bool {
		p, err := partition.Open(r.Conn, defender.Group).RetryQueue(ctx)
		return err == nil && p.Keys[key] > 1
	}); err != nil {
		return err
	}
	if m := r.Defenders.byID()[a.OwnerOf(slot)]; m != nil {
		r.Say("%s, the owner, is killed", a.OwnerOf(slot))
		m.Kill()
	}
	r.Traffic.named(other, "beside")
	queued := 0
	if err := r.Wait(ctx, recovered, "the chamber beside it processed", func() bool {
		if !r.processedNamed(ctx, other, "beside") {
			return false
		}
		p, err := partition.Open(r.Conn, defender.Group).RetryQueue(ctx)
		queued = p.Keys[key]
		return err == nil
	}); err != nil {
		return err
	}
	if queued > 1 {
		r.beside++
	}
	r.over = time.Now()
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("having a chamber work again: %w", err)
	}
	return r.Wait(ctx, recovered, "its messages processed", func() bool {
		p, err := partition.Open(r.Conn, defender.Group).RetryQueue(ctx)
		return err == nil && p.Keys[key] == 0
	})
}

// processedNamed reports whether the last context of a chamber with a name that begins
// so has a result.
func (r *chaosRun) processedNamed(ctx context.Context, chamber int, name string) bool {
	pubs := r.Traffic.published()
	for _, p := range slices.Backward(pubs) {
		if p.Ref.Chamber == r.Chambers[chamber] && strings.HasPrefix(p.Ref.ID, name) {
			_, err := r.Store.UChart(ctx, p.Ref.Chamber, p.Ref.ID)
			return err == nil
		}
	}
	return false
}

func (r *chaosRun) deadLetters(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := r.js.Stream(ctx, defender.DeadStream)
	if err != nil {
		return 0, fmt.Errorf("counting the dead letters: %w", err)
	}
	return s.CachedInfo().State.Msgs, nil
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
	rep.check("faults injected, and recovered from", fmt.Sprintf("%d, of each kind", len(faults)), len(r.recovery) == len(faults) && len(r.counts) == len(r.o.faultCosts()), "%d: %s", len(r.recovery), strings.Join(kinds, ", "))
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
	if n := r.counts[faultFailing]; r.o.RetryAttempts > 0 {
		rep.check("chambers that went on while the one beside them failed", fmt.Sprint(n), n > 0 && r.beside == n, "%d", r.beside)
	}
	rep.check("published again: same ID, other ID", "no second result", r.again > 0 && r.copies > 0 && a.StoredTwice == 0, "%d (%d known to the server), %d", r.again, r.known, r.copies)
	d := distribution(r.recovery)
	rep.measure("recovery_ms", d)
	rep.check("end of a fault to all defenders STABLE, ms", "measured", true, "%s", d)
	r.check.epochs()
	return nil
}
