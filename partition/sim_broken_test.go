package partition

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// simBreakage makes a machine, or what is around it, wrong in one way, to see
// that the checker notices.
type simBreakage struct {
	onInput    func(*simWorker, input) input
	onEffect   func(*simWorker, effect) effect
	faults     func(*simFaults)
	blindLease bool // leases are renewed without an expected revision
	lateStatus bool // the connection's state is read when the loop comes to it
	ackFirst   bool // messages are acknowledged before they are processed
	blindNames bool // names and leases are created though another worker has them
	claimless  bool // fences are shown without their claim
	unweighed  bool // no weights, which play no part in most rules
	lonely     bool // a leader dies alone, which is enough for each rule
	deafUnpin  bool // what comes for a slot that is not held is dropped, and no owner looks for what does not come

	ackUnqueued bool // a message is acknowledged before its queued copy is stored
	blindQueue  bool // an owner begins before it has read which keys are queued
	overtaking  bool // what comes behind a queued message of its key is begun
	unclaimed   bool // an owner reads what is queued and leaves no claim
	freeSoon    bool // what is processed is not waited for to be removed
	unerased    bool // originals are not looked for in the main stream

	endless           bool // attempts are not bounded, which plays no part in the older rules
	unrecorded        bool // attempts are not recorded
	unreadAttempts    bool // an owner does not read the records of former ones
	unsuspected       bool // an owner takes no message for one that its former owner began
	unsuspectedBehind bool // an owner takes only the first message for one that its former owner may have begun
	confusedAttempts  bool // a record counts for any message of its key

	bareSequences bool // what was settled is known by its sequence alone

	onDelivery  func(*simWorker, deliveryInput) deliveryInput
	onDelivered func(*simWorker, deliveryEffect) deliveryEffect
	leftOut     map[takeoverStep]bool // steps of a takeover that are not done
}

func (b simBreakage) input(w *simWorker, in input) input {
	if b.onInput == nil {
		return in
	}
	return b.onInput(w, in)
}

func (b simBreakage) effect(w *simWorker, e effect) effect {
	if b.onEffect == nil {
		return e
	}
	return b.onEffect(w, e)
}

func (b simBreakage) blind(e kvEffect) bool {
	return b.blindLease && e.purpose == forLeaseRenewal || b.blindNames && (e.purpose == forClaim || e.purpose == forJoin)
}

