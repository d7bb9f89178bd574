package partition

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// This file models one process: worker.go's loop around a machine, bucket.go's
// operations with their read-back, and pull.go's runners.

var errNoReply = errors.New("no reply")

type simWorker struct {
	s       *sim
	name    string
	m       *machine
	dead    bool // the process has ended
	crashed bool
	stopped bool // by SIGSTOP
	leaving bool // was asked to
	backlog []*simEvent
	rate    float64       // of its clock, against virtual time
	offset  time.Duration // of its clock
	link    *simLink

	listening Member
	mapping   *simWatch
	leases    *simWatch
	names     *simWatch
	keeping   bool              // it looks for what is gone
	lastSeen  map[string]uint64 // revision by bucket
	wakeGen   int
	pending   int // farewells under way
	lastPlan  *planJob
	yielders  map[Member]bool // that its leader knew of when it planned

	runners      map[place]*simRunner
	done         []watermarks // by shard
	granted      map[int]bool // slots of which a grant ever came
	suspended    bool
	trustedUntil time.Time
}

func (w *simWorker) String() string {
	if w.m != nil && w.m.self != (Member{}) {
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
	w := &simWorker{s: s, name: fmt.Sprintf("p%d", s.started), rate: (s.rng.Float64() - 0.5) * 0.02, offset: s.between(0, time.Hour),
		runners: make(map[place]*simRunner), done: make([]watermarks, s.cfg.Shards), granted: make(map[int]bool), suspended: true}
	w.link = &simLink{s: s, w: w}
	w.m = newMachine(s.cfg, w.name)
	s.workers = append(s.workers, w)
	s.logf("%s: process starts", w)
	w.link.server, w.link.client = s.srv.up, s.srv.up
	if !s.srv.up {
		w.m.connected = false
		w.link.retry()
	}
	w.remap()
	w.step(startInput{})
	w.inProgress()
	return w
}

// held returns where runners are, in order.
func (w *simWorker) held() []place {
	return slices.SortedFunc(maps.Keys(w.runners), func(a, b place) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.slot, b.slot))
	})
}

