package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"
)

// This file models the retry stream, park.go, and what runners do with it,
// park_run.go. The lot is the real one.

// simSpace is the part of the retry stream for one slot of the coarsest division.
type simSpace struct {
	srv    *simServer
	parked []simParked
	claims []simClaim
}

type simParked struct {
	seq uint64
	msg simMessage
}

type simClaim struct {
	seq uint64
	lotClaim
}

func (srv *simServer) space(at place) *simSpace { return srv.spaces[at.slot%len(srv.spaces)] }

// isParked tells whether a message of the main stream has a copy.
func (srv *simServer) isParked(m simMessage) bool {
	return slices.ContainsFunc(srv.spaces[m.fine%len(srv.spaces)].parked, func(p simParked) bool { return p.msg.seq == m.seq })
}

func (sp *simSpace) last() uint64 {
	var last uint64
	for _, p := range sp.parked {
		last = max(last, p.seq)
	}
	for _, c := range sp.claims {
		last = max(last, c.seq)
	}
	return last
}

func (sp *simSpace) readClaims() (out []lotClaim) {
	for _, c := range sp.claims {
		out = append(out, c.lotClaim)
	}
	return out
}

// write gives a write its sequence, if the last one is the expected one.
func (sp *simSpace) write(expect uint64) (uint64, outcome) {
	if sp.last() != expect {
		return 0, outcomeConflict
	}
	sp.srv.parked++
	return sp.srv.parked, outcomeDone
}

func (sp *simSpace) claim(c lotClaim, expect uint64) (uint64, outcome) {
	seq, o := sp.write(expect)
	if o == outcomeDone {
		sp.claims = slices.DeleteFunc(sp.claims, func(x simClaim) bool { return x.Slots == c.Slots && x.Slot == c.Slot })
		sp.claims = append(sp.claims, simClaim{seq, c})
	}
	return seq, o
}

func (sp *simSpace) store(m simMessage, expect uint64) (uint64, outcome) {
	seq, o := sp.write(expect)
	if o == outcomeDone {
		sp.parked = append(sp.parked, simParked{seq, m})
		sp.srv.s.check.parked++
		sp.srv.s.logf("server: message %d (key %d, %d) is parked as %d", m.seq, m.key, m.n, seq)
	}
	return seq, o
}

func (sp *simSpace) count(at place) map[string]int {
	out := make(map[string]int)
	for _, p := range sp.parked {
		if p.msg.fine%at.slots == at.slot {
			out[strconv.Itoa(p.msg.key)]++
		}
	}
	return out
}

// of returns the messages of a key, in order.
func (sp *simSpace) of(key string) (out []simParked) {
	for _, p := range sp.parked {
		if strconv.Itoa(p.msg.key) == key {
			out = append(out, p)
		}
	}
	return out
}

func (sp *simSpace) remove(seq uint64) (before bool) {
	i := slices.IndexFunc(sp.parked, func(p simParked) bool { return p.seq == seq })
	if i < 0 {
		return true
	}
	m := sp.parked[i].msg
	sp.srv.s.logf("server: parked message %d (key %d, %d) is removed", seq, m.key, m.n)
	sp.parked = slices.Delete(sp.parked, i, i+1)
	if m.n > sp.srv.s.check.good[m.key] {
		sp.srv.s.check.fail("lost", "message %d (key %d, %d) is removed from the retry stream and was not processed", m.seq, m.key, m.n)
	}
	return false
}

// erase removes a message from the main stream.
func (srv *simServer) erase(m simMessage) bool {
	at := &srv.stored[m.fine%len(srv.stored)]
	n := len(*at)
	*at = slices.DeleteFunc(*at, func(o simMessage) bool { return o.seq == m.seq })
	if len(*at) == n {
		return false
	}
	srv.s.logf("server: message %d (key %d, %d) is erased", m.seq, m.key, m.n)
	srv.s.check.removed(m.fine, m)
	return true
}

// inOnePlace: one-place, what a handler begins is in the main stream or parked, not
// both: it would be begun from the other, too.
func (c *simChecker) inOnePlace(w *simWorker, h *simHandler) {
	_, main := c.s.srv.slot(h.r.place).find(h.msg.seq)
	switch {
	case h.parked == nil && c.s.srv.isParked(h.msg):
		c.fail("one-place", "%v begins %d (key %d, %d), which is parked", w, h.msg.seq, h.msg.key, h.msg.n)
	case h.parked != nil && main:
		c.fail("one-place", "%v begins the parked %d (key %d, %d), which is in the main stream", w, h.msg.seq, h.msg.key, h.msg.n)
	}
}

