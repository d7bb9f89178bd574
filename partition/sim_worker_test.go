package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// This file models one process: worker.go's loop around a machine, and bucket.go's
// operations with their read-back. sim_delivery_test.go has what it does with messages.

var errNoReply = errors.New("no reply")

type simWorker struct {
	s        *sim
	name     string
	m        *machine
	dead     bool // the process has ended
	crashed  bool
	stopped  bool // by SIGSTOP
	leaving  bool // was asked to
	standby  simStandby
	previous bool // it is of the previous version
	backlog  []*simEvent
	rate     float64       // of its clock, against virtual time
	offset   time.Duration // of its clock
	link     *simLink

	listening record.Process
	mapping   *simWatch
	leases    *simWatch
	names     *simWatch
	keeping   bool              // it looks for what is gone
	lastSeen  map[string]uint64 // revision by bucket
	wakeGen   int
	pending   int // farewells under way
	lastPlan  *planJob
	yielders  map[record.Process]bool // that its leader knew of when it planned

	delivery     *delivery
	mover        *simMover // nil: its handler has no state to move
	runs         map[uint64]*simRun
	settled      map[int]simSettled // the last message of each key that it has settled
	looking      int                // looks at streams that are under way
	granted      map[int]bool       // slots of which a grant ever came
	seenStreams  []simSeenStream    // by shard
	suspended    bool
	trustedUntil time.Time
}

func (w *simWorker) String() string {
	if w.m != nil && w.m.self != (record.Process{}) {
		return w.name + "(" + w.m.self.String() + ")"
	}
	return w.name
}

// clock is the worker's own time.
func (w *simWorker) clock() time.Time {
	return simEpoch.Add(w.offset + w.s.now + time.Duration(float64(w.s.now)*w.rate))
}

// virtual returns when the worker's clock shows t.
func (w *simWorker) virtual(t time.Time) time.Duration {
	return time.Duration(float64(t.Sub(simEpoch)-w.offset) / (1 + w.rate))
}

// later does something in this process.
func (w *simWorker) later(d time.Duration, do func()) { w.s.at(w.s.now+d, w, do) }

func (s *sim) startWorker() *simWorker {
	s.started++
	w := &simWorker{s: s, name: fmt.Sprintf("p%d", s.started), previous: s.previous, rate: (s.rng.Float64() - 0.5) * 0.02, offset: s.between(0, time.Hour),
		runs: make(map[uint64]*simRun), granted: make(map[int]bool), seenStreams: make([]simSeenStream, s.cfg.Shards), suspended: true}
	w.delivery = newDelivery(s.cfg, newMemoryFor(s.cfg, s.cfg.Shards), &retryCounts{})
	if s.seed%3 == 0 {
		// So that pulls end by what they have brought, as they do under load.
		w.delivery.batch = 1 + int(s.seed/3%8)
	}
	w.link = &simLink{s: s, w: w}
	w.m = newMachine(s.cfg, w.name)
	if s.variant.states && s.started%5 > 0 {
		w.moveState()
	}
	s.workers = append(s.workers, w)
	s.logf("%s: process starts", w)
	w.link.server, w.link.client = s.srv.up, s.srv.up
	if !s.srv.up {
		w.m.lease.connected = false
		w.link.retry()
	}
	w.remap()
	w.step(startInput{})
	w.inProgress()
	return w
}

func (w *simWorker) inProgress() {
	w.later(w.s.cfg.Delivery.AckWait/3, func() {
		w.deliver(progressInput{})
		w.inProgress()
	})
}

