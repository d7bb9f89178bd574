package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file simulates callers, which send requests to the owners of keys while workers come and go,
// and says what must never happen to a request. Callers and workers run the real code: callRoute
// decides where a call goes, and the delivery whether it is served.

const (
	simCallers = 2
	// simCallWithin is how long a call may take.
	simCallWithin = 5 * time.Second
)

// simCaller is a process that calls keys.
type simCaller struct {
	s       *sim
	rng     *rand.Rand
	current *record.Assignment // the map as it has it
	lag     time.Duration      // when the last map that was sent to it arrives
	waiting []*simCall         // for a newer map
}

// simCall is a call under way.
type simCall struct {
	c       *simCaller
	key     int
	route   callRoute
	started time.Duration
	number  int // of the request that it waits for the answer of
	over    bool
	ends    func(outcome string)
}

// simService is a request that a worker's handler works on.
type simService struct {
	r         *simRun
	call      uint64
	request   *request
	fence     Fence
	cancelled bool
	until     time.Duration // it does not return before
	forgotten bool          // a broken variant has forgotten it, and can't interrupt it
}

// simCallTally counts what became of calls.
type simCallTally map[string]int

// callKeys has callers call keys as long as faults happen.
func (s *sim) callKeys(end time.Duration) {
	s.callTally = make(simCallTally)
	for i := range simCallers {
		c := &simCaller{s: s, rng: rand.New(rand.NewPCG(s.seed, 0xca11+uint64(i)))}
		s.callers = append(s.callers, c)
		s.after(time.Second, func() { c.callOn(end) })
	}
}

func (c *simCaller) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.rng.Int64N(int64(high-low)))
}

// callOn calls one key after another, whatever becomes of the calls before.
func (c *simCaller) callOn(end time.Duration) {
	if c.s.now >= end {
		return
	}
	c.call(c.rng.IntN(simKeys), func(string) {})
	c.s.after(c.between(2*time.Millisecond, 60*time.Millisecond), func() { c.callOn(end) })
}

// mapWritten has callers learn of a map, some of them late.
func (s *sim) mapWritten(a *record.Assignment) {
	for _, c := range s.callers {
		delay := c.between(time.Millisecond, 20*time.Millisecond)
		if !s.quiet && c.rng.IntN(20) == 0 {
			delay = c.between(0, 3*time.Second)
		}
		c.lag = max(c.lag+1, s.now+delay)
		s.at(c.lag, nil, func() {
			c.current = a
			waiting := c.waiting
			c.waiting = nil
			for _, k := range waiting {
				k.proceed()
			}
		})
	}
}

// call begins a call; ends is told how it ends.
func (c *simCaller) call(key int, ends func(outcome string)) {
	k := &simCall{c: c, key: key, route: callRoute{key: strconv.Itoa(key)}, started: c.s.now, ends: ends}
	c.s.after(simCallWithin, func() { k.end("no answer") })
	k.proceed()
}

func (k *simCall) end(outcome string) {
	if !k.over {
		k.over = true
		k.c.s.callTally[outcome]++
		k.ends(outcome)
	}
}

// proceed is the loop of Caller.Call.
func (k *simCall) proceed() {
	s := k.c.s
	patience := k.started + ownerPatience - s.now
	if k.over {
		return
	}
	t, found := k.route.next(k.c.current)
	switch {
	case found:
		k.send(t, max(patience, time.Millisecond))
	case k.route.exhausted() || patience <= 0:
		k.end("no owner")
	default:
		k.c.waiting = append(k.c.waiting, k)
		number := k.number
		s.after(patience, func() {
			if k.number == number {
				k.end("no owner")
			}
		})
	}
}

// send is Caller.ask: a request goes to the server, and from there to the worker if it listens.
func (k *simCall) send(t callTarget, patience time.Duration) {
	s := k.c.s
	k.number++
	number := k.number
	m := &request{place: t.place, key: k.route.key, known: t.fence, from: func(outcome record.CallOutcome) {
		s.after(k.c.between(50*time.Microsecond, 2*time.Millisecond), func() { k.answered(number, outcome) })
	}}
	left := k.started + simCallWithin - s.now
	s.after(k.c.between(50*time.Microsecond, 2*time.Millisecond), func() {
		if !s.srv.up {
			return
		}
		to := s.srv.subs[t.owner]
		if to == nil {
			m.from.(func(record.CallOutcome))(record.CallMoved) // no responders
			return
		}
		to.link.down(func() {
			m.waits, m.expires = to.clock(), to.clock().Add(left)
			if t.waits {
				m.waits = to.clock().Add(patience)
			}
			to.deliver(requestInput{m})
		})
	})
}

// answered takes in the answer to a request.
func (k *simCall) answered(number int, outcome record.CallOutcome) {
	if k.over || k.number != number {
		return
	}
	switch outcome {
	case record.CallMoved, record.CallNotYet, record.CallNoLease:
		k.c.s.callTally[string(outcome)]++
		k.proceed()
	default:
		k.end(string(outcome))
	}
}