// TestSimulationCatchesBrokenVariants proves the checker: each rule of the
// protocol, left out, is missed by an invariant of that name.
func TestSimulationCatchesBrokenVariants(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken simBreakage
		by     []string
		from   uint64 // the seed to begin with, where it is rare

		weighed bool // it is about weights
	}{
		{"a lease is renewed though another worker has it", simBreakage{blindLease: true}, []string{"one-owner", "one-handler", "fenced-alive"}, 1, false},
		{"the map is not rewritten after an election", simBreakage{onInput: pretendEpoch}, []string{"former-leader", "version"}, 1159, false},
		{"the new owner does not wait for the takeover", simBreakage{onInput: pretendTaken}, []string{"reset-before-hold"}, 1, false},
		{"a lease is trusted beyond its time", simBreakage{onInput: trustLonger}, []string{"gone-while-valid", "one-owner", "fenced-alive"}, 3, false},
		{"a slot is released while its handler works", simBreakage{onEffect: releaseAtOnce}, []string{"one-owner", "one-handler"}, 1, false},
		{"a release counts for any move", simBreakage{onInput: anyRelease, faults: lateMessages}, []string{"one-owner", "one-handler"}, 2738, false},
		{"a grant counts for any takeover", simBreakage{onInput: anyGrant}, []string{"reset-before-hold", "one-owner"}, 1, false},
		{"a fence is the claim alone", simBreakage{onEffect: fenceWithoutVersion}, []string{"fence-grows"}, 1, false},
		{"a fence is the version alone", simBreakage{claimless: true}, []string{"fence-unique"}, 1, false},
		{"a name is taken from its holder", simBreakage{blindNames: true}, []string{"gone-while-valid", "one-owner", "alive-succeeded", "reset-before-hold", "fenced-alive", "liveness"}, 1, false},
		{"a successor does not wait for the takeover", simBreakage{onInput: pretendSuccession}, []string{"reset-before-hold"}, 1, false},
		{"a renewal begun before a disconnect brings trust back", simBreakage{onInput: forgetLapse, faults: backSoon}, []string{"fenced-alive", "one-owner", "order"}, 3439, false},
		{"what comes for a released slot is not sent back, and nobody looks for it", simBreakage{deafUnpin: true}, []string{"liveness"}, 1, false},
		{"a short disconnect is not noticed", simBreakage{lateStatus: true, faults: backSoon}, []string{"one-owner", "fenced-alive"}, 2282, false},
		{"a worker that yields is planned for as any other", simBreakage{onEffect: yieldersToo}, []string{"yields"}, 112, false},
		{"a leader knows only the overrides from before its term", simBreakage{onInput: forgetOverrides}, []string{"overrides"}, 1, false},
		{"a plan because of weights has no budget", simBreakage{onEffect: spendFreely}, []string{"tuning"}, 1, true},
		{"a write that is under way is taken for somebody else's", simBreakage{onInput: jumpToConclusions}, []string{"identity"}, 1, false},
		{"the ID of a claim whose outcome is unknown is not read", simBreakage{onInput: forgetUnseenClaim}, []string{"own-claim"}, 1640, false},
		{"a message is acknowledged before it is processed", simBreakage{ackFirst: true}, []string{"lost"}, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.broken.unweighed, tt.broken.lonely = !tt.weighed, true
			for seed := tt.from; seed < tt.from+3000; seed++ {
				s := newSim(seed, false)
				s.broken = tt.broken
				v := s.simulate()
				if v == nil {
					continue
				}
				if !slices.Contains(tt.by, v.name) {
					t.Fatalf("seed %d: caught by %s (%s), want one of %v\n%s", seed, v.name, v.text, tt.by, story(seed, simVariant{}, tt.broken, simTold))
				}
				t.Logf("seed %d: %s: %s", seed, v.name, v.text)
				return
			}
			t.Error("nothing noticed")
		})
	}
}

// pretendEpoch lets a new leader believe that the map has its epoch already.
func pretendEpoch(w *simWorker, in input) input {
	kv, ok := in.(kvInput)
	if !ok || kv.purpose != forMapRead || kv.err != nil {
		return in
	}
	if a, err := record.DecodeAssignment(kv.gotValue); err == nil {
		a.Epoch = w.m.leaderLease.epoch
		kv.gotValue = a.Encode()
	}
	if w.m.cur != nil {
		w.m.cur = w.m.cur.Clone()
		w.m.cur.Epoch = w.m.leaderLease.epoch
	}
	return kv
}

// pretendTaken hides from a worker that its slots have to be taken first.
func pretendTaken(w *simWorker, in input) input {
	mi, ok := in.(mapInput)
	if !ok || w.m.leaderLease.held {
		return in
	}
	a := mi.a.Clone()
	for s := range a.Taking {
		if a.OwnerAt(s) == w.m.self {
			delete(a.Taking, s)
		}
	}
	return mapInput{a, mi.rev}
}

// jumpToConclusions takes a write that was refused for another's that is under way
// for one that somebody else was faster with.
func jumpToConclusions(_ *simWorker, in input) input {
	if kv, ok := in.(kvInput); ok && errors.Is(kv.err, errUnderWay) {
		kv.err = errConflict
		return kv
	}
	return in
}

// forgetOverrides keeps changes of the overrides from a leader.
func forgetOverrides(w *simWorker, in input) input {
	if _, ok := in.(overridesInput); ok && w.m.leaderLease.held {
		return nil
	}
	return in
}

// spendFreely lets a plan that is made because of weights move what it likes.
func spendFreely(_ *simWorker, e effect) effect {
	if p, ok := e.(planEffect); ok && p.job.reason == reasonWeights {
		p.job.problem.Budget, p.job.problem.TuneOnly = -1, false
	}
	return e
}

func trustLonger(w *simWorker, in input) input {
	switch in := in.(type) {
	case kvInput:
		if in.purpose == forLeaseRenewal && in.err == nil {
			in.start = in.start.Add(2 * w.s.cfg.Lease.TTL)
		}
		return in
	case connectionInput:
		return nil
	}
	return in
}

