package partition

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file models the retry stream, retrystore.go.

// simSpace is the part of the retry stream for one slot of the smallest slot count.
type simSpace struct {
	srv    *simServer
	queued []simQueued
	tries  []simAttempts
	claims []simClaim
}

// simAttempts is a record of attempts on a message of a key.
type simAttempts struct {
	seq uint64
	key string
	record.Attempts
}

type simQueued struct {
	seq      uint64
	msg      simMessage
	attempts int
}

type simClaim struct {
	seq uint64
	record.QueueClaim
}

func (srv *simServer) space(at place) *simSpace { return srv.spaces[at.slot%len(srv.spaces)] }

// isQueued reports whether a message of the main stream has a copy.
func (srv *simServer) isQueued(m simMessage) bool {
	return slices.ContainsFunc(srv.spaces[m.fine%len(srv.spaces)].queued, func(p simQueued) bool { return p.msg == m })
}

func (sp *simSpace) last() uint64 {
	var last uint64
	for _, p := range sp.queued {
		last = max(last, p.seq)
	}
	for _, c := range sp.claims {
		last = max(last, c.seq)
	}
	for _, t := range sp.tries {
		last = max(last, t.seq)
	}
	return last
}

// readClaims returns what retryStore.readSpace does: the newest claim if it is of the same place,
// and all of them otherwise.
func (sp *simSpace) readClaims(at place) (out []record.QueueClaim) {
	claims := sp.claims
	if n := len(claims); n > 0 && claims[n-1].Slots == at.slots && claims[n-1].Slot == at.slot {
		claims = claims[n-1:]
	}
	for _, c := range claims {
		out = append(out, c.QueueClaim)
	}
	return out
}

// write gives a write its sequence, if the last one is the expected one.
func (sp *simSpace) write(expect uint64) (uint64, outcome) {
	if sp.srv.full() {
		return 0, outcomeRefused
	}
	if sp.last() != expect {
		return 0, outcomeConflict
	}
	sp.srv.queued++
	return sp.srv.queued, outcomeDone
}

func (sp *simSpace) claim(c record.QueueClaim, expect uint64) (uint64, outcome) {
	seq, o := sp.write(expect)
	if o == outcomeDone {
		sp.claims = slices.DeleteFunc(sp.claims, func(x simClaim) bool { return x.Slots == c.Slots && x.Slot == c.Slot })
		sp.claims = append(sp.claims, simClaim{seq, c})
	}
	return seq, o
}

func (sp *simSpace) store(m simMessage, attempts int, expect uint64) (uint64, outcome) {
	seq, o := sp.write(expect)
	if o == outcomeDone {
		sp.queued = append(sp.queued, simQueued{seq, m, attempts})
		sp.srv.s.check.queued++
		sp.srv.s.logf("server: message %d (key %d, %d) is queued as %d", m.seq, m.key, m.n, seq)
	}
	return seq, o
}

func (sp *simSpace) count(at place) map[string]int {
	out := make(map[string]int)
	for _, p := range sp.queued {
		if p.msg.fine%at.slots == at.slot {
			out[strconv.Itoa(p.msg.key)]++
		}
	}
	return out
}

// recorded returns the keys of a slot that have a record of attempts.
func (sp *simSpace) recorded(at place) (keys []string) {
	for _, t := range sp.tries {
		if SlotOf(sp.srv.s.fine, t.key)%at.slots == at.slot {
			keys = append(keys, t.key)
		}
	}
	return keys
}

func (sp *simSpace) attemptsOf(key string) (uint64, record.Attempts) {
	for _, t := range sp.tries {
		if t.key == key {
			return t.seq, t.Attempts
		}
	}
	return 0, record.Attempts{}
}

func (sp *simSpace) storeAttempts(key string, a record.Attempts, expect uint64) (uint64, outcome) {
	seq, o := sp.write(expect)
	if o == outcomeDone {
		sp.tries = slices.DeleteFunc(sp.tries, func(t simAttempts) bool { return t.key == key })
		sp.tries = append(sp.tries, simAttempts{seq, key, a})
		sp.srv.s.logf("server: attempt %d on message %d of key %s is recorded as %d", a.Attempts, a.Sequence, key, seq)
	}
	return seq, o
}

// of returns the messages of a key, in order.
func (sp *simSpace) of(key string) (out []simQueued) {
	for _, p := range sp.queued {
		if strconv.Itoa(p.msg.key) == key {
			out = append(out, p)
		}
	}
	return out
}

func (sp *simSpace) remove(seq uint64) (before bool) {
	if j := slices.IndexFunc(sp.tries, func(t simAttempts) bool { return t.seq == seq }); j >= 0 {
		sp.tries = slices.Delete(sp.tries, j, j+1)
		return false
	}
	i := slices.IndexFunc(sp.queued, func(p simQueued) bool { return p.seq == seq })
	if i < 0 {
		return true
	}
	m := sp.queued[i].msg
	sp.srv.s.logf("server: queued message %d (key %d, %d) is removed", seq, m.key, m.n)
	sp.queued = slices.Delete(sp.queued, i, i+1)
	sp.srv.s.check.keys[m.key].Remove(m.n)
	return false
}

// erase removes a message from the main stream.
func (srv *simServer) erase(m simMessage) bool {
	at := &srv.stored[m.fine%len(srv.stored)]
	n := len(*at)
	*at = slices.DeleteFunc(*at, func(o simMessage) bool { return o == m }) // not another one, after a power cut
	if len(*at) == n {
		return false
	}
	srv.s.logf("server: message %d (key %d, %d) is erased", m.seq, m.key, m.n)
	srv.s.check.removed(m)
	return true
}

