package partition

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
	"time"
)

// TestLanes has several messages of a slot in flight.
func TestLanes(t *testing.T) {
	failed := errors.New("failed")
	come := func(r *deliveryRig, key string, sequences ...uint64) {
		for _, seq := range sequences {
			m := r.mail(seq)
			m.message.Key = key
			r.step(mailInput{rigSlot, m})
		}
	}
	// returns has the handler of a message return.
	returns := func(r *deliveryRig, sequence uint64, err error) {
		r.t.Helper()
		run := r.d.runs[1]
		for of := range run.lanes.turns.all {
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
			r.expect("ack 3, confirm")
			returns(r, 1, nil)
			r.expect("ack 1, confirm")
			r.confirm(3)
			r.expect()
			r.confirm(1)
			r.expect("handle 1.2 attempt 1 fence 1.1")
		},
		"a failed message delays its own key only": func(r *deliveryRig) {
			come(r, "a", 1, 2)
			returns(r, 1, failed)
			come(r, "b", 3)
			r.expect("handle 1.1 attempt 1 fence 1.1", "handle 1.3 attempt 1 fence 1.1")
			r.pass(r.d.cfg.Delivery.RetryDelay)
			r.expect("handle 1.1 attempt 2 fence 1.1")
			returns(r, 1, nil)
			r.confirm(1)
			r.expect("ack 1, confirm", "handle 1.2 attempt 1 fence 1.1")
		},
		"a key with many messages lets the others of its slot have their turn": func(r *deliveryRig) {
			r.d.handlers.most = 1
			come(r, "a", 1, 2)
			come(r, "b", 3)
			come(r, "c", 4)
			r.expect("handle 1.1 attempt 1 fence 1.1")
			returns(r, 1, nil)
			r.confirm(1)
			r.expect("ack 1, confirm", "handle 1.3 attempt 1 fence 1.1")
			returns(r, 3, nil)
			r.expect("ack 3, confirm", "handle 1.4 attempt 1 fence 1.1")
			returns(r, 4, nil)
			r.expect("ack 4, confirm", "handle 1.2 attempt 1 fence 1.1")
		},
		"a discarded message is confirmed, too": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, Discard(failed))
			r.expect("handle 1.1 attempt 1 fence 1.1", "term 1, confirm")
		},
		"a handoff waits for every handler and every confirmation, and then resets the consumer": func(r *deliveryRig) {
			come(r, "a", 1, 4)
			come(r, "b", 2, 3)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot}})
			returns(r, 2, nil)
			r.expect("ack 2, confirm")
			returns(r, 1, failed)
			r.expect()
			r.confirm(2)
			r.expect("askReset")
			r.answer(1, answer{})
			r.expect("released []", "report released, forced false", "ended 1")
		},
		"with replicas, what is in hand before a settled message is handled before the handoff": func(r *deliveryRig) {
			r.d.cfg.Storage.Replicas = 3
			come(r, "a", 1, 2, 5)
			come(r, "b", 3, 4)
			returns(r, 3, nil)
			r.confirm(3)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot}})
			returns(r, 1, nil)
			r.confirm(1)
			r.expect("ack 1, confirm", "handle 1.2 attempt 1 fence 1.1")
			returns(r, 4, nil)
			r.confirm(4)
			returns(r, 2, nil)
			r.confirm(2)
			r.expect("ack 4, confirm", "ack 2, confirm", "askReset")
		},
		"with replicas, a handoff waits for a removal behind a message that fails": func(r *deliveryRig) {
			r.d.cfg.Storage.Replicas = 3
			come(r, "a", 1)
			come(r, "b", 2)
			returns(r, 2, nil)
			r.confirm(2)
			returns(r, 1, failed)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot}})
			r.expect()
			r.pass(r.d.cfg.Delivery.RetryDelay)
			r.expect("handle 1.1 attempt 2 fence 1.1")
			returns(r, 1, failed)
			r.pass(removalLag)
			r.expect("askReset")
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
		"an invalid lease interrupts every handler, and with a valid one all comes again": func(r *deliveryRig) {
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
			r.expect("look", "askTake")
			r.reset()
			r.expect(`fetch 2 ""`)
			come(r, "a", 1)
			come(r, "b", 2)
			r.expect(`fetch 3 "p"`, "handle 1.1 attempt 1 fence 1.1", "handle 1.2 attempt 1 fence 1.1")
		},
		"what a handler did is taken in after the answer to an open question": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, nil)
			r.confirm(1)
			come(r, "b", 2)
			r.told = nil
			come(r, "a", 1) // again: was it settled?
			r.expect("askStream")
			returns(r, 2, nil)
			r.expect()
			r.answer(1, answer{})
			r.expect("ack 1, confirm", "ack 2, confirm")
		},
		"a dropped slot waits for no answer to end with what has returned": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, nil)
			r.confirm(1)
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
		"everything that is known to be new and is not settled is told of as in progress": func(r *deliveryRig) {
			come(r, "a", 1, 3)
			come(r, "b", 2)
			come(r, "c", 4)
			returns(r, 4, nil)
			r.told = nil
			r.step(progressInput{})
			r.expect("working 1", "working 3", "working 2")
		},
		"an acknowledgement without a confirmation is sent again": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, nil)
			r.told = nil
			r.pass(confirmTimeout)
			r.expect("askStored")
			r.answer(1, answer{err: failed})
			r.pass(pullRetry)
			r.expect("askStored")
			r.answer(1, answer{yes: true})
			r.expect("ack 1, confirm")
		},
		"an acknowledgement is not sent again to what is gone": func(r *deliveryRig) {
			come(r, "a", 1, 2)
			returns(r, 1, nil)
			r.told = nil
			r.pass(confirmTimeout)
			r.answer(1, answer{})
			r.expect("askStored", "handle 1.2 attempt 1 fence 1.1")
		},
		"a confirmation may come while the stream is asked": func(r *deliveryRig) {
			come(r, "a", 1, 2, 3)
			returns(r, 1, nil)
			r.told = nil
			r.pass(confirmTimeout)
			r.confirm(1)
			r.answer(1, answer{})
			r.expect("askStored", "handle 1.2 attempt 1 fence 1.1")
		},
		"an acknowledgement is not sent again if another message has the sequence": func(r *deliveryRig) {
			come(r, "a", 1, 2)
			returns(r, 1, nil)
			r.told = nil
			r.pass(confirmTimeout)
			r.answer(1, answer{what: "another message has its sequence"})
			r.expect("askStored", "rolled back: 1 forgotten", "askTake")
		},
		"nothing is acknowledged without a valid lease, and with one when it has come again": func(r *deliveryRig) {
			come(r, "a", 1)
			r.step(validityInput{false})
			r.told = nil
			returns(r, 1, nil)
			r.expect()
			r.step(validityInput{true})
			r.expect("look")
			r.pass(confirmTimeout)
			r.expect("askTake")
			r.reset()
			r.told = nil
			come(r, "a", 1)
			r.expect(`fetch 3 "p"`, "askStream")
			r.answer(1, answer{})
			r.expect("ack 1, confirm")
		},
		"a message that replaces another one is seen when it comes": func(r *deliveryRig) {
			come(r, "a", 5)
			returns(r, 5, nil)
			r.confirm(5)
			come(r, "b", 6)
			r.told = nil
			m := r.mail(2)
			m.message.Key, m.published = "b", r.mail(9).published
			r.step(mailInput{rigSlot, m})
			r.expect("rolled back: 1 forgotten", "askTake")
		},
		"when what was settled is forgotten, nothing begins before a reset": func(r *deliveryRig) {
			come(r, "a", 1)
			r.d.memory.forget(3, 0)
			r.told = nil
			come(r, "b", 2)
			r.expect("askTake")
		},
		"after a missing delivery the consumer is reset, and what was not begun is let go of": func(r *deliveryRig) {
			come(r, "a", 1, 2)
			r.number++
			r.told = nil
			come(r, "b", 4)
			r.expect("askTake")
			r.reset()
			r.expect(`fetch 2 ""`)
			if n := r.d.slots[rigSlot].lanes.total; n != 1 {
				r.t.Errorf("%d messages are in hand, want the one that was begun", n)
			}
			come(r, "a", 1, 2)
			come(r, "b", 3)
			r.expect(`fetch 3 "p"`, "handle 1.3 attempt 1 fence 1.1")
		},
		"what a waiting pull got before the answer to a reset is kept": func(r *deliveryRig) {
			come(r, "a", 1)
			r.number++
			come(r, "b", 3)
			r.told, r.number = nil, 0
			come(r, "a", 1)
			come(r, "b", 2)
			r.answer(1, answer{})
			r.expect(`fetch 2 ""`, `fetch 3 "p"`, "handle 1.2 attempt 1 fence 1.1")
		},
		"what came before a reset was asked for is let go of": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, nil)
			r.pass(confirmTimeout)
			r.number = 0 // somebody else has reset the consumer
			come(r, "b", 2)
			r.step(validityInput{false})
			r.step(validityInput{true})
			r.told = nil
			r.answer(1, answer{})
			r.expect("askTake")
			r.answer(1, answer{})
			r.expect(`fetch 2 ""`)
		},
		"what is settled after a reset is acknowledged when it has come again": func(r *deliveryRig) {
			come(r, "a", 1)
			r.number++
			come(r, "b", 3)
			r.reset()
			r.told = nil
			returns(r, 1, nil)
			r.expect()
			come(r, "a", 1)
			r.expect(`fetch 3 "p"`, "askStream")
			r.answer(1, answer{})
			r.expect("ack 1, confirm")
		},
		"what comes again while its handler works is acknowledged when that returns": func(r *deliveryRig) {
			come(r, "a", 1)
			r.number++
			come(r, "b", 3)
			r.reset()
			r.told = nil
			come(r, "a", 1)
			returns(r, 1, nil)
			r.expect(`fetch 3 "p"`, "ack 1, confirm")
		},
		"a reset waits for the confirmations that are on their way": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, nil)
			r.number++
			r.told = nil
			come(r, "b", 3)
			r.expect()
			r.confirm(1)
			r.pass(pullRetry)
			r.expect("askTake")
		},
		"a reset does not wait for a confirmation that does not come": func(r *deliveryRig) {
			come(r, "a", 1)
			returns(r, 1, nil)
			r.number++
			come(r, "b", 3)
			r.told = nil
			r.pass(confirmTimeout)
			r.expect("askTake")
			r.reset()
			r.told = nil
			come(r, "a", 1)
			r.expect(`fetch 3 "p"`, "askStream")
			r.answer(1, answer{})
			r.expect("ack 1, confirm")
		},
		"what a handler works on is let go of when it fails after a reset": func(r *deliveryRig) {
			come(r, "a", 1)
			r.number++
			come(r, "b", 3)
			r.reset()
			returns(r, 1, failed)
			r.told = nil
			come(r, "a", 1)
			r.expect(`fetch 3 "p"`, "handle 1.1 attempt 1 fence 1.1")
		},
		"what a handler works on goes before what came since a reset": func(r *deliveryRig) {
			come(r, "a", 4)
			r.number++
			come(r, "b", 6)
			r.reset()
			r.told = nil
			come(r, "a", 2, 3)
			r.expect(`fetch 3 "p"`)
			returns(r, 4, nil)
			r.expect("handle 1.2 attempt 1 fence 1.1")
		},
		"a slot that misses what was delivered resets its consumer": func(r *deliveryRig) {
			come(r, "a", 1)
			r.told = nil
			r.pass(r.d.cfg.stalePinCheck)
			r.expect("askWaiting")
			r.answer(1, answer{sequence: 2, yes: true})
			r.expect("askTake")
		},
		"without a valid lease no consumer is reset": func(r *deliveryRig) {
			come(r, "a", 1)
			r.step(validityInput{false})
			r.number++
			r.told = nil
			come(r, "b", 3)
			r.pass(time.Second)
			r.expect()
			r.step(validityInput{true})
			r.expect("look")
			r.pass(time.Second)
			r.expect("askTake")
		},
		"a message of an earlier stream goes back by a reset": func(r *deliveryRig) {
			come(r, "a", 5)
			r.d.memory.forget(3, 0)
			r.told = nil
			returns(r, 5, nil)
			r.expect("askTake")
		},
		"a message that was settled before an earlier one was is not handled again": func(r *deliveryRig) {
			come(r, "a", 1)
			come(r, "b", 2)
			returns(r, 2, nil)
			r.confirm(2)
			r.number++
			come(r, "c", 4)
			r.reset()
			r.told = nil
			come(r, "a", 1)
			come(r, "b", 2)
			r.expect(`fetch 3 "p"`, "askStream")
			r.answer(1, answer{})
			r.expect("ack 2, confirm")
			returns(r, 1, failed)
			r.step(droppedInput{rigSlot})
			r.told, r.number = nil, 0
			r.step(heldInput{place: rigSlot, fence: Fence{3, 1}, handed: true})
			r.told = nil
			m := r.mail(1)
			m.message.Key = "a"
			r.step(mailInput{rigSlot, m})
			r.expect(`fetch 2 "p"`, "handle 2.1 attempt 1 fence 3.1")
		},
		"a later fence is used when no handler has the one before": func(r *deliveryRig) {
			come(r, "a", 1)
			r.step(heldInput{place: rigSlot, fence: Fence{2, 1}, handed: true})
			r.told = nil
			come(r, "b", 2)
			r.expect()
			returns(r, 1, nil)
			r.expect("ack 1, confirm", "handle 1.2 attempt 1 fence 2.1")
		},
		"an earlier message that comes later goes before what was not begun": func(r *deliveryRig) {
			r.d.handlers.most = 1
			come(r, "b", 1)
			come(r, "a", 4, 3)
			returns(r, 1, nil)
			r.confirm(1)
			r.told = nil
			returns(r, 3, nil)
			r.confirm(3)
			r.expect("ack 3, confirm", "handle 1.4 attempt 1 fence 1.1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newDeliveryRig(t, func(c *Config) { c.Delivery.InFlight = 4 })
			r.hold()
			r.told = nil
			test(r)
		})
	}
}

