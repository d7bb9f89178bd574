package partition

import (
	"errors"
	"testing"
	"time"
)

// TestLanes has several messages of a slot in flight: more than the consumer delivers as yet.
// The keys are of different slots of the largest slot count. What a worker has settled is one
// watermark for each of these, so their messages are settled in order as yet.
func TestLanes(t *testing.T) {
	failed := errors.New("failed")
	come := func(r *deliveryRig, key string, sequences ...uint64) {
		for _, seq := range sequences {
			m := r.mail(seq)
			m.message.Key, m.finest = key, int(key[0])
			r.step(mailInput{rigSlot, m})
		}
	}
	// returns has the handler of a message return.
	returns := func(r *deliveryRig, sequence uint64, err error) {
		r.t.Helper()
		run := r.d.runs[1]
		for _, of := range run.lanes.order {
			if of.first.mail.sequence == sequence && of.first.working {
				r.step(handledInput{1, of.first.call, err})
				return
			}
		}
		r.t.Fatalf("no handler works on message %d", sequence)
	}
	for name, test := range map[string]func(r *deliveryRig){
		"keys of a slot run side by side, the messages of one in order": func(r *deliveryRig) {
			come(r, "a", 1, 2)
			come(r, "b", 3)
			r.expect("handle 1.1 attempt 1 fence 1.1", "handle 1.3 attempt 1 fence 1.1")
			returns(r, 3, nil)
			r.expect("ack 3")
			returns(r, 1, nil)
			r.expect("ack 1", "handle 1.2 attempt 1 fence 1.1")
		},
		"no more are in hand than may be in flight": func(r *deliveryRig) {
			come(r, "a", 1, 2, 3, 4)
			come(r, "b", 5)
			r.expect("handle 1.1 attempt 1 fence 1.1")
			returns(r, 1, nil)
			r.expect("ack 1", "handle 1.2 attempt 1 fence 1.1", "handle 1.5 attempt 1 fence 1.1")
		},
		"a failed message delays its own key only": func(r *deliveryRig) {
			come(r, "a", 1, 2)
			returns(r, 1, failed)
			come(r, "b", 3)
			r.expect("handle 1.1 attempt 1 fence 1.1", "handle 1.3 attempt 1 fence 1.1")
			r.pass(r.d.cfg.Delivery.RetryDelay)
			r.expect("handle 1.1 attempt 2 fence 1.1")
			returns(r, 1, nil)
			r.expect("ack 1", "handle 1.2 attempt 1 fence 1.1")
		},
		"a key with many messages lets the others of its slot have their turn": func(r *deliveryRig) {
			r.d.handlers.most = 1
			come(r, "a", 1, 2)
			come(r, "b", 3)
			r.expect("handle 1.1 attempt 1 fence 1.1")
			returns(r, 1, nil)
			r.expect("ack 1", "handle 1.3 attempt 1 fence 1.1")
			returns(r, 3, nil)
			r.expect("ack 3", "handle 1.2 attempt 1 fence 1.1")
		},
		"a handoff waits for every handler, and returns the rest in the order of the stream": func(r *deliveryRig) {
			come(r, "a", 1, 4)
			come(r, "b", 2, 3)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot}})
			returns(r, 2, nil)
			r.expect("ack 2")
			returns(r, 1, failed)
			r.expect("askUnpin")
			r.answer(1, answer{})
			r.expect("nak 1", "nak 3", "nak 4", "released []", "report released, forced false", "ended 1")
		},
		"a dropped slot returns what was not begun, in the order of the stream": func(r *deliveryRig) {
			come(r, "a", 1, 4)
			come(r, "b", 2, 3)
			r.told = nil
			r.step(droppedInput{rigSlot})
			r.expect("return 3", "return 4", "interrupt 1", "interrupt 1", "released [3]")
			run := r.d.runs[1]
			r.step(handledInput{1, run.calls[1].number, nil})
			r.expect()
			r.step(handledInput{1, run.calls[0].number, nil})
			r.expect("ended 1")
		},
		"an invalid lease interrupts every handler, and all begin again with a valid one": func(r *deliveryRig) {
			come(r, "a", 1)
			come(r, "b", 2)
			r.told = nil
			r.step(validityInput{false})
			r.expect("interrupt 1", "interrupt 1")
			returns(r, 2, failed)
			returns(r, 1, failed)
			r.pass(time.Second)
			r.expect()
			r.step(validityInput{true})
			r.expect("look", `fetch 2 "p"`, "handle 1.1 attempt 2 fence 1.1", "handle 1.2 attempt 2 fence 1.1")
		},
		"what a handler did is taken in after the answer to an open question": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, nil)
			come(r, "b", 2)
			r.told = nil
			come(r, "a", 1) // again: was it settled?
			r.expect("askStream")
			returns(r, 2, nil)
			r.expect()
			r.answer(1, answer{})
			r.expect("ack 1", "ack 2")
		},
		"a dropped slot waits for no answer to end with what has returned": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, nil)
			come(r, "b", 2)
			come(r, "a", 1)
			returns(r, 2, nil)
			r.told = nil
			r.step(droppedInput{rigSlot})
			r.expect("return 1", "ended 1", "released [3]")
			if n := r.d.handlers.granted; n != 0 {
				r.t.Errorf("%d permits are granted and no handler runs", n)
			}
		},
		"everything that is known to be new is told of as in progress": func(r *deliveryRig) {
			come(r, "a", 1, 3)
			come(r, "b", 2)
			r.told = nil
			r.step(progressInput{})
			r.expect("working 1", "working 3", "working 2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newDeliveryRig(t, func(c *Config) { c.inFlight = 4 })
			r.hold()
			r.told = nil
			test(r)
		})
	}
}