// serve is callServer.serve.
func (w *simWorker) serve(e serveEffect) {
	s := w.s
	v := &simService{r: w.runs[e.run], call: e.call, request: e.request, fence: e.fence}
	v.r.services[e.call] = v
	s.check.services[v] = true
	s.logf("%s: slot %d, serves a call of key %s, fence %v", w, e.slot, e.request.key, e.fence)
	s.check.serves(w, e.request, v)
	d := s.between(100*time.Microsecond, 15*time.Millisecond)
	if s.chance(s.faults.slowWork) {
		d = s.between(0, 2*s.cfg.Rebalance.HandoffTimeout)
	}
	w.later(d, v.end)
}

func (v *simService) atWork() bool { return v.r.services[v.call] == v }

// cancel ends the context of the handler. Most handlers return then.
func (v *simService) cancel() {
	w := v.r.w
	v.cancelled = true
	if w.s.chance(w.s.faults.stubborn) {
		v.until = w.s.now + w.s.between(0, stubbornFor)
		w.later(v.until-w.s.now, v.end)
		return
	}
	w.later(w.s.between(0, time.Millisecond), v.end)
}

func (v *simService) end() {
	w := v.r.w
	if !v.atWork() || w.s.now < v.until {
		return
	}
	delete(v.r.services, v.call)
	delete(w.s.check.services, v)
	var err error
	if !w.s.quiet && w.s.chance(w.s.faults.failWork) {
		err = errHandlerFailed
	}
	w.deliver(servedInput{run: v.r.number, call: v.call, err: err})
}

// reply is callServer.reply.
func (w *simWorker) reply(e replyEffect) {
	if e.outcome == record.CallServed {
		w.s.check.mayServe(w, e.request, "answers")
	}
	w.link.up(func() { e.request.from.(func(record.CallOutcome))(e.outcome) })
}

// expire is callServer.expire.
func (w *simWorker) expire(e expiryEffect) {
	w.s.at(max(w.virtual(e.at)+1, w.s.now), w, func() { w.deliver(expiredInput{e.number}) })
}

// interrupt ends the context of a handler of a run, on a message or on a request.
func (r *simRun) interrupt(call uint64) {
	if v := r.services[call]; v != nil {
		v.cancel()
		return
	}
	r.handlers[call].cancel()
}

// serves looks at a request that the handler begins to work on.
func (c *simChecker) serves(w *simWorker, m *request, v *simService) {
	c.mayServe(w, m, "serves")
	c.aloneWithKey(w, m.key, v, nil)
	c.withinLimit(w)
}

// mayServe: served-without-lease, a request is served, and its answer sent, only while the worker's
// lease is valid, and no other worker with a valid lease has the slot.
func (c *simChecker) mayServe(w *simWorker, m *request, what string) {
	if c.forgotten {
		return
	}
	if !w.trusted() {
		c.fail("served-without-lease", "%v %s a call of key %s without a valid lease", w, what, m.key)
	}
	kv := c.s.srv.buckets[c.s.cfg.bucketLeases()].last[w.m.self.ID]
	if kv != nil && kv.deleted {
		c.fail("served-without-lease", "%v %s a call of key %s, and the servers have ended its lease", w, what, m.key)
	}
	fine := SlotOfKey(c.s.fine, m.key)
	for _, o := range c.s.workers {
		if o == w || o.dead || !o.trusted() {
			continue
		}
		for at := range o.delivery.slots {
			if fine%at.slots == at.slot {
				c.fail("served-without-lease", "%v %s a call of key %s, whose slot %v has with a valid lease", w, what, m.key, o)
				return
			}
		}
	}
}

// aloneWithKey: call-alone, no two handlers work on a key at a time, whether on messages or calls.
// One of another worker whose lease may have ended, or that was interrupted there, is kept apart by
// the fence.
func (c *simChecker) aloneWithKey(w *simWorker, key string, v *simService, h *simHandler) {
	if c.s.callTally == nil || c.forgotten {
		return
	}
	for other := range c.services {
		o := other.r.w
		apart := o.dead || o != w && (other.cancelled || !o.trusted())
		if other != v && other.request.key == key && !apart {
			c.fail("call-alone", "%v begins with key %s, a call of which %v serves", w, key, o)
		}
	}
	for _, o := range c.s.workers {
		if o.dead {
			continue
		}
		for _, r := range o.runs {
			for _, other := range r.handlers {
				apart := o != w && (other.cancelled || !o.trusted())
				if v != nil && other != h && strconv.Itoa(other.msg.key) == key && !apart {
					c.fail("call-alone", "%v serves a call of key %s, a message of which %v handles", w, key, o)
				}
			}
		}
	}
}