// confirm has the server confirm that a message is settled.
func (r *deliveryRig) confirm(sequence uint64) {
	r.step(confirmedInput{1, original{sequence, simEpoch.Add(time.Duration(sequence) * time.Second).UnixNano()}})
}

// reset resets the consumer, as the run has asked for.
func (r *deliveryRig) reset() {
	r.t.Helper()
	r.number = 0
	r.answer(1, answer{})
}

// TestLanesFindWhatASearchFinds has lanes in every state, of many keys, and compares what they find
// with what a search of all lanes finds, after each step.
func TestLanesFindWhatASearchFinds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		newDeliveryFuzz(t, seed, seed%2 == 0, 200).crowd(400)
	}
}

// crowd is run with many keys, few of which are settled at once.
func (z *deliveryFuzz) crowd(steps int) {
	z.keys = 40
	z.run(steps)
}

// checkLanes compares what lanes find with what a search of all lanes finds.
func checkLanes(t testing.TB, l *lanes, retried *retriedKey) {
	t.Helper()
	all := slices.SortedFunc(maps.Values(l.byKey), func(a, b *lane) int { return cmp.Compare(a.turn, b.turn) })
	if got := slices.Collect(l.turns.all); !slices.Equal(got, all) {
		t.Fatalf("%d lanes have a turn, want the %d of all keys, in order", len(got), len(all))
	}
	total, confirming := 0, 0
	for _, of := range all {
		total += 1 + len(of.behind)
		if of.first.confirming {
			confirming++
		}
		if !slices.IsSortedFunc(of.behind, func(a, b *mail) int { return cmp.Compare(a.sequence, b.sequence) }) {
			t.Fatalf("the messages of key %s are not in the order of the stream", of.key)
		}
	}
	if l.total != total || len(l.unconfirmed) != confirming {
		t.Fatalf("%d messages are in hand, %d to be confirmed, want %d and %d", l.total, len(l.unconfirmed), total, confirming)
	}
	for _, before := range []uint64{0, l.ahead, math.MaxUint64} {
		if got, want := l.ready(retried, before), searchReady(l, all, retried, before); got != want {
			t.Fatalf("before %d: message %d is ready, want %d", before, sequenceOf(got), sequenceOf(want))
		}
	}
	if got, want := l.wake(), searchWake(l, all); !got.Equal(want) {
		t.Fatalf("it wakes at %v, want %v", got, want)
	}
}

// sequenceOf returns the sequence of a message, 0 for none.
func sequenceOf(m *slotMessage) uint64 {
	if m == nil {
		return 0
	}
	return m.mail.sequence
}

func searchReady(l *lanes, all []*lane, retried *retriedKey, before uint64) *slotMessage {
	for _, of := range all {
		m := of.first
		wanted := m.confirming || m.mail.sequence < before && l.serving[of.key] == nil
		if wanted && !m.working && !l.now.Before(m.rest) && !retried.is(of.key) {
			return m
		}
	}
	return nil
}

func searchWake(l *lanes, all []*lane) (at time.Time) {
	for _, of := range all {
		if !of.first.working && l.serving[of.key] == nil {
			at = earlier(at, of.first.rest)
		}
	}
	return at
}