func yieldersToo(_ *simWorker, e effect) effect {
	if p, ok := e.(planEffect); ok {
		for i := range p.job.problem.Workers {
			p.job.problem.Workers[i].Draining = false
		}
	}
	return e
}

func releaseAtOnce(w *simWorker, e effect) effect {
	if r, ok := e.(releaseEffect); ok && w.delivery.slots[r.place] != nil {
		w.later(0, func() { w.step(slotReleasedInput{place: r.place, claim: r.claim}) })
		return nil
	}
	return e
}

func anyRelease(w *simWorker, in input) input {
	p, ok := in.(peerInput)
	if !ok || p.msg.Kind != record.Released || w.m.cur == nil {
		return in
	}
	for i := range p.msg.Slots {
		if mv, moving := w.m.cur.Moves[p.msg.Slots[i].Slot]; moving {
			p.msg.Slots[i].Version = mv.Version
		}
	}
	return p
}

// anyGrant lets every grant that a worker has ever had count for every
// takeover of the slot.
func anyGrant(w *simWorker, in input) input {
	switch in := in.(type) {
	case peerInput:
		if in.msg.Kind == record.Grant {
			for _, mark := range in.msg.Slots {
				w.granted[mark.Slot] = true
			}
		}
	case mapInput:
		for s := range in.a.Taking {
			if in.a.OwnerAt(s) == w.m.self && w.granted[s] {
				w.m.own.grants[s] = in.a.Since[s]
			}
		}
	}
	return in
}

// backSoon makes disconnects short, so that many are over before they are seen.
func backSoon(f *simFaults) { f.reconnect = 300 * time.Millisecond }

// lateMessages makes copies of peer messages come long after their time.
func lateMessages(f *simFaults) { f.dupePeer, f.latePeer, f.slowWork = 0.8, 0.4, 0.05 }

// pretendSuccession hides from a worker that follows a predecessor that its slots
// have to be taken first.
func pretendSuccession(w *simWorker, in input) input {
	mi, ok := in.(mapInput)
	if !ok || w.m.leaderLease.held || w.m.cur == nil || w.m.cur.Version != mi.a.Version {
		return in
	}
	return pretendTaken(w, in)
}

// forgetLapse lets a worker forget, when a renewal is answered, that it could not
// trust its lease.
func forgetLapse(w *simWorker, in input) input {
	if kv, ok := in.(kvInput); ok && kv.purpose == forLeaseRenewal && kv.err == nil {
		w.m.lease.ended, w.m.lease.doubted = time.Time{}, time.Time{}
	}
	return in
}

func fenceWithoutVersion(_ *simWorker, e effect) effect {
	if h, ok := e.(holdEffect); ok {
		h.fence.Version = 0
		return h
	}
	return e
}

// A restart of the server is not a death of everybody: who comes back within
// the time that the leader stays quiet keeps its name and its slots.

func TestASimulatedRestartMovesNothing(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for seed := uint64(1); seed <= 100; seed++ {
		if v := restartOnly(seed, simBreakage{}); v != nil {
			t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
		}
	}
}

func TestASuspicionTrustedAfterARestartIsNoticed(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	broken := simBreakage{onInput: func(w *simWorker, in input) input {
		w.m.quietUntil = time.Time{}
		w.m.lease.regained = time.Time{} // and nobody is waited for
		return in
	}}
	for seed := uint64(1); seed <= 100; seed++ {
		if v := restartOnly(seed, broken); v != nil {
			if v.name != "restart-moves-nothing" {
				t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
			}
			t.Logf("seed %d: %s: %s", seed, v.name, v.text)
			return
		}
	}
	t.Error("nothing noticed")
}

// A rolling update ends and replaces every worker, the leader among them, and
// moves nothing: the new pod first, or the old one, one or several at a time.