// simFailing is a key whose handlers fail for a while.
type simFailing struct {
	key         int
	from, until time.Duration
}

func (s *sim) fails(key int) bool {
	return !s.quiet && slices.ContainsFunc(s.failing, func(f simFailing) bool { return f.key == key && f.from <= s.now && s.now < f.until })
}

// park has failing messages parked, in half of the runs, and some keys fail. It
// draws by a lot of its own, as relayout does.
func (s *sim) park(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0x9a4))
	if rng.IntN(2) == 0 {
		return
	}
	s.cfg.Retry = Retry{Enabled: true, Tries: 1 + rng.IntN(2), Delay: 100 * time.Millisecond, MaxDelay: 2 * time.Second,
		PerKey: 2 + rng.IntN(40), PerSlot: 10 + rng.IntN(60)}.resolve()
	if rng.IntN(2) == 0 {
		s.faults.lateStore = 0.1 * rng.Float64()
	}
	for range 1 + rng.IntN(8) {
		from := time.Duration(rng.Int64N(int64(end)))
		s.failing = append(s.failing, simFailing{rng.IntN(simKeys), from, from + time.Duration(rng.Int64N(int64(8*time.Second)))})
	}
}

// The runner's part.

func (r *simRunner) beginParking() {
	if !r.w.s.cfg.Retry.Enabled {
		return
	}
	r.lot = newLot(r.w.s.cfg.Retry, r.place, r.fence)
	if r.w.s.broken.blindLot {
		r.lot.phase = lotOpen
	}
	r.pump()
}

// ask is one request to the retry stream, for which the runner waits.
func (r *simRunner) ask(do func(), then func(answered bool)) {
	r.asking, r.resting = true, false
	w := r.w
	finished := false
	finish := func(answered bool) {
		if finished {
			return
		}
		finished, r.asking = true, false
		if r.dropped {
			return
		}
		then(answered)
		r.goOn()
	}
	w.link.up(func() {
		if !w.s.quiet && w.s.chance(w.s.faults.lateStore) {
			// It lies somewhere, and is carried out when nobody waits for it.
			w.s.after(w.s.between(0, 2*w.s.cfg.LeaseTTL), func() {
				if w.s.srv.up {
					do()
				}
			})
			return
		}
		do()
		if !w.s.quiet && w.s.chance(w.s.faults.loseReply) {
			return
		}
		w.link.down(func() { finish(true) })
	})
	w.later(apiTimeout, func() { finish(false) })
}

// goOn is the goroutine going on.
func (r *simRunner) goOn() {
	switch {
	case r.dropped || r.asking || r.handler != nil:
	case r.cur != nil:
		r.try()
	default:
		r.pump()
	}
}

// rest waits, with the message in hand if there is one.
func (r *simRunner) rest(d time.Duration) {
	r.resting = true
	r.w.later(d, func() {
		if r.resting && r.handler == nil {
			r.goOn()
		}
	})
}

// alarm comes back when the lot has something to do.
func (r *simRunner) alarm() {
	at := r.lot.wake()
	if at.IsZero() {
		return
	}
	r.alarms++
	gen := r.alarms
	r.w.later(max(shortestSleep, at.Sub(r.w.clock())), func() {
		if gen == r.alarms && !r.dropped && (r.cur == nil || r.resting) {
			r.goOn()
		}
	})
}

func (r *simRunner) advance() {
	l, sp := r.lot, r.w.s.srv.space(r.place)
	switch l.phase {
	case lotOpen:
	case lotLost:
		l.reread(true)
		r.rest(pullRetry)
	case lotReading:
		var last uint64
		var claims []lotClaim
		r.ask(func() { last, claims = sp.last(), sp.readClaims() }, func(answered bool) {
			if answered {
				l.read(last, claims)
				if r.w.s.broken.unclaimed && l.phase == lotClaiming {
					l.phase, l.bump = lotLooking, false
				}
			}
		})
	case lotClaiming:
		var seq uint64
		var o outcome
		c, expect := lotClaim{r.slots, r.slot, l.fence}, l.last
		r.ask(func() { seq, o = sp.claim(c, expect) }, func(answered bool) {
			if !answered {
				o = outcomeUnknown
			}
			l.claimed(seq, o)
		})
	case lotLooking:
		var counts map[string]int
		r.ask(func() { counts = sp.count(r.place) }, func(answered bool) {
			if answered {
				l.looked(r.w.clock(), counts)
			}
		})
	}
}