// callEveryKey: calls, when everything is at rest a call of any key is served, at latest when it is
// repeated.
func (s *sim) callEveryKey() *simViolation {
	left := make(map[int]bool)
	var call func(c *simCaller, key, tries int)
	call = func(c *simCaller, key, tries int) {
		c.call(key, func(outcome string) {
			switch {
			case outcome == string(record.CallServed):
				delete(left, key)
			case tries > 0:
				s.after(500*time.Millisecond, func() { call(c, key, tries-1) })
			}
		})
	}
	for key := range simKeys {
		left[key] = true
		call(s.callers[key%simCallers], key, 10)
	}
	s.run(s.now+simCalm, func() bool { return len(left) == 0 })
	if s.check.violation == nil && len(left) > 0 {
		s.check.fail("calls", "at rest, calls of the keys %v are not served", left)
	}
	return s.check.violation
}

// TestSimulationWithCalls has callers call keys, with a retry queue in half of the runs.
func TestSimulationWithCalls(t *testing.T) {
	oneGoroutine(t)
	simulateSeeds(t, simVariant{retry: true, calls: true}, "calls")
}

// TestSimulationWithCallsAndSeveralInFlight has several messages of a slot in flight, too.
func TestSimulationWithCallsAndSeveralInFlight(t *testing.T) {
	oneGoroutine(t)
	simulateSeeds(t, simVariant{retry: true, several: true, calls: true}, "calls-several")
}

// TestSimulatedCallsEndInEachWay: the simulator's runs have calls that are served, refused for each
// reason, and lost. Most are served.
func TestSimulatedCallsEndInEachWay(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	total := make(simCallTally)
	for seed := uint64(1); seed <= 40; seed++ {
		s := newSim(seed, false)
		s.variant = simVariant{retry: true, calls: true}
		if v := s.simulate(); v != nil {
			t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
		}
		for outcome, n := range s.callTally {
			total[outcome] += n
		}
	}
	t.Logf("%v", total)
	for _, outcome := range []string{"served", "failed", "moved", "not-yet", "no-lease", "no owner", "no answer"} {
		if total[outcome] == 0 {
			t.Errorf("no call ended as %q", outcome)
		}
	}
	if total["served"] < total["no owner"]+total["no answer"] {
		t.Error("most calls are not served")
	}
}

// TestSimulationCatchesBrokenCalls proves the checker for the rules by which calls are served.
func TestSimulationCatchesBrokenCalls(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken simBreakage
		by     string
	}{
		{"a call is served without a valid lease", simBreakage{onDelivered: serveWhatIsRefused(record.CallNoLease)}, "served-without-lease"},
		{"a former owner serves a call", simBreakage{onDelivered: serveWhatIsRefused(record.CallMoved)}, "served-without-lease"},
		{"a call is answered though the lease ended meanwhile", simBreakage{onDelivered: answerLate}, "served-without-lease"},
		{"a handoff does not wait for calls that are served", simBreakage{onDelivery: forgetServed}, "call-alone"},
		{"a message does not wait for the call of its key", simBreakage{onDelivery: hideServed}, "call-alone"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			variant := simVariant{retry: true, calls: true}
			tt.broken.lonely = true
			for seed := uint64(1); seed < 1000; seed++ {
				s := newSim(seed, false)
				s.variant, s.broken = variant, tt.broken
				v := s.simulate()
				if v == nil {
					continue
				}
				if v.name != tt.by {
					t.Fatalf("seed %d: caught by %s (%s), want %s\n%s", seed, v.name, v.text, tt.by, story(seed, variant, tt.broken, simTold))
				}
				t.Logf("seed %d: %s: %s", seed, v.name, v.text)
				return
			}
			t.Error("nothing noticed")
		})
	}
}

// serveWhatIsRefused serves the requests that are refused for a reason.
func serveWhatIsRefused(why record.CallOutcome) func(*simWorker, deliveryEffect) deliveryEffect {
	return func(w *simWorker, e deliveryEffect) deliveryEffect {
		if reply, is := e.(replyEffect); is && reply.outcome == why {
			w.s.check.mayServe(w, reply.request, "serves")
		}
		return e
	}
}

// answerLate sends the answers that are withheld.
func answerLate(_ *simWorker, e deliveryEffect) deliveryEffect {
	if reply, is := e.(replyEffect); is && errors.Is(reply.err, errLateAnswer) {
		reply.outcome, reply.err = record.CallServed, nil
		return reply
	}
	return e
}

// forgetServed lets a slot be handed off as if no request was served.
func forgetServed(w *simWorker, in deliveryInput) deliveryInput {
	if handOff, is := in.(handOffInput); is {
		if r := w.delivery.slots[handOff.place]; r != nil {
			for _, of := range r.serving {
				w.runs[r.number].services[of.call].forgotten = true
			}
			clear(r.serving)
		}
	}
	return in
}

// hideServed lets a message begin as if no request was served.
func hideServed(w *simWorker, in deliveryInput) deliveryInput {
	mail, is := in.(mailInput)
	if !is {
		return in
	}
	r := w.delivery.slots[mail.place]
	if r == nil {
		return in
	}
	for key, of := range r.serving {
		delete(r.serving, key)
		r.serving[fmt.Sprint("hidden ", of.call)] = of
	}
	return in
}
