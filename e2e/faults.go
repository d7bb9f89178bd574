package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
)

// faults injects the faults of scenario chaos, and keeps what they did.
type faults struct {
	*group
	hold atomic.Bool // no server is there to start a defender with
	over time.Time   // when the last fault ended

	freezes []audit.Freeze
	moved   int // slots that a server's restart has moved
	plans   int // versions of the map that it has added
	mishaps []string
	again   int // messages published again under the same ID
	known   int // of them, such as the server took for known
	copies  int // messages published again under another ID
	beside  int // chambers processed while the one beside them was queued
}

// victim returns the defender that a fault picks, which is rarely the leader.
func (r *faults) victim(f fault, a *partition.Assignment) (partition.Member, *local.Process, error) {
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
func (r *faults) occupy(ctx context.Context, a *partition.Assignment, id string) error {
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

func (r *faults) inject(ctx context.Context, f fault, a *partition.Assignment) error {
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
func (r *faults) freeze(ctx context.Context, f fault, w partition.Member, m *local.Process) error {
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
	r.Say("%s continues after %.1f s", w.ID, z.Resumed.Sub(z.Stopped).Seconds())
	return errors.Join(err, thaw(m.OS))
}

// killPublishing kills a worker, and then the leader at the moment when it has
// begun to plan for that, so that its map is being written or is just out.
func (r *faults) killPublishing(ctx context.Context, a *partition.Assignment, w partition.Member, m *local.Process) error {
	plans := make(chan string, 1)
	on := func(e local.SeenEvent) { // of a.Leader, or of the next one
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
func (r *faults) endServers(ctx context.Context, f fault, before *partition.Assignment) error {
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

// stepDown has the leader of a stream among the servers make way for another.
func (r *faults) stepDown(ctx context.Context, f fault) error {
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

func (r *faults) publishAgain(ctx context.Context, f fault) error {
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

func (r *faults) announce(ctx context.Context, ref defender.ContextRef, id string) (*jetstream.PubAck, error) {
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
func (r *faults) doom(ctx context.Context, f fault) error {
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
	r.Traffic.publish(chamber, true) // and another waits behind it
	return r.Wait(ctx, recovered, "the poison message dead-lettered", func() bool {
		n, err := r.deadLetters(ctx)
		return err == nil && n > before
	})
}

// failChamber has a chamber's messages fail until another chamber of its slot has been
// processed, by a new owner: the one that queued them is killed.
func (r *faults) failChamber(ctx context.Context, f fault, a *partition.Assignment) error {
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
func (r *faults) processedNamed(ctx context.Context, chamber int, name string) bool {
	pubs := r.Traffic.published()
	for _, p := range slices.Backward(pubs) {
		if p.Ref.Chamber == r.Chambers[chamber] && strings.HasPrefix(p.Ref.ID, name) {
			_, err := r.Store.UChart(ctx, p.Ref.Chamber, p.Ref.ID)
			return err == nil
		}
	}
	return false
}

func (r *faults) deadLetters(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := r.js.Stream(ctx, defender.DeadStream)
	if err != nil {
		return 0, fmt.Errorf("counting the dead letters: %w", err)
	}
	return s.CachedInfo().State.Msgs, nil
}