// step gives the machine one input and carries its effects out.
func (w *simWorker) step(in input) {
	if w.dead {
		return
	}
	if in = w.s.broken.input(w, in); in == nil {
		return
	}
	w.s.tell("%s <- %s", w, in)
	self := w.m.self
	effects := w.m.step(w.clock(), in)
	for _, e := range effects {
		if told, is := e.(emitEffect); is && told.event.Kind == event.IdentityLost {
			w.s.check.identityLost(w, self, told.event.Reason)
		}
		if e = w.s.broken.effect(w, e); e == nil {
			continue
		}
		w.s.tell("%s    -> %s", w, e)
		w.freezeEffect(e)
		w.execute(e)
		if !w.s.quiet && w.s.chance(w.s.faults.dieHere) {
			w.crash()
			return
		}
	}
	if w.m.lease.valid {
		w.trustUntil(w.m.membership.leaseEnds())
	}
	w.s.check.stepped(w)
	if w.m.stage != stageGone {
		w.sleep()
	}
}

func (w *simWorker) sleep() {
	w.wakeGen++
	at := w.m.wake()
	if at.IsZero() {
		return
	}
	gen := w.wakeGen
	w.s.at(max(w.virtual(at)+1, w.s.now+shortestSleep), w, func() {
		if gen == w.wakeGen {
			w.step(tickInput{})
		}
	})
}

// crash is kill -9: what it has sent may arrive, nothing else happens.
func (w *simWorker) crash() {
	if w.dead {
		return
	}
	w.s.logf("%s: killed", w)
	w.s.check.attempts.killed(w)
	w.crashed = true
	w.endProcess()
}

// leave has the worker hand off what it has, and end.
func (w *simWorker) leave() {
	w.leaving = true
	w.s.at(w.s.now, w, func() { w.step(leaveInput{}) })
}

func (w *simWorker) endProcess() {
	w.dead = true
	w.backlog = nil
	if w.mapping != nil {
		w.mapping.end()
	}
	if w.leases != nil {
		w.leases.end()
	}
	if w.names != nil {
		w.names.end()
	}
	l := w.link
	if !l.server {
		return
	}
	if w.s.chance(0.5) {
		l.serverSide(false)
		return
	}
	gen := l.serverGen
	w.s.at(max(l.lastUp+1, w.s.now), nil, func() {
		if l.serverGen == gen && l.server {
			l.serverSide(false)
		}
	})
}

// stop is SIGSTOP; goOn is SIGCONT, after which what has piled up happens at
// once.
func (w *simWorker) stop() {
	w.s.logf("%s: stopped", w)
	w.stopped = true
}

func (w *simWorker) goOn() {
	if !w.stopped || w.dead {
		return
	}
	w.s.logf("%s: goes on", w)
	w.stopped = false
	backlog := w.backlog
	w.backlog = nil
	for _, e := range backlog {
		if !w.dead {
			e.do()
		}
	}
}

func (w *simWorker) connectionChanged(up bool) {
	if up {
		w.remap()
		if w.s.srv.forgot {
			w.keep()
		}
	}
	if w.s.broken.lateStatus {
		w.later(w.s.between(0, 300*time.Millisecond), func() { w.step(connectionInput{up: w.link.client}) })
		return
	}
	w.step(connectionInput{up: up})
}

