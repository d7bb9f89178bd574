package partition

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file simulates that messages are given up after a number of attempts, and messages
// that kill the worker which handles them.

// boundAttempts bounds the attempts in half of the runs with a retry queue, and has a key kill
// workers for a while in half of these.
func (s *sim) boundAttempts(end time.Duration, rng *rand.Rand) {
	if rng.IntN(2) == 0 || s.broken.endless {
		return
	}
	s.cfg.Retry.KeepFailing, s.cfg.Retry.Attempts = false, 2+rng.IntN(3)
	if rng.IntN(2) == 0 {
		from := time.Duration(rng.Int64N(int64(end)))
		s.killing = append(s.killing, simFailing{rng.IntN(simKeys), from, from + time.Duration(rng.Int64N(int64(8*time.Second)))})
	}
}

// kills reports whether a key's messages kill workers now.
func (s *sim) kills(key int) bool {
	return !s.quiet && slices.ContainsFunc(s.killing, func(f simFailing) bool { return f.key == key && f.from <= s.now && s.now < f.until })
}

// abandon is the call by which a message is given up. It takes a moment, and fails now and then.
func (w *simWorker) abandon(e handleEffect) {
	r, s := w.runs[e.run], w.s
	h := &simHandler{r: r, call: e.call, fence: e.message.Fence, begun: w.clock(), abandons: true}
	key, _ := strconv.Atoi(e.message.Key)
	h.msg = s.srv.published[simName{key, original{e.message.Sequence, e.message.Published.UnixNano()}}]
	r.handlers[e.call] = h
	h.handling = simHandling{Worker: w, Fence: h.fence, Number: h.msg.n, Standing: h.standing}
	s.logf("%s: slot %d, gives up %d (key %d, %d), attempt %d", w, r.slot, h.msg.seq, h.msg.key, h.msg.n, e.message.Attempt)
	s.check.begins(w, h)
	w.later(s.between(time.Millisecond, 60*time.Millisecond), h.end)
}

// endAbandon returns what comes of it.
func (h *simHandler) endAbandon() error {
	w := h.r.w
	if h.cancelled || w.s.chance(w.s.faults.failWork) {
		w.s.check.attempts.of(h.msg).spared++
		return errHandlerFailed
	}
	w.s.check.abandoned(w, h)
	return nil
}

// simAttemptsCheck counts the attempts on each message, where they are bounded.
type simAttemptsCheck struct {
	c     *simChecker
	tries map[simName]*simTries
	gaps  bool // attempts were made that are not in tries
}

// simTries is what became of the attempts on a message.
type simTries struct {
	begun  int
	failed int // as its owner knows, or since its worker was killed
	spared int // attempts beyond the bound that are due, since it could not be given up
	// announced is which runs have recorded an attempt that they have yet to begin. One that ends
	// before never does, and the attempt counts all the same.
	announced map[*simRun]bool
	// excused is how many attempts were interrupted since the lease became invalid, by run.
	// Another run may count them: it goes by what was recorded.
	excused map[*simRun]int
}

// uncounted returns how many attempts count as none for a run.
func (t *simTries) uncounted(r *simRun) int {
	n := t.excused[r]
	return n - n/interruptionsPerAttempt
}

func (a *simAttemptsCheck) of(m simMessage) *simTries {
	t := a.tries[m.name()]
	if t == nil {
		t = &simTries{announced: make(map[*simRun]bool), excused: make(map[*simRun]int)}
		a.tries[m.name()] = t
	}
	return t
}

// lost notes that a fault has taken messages or records.
func (a *simAttemptsCheck) lost() { a.tries, a.gaps = make(map[simName]*simTries), true }

// begins: attempts, no more are made than are allowed: but for the first one, each is recorded
// before it begins, and the first one of an owner that fails is known to nobody.
func (a *simAttemptsCheck) begins(w *simWorker, h *simHandler, exempt bool) {
	most := a.c.s.cfg.Retry.Attempts
	if most == 0 || h.abandons {
		return
	}
	t := a.of(h.msg)
	if t.failed > most+t.spared && !exempt {
		a.c.fail("attempts", "%v tries %d (key %d, %d) after %d attempts in vain, %d are allowed", w, h.msg.seq, h.msg.key, h.msg.n, t.failed, most)
	}
	t.begun++
	delete(t.announced, h.r)
}

// recorded notes that an attempt was recorded.
func (a *simAttemptsCheck) recorded(r *simRun, key string, attempts record.Attempts, o outcome) {
	n, _ := strconv.Atoi(key)
	m, is := a.c.s.srv.published[simName{n, original{attempts.Sequence, attempts.Published}}]
	if is && o == outcomeDone {
		a.of(m).announced[r] = true
	}
}