// mayBegin tells whether the message in hand may begin; if not, something else
// has been begun that comes back to it.
func (r *simRunner) mayBegin() bool {
	l, m, sp := r.lot, r.cur.msg, r.w.s.srv.space(r.place)
	if r.workWhileWaiting() {
		return false
	}
	l.refence(r.fence)
	if !l.writable() {
		r.advance()
		return false
	}
	key := strconv.Itoa(m.key)
	own := m.original()
	settle := func() {
		r.w.marks(m).settle(m.fine, own, r.generation)
		r.w.ack(*r.cur)
		r.cur = nil
	}
	switch parked := l.parked(key) && !r.w.s.broken.overtaking; {
	case !parked && own == l.latest:
		settle()
		r.w.later(0, r.pump)
		return false
	case parked:
		if !l.room(key) {
			if own == l.latest { // nothing can be behind it
				settle()
				r.w.later(0, r.pump)
				return false
			}
		}
		var tail []simParked
		r.ask(func() { tail = sp.of(key) }, func(answered bool) {
			switch {
			case !answered:
			case len(tail) == 0:
				l.vanished(key)
			case tail[len(tail)-1].msg.seq == m.seq:
				settle()
			case !l.room(key):
				r.waited = true
				r.rest(l.backoff(r.attempt))
			case l.open():
				r.putAside(key, settle)
			}
		})
		return false
	case !r.failed:
		return true
	}
	if !l.room(key) {
		if r.waited {
			r.waited = false
			return true
		}
		r.waited = true
		r.rest(l.backoff(r.attempt))
		return false
	}
	r.putAside(key, settle)
	return false
}

func (r *simRunner) putAside(key string, settle func()) {
	l, m, sp := r.lot, r.cur.msg, r.w.s.srv.space(r.place)
	expect := l.last
	var seq uint64
	var o outcome
	if r.w.s.broken.ackUnparked {
		r.w.ack(*r.cur)
	}
	r.ask(func() { seq, o = sp.store(m, expect) }, func(answered bool) {
		if !answered {
			o = outcomeUnknown
		}
		l.stored(key, seq, r.w.clock(), o)
		if o == outcomeDone {
			settle()
		}
	})
}

// workWhileWaiting sees to what is parked while the message in hand waits.
func (r *simRunner) workWhileWaiting() bool { return r.waited && r.parkWork() }

// parkWork does one thing that is due; false if there is none.
func (r *simRunner) parkWork() bool {
	l := r.lot
	if l == nil || !r.w.trusted() {
		return false
	}
	if !l.open() {
		l.refence(r.fence)
		if l.lost() && r.resting {
			return false
		}
		r.advance()
		return r.asking
	}
	key, due := l.due(r.w.clock())
	if !due || len(r.mail) > 0 && r.cur == nil && r.w.s.chance(0.5) {
		r.alarm()
		return false
	}
	sp := r.w.s.srv.space(r.place)
	if done := l.keys[key].done; done != 0 {
		r.remove(key, done)
		return true
	}
	var head []simParked
	r.ask(func() { head = sp.of(key) }, func(answered bool) {
		switch {
		case !answered:
			l.postpone(key, r.w.clock().Add(pullRetry))
		case len(head) == 0:
			l.vanished(key)
		case l.keys[key] != nil:
			r.eraseAndTry(key, head[0])
		}
	})
	return true
}

func (r *simRunner) eraseAndTry(key string, p simParked) {
	if r.w.s.broken.unerased {
		r.tryParked(key, p)
		return
	}
	was := false
	r.ask(func() { was = r.w.s.srv.erase(p.msg) }, func(answered bool) {
		if !answered {
			r.lot.postpone(key, r.w.clock().Add(pullRetry))
			return
		}
		if was {
			r.w.marks(p.msg).settle(p.msg.fine, p.msg.original(), r.w.marks(p.msg).generation)
		}
		r.tryParked(key, p)
	})
}

func (r *simRunner) tryParked(key string, p simParked) {
	if !r.w.trusted() {
		r.lot.postpone(key, r.w.clock().Add(pullRetry))
		return
	}
	r.lot.tried(p.msg.original())
	r.handle(&simHandler{r: r, fence: r.fence, msg: p.msg, parked: &p})
}