// inOnePlace: one-place, what a handler begins is in the main stream or queued, not
// both: it would be begun from the other, too.
func (c *simChecker) inOnePlace(w *simWorker, h *simHandler) {
	if !c.s.srv.up || h.abandons {
		return // the worker has yet to see that it went back
	}
	stored, main := c.s.srv.slot(h.r.place).find(h.msg.seq)
	main = main && stored == h.msg // not another one, after a power cut
	switch {
	case h.queued == nil && c.s.srv.isQueued(h.msg):
		c.fail("one-place", "%v begins %d (key %d, %d), which is queued", w, h.msg.seq, h.msg.key, h.msg.n)
	case h.queued != nil && main:
		c.fail("one-place", "%v begins the queued %d (key %d, %d), which is in the main stream", w, h.msg.seq, h.msg.key, h.msg.n)
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

// queueFailing has failing messages queued, in half of the runs, and some keys fail. It
// draws from a generator of its own, as relayout does.
func (s *sim) queueFailing(end time.Duration) {
	rng := rand.New(rand.NewPCG(s.seed, 0x9a4))
	if rng.IntN(2) == 0 {
		return
	}
	s.cfg.Retry = Retry{KeepFailing: true, Tries: 1 + rng.IntN(2), Delay: 100 * time.Millisecond, MaxDelay: 2 * time.Second,
		PerKey: 2 + rng.IntN(40), PerSlot: 10 + rng.IntN(60)}.resolve()
	if rng.IntN(2) == 0 {
		s.faults.lateStore = 0.1 * rng.Float64()
	}
	s.failKeys(end, rng)
	s.boundAttempts(end, rng)
}

// failKeys has the handlers of some keys fail for a while.
func (s *sim) failKeys(end time.Duration, rng *rand.Rand) {
	for range 1 + rng.IntN(8) {
		from := time.Duration(rng.Int64N(int64(end)))
		s.failing = append(s.failing, simFailing{rng.IntN(simKeys), from, from + time.Duration(rng.Int64N(int64(8*time.Second)))})
	}
}

// TestSimulationCatchesBrokenRetryQueue proves the checker for the rules by which a
// failing key's messages are queued.
func TestSimulationCatchesBrokenRetryQueue(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken simBreakage
		by     []string
		from   uint64 // the seed to begin with, where it is rare
	}{
		{"a message is acknowledged before its queued copy is stored", simBreakage{ackUnqueued: true}, []string{"lost"}, 1},
		{"a new owner begins before it knows which keys are queued", simBreakage{blindQueue: true}, []string{"order", "one-place"}, 1},
		{"a successor overtakes what is queued", simBreakage{overtaking: true}, []string{"order"}, 1},
		{"an owner leaves no claim", simBreakage{unclaimed: true}, []string{"one-place", "order", "liveness"}, 1091},
		{"a key is free before its last queued message is removed", simBreakage{freeSoon: true}, []string{"order", "liveness"}, 1063},
		{"originals are not looked for", simBreakage{unerased: true}, []string{"one-place"}, 347},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.broken.lonely, tt.broken.endless = true, true
			caughtInRetryQueue(t, tt.broken, tt.by, tt.from)
		})
	}
}

// caughtInRetryQueue simulates a broken variant from a seed on until the checker notices, which
// must be by one of the invariants that are named.
func caughtInRetryQueue(t *testing.T, broken simBreakage, by []string, from uint64) {
	t.Helper()
	caughtIn(t, simVariant{retry: true}, broken, by, from)
}

// caughtIn looks for a run of a variant in which a broken one is caught.
func caughtIn(t *testing.T, variant simVariant, broken simBreakage, by []string, from uint64) {
	t.Helper()
	for seed := from; seed < from+3000; seed++ {
		s := newSim(seed, false)
		s.variant, s.broken = variant, broken
		v := s.simulate()
		if v == nil {
			continue
		}
		if !slices.Contains(by, v.name) {
			t.Fatalf("seed %d: caught by %s (%s), want one of %v\n%s", seed, v.name, v.text, by, story(seed, variant, broken, simTold))
		}
		t.Logf("seed %d: %s: %s", seed, v.name, v.text)
		return
	}
	t.Error("nothing noticed")
}

// neighbours has keys that fail all the time, and looks whether others wait.
//
// neighbours: a message whose key does not fail is processed soon.
func neighbours(seed uint64, retry bool) *simViolation {
	s := newSim(seed, false)
	s.resize(4)
	s.faults = simFaults{latency: 2 * time.Millisecond, reconnect: 600 * time.Millisecond}
	if retry {
		s.cfg.Retry = Retry{KeepFailing: true, Delay: 200 * time.Millisecond, MaxDelay: 2 * time.Second}.resolve()
	}
	for key := range 3 {
		s.failing = append(s.failing, simFailing{key, 5 * time.Second, time.Hour})
	}
	for range 3 {
		s.startWorker()
	}
	s.after(3*time.Second, func() { s.publish(40 * time.Second) })
	s.run(42*time.Second, nil)
	for key, k := range s.check.keys {
		if !s.fails(key) && k.Next() <= k.Published() {
			s.check.fail("neighbours", "2s after the last message was published, %d of the %d of key %d are processed", k.Next()-1, k.Published(), key)
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
	oneGoroutine(t)
	t.Parallel()
	v := neighbours(1, false)
	if v == nil || v.name != "neighbours" {
		t.Fatalf("without retry: %v", v)
	}
	t.Log(fmt.Sprint(v.name, ": ", v.text))
}
