package partition

import (
	"errors"
	"testing"
	"time"
)

// TestHandlerLimit has a delivery with room for a certain number of handlers, and several
// slots with messages. The message with sequence n is of slot n modulo 8.
func TestHandlerLimit(t *testing.T) {
	at := func(slot int) place { return generation{1, 8}.place(slot) }
	hold := func(r *deliveryRig, slots ...int) {
		for _, slot := range slots {
			r.step(heldInput{place: at(slot), fence: Fence{1, 1}, handed: true})
		}
		r.told = nil
	}
	come := func(r *deliveryRig, sequences ...uint64) {
		for _, seq := range sequences {
			m := r.mail(seq)
			m.finest = int(seq % 8)
			r.step(mailInput{at(m.finest), m})
		}
	}
	for name, tt := range map[string]struct {
		most int
		test func(r *deliveryRig)
	}{
		"no more handlers run at once than it allows": {2, func(r *deliveryRig) {
			hold(r, 1, 2, 3)
			come(r, 1, 2, 3)
			r.expect("handle 1.1 attempt 1 fence 1.1", "handle 2.2 attempt 1 fence 1.1")
			r.returns(2, nil)
			r.expect("ack 2", "handle 3.3 attempt 1 fence 1.1")
		}},
		"slots take turns in the order of asking": {1, func(r *deliveryRig) {
			hold(r, 1, 2, 3)
			come(r, 1, 9, 3, 2)
			r.expect("handle 1.1 attempt 1 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1", "handle 3.3 attempt 1 fence 1.1")
			r.returns(3, nil)
			r.expect("ack 3", "handle 2.2 attempt 1 fence 1.1")
			r.returns(2, nil)
			r.expect("ack 2", "handle 1.9 attempt 1 fence 1.1")
		}},
		"a failed message lets others have its turn while it rests": {1, func(r *deliveryRig) {
			hold(r, 1, 2)
			come(r, 1, 2)
			r.returns(1, errors.New("failed"))
			r.expect("handle 1.1 attempt 1 fence 1.1", "handle 2.2 attempt 1 fence 1.1")
			r.pass(time.Second)
			r.expect()
			r.returns(2, nil)
			r.expect("ack 2", "handle 1.1 attempt 2 fence 1.1")
		}},
		"a slot that waits for its turn hands off at once": {1, func(r *deliveryRig) {
			hold(r, 1, 2, 3)
			come(r, 1, 2, 3)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: at(2)}})
			r.expect("askUnpin")
			r.returns(1, nil)
			r.expect("ack 1", "handle 3.3 attempt 1 fence 1.1")
			r.answer(2, answer{})
			r.expect("nak 2", "released []", "report released, forced false", "ended 2")
		}},
		"a dropped slot keeps no turn, and its handler counts until it returns": {1, func(r *deliveryRig) {
			hold(r, 1, 2, 3)
			come(r, 1, 2, 3)
			r.told = nil
			r.step(droppedInput{at(2)})
			r.step(droppedInput{at(1)})
			r.expect("return 2", "ended 2", "released [2]", "interrupt 1", "released [1]")
			r.returns(1, nil)
			r.expect("ended 1", "handle 3.3 attempt 1 fence 1.1")
		}},
		"an abandoned message counts until the handler has returned again": {1, func(r *deliveryRig) {
			hold(r, 1, 2) // without a retry queue, which would ask questions first
			r.d.cfg.Retry = Retry{Attempts: 1}.resolve()
			come(r, 1, 2)
			r.returns(1, errors.New("failed"))
			r.expect("handle 1.1 attempt 1 fence 1.1", "abandon 1.1 attempt 1 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1", "handle 2.2 attempt 1 fence 1.1")
		}},
		"a slot that waits for its turn is not woken for what is due": {1, func(r *deliveryRig) {
			hold(r, 1, 2)
			come(r, 2)
			r.returns(2, errors.New("failed"))
			come(r, 1)
			r.now = r.now.Add(time.Second) // its pause is over
			for _, e := range r.d.step(r.now, wakeInput{2}) {
				if w, is := e.(wakeEffect); is && !w.at.After(r.now) {
					r.t.Errorf("run %d is woken at once", w.run)
				}
			}
			r.told = nil
			r.returns(1, nil)
			r.expect("ack 1", "handle 2.2 attempt 2 fence 1.1")
		}},
		"a turn that comes without a valid lease is given back": {1, func(r *deliveryRig) {
			hold(r, 1, 2)
			come(r, 1, 2)
			r.step(validityInput{false})
			r.returns(1, errors.New("interrupted"))
			r.told = nil
			r.pass(time.Minute)
			r.expect()
			if r.d.handlers.granted != 0 {
				r.t.Errorf("%d permits are granted and no handler runs", r.d.handlers.granted)
			}
			r.step(validityInput{true})
			r.expect("look", "handle 1.1 attempt 1 fence 1.1")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.test(newDeliveryRig(t, func(c *Config) { c.Delivery.MaxHandlers = tt.most }))
		})
	}
}