func (w *simWorker) execute(e effect) {
	s := w.s
	switch e := e.(type) {
	case kvEffect:
		if wait := s.faults.slowJoin; wait > 0 && e.purpose == forJoin {
			w.later(wait, func() { w.operate(e) })
			return
		}
		w.operate(e)
	case pingEffect:
		w.ping(e)
	case probeEffect:
		if s.crowd != nil {
			s.crowd.probes += len(e.to)
		}
		for _, to := range e.to {
			w.link.up(func() {
				if s.srv.subs[to] == nil {
					w.link.down(func() { w.step(unreachableInput{to}) })
				}
			})
		}
	case sendEffect:
		w.send(e)
	case reportFenceEffect:
		w.report(e.report)
	case watchLeasesEffect:
		if w.leases != nil {
			w.leases.end()
			w.leases = nil
		}
		if e.on {
			w.leases = s.srv.watch(w, s.cfg.bucketLeases(), 2*s.cfg.Lease.TTL, func(kv *simKV) { w.leaseChanged(kv, e.watch) })
		}
	case planEffect:
		w.lastPlan = e.job
		w.yielders = yielders(w.m)
		w.later(s.between(0, 50*time.Millisecond), func() {
			var err error
			e.job.result, err = s.cfg.Rebalance.Strategy.Plan(e.job.problem)
			w.step(plannedInput{e.job, err})
		})
	case prepareEffect:
		d := s.between(0, 20*time.Millisecond)
		if s.chance(0.1) {
			d = s.cfg.Rebalance.PrepareTimeout
		}
		w.later(d, func() { w.step(preparedInput{generation: e.generation, slots: e.slots}) })
	case holdEffect:
		w.hold(e)
	case releaseEffect:
		w.s.check.attempts.handedOn(w, e.place)
		w.deliver(handOffInput{e})
	case forceEffect:
		w.deliver(forcedInput(e))
	case dropEffect:
		w.deliver(droppedInput(e))
	case suspendEffect:
		w.suspended = true
		w.deliver(validityInput{false})
		w.s.check.interrupted(w)
	case resumeEffect:
		w.trustUntil(w.m.membership.leaseEnds())
		w.suspended = false
		w.deliver(validityInput{true})
	case watchNamesEffect:
		if w.names != nil {
			w.names.end()
			w.names = nil
		}
		if e.on {
			w.names = s.srv.watch(w, s.cfg.bucketIDs(), 0, w.nameChanged)
		}
	case takeEffect:
		w.later(s.between(0, 5*time.Millisecond), func() { w.take(e) })
	case listenEffect:
		w.listen(e.self)
	case exitEffect:
		w.deliver(closeInput{})
		w.exitWhenDone()
	case emitEffect:
		s.goneWhileValid(w, e.event)
		if s.observe != nil {
			s.observe(w, e.event)
		}
	case weightsEffect:
		w.later(s.between(0, 50*time.Millisecond), func() {
			in := weightsInput{finest: slices.Clone(s.weights), keys: make([]uint64, len(s.weights))}
			if !s.quiet && s.chance(0.1) {
				in = weightsInput{err: errNoReply}
			}
			w.step(in)
		})
	}
}

func (w *simWorker) exitWhenDone() {
	if w.pending > 0 {
		w.later(10*time.Millisecond, w.exitWhenDone)
		return
	}
	w.s.logf("%s: process ends", w)
	w.endProcess()
}

func (w *simWorker) listen(self record.Process) {
	w.listening = self
	w.link.up(func() {
		for m, o := range w.s.srv.subs {
			if o == w {
				delete(w.s.srv.subs, m)
			}
		}
		if self != (record.Process{}) {
			w.s.srv.subs[self] = w
		}
	})
}

// send passes a message to a peer, over two connections of which each keeps the
// order; beyond that the simulator loses, repeats and delays as it likes.
func (w *simWorker) send(e sendEffect) {
	s := w.s
	data := record.Encode(e.msg)
	pass := func() {
		to := s.srv.subs[e.to]
		if to == nil {
			return
		}
		to.link.down(func() {
			var msg record.PeerMessage
			if err := json.Unmarshal(data, &msg); err != nil {
				panic(err)
			}
			to.step(peerInput{msg})
		})
	}
	times := 1
	switch {
	case s.quiet:
	case s.chance(s.faults.losePeer):
		times = 0
	case s.chance(s.faults.dupePeer):
		times = 2
	}
	for range times {
		if !s.quiet && s.chance(s.faults.latePeer) {
			w.link.up(func() { s.after(s.between(0, 5*time.Second), pass) })
		} else {
			w.link.up(pass)
		}
	}
}

