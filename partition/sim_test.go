package partition

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

var (
	simSeeds = flag.Int("sim.seeds", defaultSeeds, "how many seeds TestSimulation runs")
	simSeed  = flag.Uint64("sim.seed", 0, "the one seed that TestSimulation replays, with its steps")
	simFirst = flag.Uint64("sim.first", 1, "the first seed of TestSimulation")
	simQuiet = flag.Int("sim.quiet", 4, "how many seeds run of each test in which nothing may move")
)

const (
	simKeys = 24
	// simCalm is how long after the last fault everything must be at rest.
	simCalm = 60 * time.Second
	// simTold is how many steps a failure shows.
	simTold = 60
)

// drawConfig has short times, so that a run sees many leases come and go.
func (s *sim) drawConfig() Config {
	cfg := Config{Name: "sim", Stream: "sim", Subject: "sim.*", Slots: 4 + s.rng.IntN(9), Retry: Retry{Disabled: true}, Identity: Identity{PoolSize: 12},
		Lease:     Lease{Heartbeat: time.Second, TTL: 3 * time.Second, IDTTL: 6 * time.Second, ProbeInterval: 200 * time.Millisecond},
		Rebalance: Rebalance{ColdWindow: 2 * time.Second, PlannedWindow: time.Second, PrepareTimeout: time.Second, RestartGrace: 2 * time.Second, HandoffTimeout: 2 * time.Second, LeaveTimeout: 4 * time.Second}, Delivery: Delivery{MaxHandlers: mostHandlers, AckWait: 10 * time.Second}}
	if s.chance(0.5) {
		// Nothing may rest on the server's delivering again in the end.
		cfg.Delivery.AckWait = 4 * simCalm
	}
	if s.chance(0.5) {
		s.desired = 2 + s.rng.IntN(4)
	}
	if s.chance(0.25) {
		cfg.Storage.Replicas = 3
	}
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 1200 * time.Millisecond}
	for _, f := range []struct {
		p    *float64
		most float64
	}{{&s.faults.slow, 0.01}, {&s.faults.loseReply, 0.05}, {&s.faults.losePeer, 0.3}, {&s.faults.dupePeer, 0.3},
		{&s.faults.latePeer, 0.2}, {&s.faults.failWork, 0.05}, {&s.faults.dieHere, 0.0005}, {&s.faults.slowWork, 0.05}} {
		if s.chance(0.5) {
			*f.p = s.rng.Float64() * f.most
		}
	}
	if s.chance(0.3) {
		s.faults.latency = 30 * time.Millisecond
	}
	if cfg.Storage.Replicas == 3 {
		s.faults.linger, s.faults.forget = s.rng.Float64()*0.02, s.rng.Float64()*0.3
	}
	// In every second run the messages are in as many streams as can be.
	if cfg.Shards = 1; s.seed%2 == 0 {
		for n := 2; n < cfg.Slots; n++ {
			if cfg.Slots%n == 0 {
				cfg.Shards = n
			}
		}
	}
	return cfg.resolve()
}

// live returns the processes that have not ended.
func (s *sim) live() []*simWorker {
	var ws []*simWorker
	for _, w := range s.workers {
		if !w.dead {
			ws = append(ws, w)
		}
	}
	return ws
}

func (s *sim) anyone() *simWorker {
	ws := s.live()
	if len(ws) == 0 {
		return nil
	}
	return ws[s.rng.IntN(len(ws))]
}

// leader returns who leads, or anyone.
func (s *sim) leader() *simWorker {
	for _, w := range s.live() {
		if w.m.leaderLease.held {
			return w
		}
	}
	return s.anyone()
}

// publish goes on as long as faults do.
func (s *sim) publish(end time.Duration) {
	if s.now >= end {
		return
	}
	if s.srv.up && !s.srv.full() {
		key := s.rng.IntN(simKeys)
		fine := SlotOf(s.fine, fmt.Sprint(key))
		s.srv.publish(simMessage{seq: s.srv.number(fine), key: key, fine: fine, n: s.check.publish(key), published: s.now})
	}
	s.after(s.between(5*time.Millisecond, 120*time.Millisecond)*time.Duration(max(1, s.slower)), func() { s.publish(end) })
}

