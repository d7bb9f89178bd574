package partition

import (
	"errors"
	"testing"
	"time"
)

// callsFor has callers send requests for a key of the rig's slot, as the map names its owner.
func (r *deliveryRig) callsFor(known Fence, keys ...string) {
	for _, key := range keys {
		r.step(requestInput{&request{place: rigSlot, key: key, known: known, waits: r.now.Add(time.Second), expires: r.now.Add(time.Minute)}})
	}
}

// servesUp has the handler of a key's request return.
func (r *deliveryRig) servesUp(key string, err error) {
	r.t.Helper()
	for run, of := range r.d.runs {
		if s := of.serving[key]; s != nil {
			r.step(servedInput{run, s.call, []byte("answer"), err})
			return
		}
	}
	r.t.Fatalf("no request of %s is served", key)
}

// TestSlotRequests has callers send requests to the owner of a slot, beside its messages.
func TestSlotRequests(t *testing.T) {
	failed := errors.New("failed")
	now := Fence{1, 1}
	hold := func(r *deliveryRig) {
		r.hold()
		r.told = nil
	}
	for name, test := range map[string]func(r *deliveryRig){
		"a request is served and answered": func(r *deliveryRig) {
			hold(r)
			r.callsFor(now, "a")
			r.expect("serve a fence 1.1")
			r.servesUp("a", nil)
			r.expect("served a")
			r.callsFor(now, "a")
			r.servesUp("a", failed)
			r.expect("serve a fence 1.1", "failed a")
		},
		"requests of different keys are served side by side, those of one key one after another": func(r *deliveryRig) {
			hold(r)
			r.callsFor(now, "a", "a", "b")
			r.expect("serve a fence 1.1", "expires in 1m0s", "serve b fence 1.1")
			r.servesUp("a", nil)
			r.expect("served a", "serve a fence 1.1")
		},
		"a request waits for the message of its key, and one of another key does not": func(r *deliveryRig) {
			hold(r)
			r.come(1) // of key k
			r.callsFor(now, "k", "b")
			r.expect("handle 1.1 attempt 1 fence 1.1", "expires in 1m0s", "serve b fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1", "serve k fence 1.1")
		},
		"a message waits for the request of its key, and comes before the next one": func(r *deliveryRig) {
			hold(r)
			r.callsFor(now, "k", "k")
			r.come(1)
			r.expect("serve k fence 1.1", "expires in 1m0s")
			r.servesUp("k", nil)
			r.expect("served k", "handle 1.1 attempt 1 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1", "serve k fence 1.1")
		},
		"a failing message lets the requests of its key be served while it waits": func(r *deliveryRig) {
			hold(r)
			r.come(1)
			r.returns(1, failed)
			r.callsFor(now, "k")
			r.expect("handle 1.1 attempt 1 fence 1.1", "serve k fence 1.1")
			r.pass(time.Second)
			r.expect()
			r.servesUp("k", nil)
			r.expect("served k", "handle 1.1 attempt 2 fence 1.1")
		},
		"requests and messages take turns where one handler may run": func(r *deliveryRig) {
			r.d.handlers.most = 1
			hold(r)
			r.callsFor(now, "a", "b", "c")
			r.come(1)
			r.expect("serve a fence 1.1", "expires in 1m0s", "expires in 1m0s")
			r.servesUp("a", nil)
			r.expect("served a", "handle 1.1 attempt 1 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1", "serve b fence 1.1")
			r.servesUp("b", nil)
			r.servesUp("c", nil)
			r.expect("served b", "serve c fence 1.1", "served c")
			if n := r.d.handlers.granted; n != 0 {
				r.t.Errorf("%d permits are granted and no handler runs", n)
			}
		},
		"without a valid lease it is refused": func(r *deliveryRig) {
			hold(r)
			r.now = r.d.until
			r.callsFor(now, "a")
			r.expect("no-lease a", `fetch 2 ""`)
		},
		"a request that has waited for its key is refused without a valid lease": func(r *deliveryRig) {
			hold(r)
			r.come(1)
			r.callsFor(now, "k")
			r.told = nil
			r.now = r.d.until
			r.returns(1, failed)
			r.expect("no-lease k")
		},
		"an invalid lease interrupts what is served, refuses the rest and withholds the answer": func(r *deliveryRig) {
			hold(r)
			r.callsFor(now, "a", "a")
			r.told = nil
			r.step(validityInput{false})
			r.expect("interrupt 1", "no-lease a")
			r.servesUp("a", nil)
			r.expect("failed a")
		},
		"a handoff waits for what is served, and refuses the rest": func(r *deliveryRig) {
			hold(r)
			r.callsFor(now, "a", "a")
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot}})
			r.expect("moved a")
			r.callsFor(now, "b")
			r.expect("moved b")
			r.servesUp("a", nil)
			r.expect("served a", "askUnpin")
			r.answer(1, answer{})
			r.expect("released []", "report released, forced false", "ended 1")
			r.callsFor(now, "b")
			r.expect("moved b")
		},
		"a slot that is lost interrupts what is served, and withholds the answer": func(r *deliveryRig) {
			hold(r)
			r.callsFor(now, "a", "a")
			r.told = nil
			r.step(forcedInput{rigSlot})
			r.expect("moved a", "interrupt 1", "unpin and report forced")
			r.servesUp("a", nil)
			r.expect("failed a", "ended 1")
		},
		"a request waits for the slot that its worker is about to get": func(r *deliveryRig) {
			r.callsFor(Fence{2, 1}, "a")
			r.expect("expires in 1s")
			r.step(heldInput{place: rigSlot, fence: Fence{2, 1}, handed: true})
			r.expect(`fetch 1 ""`, "serve a fence 2.1")
		},
		"a request waits for the fence of its caller's map": func(r *deliveryRig) {
			hold(r)
			r.callsFor(Fence{2, 1}, "a")
			r.expect("expires in 1s")
			r.step(heldInput{place: rigSlot, fence: Fence{2, 1}, handed: true})
			r.expect("serve a fence 2.1")
		},
		"a request waits for the handler of an earlier holding": func(r *deliveryRig) {
			hold(r)
			r.callsFor(now, "a")
			r.step(forcedInput{rigSlot})
			r.step(heldInput{place: rigSlot, fence: Fence{2, 1}, handed: true})
			r.told = nil
			r.callsFor(Fence{2, 1}, "a")
			r.expect("expires in 1s")
			r.servesUp("a", nil)
			r.expect("failed a", "ended 1", `fetch 1 ""`, "serve a fence 2.1")
		},
		"a request that has waited for the slot long enough is refused": func(r *deliveryRig) {
			r.callsFor(Fence{2, 1}, "a")
			r.told = nil
			r.now = r.now.Add(time.Second)
			r.step(expiredInput{1})
			r.expect("not-yet a")
			if len(r.d.inbox.open)+len(r.d.inbox.waiting) > 0 {
				r.t.Error("the worker keeps a request that it has refused")
			}
		},
		"a request whose caller has given up is not served": func(r *deliveryRig) {
			hold(r)
			r.come(1)
			r.callsFor(now, "k")
			r.told = nil
			r.now = r.now.Add(time.Minute - time.Millisecond)
			r.step(expiredInput{1})
			r.expect("expires in 1ms")
			r.now = r.now.Add(time.Millisecond)
			r.returns(1, nil)
			r.expect("ack 1", "not-yet k", `fetch 2 "p"`)
		},
		"too many requests are refused": func(r *deliveryRig) {
			hold(r)
			for range mostRequests {
				r.callsFor(now, "a")
			}
			r.told = nil
			r.callsFor(now, "b")
			r.expect("busy b")
			if n := len(r.d.inbox.open); n != mostRequests {
				r.t.Errorf("%d requests are open, want %d", n, mostRequests)
			}
		},
		"a worker that ends refuses what comes": func(r *deliveryRig) {
			hold(r)
			r.callsFor(Fence{9, 1}, "a")
			r.told = nil
			r.step(closeInput{})
			r.callsFor(Fence{9, 1}, "b")
			r.expect("ended 1", "no-lease a", "no-lease b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			test(newDeliveryRig(t, nil))
		})
	}
}

// TestSlotRequestsWithSeveralInFlight: the next fence of an owner waits for the requests that are
// served with the one before.
func TestSlotRequestsWithSeveralInFlight(t *testing.T) {
	r := newDeliveryRig(t, func(c *Config) { c.Delivery.InFlight = 8 })
	r.hold()
	r.callsFor(Fence{1, 1}, "a")
	r.step(heldInput{place: rigSlot, fence: Fence{2, 1}, handed: true})
	r.told = nil
	r.callsFor(Fence{2, 1}, "b")
	r.expect("expires in 1m0s")
	r.servesUp("a", nil)
	r.expect("served a", "serve b fence 2.1")
}