func TestASimulatedRollingUpdateMovesNothing(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, seed := range seeds(uint64(*simQuiet)) {
		for surge := range 3 {
			for together := 1; together <= 3; together++ {
				for _, starts := range []time.Duration{0, 1800 * time.Millisecond} { // from name to lease
					if v := rollingUpdate(seed, surge, together, starts, simBreakage{}); v != nil {
						t.Fatalf("seed %d, surge %d, %d together, %v to join: %s: %s", seed, surge, together, starts, v.name, v.text)
					}
				}
			}
		}
	}
}

func TestARestartTakenForALeaveIsNoticed(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	broken := simBreakage{onInput: func(w *simWorker, in input) input {
		if w.m.leaderLease.held {
			w.m.expect = 0
		}
		return in
	}}
	for seed := uint64(1); seed <= 100; seed++ {
		if v := rollingUpdate(seed, 0, 2, 0, broken); v != nil {
			if v.name != "restart-moves-nothing" {
				t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
			}
			t.Logf("seed %d: %s: %s", seed, v.name, v.text)
			return
		}
	}
	t.Error("nothing noticed")
}

// resize gives a run that has not begun that number of slots.
func (s *sim) resize(slots int) {
	s.cfg.Slots, s.cfg.Shards, s.fine = slots, 1, slots
	s.check = newSimChecker(s)
	s.srv = newSimServer(s)
}

// rollingUpdate replaces six workers, together at a time, with surge more than
// six there; slowJoin is from a new one's name to its lease.
func rollingUpdate(seed uint64, surge, together int, slowJoin time.Duration, broken simBreakage) *simViolation {
	s := newSim(seed, false)
	s.resize(12)
	s.cfg.Delivery.AckWait = 4 * simCalm
	s.broken = broken
	s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
	s.cfg.Rebalance.RestartGrace += 2 * slowJoin
	s.expect(6)
	for range 6 {
		s.startWorker()
	}
	s.after(5*time.Second, func() { s.publish(40 * time.Second) })
	s.run(6*time.Second, nil)
	before := s.check.current
	s.faults.slowJoin = slowJoin
	old := s.live()
	for range surge {
		s.startWorker()
	}
	s.run(s.now+2*time.Second, nil)
	for len(old) > 0 && s.check.violation == nil {
		n := min(together, len(old))
		for _, w := range old[:n] {
			w.step(leaveInput{})
		}
		for _, w := range old[:n] {
			s.run(s.now+10*time.Second, func() bool { return w.dead })
			s.after(s.between(0, 500*time.Millisecond), func() { s.startWorker() })
		}
		old = old[n:]
		s.run(s.now+2*time.Second, nil)
	}
	s.run(max(s.now, 40*time.Second), nil)
	s.run(s.now+20*time.Second, s.check.atRest)
	return s.movedNothing(before, "a rolling update")
}

// An outage of the server beyond every lease moves nothing, either: the workers
// come back under their names, some of them late, and no standby takes the place of one.
func TestASimulatedOutageBeyondTheLeasesMovesNothing(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, seed := range seeds(uint64(*simQuiet)) {
		for _, away := range []time.Duration{time.Second, 3500 * time.Millisecond, 5 * time.Second, 20 * time.Second} {
			for standbys := range 3 {
				for _, reconnect := range []time.Duration{600 * time.Millisecond, 1900 * time.Millisecond} {
					if v := outage(seed, away, standbys, reconnect); v != nil {
						t.Fatalf("seed %d, %v away, %d standbys, reconnected within %v: %s: %s", seed, away, standbys, reconnect, v.name, v.text)
					}
				}
			}
		}
	}
}

func outage(seed uint64, away time.Duration, standbys int, reconnect time.Duration) *simViolation {
	s := newSim(seed, false)
	s.resize(12)
	s.cfg.Delivery.AckWait = 4 * simCalm
	s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
	s.expect(5)
	for range 5 {
		s.startWorker()
	}
	s.run(5*time.Second, nil)
	for range standbys {
		s.startWorker()
	}
	s.faults.reconnect = reconnect
	s.after(0, func() { s.publish(40 * time.Second) })
	s.run(6*time.Second, nil)
	before := s.check.current
	s.after(0, s.srv.stop)
	s.after(away, s.srv.start)
	s.run(45*time.Second, nil)
	s.run(s.now+20*time.Second, s.check.atRest)
	return s.movedNothing(before, "an outage")
}