// disturb does one large fault and schedules the next.
func (s *sim) disturb(end time.Duration, every time.Duration) {
	if s.now >= end {
		return
	}
	w := s.anyone()
	if s.chance(0.3) {
		w = s.leader()
	}
	switch n := s.rng.IntN(100); {
	case w == nil || (n < 22 && len(s.live()) < 8):
		s.startWorker()
	case n < 34:
		w.crash()
	case n < 44:
		s.logf("%s: asked to leave", w)
		w.leaving = true
		s.at(s.now, w, func() { w.step(leaveInput{}) })
	case n < 47:
		d := s.between(time.Second, 3*s.cfg.Lease.TTL)
		if s.chance(0.2) {
			d = 0
		}
		s.logf("%s: asked to yield for %v", w, d)
		s.at(s.now, w, func() { w.step(drainInput{until: w.clock().Add(d)}) })
	case n < 50 && s.desired > 0:
		s.operate(w)
	case n < 46:
		s.logf("all are asked to leave")
		for _, w := range s.live() {
			w.leaving = true
			s.at(s.now+s.between(0, 200*time.Millisecond), w, func() { w.step(leaveInput{}) })
		}
	case n < 60:
		if !w.stopped {
			w.stop()
			s.after(s.between(10*time.Millisecond, 3*s.cfg.Lease.TTL), w.goOn)
		}
	case n < 76:
		notice := s.between(0, 30*time.Millisecond)
		if s.chance(0.2) {
			notice = s.between(0, 2*time.Second)
		}
		w.link.lose(notice)
	case n < 88:
		w.link.holdTraffic()
		s.after(s.between(10*time.Millisecond, 2*s.cfg.Lease.TTL), func() {
			if w.link.cut && !s.quiet && s.chance(0.5) {
				w.link.lose(s.between(0, 30*time.Millisecond))
			} else {
				w.link.release()
			}
		})
	case n < 93:
		if s.srv.up {
			s.srv.stop()
			s.after(s.between(50*time.Millisecond, 2*s.cfg.Lease.TTL), s.srv.start)
		}
	default:
		s.startWorker()
		s.after(s.between(0, 2*s.cfg.Rebalance.PlannedWindow), func() {
			if w := s.anyone(); w != nil && !s.quiet {
				w.crash()
			}
		})
	}
	s.after(s.between(every/4, 2*every), func() { s.disturb(end, every) })
}

// operate does what a deployment does: replaces a worker, before or after the new
// one is there, or changes how many there are.
func (s *sim) operate(w *simWorker) {
	leave := func(w *simWorker) {
		s.logf("%s: asked to leave", w)
		w.leaving = true
		s.at(s.now, w, func() { w.step(leaveInput{}) })
	}
	switch n := s.rng.IntN(4); {
	case n == 0: // the new one first
		s.startWorker()
		s.after(s.between(0, s.cfg.Lease.TTL), func() { leave(w) })
	case n == 1:
		leave(w)
		s.after(s.between(0, s.cfg.Rebalance.RestartGrace), func() { s.startWorker() })
	case n == 2 && s.desired > 2:
		s.expect(s.desired - 1)
		s.after(s.between(0, 300*time.Millisecond), func() { leave(w) })
	default:
		s.expect(s.desired + 1)
		s.startWorker()
	}
}

// expect tells the workers how many they should be, as Group.Expect does.
func (s *sim) expect(n int) {
	s.desired = n
	s.logf("expected: %d", n)
	s.srv.put(s.srv.buckets[s.cfg.bucketMap()], kvEffect{key: expectedKey, value: record.Encode(record.Expected{Schema: record.Schema, N: n})})
}

// relayout asks for another number of slots now and then, in some runs. It draws
// by a lot of its own, so that the other runs are what they would be without it.
func (s *sim) relayout(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0x1a7))
	if rng.Float64() < 0.6 {
		return
	}
	s.refine(s.cfg.Slots << (1 + rng.IntN(2)))
	for range 1 + rng.IntN(4) {
		slots := s.cfg.Slots << rng.IntN(3)
		s.after(time.Duration(rng.Int64N(int64(end))), func() { s.setLayout(min(slots, s.fine)) })
	}
}

// refine bounds the number of slots of a run that has not begun.
func (s *sim) refine(slots int) {
	s.fine = slots
	s.check = newSimChecker(s)
}

// setLayout asks for a number of slots, as Group.Reshard does.
func (s *sim) setLayout(slots int) {
	s.wanted = slots
	s.logf("wanted: %d slots", slots)
	s.srv.put(s.srv.buckets[s.cfg.bucketMap()], kvEffect{key: wantedKey, value: record.Encode(record.Wanted{Schema: record.Schema, Slots: slots})})
}

// calm ends every fault: what is stopped goes on, what is cut passes, and
// somebody is there.
func (s *sim) calm() {
	s.quiet = true
	s.logf("calm")
	s.srv.start()
	for _, w := range s.live() {
		w.goOn()
		w.link.release()
	}
	s.setAgain()
	staying := 0
	for _, w := range s.live() {
		if !w.leaving {
			staying++
		}
	}
	for ; staying < 2; staying++ {
		s.startWorker()
	}
}