// ended notes that a handler has failed. What a worker that does not own the message any more
// sees of it counts for nobody.
func (a *simAttemptsCheck) ended(w *simWorker, h *simHandler) {
	switch {
	case h.abandons || !h.r.holds():
	case h.cancelled:
		a.of(h.msg).excused[h.r]++
	case w.trusted():
		a.of(h.msg).failed++
	}
}

// holds reports whether its slot is still this run's.
func (r *simRun) holds() bool {
	current := r.w.delivery.slots[r.place]
	return !r.w.dead && current != nil && current.number == r.number
}

// handedOn notes that a slot is handed off by an owner that took it over, and has yet to try what
// the owner before may have failed with. The next owner does not know of that.
func (a *simAttemptsCheck) handedOn(w *simWorker, at place) {
	r := w.delivery.slots[at]
	if r == nil || a.c.s.cfg.Retry.Attempts == 0 {
		return
	}
	untried := r.lanes.suspects.left > 0
	for name, t := range a.tries {
		m := a.c.s.srv.published[name]
		if untried && m.fine%at.slots == at.slot && t.begun > 0 {
			t.spared++
		}
	}
}

// handsOff notes that a run gives its slot up, and with it which attempts that failed could not be
// recorded: the handoff waits for no outage.
func (a *simAttemptsCheck) handsOff(r *slotRun) {
	if r == nil || r.stage != runGivingUp || r.retry == nil {
		return
	}
	records := r.retry.attempts.records
	for key, f := range records.failed {
		number, _ := strconv.Atoi(key)
		m, is := a.c.s.srv.published[simName{number, f.original}]
		if is && records.of(key, f.original) < f.attempt {
			a.of(m).spared++
		}
	}
}

// killed notes that a worker ends in the middle of an attempt.
func (a *simAttemptsCheck) killed(w *simWorker) {
	for _, r := range w.runs {
		for _, h := range r.handlers {
			if !h.abandons && !h.cancelled && w.trusted() && r.holds() {
				a.of(h.msg).failed++
			}
		}
	}
}

// abandoned: given-up, a message is given up after all of its attempts only.
func (c *simChecker) abandoned(w *simWorker, h *simHandler) {
	if c.keys[h.msg.key].Exempt(h.msg.n) || c.forgotten {
		return
	}
	t := c.attempts.of(h.msg)
	counted := t.begun + len(t.announced) - t.uncounted(h.r)
	if most := c.s.cfg.Retry.Attempts; counted < most && !c.attempts.gaps {
		c.fail("given-up", "%v gives %d (key %d, %d) up after %d attempts, %d are allowed", w, h.msg.seq, h.msg.key, h.msg.n, counted, most)
	}
	c.abandons++
	c.keys[h.msg.key].DeadLetter(w, h.msg.n, true)
}

// TestSimulationCatchesBrokenAttempts proves the checker for the rules by which attempts are
// recorded.
func TestSimulationCatchesBrokenAttempts(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	for _, tt := range []struct {
		name   string
		broken simBreakage
		by     []string
		from   uint64 // the seed to begin with, where it is rare
	}{
		{"attempts are not recorded", simBreakage{unrecorded: true}, []string{"attempts"}, 68},
		{"a new owner does not read the records", simBreakage{unreadAttempts: true}, []string{"attempts"}, 71},
		{"a new owner takes no message for one that its former owner began", simBreakage{unsuspected: true}, []string{"attempts"}, 630},
		{"the record of another message counts", simBreakage{confusedAttempts: true}, []string{"given-up"}, 1},
		{"an interrupted attempt counts", simBreakage{onDelivery: countInterrupted}, []string{"given-up"}, 182},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.broken.lonely = true
			caughtInRetryQueue(t, tt.broken, tt.by, tt.from)
		})
	}
}

// TestSimulationCatchesUnsuspected proves it for what comes behind the first message after a
// takeover, with several in flight.
func TestSimulationCatchesUnsuspected(t *testing.T) {
	oneGoroutine(t)
	t.Parallel()
	caughtIn(t, simVariant{retry: true, several: true}, simBreakage{unsuspectedBehind: true, lonely: true}, []string{"attempts"}, 3957)
}

// countInterrupted takes an attempt that was interrupted for one that failed.
func countInterrupted(w *simWorker, in deliveryInput) deliveryInput {
	if in, is := in.(handledInput); is && w.delivery.runs[in.run] != nil {
		for _, c := range w.delivery.runs[in.run].calls {
			c.interrupted = c.interrupted && c.number != in.call
		}
	}
	return in
}