func (w *simWorker) inProgress() {
	w.later(w.s.cfg.AckWait/3, func() {
		for _, slot := range w.held() {
			if r := w.runners[slot]; w.trusted() && r.cur != nil {
				d := *r.cur
				w.link.up(func() { w.s.srv.slot(d.place).progress(d) })
			}
		}
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
		if told, is := e.(emitEffect); is && told.event.Kind == EventIdentityLost {
			w.s.check.identityLost(w, self, told.event.Reason)
		}
		if e = w.s.broken.effect(w, e); e == nil {
			continue
		}
		w.s.tell("%s    -> %s", w, e)
		w.execute(e)
		if !w.s.quiet && w.s.chance(w.s.faults.dieHere) {
			w.crash()
			return
		}
	}
	if w.m.trusted {
		w.trustedUntil = w.m.trustEnds()
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
	w.crashed = true
	w.endProcess()
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
		w.link.up(func() { w.link.down(func() { w.step(pongInput(e)) }) })
	case probeEffect:
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
			w.leases = s.srv.watch(w, s.cfg.bucketLeases(), 2*s.cfg.LeaseTTL, func(kv *simKV) { w.leaseChanged(kv, e.watch) })
		}
	case planEffect:
		w.lastPlan = e.job
		w.yielders = yielders(w.m)
		w.later(s.between(0, 50*time.Millisecond), func() {
			var err error
			e.job.result, err = s.cfg.Strategy.Plan(e.job.problem)
			w.step(plannedInput{e.job, err})
		})
	case prepareEffect:
		d := s.between(0, 20*time.Millisecond)
		if s.chance(0.1) {
			d = s.cfg.PrepareTimeout
		}
		w.later(d, func() { w.step(preparedInput{division: e.division, slots: e.slots}) })
	case holdEffect:
		w.hold(e.place, e.fence, e.handed)
	case releaseEffect:
		w.release(e)
	case forceEffect:
		w.force(e)
	case dropEffect:
		w.drop(e.place)
	case suspendEffect:
		w.suspend()
	case resumeEffect:
		w.resume()
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
		for _, slot := range w.held() {
			w.drop(slot)
		}
		w.exitWhenDone()
	case emitEffect:
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

func (w *simWorker) listen(self Member) {
	w.listening = self
	w.link.up(func() {
		for m, o := range w.s.srv.subs {
			if o == w {
				delete(w.s.srv.subs, m)
			}
		}
		if self != (Member{}) {
			w.s.srv.subs[self] = w
		}
	})
}

// send passes a message to a peer, over two connections of which each keeps the
// order; beyond that the simulator loses, repeats and delays as it likes.
func (w *simWorker) send(e sendEffect) {
	s := w.s
	data := mustJSON(e.msg)
	pass := func() {
		to := s.srv.subs[e.to]
		if to == nil {
			return
		}
		to.link.down(func() {
			var msg peerMessage
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
		w.step(in)
	}
	timeout := w.s.cfg.LeaseTTL / 4
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
	w.mapping = w.s.srv.watch(w, w.s.cfg.bucketMap(), 2*w.s.cfg.LeaseTTL, w.mapBucketChanged)
}

func (w *simWorker) mapBucketChanged(kv *simKV) {
	if kv != nil {
		w.saw(w.s.cfg.bucketMap(), kv.rev)
	}
	switch {
	case kv == nil:
		w.step(mapSyncedInput{w.mapping.told[leaderKey]})
	case kv.key == expectedKey:
		var v expectedValue
		_ = json.Unmarshal(kv.value, &v)
		w.step(expectedInput{v.N, kv.rev})
	case kv.key == wantedKey:
		var v wantedValue
		_ = json.Unmarshal(kv.value, &v)
		w.step(wantedInput{v.Slots, kv.rev})
	case kv.key == pinsKey:
		pins, err := decodePins(kv.value)
		if err != nil {
			w.s.check.fail("map-valid", "revision %d: %v", kv.rev, err)
			return
		}
		w.step(pinsInput{pins, kv.rev})
	case kv.key == AssignmentKey && !kv.deleted:
		a, err := DecodeAssignment(kv.value)
		if err != nil && !w.s.faults.hostile {
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
			v, err := decodeLeader(kv.value)
			in.leader, in.err = Member{v.ID, v.Claim}, err
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
		in.value, in.err = decodeLease(kv.key, kv.value)
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

func (w *simWorker) take(e takeEffect) {
	then := func(err error) { w.step(takenInput{slot: e.slot, run: e.run, err: err}) }
	w.retire(e.retire, func(err error) {
		if err != nil {
			then(err)
			return
		}
		w.unpinAndReset(e.place, then)
	})
}

func (w *simWorker) retire(places []place, then func(error)) {
	if len(places) == 0 {
		then(nil)
		return
	}
	sl := w.s.srv.slot(places[0])
	w.api(func() error {
		sl.remove()
		return nil
	}, func(err error) {
		if err != nil {
			then(err)
			return
		}
		w.retire(places[1:], then)
	})
}

func (w *simWorker) unpinAndReset(at place, then func(error)) {
	sl := w.s.srv.slot(at)
	end := func(err error) {
		if errors.Is(err, errNoConsumer) {
			w.api(func() error {
				err := sl.create()
				if err == nil {
					w.s.check.resetDone(at)
				}
				return err
			}, then)
			return
		}
		then(err)
	}
	w.api(sl.unpin, func(err error) {
		if err != nil {
			end(err)
			return
		}
		w.api(func() error {
			err := sl.reset()
			if err == nil {
				w.s.check.resetDone(at)
			}
			return err
		}, end)
	})
}

// The runners.

type simRunner struct {
	w *simWorker
	place
	fence     Fence
	mail      []simDelivery
	releasing bool
	dropped   bool
	cur       *simDelivery // the message in hand
	handler   *simHandler  // at work on it
	resting   bool         // the message in hand waits for trust, or to be tried again
	attempt   int
	// generation is that of what is remembered of the stream, as the message in hand began.
	generation uint64

	lot    *lot // nil: failing messages are not parked
	asking bool // a request to the retry stream is under way
	failed bool // the message in hand is to be parked
	waited bool // it had to wait for room
	alarms int

	pin   uint64
	asked uint64 // the pin that the pull was made with
	serie int
	left  int
	fails int
	timer int
	quiet bool // nothing came since the last look for a ghost
	ghost bool
}

type simHandler struct {
	r         *simRunner
	fence     Fence
	msg       simMessage
	parked    *simParked // nil: from the main stream
	begun     time.Time
	cancelled bool
	// rejectedBy is the fence for which the store has rejected its write.
	rejectedBy Fence
}

func (w *simWorker) trusted() bool { return !w.suspended && w.clock().Before(w.trustedUntil) }

func (w *simWorker) hold(at place, fence Fence, handed bool) {
	shown := fence
	if w.s.broken.claimless {
		shown.Claim = 0
	}
	w.s.check.held(w, at, shown, handed)
	if r := w.runners[at]; r != nil {
		r.fence = fence
		r.poke()
		return
	}
	r := &simRunner{w: w, place: at, fence: fence}
	w.runners[at] = r
	r.request()
	r.beginParking()
	r.lookForGhost()
}

func (w *simWorker) release(e releaseEffect) {
	r := w.runners[e.place]
	if r == nil {
		w.later(0, func() { w.step(slotReleasedInput{place: e.place, claim: e.claim}) })
		return
	}
	r.releasing = true
	r.poke()
}

func (w *simWorker) force(e forceEffect) {
	r := w.runners[e.place]
	if r == nil {
		return
	}
	delete(w.runners, e.place)
	r.drop()
	w.unpinUntilDone(e.place, func() { w.step(slotReleasedInput{place: e.place, claim: r.fence.Claim, forced: true}) })
}

func (w *simWorker) drop(at place) {
	if r := w.runners[at]; r != nil {
		delete(w.runners, at)
		r.drop()
	}
}

func (w *simWorker) suspend() {
	w.suspended = true
	for _, slot := range w.held() {
		r := w.runners[slot]
		if r.handler != nil {
			r.handler.cancel()
		}
		r.poke()
	}
}

func (w *simWorker) resume() {
	w.trustedUntil = w.m.trustEnds()
	w.suspended = false
	w.lookAtStreams()
	for _, slot := range w.held() {
		if r := w.runners[slot]; r != nil {
			r.request()
			r.poke()
		}
	}
}

func (w *simWorker) unpinUntilDone(at place, then func()) {
	w.api(w.s.srv.slot(at).unpin, func(err error) {
		if err == nil || errors.Is(err, errNoConsumer) {
			then()
			return
		}
		w.later(pullRetry, func() { w.unpinUntilDone(at, then) })
	})
}

// dispatch is the subscription's callback.
func (w *simWorker) dispatch(d simDelivery) {
	if r := w.runners[d.place]; r != nil {
		r.mail = append(r.mail, d)
		r.pump()
		return
	}
	if d.status == 0 && !w.s.broken.deafUnpin {
		w.sendBack(d)
	}
}

func (w *simWorker) sendBack(d simDelivery) {
	w.s.logf("%s: message %d of slot %d came for nobody here", w, d.msg.seq, d.slot)
	w.api(w.s.srv.slot(d.place).unpin, func(error) { w.nak(d) })
}

func (w *simWorker) nak(d simDelivery) { w.link.up(func() { w.s.srv.slot(d.place).nak(d) }) }
func (w *simWorker) ack(d simDelivery) { w.link.up(func() { w.s.srv.slot(d.place).ack(d) }) }

func (r *simRunner) drop() {
	r.dropped = true
	if r.handler != nil {
		r.handler.cancel()
	}
	for _, d := range r.mail {
		if d.status == 0 {
			r.w.sendBack(d)
		}
	}
	r.mail = nil
}

// pump is the runner's loop.
func (r *simRunner) pump() {
	for !r.dropped && r.cur == nil && !r.asking && r.handler == nil {
		if r.releasing {
			r.giveUp()
			return
		}
		if r.parkWork() {
			continue
		}
		if len(r.mail) == 0 {
			return
		}
		d := r.mail[0]
		r.mail = r.mail[1:]
		if d.status != 0 {
			r.status(d)
			continue
		}
		r.got(d)
		if r.settledBefore(d.msg) {
			r.w.ack(d)
			continue
		}
		r.generation = r.w.marks(d.msg).generation
		r.cur, r.attempt, r.failed, r.waited = &d, 0, false, false
		r.try()
	}
}

// marks is what the worker remembers of a message's stream.
func (w *simWorker) marks(m simMessage) *watermarks { return &w.done[m.fine%len(w.done)] }

// settledBefore is what settled.go does, with an answer of the stream at once.
func (r *simRunner) settledBefore(m simMessage) bool {
	w := r.w.marks(m)
	recalled := w.recall(m.fine, m.original())
	if r.w.s.broken.bareSequences {
		return recalled != recallNothing
	}
	if recalled == recallNothing {
		return false
	}
	if recalled == recallSettled && r.w.look(m.fine) == "" {
		return true
	}
	w.forget()
	return false
}

// look looks at the stream of a slot.
func (w *simWorker) look(fine int) string {
	shard := fine % len(w.done)
	marks := &w.done[shard]
	return marks.saw(simEpoch.Add(w.s.srv.made), w.s.srv.seqs[shard], marks.last)
}

// lookAtStreams is what a worker does when it trusts its lease again.
func (w *simWorker) lookAtStreams() {
	for shard := range w.done {
		if !w.s.broken.bareSequences && w.look(shard) != "" {
			w.done[shard].forget()
			_ = w.look(shard)
		}
	}
}

func (r *simRunner) poke() {
	switch {
	case r.dropped || r.asking:
	case r.cur == nil:
		r.pump()
	case r.resting && r.releasing:
		r.giveUp()
	case r.resting && r.attempt == 0:
		r.try()
	}
}

// try begins the message in hand if it may.
func (r *simRunner) try() {
	w := r.w
	switch {
	case r.dropped || r.handler != nil || r.asking:
		return
	case r.releasing:
		r.giveUp()
		return
	case !w.trusted():
		r.resting = true
		w.later(pullRetry, func() {
			if r.resting && r.handler == nil {
				r.try()
			}
		})
		return
	}
	r.resting = false
	if r.lot != nil && !r.mayBegin() {
		return
	}
	r.attempt++
	r.handle(&simHandler{r: r, fence: r.fence, msg: r.cur.msg})
}

// handle begins a handler.
func (r *simRunner) handle(h *simHandler) {
	w := r.w
	r.handler = h
	h.begun = w.clock()
	w.s.logf("%s: slot %d, handler begins %d (key %d, %d), fence %v", w, r.slot, h.msg.seq, h.msg.key, h.msg.n, h.fence)
	w.s.check.begins(w, h)
	if w.s.broken.ackFirst && h.parked == nil {
		w.ack(*r.cur)
	}
	d := w.s.between(time.Millisecond, 60*time.Millisecond)
	if w.s.chance(w.s.faults.slowWork) {
		d = w.s.between(0, 2*w.s.cfg.HandoverTimeout)
	}
	w.later(d, func() { h.end() })
}

func (h *simHandler) cancel() {
	if !h.cancelled {
		h.cancelled = true
		h.r.w.later(h.r.w.s.between(0, time.Millisecond), h.end)
	}
}

// end is the handler's last action: a write with its fence, which its store
// refuses when a later owner has written.
func (h *simHandler) end() {
	r := h.r
	if r.handler != h {
		return
	}
	r.handler = nil
	w := r.w
	ok := !h.cancelled && !w.s.chance(w.s.faults.failWork) && !w.s.fails(h.msg.key) && w.s.check.processed(w, h)
	if h.rejectedBy != (Fence{}) {
		r.fencedOff(h.rejectedBy)
	}
	switch {
	case r.dropped:
	case h.parked != nil:
		r.parkedEnded(h, ok)
	case ok:
		if w.marks(h.msg).settle(h.msg.fine, h.msg.original(), r.generation) {
			w.ack(*r.cur)
		}
		r.cur = nil
		r.pump()
	case r.releasing:
		r.giveUp()
	case r.lot != nil && r.attempt >= w.s.cfg.Retry.Tries && w.trusted():
		r.failed = true
		r.try()
	default:
		r.resting = true
		w.later(w.s.cfg.RetryDelay, func() {
			if r.resting && r.handler == nil {
				r.try()
			}
		})
	}
}

// giveUp hands the slot back: no more pulls, the pin off, what is not begun
// back to the server.
func (r *simRunner) giveUp() {
	w := r.w
	if r.dropped {
		return
	}
	delete(w.runners, r.place)
	r.dropped = true
	w.unpinUntilDone(r.place, func() {
		if !w.s.quiet && w.s.chance(20*w.s.faults.dieHere) {
			w.crash() // between UNPIN and NAK
			return
		}
		if r.cur != nil {
			w.nak(*r.cur)
		}
		for _, d := range r.mail {
			if d.status == 0 {
				w.nak(d)
			}
		}
		w.step(slotReleasedInput{place: r.place, claim: r.fence.Claim})
	})
}

func (r *simRunner) request() {
	r.serie++
	r.left, r.asked = pullBatch, r.pin
	r.again(pullExpiry + 2*time.Second)
	w := r.w
	p := &simPull{w: w, place: r.place, serie: r.serie, n: pullBatch, id: r.pin}
	w.link.up(func() {
		p.expires = w.s.now + pullExpiry
		w.s.srv.slot(p.place).pull(p)
	})
}

// lookForGhost looks again and again whether the pin is with nobody.
func (r *simRunner) lookForGhost() {
	r.w.later(ghostCheck, func() {
		if r.dropped {
			return
		}
		defer r.lookForGhost()
		silent := r.quiet && r.cur == nil
		r.quiet = true
		if !silent || !r.w.trusted() || r.w.s.broken.deafUnpin {
			return
		}
		waiting := false
		sl := r.w.s.srv.slot(r.place)
		r.w.api(func() error { waiting = len(sl.stream()) > 0; return nil }, func(err error) {
			ghost := r.ghost
			r.ghost = err == nil && waiting && r.quiet
			if !ghost || !r.ghost || r.dropped {
				return
			}
			r.ghost = false
			r.w.s.logf("%s: slot %d, ghost pin", r.w, r.slot)
			r.w.unpinAndReset(r.place, func(err error) {
				if err == nil && !r.dropped {
					r.pin = 0
					r.request()
				}
			})
		})
	})
}

func (r *simRunner) again(d time.Duration) {
	r.timer++
	gen := r.timer
	r.w.later(d, func() {
		if gen == r.timer && !r.dropped {
			r.request()
		}
	})
}

func (r *simRunner) got(d simDelivery) {
	r.pin = d.pin
	r.fails = 0
	r.quiet, r.ghost = false, false
	if r.left--; r.left == 0 {
		r.request()
	} else {
		r.again(pullExpiry + 2*time.Second)
	}
}

func (r *simRunner) status(d simDelivery) {
	if d.serie != r.serie {
		if d.status == 408 && r.pin != 0 && r.asked != r.pin {
			r.request()
		}
		return
	}
	switch d.status {
	case 408:
		r.request()
	case 423:
		r.pin = 0
		r.request()
	default:
		r.pin = 0
		r.fails++
		if r.fails%5 == 0 && r.w.trusted() {
			r.w.api(r.w.s.srv.slot(r.place).create, func(error) {})
		}
		r.again(pullRetry * time.Duration(min(r.fails, 10)))
	}
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
	case *Assignment:
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

var purposeNames = [...]string{"names", "lease names", "dead name", "claim", "join", "ID renewal", "lease renewal", "election", "leader renewal", "resignation",
	"map read", "map history", "map write", "fencing", "sweep", "suspicion", "farewell", "operators"}