// simulate is a whole run.
func (s *sim) simulate() *simViolation {
	if s.broken.faults != nil {
		s.broken.faults(&s.faults)
	}
	stormy := s.between(8*time.Second, 30*time.Second)
	s.relayout(stormy)
	if s.variant.retry {
		s.queueFailing(stormy)
	}
	if s.variant.few {
		s.limitHandlers(stormy)
	}
	if s.variant.several {
		s.severalInFlight()
	}
	if s.variant.calls {
		s.callKeys(stormy)
	}
	if !s.broken.unweighed {
		s.swingWeights(stormy)
	}
	if !s.broken.lonely {
		s.massacre(stormy)
		s.loseBuckets(stormy)
		s.laggingReplicas(stormy)
		s.fullStorage(stormy)
	}
	if s.desired > 0 {
		s.expect(s.desired)
	}
	for range 1 + s.rng.IntN(5) {
		s.after(s.between(0, 500*time.Millisecond), func() { s.startWorker() })
	}
	s.after(time.Second, func() { s.publish(stormy) })
	s.after(s.between(0, 6*time.Second), func() { s.disturb(stormy, s.between(200*time.Millisecond, 4*time.Second)) })
	s.operateOverrides(stormy)
	s.run(stormy, nil)
	s.calm()
	// Those that leave yet, or whose leases have yet to expire, change the map
	// once more, so being at rest counts from there on.
	s.run(stormy+2*s.cfg.Lease.TTL, nil)
	s.run(stormy+ledWithin, s.led)
	if s.check.violation == nil && !s.led() {
		s.check.fail("led", "nobody leads %v after the last fault: %s", ledWithin, s.check.whyNotAtRest())
	}
	s.run(stormy+simCalm, s.check.atRest)
	if s.check.violation == nil && !s.check.atRest() {
		switch {
		case !s.check.quiet():
		case !s.check.overridesKept():
			s.check.fail("overrides", "%v after the last fault %s", simCalm, s.check.unkeptOverride())
			return s.check.violation
		default:
			s.check.fail("uneven", "%v after the last fault %s", simCalm, s.check.unevenSlots())
			return s.check.violation
		}
		s.check.fail("liveness", "not at rest %v after the last fault: %s", simCalm, s.check.whyNotAtRest())
	}
	if s.variant.calls && s.check.violation == nil {
		return s.callEveryKey()
	}
	return s.check.violation
}

// story runs a seed again and returns its last steps.
func story(seed uint64, variant simVariant, broken simBreakage, most int) string {
	s := newSim(seed, true)
	s.variant, s.broken = variant, broken
	s.simulate()
	return s.lastSteps(most)
}

func (s *sim) lastSteps(most int) string {
	return strings.Join(s.trace[max(0, len(s.trace)-most):], "\n")
}

// simVariant is what the runs of one test have in common. The same seed is another run in
// each variant.
type simVariant struct {
	retry bool // failing messages are queued in half of the runs
	few   bool // a worker runs few handlers at once
	// several messages of a slot are in flight.
	several bool
	// calls: callers call keys.
	calls bool
	// states: most workers have state that moves with the slots.
	states bool
}

func TestSimulation(t *testing.T) { simulateSeeds(t, simVariant{}, "plain") }

// TestSimulationWithRetryQueue has failing messages queued in half of the runs. They
// are other runs than TestSimulation's, by the same seeds.
func TestSimulationWithRetryQueue(t *testing.T) {
	simulateSeeds(t, simVariant{retry: true}, "retry")
}

func simulateSeeds(t *testing.T, variant simVariant, traces string) {
	if *simSeed != 0 {
		s := newSim(*simSeed, true)
		s.variant = variant
		v := s.simulate()
		t.Log("\n" + strings.Join(s.trace, "\n"))
		if v != nil {
			t.Errorf("seed %d: %s: %s", *simSeed, v.name, v.text)
		}
		return
	}
	type tally struct{ steps, messages, queued, plans, tuned, layouts int }
	var (
		next  atomic.Uint64
		bad   atomic.Int32
		mu    sync.Mutex
		total tally
		wg    sync.WaitGroup
	)
	frozen := readFrozen(t, traces)
	last := *simFirst + uint64(*simSeeds)
	next.Store(*simFirst)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for bad.Load() < 3 {
				seed := next.Add(1) - 1
				if seed >= last {
					return
				}
				s := newSim(seed, false)
				s.variant = variant
				if v := s.simulate(); v != nil {
					bad.Add(1)
					t.Errorf("seed %d: %s: %s\nits last steps:\n%s", seed, v.name, v.text, story(seed, variant, simBreakage{}, simTold))
				}
				mu.Lock()
				frozen.got[seed] = s.hash
				total = tally{total.steps + s.steps, total.messages + s.check.total, total.queued + s.check.queued, total.plans + s.check.redone, total.tuned + s.check.tuned, total.layouts + s.check.relaid}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	frozen.compare(t)
	t.Logf("%d seeds: %d events, %d messages (%d were queued), %d plans, %d of them of another number of slots, %d for weights alone",
		*simSeeds, total.steps, total.messages, total.queued, total.plans+total.layouts, total.layouts, total.tuned)
}
