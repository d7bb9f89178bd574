package partition

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// interrupt has the lease become invalid, the handler return, and the lease become valid again.
// Then the worker reads again which keys have queued messages, and which have a record.
func (r *deliveryRig) interrupt(queued map[string]int, recorded ...string) {
	r.step(validityInput{false})
	r.returns(1, errors.New("context canceled"))
	r.step(validityInput{true})
	r.readAgain(queued, recorded...)
}

// readAgain reads what is in the retry queue again.
func (r *deliveryRig) readAgain(queued map[string]int, recorded ...string) {
	p := &r.d.slots[rigSlot].pull
	p.at, p.silence.at = r.now.Add(time.Hour), r.now.Add(time.Hour) // which is not what this is about
	r.pass(time.Second)
	ours := []record.QueueClaim{{Slots: 8, Slot: 3, Fence: record.Fence{Version: 1, Claim: 1}}}
	r.answer(1, answer{sequence: 20, claims: ours})
	r.answer(1, answer{counts: queued, recorded: recorded})
	r.told = nil
}

// TestAnInterruptedAttemptCountsAsNone: what an invalid lease does to a handler says nothing of
// the message, so no message becomes a dead letter since its worker lost the lease several times.
func TestAnInterruptedAttemptCountsAsNone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"at the head of the slot": func(t *testing.T) {
			r := attemptsRig(t, true, nil)
			r.come(1)
			for range 5 {
				r.interrupt(nil)
				r.come(1)
				r.expect("handle 1.1 attempt 1 fence 1.1")
			}
		},
		"where it was recorded, and the message comes again": func(t *testing.T) {
			r := attemptsRig(t, false, nil)
			r.come(1)
			r.wantAttempts(1)
			r.answer(1, answer{sequence: 2})
			r.expect("handle 1.1 attempt 1 fence 1.1")
			for range 5 {
				r.interrupt(nil, "k")
				r.come(1)
				r.expect("askAttempts")
				r.answer(1, stored(1, 1))
				r.expect("handle 1.1 attempt 1 fence 1.1")
			}
		},
		"on a queued message": func(t *testing.T) {
			r := attemptsRig(t, true, map[string]int{"k": 1})
			for range 5 {
				r.beginQueued()
				r.expect("handle 1.1 attempt 2 fence 1.1")
				r.interrupt(map[string]int{"k": 1}, "k")
			}
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
	}
}

// beginQueued has the first queued message of the key tried, which was tried once before it was
// queued.
func (r *deliveryRig) beginQueued() {
	r.pass(10 * time.Second)
	r.answer(1, answer{queued: &queuedMessage{Message: r.mail(1).message, seq: 5, finest: 3, attempts: 1}})
	r.answer(1, answer{})
	r.told = nil
	if _, is := r.asks[1].question.(askStoreAttempts); is {
		r.answer(1, answer{sequence: 30})
	}
}

// TestAnOutageCountsAsNoneWhenTheMessageComesAgain: the attempt was recorded before it began.
func TestAnOutageCountsAsNoneWhenTheMessageComesAgain(t *testing.T) {
	t.Parallel()
	r := attemptsRig(t, false, nil)
	r.come(1)
	r.answer(1, answer{sequence: 2})
	for range 5 {
		r.returns(1, Unavailable(errors.New("no database")))
		r.step(validityInput{false})
		r.step(validityInput{true})
		r.readAgain(nil, "k")
		r.come(1)
		r.answer(1, stored(1, 1))
		r.expect("askAttempts", "handle 1.1 attempt 1 fence 1.1")
	}
}

// TestManyInterruptionsCountAsAnAttempt: the message may be why its worker loses the lease.
func TestManyInterruptionsCountAsAnAttempt(t *testing.T) {
	t.Parallel()
	r := attemptsRig(t, true, nil)
	r.come(1)
	for range interruptionsPerAttempt - 1 {
		r.interrupt(nil)
		r.come(1)
		r.expect("handle 1.1 attempt 1 fence 1.1")
	}

	r.step(validityInput{false})
	r.step(validityInput{true})
	r.told = nil
	r.returns(1, errors.New("context canceled"))
	r.readAgain(nil)
	r.come(1)
	r.wantAttempts(2)
	r.answer(1, answer{sequence: 21})
	r.expect("handle 1.1 attempt 2 fence 1.1")
}

// TestWhatAnInterruptedHandlerDecides stands: it knew what becomes of the message.
func TestWhatAnInterruptedHandlerDecides(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for name, tt := range map[string]struct {
		err  error
		then string
	}{
		"it is processed": {nil, "ack 1"},
		"it is discarded": {Discard(cause), "term 1"},
		"it is given up":  {GiveUp(cause), "abandon 1.1 attempt 1 fence 1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := attemptsRig(t, true, nil)
			r.come(1)
			r.step(validityInput{false})
			r.step(validityInput{true})
			r.told = nil
			r.returns(1, tt.err)
			if !slices.Contains(r.told, tt.then) {
				t.Errorf("it wants %q, expected %q among it", r.told, tt.then)
			}
		})
	}
}

// TestTheNextOwnerCountsNoExcusedAttempt: what is recorded of an attempt that counts as none is
// taken back before the slot is handed off.
func TestTheNextOwnerCountsNoExcusedAttempt(t *testing.T) {
	t.Parallel()
	outage := Unavailable(errors.New("no database"))
	begin := func(t *testing.T) *deliveryRig {
		r := attemptsRig(t, false, nil)
		r.come(1)
		r.answer(1, answer{sequence: 2})
		r.returns(1, outage)
		r.told = nil
		return r
	}
	handOff := handOffInput{releaseEffect{place: rigSlot}}

	t.Run("of the message at the head", func(t *testing.T) {
		t.Parallel()
		r := begin(t)
		r.step(handOff)
		r.wantAttempts(0)
		r.answer(1, answer{sequence: 3})
		r.expect("askUnpin")
	})
	t.Run("of a queued message", func(t *testing.T) {
		t.Parallel()
		r := attemptsRig(t, true, map[string]int{"k": 1})
		r.beginQueued()
		r.returns(1, outage)
		r.told = nil
		r.step(handOff)
		r.wantAttempts(1)
		r.answer(1, answer{sequence: 31})
		r.expect("askUnpin")
	})
	t.Run("that has yet to be read again", func(t *testing.T) {
		t.Parallel()
		r := begin(t)
		r.step(validityInput{false})
		r.step(validityInput{true})
		r.readAgain(nil, "k")
		r.step(handOff)
		r.expect("askAttempts")
		r.answer(1, stored(1, 1))
		r.wantAttempts(0)
	})
	t.Run("unless nobody answers", func(t *testing.T) {
		t.Parallel()
		r := begin(t)
		r.step(handOff)
		r.answer(1, answer{outcome: outcomeUnknown, err: outage})
		r.expect("askStoreAttempts", "askUnpin")
	})
	t.Run("of more than mostTakenBack", func(t *testing.T) {
		t.Parallel()
		r := begin(t)
		r.d.slots[rigSlot].retry.attempts.takenBack = mostTakenBack
		r.step(handOff)
		r.expect("askUnpin")
	})
}