// The same with replicas, where the servers are away for about as long as a lease lives. Some
// workers renew theirs in time, and others find that it has expired. The leader may be
// one of the former.
func TestASimulatedOutageOfAClusterMovesNothing(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, seed := range seeds(uint64(*simQuiet)) {
		for away := 3 * time.Second; away <= 9*time.Second; away += 500 * time.Millisecond {
			if v := clusterOutage(seed, away); v != nil {
				t.Fatalf("seed %d, %v away: %s: %s", seed, away, v.name, v.text)
			}
		}
	}
}

func clusterOutage(seed uint64, away time.Duration) *simViolation {
	s := calmSim(seed, 3)
	s.expect(8)
	s.run(8*time.Second, nil)
	before := s.check.current
	s.publish(s.now + 30*time.Second)
	s.faults.linger, s.faults.lingerFor, s.faults.lateClock = 0.4, 400*time.Millisecond, 600*time.Millisecond
	s.srv.stop()
	s.after(away, s.srv.start)
	s.run(s.now+away+2*time.Second, nil)
	s.faults.linger = 0
	s.run(s.now+30*time.Second, nil)
	s.run(s.now+20*time.Second, s.check.atRest)
	return s.movedNothing(before, "an outage of a cluster")
}

// movedNothing returns what went wrong if the map is another than before, or the group is
// not at rest after what happened.
func (s *sim) movedNothing(before *record.Assignment, after string) *simViolation {
	switch now := s.check.current; {
	case s.check.violation != nil:
	case before == nil || now.Version != before.Version:
		s.check.fail("restart-moves-nothing", "the map was %v and is %v", describe(before), describe(now))
	case !s.check.atRest():
		s.check.fail("liveness", "not at rest after %s: %s", after, s.check.whyNotAtRest())
	}
	return s.check.violation
}

// Replacements of workers that have died together don't wait for those, as long as
// nothing says that they come back: neither where a few go on, nor where nobody does.
func TestReplacementsOfManyTakePartSoon(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for seed := uint64(1); seed <= 15; seed++ {
		for dead := 1; dead <= 6; dead++ {
			s := newSim(seed, false)
			s.resize(12)
			s.cfg.Delivery.AckWait = 4 * simCalm
			s.cfg.Rebalance.RestartGrace, s.cfg.Lease.IDTTL = 20*time.Second, 30*time.Second
			s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
			s.expect(6)
			for range 6 {
				s.startWorker()
			}
			s.run(6*time.Second, nil)
			for _, w := range s.live()[:dead] {
				w.crash()
			}
			s.after(time.Second, func() {
				for range dead {
					s.startWorker()
				}
			})
			died := s.now
			s.run(died+30*time.Second, func() bool {
				a := s.check.current
				return s.check.violation != nil || s.now > died+time.Second && len(a.Workers) == 6 && a.Settled() && s.check.atRest()
			})
			if v := s.check.violation; v != nil {
				t.Fatalf("seed %d, %d dead: %s: %s", seed, dead, v.name, v.text)
			}
			// A lease, what a name without one is waited for, and the window where hardly anybody is left.
			if took, most := s.now-died, s.cfg.Lease.TTL+leaderlessName+s.cfg.Rebalance.ColdWindow+2*time.Second; took > most {
				t.Errorf("seed %d, %d dead: all six share everything after %v, want %v at most: %v", seed, dead, took, most, describe(s.check.current))
			}
		}
	}
}

// restartOnly has four workers, no fault but one restart, and clients that are
// back soon.
func restartOnly(seed uint64, broken simBreakage) *simViolation {
	s := newSim(seed, false)
	s.broken = broken
	s.faults = simFaults{latency: time.Millisecond, reconnect: 600 * time.Millisecond}
	for range 4 {
		s.startWorker()
	}
	s.run(6*time.Second, nil)
	before := s.check.current
	s.after(0, s.srv.stop)
	s.after(2*time.Millisecond, s.srv.start)
	s.run(20*time.Second, nil)
	if now := s.check.current; s.check.violation == nil && (before == nil || now.Version != before.Version) {
		s.check.fail("restart-moves-nothing", "the map was %v and is %v", before, now)
	}
	return s.check.violation
}