// TestHandlerLimitWithRetryQueue: a message of the retry queue needs a permit, too, before
// its slot asks for it.
func TestHandlerLimitWithRetryQueue(t *testing.T) {
	r := newDeliveryRig(t, func(c *Config) { c.Delivery.MaxHandlers = 1 })
	busy := generation{1, 8}.place(1)
	r.step(heldInput{place: busy, fence: Fence{1, 1}, handed: true})
	r.d.cfg.Retry = Retry{KeepFailing: true}.resolve() // for the other slot alone
	m := r.mail(1)
	m.finest = 1
	r.step(mailInput{busy, m})
	r.hold()
	r.expect(`fetch 1 ""`, "handle 1.1 attempt 1 fence 1.1", `fetch 1 ""`, "askSpace")
	r.answer(2, answer{})
	r.expect("askClaim")
	r.answer(2, answer{sequence: 1, outcome: outcomeDone})
	r.expect("askCount")
	r.answer(2, answer{counts: map[string]int{"k": 1}})
	r.expect() // the key is due, and there is no permit
	if q := r.d.slots[rigSlot].retry; q.permit.state != permitAsked {
		t.Errorf("the slot with a queued message has permit %d, want %d", q.permit.state, permitAsked)
	}
	r.returns(1, nil)
	r.expect("ack 1", "askHead")
	if r.d.handlers.granted != 1 {
		t.Errorf("%d permits are granted while the first queued message is asked for, want 1", r.d.handlers.granted)
	}
	r.answer(2, answer{})
	if r.d.handlers.granted != 0 {
		t.Errorf("%d permits are granted and nothing is queued", r.d.handlers.granted)
	}
}

// TestAMessageIsAbandonedWithItsOwnPermit: with several messages in flight a run may have a
// permit for one message while a handler of another one returns, which is then abandoned.
func TestAMessageIsAbandonedWithItsOwnPermit(t *testing.T) {
	t.Parallel()
	r := newDeliveryRig(t, func(c *Config) {
		c.Delivery.InFlight, c.Delivery.MaxHandlers = 2, 2
		c.Retry = Retry{Attempts: 1}
	})
	r.hold()
	r.answer(1, answer{})
	r.answer(1, answer{sequence: 1})
	r.answer(1, answer{})
	r.d.slots[rigSlot].retry.queue.keys["q"] = &queuedKey{n: 1, next: r.now.Add(time.Hour)}
	r.come(1)
	other := r.mail(2)
	other.message.Key = "q"
	r.told = nil
	r.step(mailInput{rigSlot, other})
	r.expect("askTail") // with a permit
	r.returns(1, errors.New("failed"))
	r.told = nil
	r.answer(1, answer{}) // nothing of the key is queued any more
	r.expect("abandon 1.1 attempt 1 fence 1.1")
	r.pass(time.Second)
	for range 2 {
		if of := r.d.runs[1]; len(of.calls) > 0 {
			r.returns(1, nil)
		}
	}
	if l := r.d.handlers; l.granted != len(r.d.runs[1].calls) {
		t.Errorf("%d permits are granted, and %d handlers run; it wants %q", l.granted, len(r.d.runs[1].calls), r.told)
	}
}