// operate is buckets.run: the operation, and a read-back if its reply is lost.
func (w *simWorker) operate(e kvEffect) {
	e = w.writes(e)
	if e.purpose == forFarewell {
		w.pending++
	}
	finished := false
	finish := func(in kvInput) {
		if finished {
			return
		}
		finished = true
		if e.purpose == forFarewell {
			w.pending--
		}
		w.step(w.readsResult(in))
	}
	timeout := w.s.cfg.Lease.TTL / 4
	answered := false
	w.later(w.s.between(0, 200*time.Microsecond), func() {
		w.link.up(func() {
			w.s.srv.propose(w, e, func(out kvInput) {
				if !w.s.quiet && w.s.chance(w.s.faults.loseReply) {
					return
				}
				w.link.down(func() {
					if out.err != nil && goneError(out.err) || w.s.srv.forgot && errors.Is(out.err, errUnderWay) {
						w.keep()
					}
					w.saw(e.bucket, out.gotRev)
					switch {
					case answered:
					case e.op != opDelete && (errors.Is(out.err, errUnderWay) || errors.Is(out.err, errConflict)):
						answered = true
						w.readBack(out, timeout, finish)
					default:
						answered = true
						finish(out)
					}
				})
			})
		})
	})
	w.later(timeout, func() {
		if answered {
			return
		}
		answered = true
		out := kvInput{kvEffect: e, err: errNoReply}
		if e.op != opCreate && e.op != opUpdate {
			finish(out)
			return
		}
		w.readBack(out, timeout, finish)
	})
}

// keep is the keeper's look: it creates again what is gone, and all are told.
func (w *simWorker) keep() {
	if w.keeping {
		return
	}
	w.keeping = true
	s := w.s
	var made []string
	w.later(s.between(0, keeperPause), func() {
		w.api(func() error {
			w.dropWentBack()
			for _, name := range s.srv.names {
				if s.srv.recreate(s.srv.buckets[name]) {
					made = append(made, name)
				}
			}
			return nil
		}, func(error) {
			w.keeping = false
			for _, name := range made {
				w.lost(recreatedInput{name: "bucket " + name, mine: true})
				for _, o := range s.live() {
					if o != w && !s.chance(s.faults.losePeer) {
						w.link.up(func() { o.link.down(func() { o.lost(recreatedInput{name: "bucket " + name}) }) })
					}
				}
			}
		})
	})
}

// lost is what the worker's loop does with the input.
func (w *simWorker) lost(in recreatedInput) {
	if in.name == "bucket "+w.s.cfg.bucketMap() {
		w.remap()
	}
	w.step(in)
}

func (w *simWorker) readBack(out kvInput, timeout time.Duration, finish func(kvInput)) {
	w.link.up(func() {
		got := w.s.srv.apply(w, kvEffect{op: opGet, bucket: out.bucket, key: out.key})
		w.link.down(func() {
			out.settle(kvVersion{value: got.gotValue, rev: got.gotRev})
			finish(out)
		})
	})
	w.later(timeout, func() {
		out.unread(errNoReply)
		finish(out)
	})
}

// remap is Worker.remap.
func (w *simWorker) remap() {
	if w.mapping != nil {
		w.mapping.end()
	}
	w.mapping = w.s.srv.watch(w, w.s.cfg.bucketMap(), 2*w.s.cfg.Lease.TTL, w.mapBucketChanged)
}

func (w *simWorker) mapBucketChanged(kv *simKV) {
	if kv != nil {
		w.saw(w.s.cfg.bucketMap(), kv.rev)
	}
	switch {
	case kv == nil:
		w.step(mapSyncedInput{w.mapping.told[leaderKey]})
	case kv.key == expectedKey:
		var v record.Expected
		_ = json.Unmarshal(kv.value, &v)
		w.step(expectedInput{v.N, kv.rev})
	case kv.key == wantedKey:
		var v record.Wanted
		_ = json.Unmarshal(kv.value, &v)
		w.step(wantedInput{v.Slots, kv.rev})
	case kv.key == overridesKey:
		overrides, err := decodeOverrides(kv.value)
		if err != nil {
			w.s.check.fail("map-valid", "revision %d: %v", kv.rev, err)
			return
		}
		w.step(overridesInput{overrides, kv.rev})
	case kv.key == record.AssignmentKey && !kv.deleted:
		a, err := w.readMap(kv)
		if err != nil && !w.s.faults.hostile && !w.previous {
			w.s.check.fail("map-valid", "revision %d: %v", kv.rev, err)
			return
		}
		if err != nil {
			w.step(badMapInput{kv.rev, err})
			return
		}
		w.step(mapInput{a, kv.rev})
	case kv.key == leaderKey:
		in := leaderInput{rev: kv.rev}
		if !kv.deleted {
			v, err := record.DecodeLeader(kv.value)
			in.leader, in.err = record.Process{ID: v.ID, Claim: v.Claim}, err
		}
		w.step(in)
	}
}