// parkedEnded follows the end of a parked message's handler.
func (r *simRunner) parkedEnded(h *simHandler, ok bool) {
	now, key := r.w.clock(), strconv.Itoa(h.msg.key)
	switch {
	case ok:
		r.lot.processed(key, h.parked.seq, now, now.Sub(h.begun))
		r.remove(key, h.parked.seq)
		return
	case !r.w.trusted():
		r.lot.postpone(key, now)
	default:
		r.lot.failed(key, now, now.Sub(h.begun))
	}
	r.goOn()
}

func (r *simRunner) remove(key string, seq uint64) {
	sp := r.w.s.srv.space(r.place)
	if r.w.s.broken.freeSoon {
		r.w.s.after(r.w.s.between(0, 4*time.Second), func() { sp.remove(seq) })
		r.lot.removed(key, seq, r.w.clock(), false)
		r.goOn()
		return
	}
	before := false
	r.ask(func() { before = sp.remove(seq) }, func(answered bool) {
		if !answered {
			r.lot.postpone(key, r.w.clock().Add(pullRetry))
			return
		}
		r.lot.removed(key, seq, r.w.clock(), before)
	})
}

// TestSimulationCatchesBrokenParking proves the checker for the rules by which a
// failing key's messages are parked.
func TestSimulationCatchesBrokenParking(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken simBreakage
		by     []string
		from   uint64 // the seed to begin with, where it is rare
	}{
		{"a message is acknowledged before its parked copy is stored", simBreakage{ackUnparked: true}, []string{"lost"}, 1},
		{"a new owner begins before it knows which keys are parked", simBreakage{blindLot: true}, []string{"order", "one-place"}, 1},
		{"a successor overtakes what is parked", simBreakage{overtaking: true}, []string{"order"}, 1},
		{"an owner leaves no claim", simBreakage{unclaimed: true}, []string{"one-place", "order"}, 794},
		{"a key is free before its last parked message is removed", simBreakage{freeSoon: true}, []string{"order", "liveness"}, 1},
		{"originals are not looked for", simBreakage{unerased: true}, []string{"one-place"}, 265},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.broken.lonely = true
			for seed := tt.from; seed < tt.from+3000; seed++ {
				s := newSim(seed, false)
				s.parking, s.broken = true, tt.broken
				v := s.simulate()
				if v == nil {
					continue
				}
				if !slices.Contains(tt.by, v.name) {
					t.Fatalf("seed %d: caught by %s (%s), want one of %v\n%s", seed, v.name, v.text, tt.by, story(seed, true, tt.broken, simTold))
				}
				t.Logf("seed %d: %s: %s", seed, v.name, v.text)
				return
			}
			t.Error("nothing noticed")
		})
	}
}

// neighbours has keys that fail all the time, and looks whether others wait.
//
// neighbours: a message whose key does not fail is processed soon.
func neighbours(seed uint64, parking bool) *simViolation {
	s := newSim(seed, false)
	s.resize(4)
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond}
	if parking {
		s.cfg.Retry = Retry{Enabled: true, Delay: 200 * time.Millisecond, MaxDelay: 2 * time.Second}.resolve()
	}
	for key := range 3 {
		s.failing = append(s.failing, simFailing{key, 5 * time.Second, time.Hour})
	}
	for range 3 {
		s.startWorker()
	}
	s.after(3*time.Second, func() { s.publish(40 * time.Second) })
	s.run(42*time.Second, nil)
	for key, sent := range s.check.sent {
		if !s.fails(key) && s.check.good[key] != sent {
			s.check.fail("neighbours", "2s after the last message was published, %d of the %d of key %d are processed", s.check.good[key], sent, key)
			return s.check.violation
		}
	}
	s.calm()
	s.run(s.now+simCalm, s.check.atRest)
	if s.check.violation == nil && !s.check.atRest() {
		s.check.fail("liveness", "not at rest after keys failed: %s", s.check.whyNotAtRest())
	}
	return s.check.violation
}

func TestASimulatedFailingKeyHoldsNoNeighbourUp(t *testing.T) {
	t.Parallel()
	for seed := uint64(1); seed <= 6; seed++ {
		if v := neighbours(seed, true); v != nil {
			t.Fatalf("seed %d: %s: %s", seed, v.name, v.text)
		}
	}
}

func TestANeighbourThatWaitsIsNoticed(t *testing.T) {
	t.Parallel()
	v := neighbours(1, false)
	if v == nil || v.name != "neighbours" {
		t.Fatalf("without parking: %v", v)
	}
	t.Log(fmt.Sprint(v.name, ": ", v.text))
}