func (w *simWorker) nameChanged(kv *simKV) {
	if kv != nil && kv.deleted {
		w.step(nameFreedInput{kv.key})
	}
}

func (w *simWorker) leaseChanged(kv *simKV, watch uint64) {
	if kv == nil {
		in := leasesSyncedInput{watch: watch}
		if made := w.s.srv.buckets[w.s.cfg.bucketLeases()].made; made > 0 {
			in.age = max(1, w.s.now-made)
		}
		w.step(in)
		return
	}
	w.saw(w.s.cfg.bucketLeases(), kv.rev)
	in := leaseInput{id: kv.key, rev: kv.rev, at: simEpoch.Add(kv.at), deleted: kv.deleted, watch: watch}
	if !kv.deleted {
		in.value, in.err = record.DecodeHeartbeat(kv.key, kv.value)
		in.value = w.readsLease(in.value)
	}
	w.step(in)
}

// api is one request of the JetStream API; its outcome may come late or never.
func (w *simWorker) api(do func() error, then func(error)) {
	finished := false
	finish := func(err error) {
		if !finished {
			finished = true
			then(err)
		}
	}
	w.link.up(func() {
		err := do()
		w.link.down(func() { finish(err) })
	})
	w.later(apiTimeout, func() { finish(errNoReply) })
}

// tell traces an input or an effect, without those that only fill the page.
func (s *sim) tell(format string, w *simWorker, v any) {
	if !s.tracing {
		return
	}
	switch v.(type) {
	case pingEffect, pongInput, probeEffect, tickInput:
	default:
		s.logf(format, w, describe(v))
	}
}

func describe(v any) string {
	switch v := v.(type) {
	case kvInput:
		return fmt.Sprintf("kv %s rev %d, err %v", describe(v.kvEffect), v.gotRev, v.err)
	case kvEffect:
		return fmt.Sprintf("%s of %s/%s for %s, expects %d", [...]string{"list", "get", "create", "update", "delete", "history"}[v.op], v.bucket, v.key, purposeNames[v.purpose], v.rev)
	case mapInput:
		return fmt.Sprintf("map rev %d: %s", v.rev, describe(v.a))
	case *record.Assignment:
		return fmt.Sprintf("version %d epoch %d workers %v owner %v since %v moves %v taking %v of %d former %+v", v.Version, v.Epoch, v.Workers, v.Owner, v.Since, v.Moves, v.Taking, v.Slots, v.Former)
	case plannedInput:
		return "planned " + v.job.reason
	case planEffect:
		return "plan " + v.job.reason
	case emitEffect:
		return "event " + string(v.event.Kind) + " " + v.event.Reason + " " + v.event.Peer
	case peerInput:
		return fmt.Sprintf("peer %s of %v: %+v", v.msg.Kind, v.msg.From, v.msg.Slots)
	case sendEffect:
		return fmt.Sprintf("send %s to %v: %+v", v.msg.Kind, v.to, v.msg.Slots)
	case leaseInput:
		return fmt.Sprintf("lease %s/%d rev %d deleted %v leaving %v", v.id, v.value.Claim, v.rev, v.deleted, v.value.Leaving)
	}
	return fmt.Sprintf("%T%+v", v, v)
}

var purposeNames = [forOperators + 1]string{"names", "lease names", "dead name", "unseen claim", "claim", "join", "ID renewal", "lease renewal", "election",
	"leader renewal", "resignation", "map read", "map history", "map write", "fencing", "sweep", "suspicion", "farewell", "operators"}
