package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// deliveryRig steps a delivery by hand and keeps what it wants done.
type deliveryRig struct {
	t    testing.TB
	d    *delivery
	now  time.Time
	told []string
	asks map[uint64]askEffect // by run
	// number is that of the last delivery of the consumer.
	number uint64
}

var rigSlot = generation{1, 8}.place(3)

func newDeliveryRig(t testing.TB, change func(*Config)) *deliveryRig {
	cfg := Config{Name: "g", Stream: "s", Subject: "s.*", Slots: 8, Retry: Retry{Disabled: true}}
	if change != nil {
		change(&cfg)
	}
	r := &deliveryRig{t: t, now: simEpoch, asks: make(map[uint64]askEffect)}
	r.d = newDelivery(cfg.resolve(), newMemoryFor(cfg.resolve(), 1), &retryCounts{})
	r.lease(time.Hour)
	return r
}

// lease makes the lease valid for a time.
func (r *deliveryRig) lease(d time.Duration) {
	r.d.until = r.now.Add(d)
	r.step(validityInput{true})
	r.told = nil
}

func (r *deliveryRig) step(in deliveryInput) {
	for _, e := range r.d.step(r.now, in) {
		switch e := e.(type) {
		case fetchEffect:
			r.say("fetch %d %q", e.pullNumber, e.pin)
		case handleEffect:
			word := "handle"
			if e.abandon {
				word = "abandon"
			}
			r.say("%s %d.%d attempt %d fence %v", word, e.run, e.message.Sequence, e.message.Attempt, e.message.Fence)
		case serveEffect:
			r.say("serve %s fence %v", e.request.key, e.fence)
		case replyEffect:
			r.say("%s %s", e.outcome, e.request.key)
		case expiryEffect:
			r.say("expires in %v", e.at.Sub(r.now))
		case interruptEffect:
			r.say("interrupt %d", e.run)
		case settleEffect:
			r.say("%s %d", [...]string{"ack", "term", "nak"}[e.how], e.mail.sequence)
		case confirmEffect:
			r.say("%s %d, confirm", [...]string{"ack", "term"}[e.how], e.mail.sequence)
		case returnEffect:
			r.say("return %d", e.mail.sequence)
		case workingEffect:
			r.say("working %d", e.mail.sequence)
		case askEffect:
			r.asks[e.run] = e
			r.say("%s", strings.TrimPrefix(fmt.Sprintf("%T", e.question), "partition."))
		case lookEffect:
			r.say("look")
		case rolledBackEffect:
			r.say("rolled back: %d forgotten", e.forgotten)
		case releasedEffect:
			r.say("released %v", e.slots.Slots)
		case loadEffect:
			r.say("load %d from %q version %d", e.run, e.state.peer.ID, e.state.version)
		case stopLoadEffect:
			r.say("stop load %d", e.run)
		case exportEffect:
			r.say("export to %s version %d", e.state.peer.ID, e.state.version)
		case reportEffect:
			if in, is := e.input.(slotReleasedInput); is {
				r.say("report released, forced %t", in.forced)
			}
		case forcedEffect:
			r.say("unpin and report forced")
		case endedEffect:
			r.say("ended %d", e.run)
		}
	}
	for _, run := range r.d.runs {
		checkLanes(r.t, run.lanes, run.retried())
	}
}

func (r *deliveryRig) say(format string, args ...any) {
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

// expect compares what was said since the last call.
func (r *deliveryRig) expect(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.told, want) {
		r.t.Fatalf("it wants %q, expected %q", r.told, want)
	}
	r.told = nil
}

func (r *deliveryRig) mail(seq uint64) *mail {
	at := simEpoch.Add(time.Duration(seq) * time.Second)
	r.number++
	return &mail{pin: "p", number: r.number, behind: 1000, original: original{seq, at.UnixNano()}, finest: 3, message: Message{Key: "k", Sequence: seq, Published: at}}
}

func (r *deliveryRig) answer(run uint64, a answer) {
	r.t.Helper()
	e, is := r.asks[run]
	if !is {
		r.t.Fatalf("run %d has asked nothing", run)
	}
	delete(r.asks, run)
	r.step(answerInput{run, e.number, a})
}

// returns has the handler of a run return that was called first.
func (r *deliveryRig) returns(run uint64, err error) {
	r.t.Helper()
	of := r.d.runs[run]
	if of == nil || len(of.calls) == 0 {
		r.t.Fatalf("run %d has called no handler", run)
	}
	r.step(handledInput{run, of.calls[0].number, err})
}

// inHand returns what a slot has in hand first, nil for nothing.
func (r *deliveryRig) inHand() *slotMessage {
	of := r.d.slots[rigSlot].lanes.turns.first
	if of == nil {
		return nil
	}
	return of.of.first
}

func (r *deliveryRig) hold()           { r.step(heldInput{place: rigSlot, fence: Fence{1, 1}, handed: true}) }
func (r *deliveryRig) come(seq uint64) { r.step(mailInput{rigSlot, r.mail(seq)}) }
func (r *deliveryRig) pass(d time.Duration) {
	r.now = r.now.Add(d)
	for n := range r.d.runs {
		r.step(wakeInput{n})
	}
}

func TestDelivery(t *testing.T) {
	failed := errors.New("failed")
	for name, test := range map[string]func(r *deliveryRig){
		"a message is handled, then acknowledged": func(r *deliveryRig) {
			r.hold()
			r.expect(`fetch 1 ""`)
			r.come(1)
			r.expect("handle 1.1 attempt 1 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1")
		},
		"one message at a time, in their order": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.come(2)
			r.come(3)
			r.expect(`fetch 1 ""`, "handle 1.1 attempt 1 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1", "handle 1.2 attempt 1 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 2", "handle 1.3 attempt 1 fence 1.1")
		},
		"a failed message is tried again, later": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.returns(1, failed)
			r.expect(`fetch 1 ""`, "handle 1.1 attempt 1 fence 1.1")
			r.pass(99 * time.Millisecond)
			r.expect()
			r.pass(time.Millisecond)
			r.expect("handle 1.1 attempt 2 fence 1.1")
			r.returns(1, Discard(failed))
			r.expect("term 1")
		},
		"a fence rejection counts no attempt, and the next has the new fence": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.returns(1, ErrFenced)
			r.step(heldInput{place: rigSlot, fence: Fence{2, 1}, handed: true})
			r.told = nil
			r.pass(time.Second)
			r.expect("handle 1.1 attempt 1 fence 2.1")
		},
		"nothing begins once the lease has run out": func(r *deliveryRig) {
			r.lease(time.Second)
			r.hold()
			r.told = nil
			r.now = r.d.until
			r.come(1)
			r.expect()
			r.lease(time.Second)
			if len(r.d.slots[rigSlot].calls) == 0 {
				r.t.Error("it does not begin with a valid lease")
			}
		},
		"handlers are interrupted when the lease becomes invalid, and begin again": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.told = nil
			r.step(validityInput{false})
			r.expect("interrupt 1")
			r.returns(1, failed)
			r.pass(time.Minute)
			r.expect()
			r.step(validityInput{true})
			r.expect("look", "handle 1.1 attempt 1 fence 1.1")
		},
		"a handoff waits for the handler, takes the pin off and then returns what came": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.come(2)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot, leave: Slots{8, []int{3}}}})
			r.expect()
			r.returns(1, nil)
			r.expect("ack 1", "askUnpin")
			r.come(3)
			r.expect("return 3")
			r.answer(1, answer{})
			r.expect("nak 2", "released [3]", "report released, forced false", "ended 1")
		},
		"a handoff returns the message that waits for its next try": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.returns(1, failed)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot, leave: Slots{8, []int{3}}}})
			r.expect("askUnpin")
			r.answer(1, answer{})
			r.expect("nak 1", "released [3]", "report released, forced false", "ended 1")
		},
		"a final handoff has the last acknowledgement confirmed": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.returns(1, nil)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot, final: true}})
			r.expect("askConfirm")
			r.answer(1, answer{})
			r.expect("askUnpin")
		},
		"a dropped slot acknowledges nothing and returns what was not begun": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.come(2)
			r.told = nil
			r.step(droppedInput{rigSlot})
			r.expect("return 2", "interrupt 1", "released [3]")
			r.returns(1, nil)
			r.expect("ended 1")
		},
		"a dropped slot returns the message that waits for the lease": func(r *deliveryRig) {
			r.hold()
			r.step(validityInput{false})
			r.come(1)
			r.told = nil
			r.step(droppedInput{rigSlot})
			r.expect("return 1", "ended 1", "released [3]")
		},
		"a forced slot is unpinned before it is reported": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.told = nil
			r.step(forcedInput{rigSlot})
			r.expect("interrupt 1", "unpin and report forced")
		},
		"a new holding waits for the handler of the one before": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.step(droppedInput{rigSlot})
			r.told = nil
			r.hold()
			r.come(2)
			r.expect()
			r.returns(1, nil)
			r.expect("ended 1", `fetch 1 ""`, `fetch 2 "p"`, "handle 2.2 attempt 1 fence 1.1")
		},
		"a holding of a larger slot count waits, too, one of other keys does not": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.step(droppedInput{rigSlot})
			r.told = nil
			r.step(heldInput{place: generation{2, 16}.place(11), fence: Fence{2, 1}, handed: true})
			r.expect()
			r.step(heldInput{place: generation{2, 16}.place(12), fence: Fence{2, 1}, handed: true})
			r.expect(`fetch 1 ""`)
		},
		"what was settled is acknowledged only if the stream is the one it was": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.returns(1, nil)
			r.told = nil
			r.come(1)
			r.expect("askStream")
			r.answer(1, answer{err: failed})
			r.expect()
			r.pass(pullRetry)
			r.expect("askStream")
			r.answer(1, answer{})
			r.expect("ack 1")
		},
		"a message of a stream that was rolled back is handled": func(r *deliveryRig) {
			r.hold()
			r.come(5)
			r.returns(1, nil)
			r.told = nil
			m := r.mail(2)
			m.published = r.mail(9).published
			r.step(mailInput{rigSlot, m})
			r.expect("rolled back: 1 forgotten", "handle 1.2 attempt 1 fence 1.1")
		},
		"a message that was begun before the roll-back is not acknowledged": func(r *deliveryRig) {
			r.hold()
			r.come(5)
			r.told = nil
			r.d.memory.forget(3, 0)
			r.returns(1, nil)
			r.expect("nak 5")
		},
		"progress is told of what is in hand while the lease is valid": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.told = nil
			r.step(progressInput{})
			r.expect("working 1")
			r.step(validityInput{false})
			r.told = nil
			r.step(progressInput{})
			r.expect()
		},
		"a pull whose pin is gone is made again without it": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.returns(1, nil)
			r.told = nil
			r.step(mailInput{rigSlot, &mail{status: "408", pullNumber: 1}})
			r.expect(`fetch 2 "p"`)
			r.step(mailInput{rigSlot, &mail{status: "423", pullNumber: 2}})
			r.expect(`fetch 3 ""`)
		},
		"a pull is made with the pin if an earlier one may have got it": func(r *deliveryRig) {
			r.hold()
			r.step(validityInput{false})
			r.step(validityInput{true}) // two pulls wait at the server, both without a pin
			r.told = nil
			r.come(1)
			r.expect(`fetch 3 "p"`, "handle 1.1 attempt 1 fence 1.1")
		},
		"a slot pulls again when the lease is valid again": func(r *deliveryRig) {
			r.hold()
			r.step(validityInput{false})
			r.told = nil
			r.step(validityInput{true})
			r.expect("look", `fetch 2 ""`)
		},
		"a pull without an answer is made again": func(r *deliveryRig) {
			r.hold()
			r.told = nil
			r.step(progressInput{})
			r.d.slots[rigSlot].pull.silence.at = r.now.Add(time.Hour) // which is not what this is about
			r.pass(pullExpiry)
			r.expect()
			r.pass(2 * time.Second)
			r.expect(`fetch 2 ""`)
		},
		"a consumer that is gone is created again": func(r *deliveryRig) {
			r.hold()
			r.told = nil
			for pullNumber := 1; pullNumber <= 4; pullNumber++ {
				r.step(mailInput{rigSlot, &mail{status: "503", pullNumber: pullNumber}})
				r.expect("look")
				r.pass(time.Second)
				r.expect(fmt.Sprintf(`fetch %d ""`, pullNumber+1))
			}
			r.step(mailInput{rigSlot, &mail{status: "503", pullNumber: 5}})
			r.expect("look", "askCreate")
		},
		"messages that their consumer knows nothing of are fetched by a new consumer": func(r *deliveryRig) {
			r.hold()
			r.told = nil
			looks := 0
			for range 3 * leftoverLooks {
				r.pass(stalePinCheck)
				for e, asked := r.asks[1]; asked; e, asked = r.asks[1] {
					switch e.question.(type) {
					case askWaiting:
						r.answer(1, answer{})
					case askFirst:
						looks++
						r.answer(1, answer{sequence: 7})
					case askRenew:
						if looks != 2 {
							r.t.Errorf("the consumer is created again after %d looks at the stream, want 2", looks)
						}
						return
					}
				}
			}
			r.t.Error("the consumer is not created again")
		},
		"a consumer that is silent though messages wait is taken again at the second look": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.returns(1, nil)
			r.told = nil
			r.pass(stalePinCheck)
			r.expect()
			r.pass(stalePinCheck)
			r.expectTaken(`fetch 2 ""`)
		},
		"a slot that nothing has come to asks at the first look": func(r *deliveryRig) {
			r.hold()
			r.told = nil
			r.pass(stalePinCheck)
			r.expect("askWaiting")
		},
		"a consumer that gave the pin to a pull that was lost with the connection is taken again soon": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.returns(1, nil)
			r.step(validityInput{false})
			r.step(validityInput{true})
			r.told = nil
			r.pass(r.d.cfg.secondLook())
			r.expect()
			r.pass(r.d.cfg.spreadOverSlots(rigSlot.slot, stalePinCheck/2))
			r.expectTaken(`fetch 3 ""`)
		},
		"a reconnect brings one early look, if that finds nothing": func(r *deliveryRig) {
			r.hold()
			r.step(validityInput{false})
			r.step(validityInput{true})
			r.told = nil
			r.pass(2 * r.d.cfg.secondLook())
			r.expect("askWaiting")
			r.answer(1, answer{})
			r.pass(stalePinCheck - time.Millisecond)
			r.expect()
			r.pass(time.Millisecond)
			r.expect("askWaiting")
		},
		"a silent slot of an empty stream looks no further, and what it saw before counts no more": func(r *deliveryRig) {
			r.hold()
			looks := 0
			for range 4 * (leftoverLooks + 1) {
				r.pass(stalePinCheck)
				for e, asked := r.asks[1]; asked; e, asked = r.asks[1] {
					switch e.question.(type) {
					case askWaiting:
						looks++
						r.answer(1, answer{empty: looks%(leftoverLooks+1) == 0}) // after each look at the first message
					case askFirst:
						r.answer(1, answer{sequence: 7})
					case askRenew:
						r.t.Fatal("the consumer is created again, though its stream was empty meanwhile")
					}
				}
			}
		},
		"a slot whose stream was made again pulls again, for its pull may be lost with the former one": func(r *deliveryRig) {
			r.hold()
			r.told = nil
			r.step(rolledBackInput{rigSlot.slot + 1}) // which is in the same stream
			r.expect(`fetch 2 ""`)
		},
		"a message that came while its consumer was looked at is handled before anything else": func(r *deliveryRig) {
			r.hold()
			r.pass(stalePinCheck)
			r.pass(stalePinCheck)
			r.answer(1, answer{yes: true})
			r.pass(stalePinCheck)
			r.told = nil
			r.come(1)
			r.pass(stalePinCheck) // the next look is due
			r.answer(1, answer{yes: true})
			r.expect("handle 1.1 attempt 1 fence 1.1")
		},
		"a worker that lost its lease while it looked resets nothing": func(r *deliveryRig) {
			r.hold()
			for range 2 {
				r.pass(stalePinCheck)
			}
			r.answer(1, answer{yes: true})
			r.pass(stalePinCheck)
			r.told = nil
			r.step(validityInput{false})
			r.answer(1, answer{yes: true})
			r.expect()
		},
		"the end of everything interrupts, and returns what is left": func(r *deliveryRig) {
			r.hold()
			r.come(1)
			r.come(2)
			r.told = nil
			r.step(closeInput{})
			r.expect("return 2", "interrupt 1")
			r.returns(1, failed)
			r.expect("ended 1")
		},
	} {
		t.Run(name, func(t *testing.T) { test(newDeliveryRig(t, nil)) })
	}
}

// expectTaken: a look is due that finds a message which does not come, and so does the second one.
func (r *deliveryRig) expectTaken(fetch string) {
	r.t.Helper()
	r.expect("askWaiting")
	r.answer(1, answer{yes: true})
	r.expect("look")
	r.pass(r.d.cfg.secondLook())
	r.answer(1, answer{yes: true})
	r.expect("askWaiting", "askTake")
	r.answer(1, answer{})
	r.expect(fetch)
}

// TestDeliveryRetries is what a slot does with its retry queue.
func TestDeliveryRetries(t *testing.T) {
	failed := errors.New("failed")
	enabled := func(c *Config) { c.Retry = Retry{Attempts: 3} }
	r := newDeliveryRig(t, enabled)
	r.hold()
	r.answer(1, answer{})                               // the space is empty
	r.answer(1, answer{sequence: 1})                    // and claimed
	r.answer(1, answer{counts: map[string]int{"q": 0}}) // nothing waits there
	r.come(1)
	r.told = nil
	r.returns(1, failed)
	r.expect("askStoreCopy")
	r.come(2)
	r.answer(1, answer{sequence: 2})
	r.expect("ack 1", "askTail") // of the same key, so it follows
	head := &queuedMessage{Message: r.mail(1).message, seq: 2, finest: 3, attempts: 1}
	r.answer(1, answer{queued: head})
	r.expect("askStoreCopy")
	r.answer(1, answer{sequence: 3})
	r.expect("ack 2")

	r.pass(time.Second)
	r.expect("askHead")
	r.answer(1, answer{queued: head})
	r.expect("askErase")
	r.answer(1, answer{})
	r.expect("askStoreAttempts")
	r.answer(1, answer{sequence: 4})
	r.expect("handle 1.1 attempt 2 fence 1.1")
	r.returns(1, failed)
	r.expect()
	r.pass(2 * time.Second)
	r.answer(1, answer{queued: head})
	r.answer(1, answer{})
	r.answer(1, answer{sequence: 5})
	r.told = nil
	r.returns(1, failed)
	r.expect("abandon 1.1 attempt 3 fence 1.1")
	r.returns(1, nil)
	r.expect("askHead")
	r.answer(1, answer{queued: head})
	r.expect("askRemove")
	r.answer(1, answer{})
	r.told = nil
	if n := r.d.slots[rigSlot].retry.queue.total; n != 1 {
		t.Errorf("%d messages are left in the queue, want 1", n)
	}
}

// TestTheQueueWentBack: a server that was restored from a copy has messages in the retry
// queue again that were removed from it. A worker that goes by what it counted would take
// a key for free behind which others wait.
func TestTheQueueWentBack(t *testing.T) {
	begin := func(t *testing.T, counts map[string]int) *deliveryRig {
		r := newDeliveryRig(t, func(c *Config) { c.Retry = Retry{KeepFailing: true} })
		r.hold()
		r.answer(1, answer{})
		r.answer(1, answer{sequence: 1})
		r.answer(1, answer{counts: counts})
		r.told = nil
		return r
	}
	read := func(r *deliveryRig, counts map[string]int) {
		r.expect("askSpace")
		r.answer(1, answer{sequence: 3, claims: []record.QueueClaim{{Slots: 8, Slot: 3, Fence: record.Fence{Version: 1, Claim: 1}}}})
		r.expect("askCount")
		r.answer(1, answer{counts: counts})
	}
	queued := func(r *deliveryRig, n uint64) *queuedMessage {
		return &queuedMessage{Message: r.mail(n).message, seq: n + 1, finest: 3, attempts: 1}
	}

	t.Run("a key is free when the server has no message of it", func(t *testing.T) {
		for name, left := range map[string]bool{"it has none": false, "it has one": true} {
			t.Run(name, func(t *testing.T) {
				r := begin(t, map[string]int{"k": 1})
				r.pass(time.Second)
				r.answer(1, answer{queued: queued(r, 1)})
				r.answer(1, answer{})
				r.pass(time.Millisecond)
				r.returns(1, nil)
				r.pass(time.Second)
				r.answer(1, answer{queued: queued(r, 1)})
				r.told = nil
				r.answer(1, answer{}) // it is removed, and was the only one that is known
				r.come(3)
				r.expect("askHead")
				if !left {
					r.answer(1, answer{})
					r.expect("handle 1.3 attempt 1 fence 1.1")
					return
				}
				r.answer(1, answer{queued: queued(r, 2)})
				read(r, map[string]int{"k": 1})
				r.expect("askHead")
				r.answer(1, answer{queued: queued(r, 2)})
				r.answer(1, answer{})
				r.expect("askErase", "handle 1.2 attempt 2 fence 1.1") // 3 is behind it
			})
		}
	})
	t.Run("a worker whose lease is valid again counts again", func(t *testing.T) {
		r := begin(t, nil)
		r.step(validityInput{false})
		r.step(validityInput{true})
		r.expect("look", `fetch 2 ""`)
		r.pass(time.Second)
		read(r, map[string]int{"k": 1})
		r.come(3)
		r.pass(time.Second)
		if slices.Contains(r.told, "handle 1.3 attempt 1 fence 1.1") {
			t.Errorf("it begins what came behind a message in the queue: %q", r.told)
		}
	})
	t.Run("what was not begun comes again, behind what the server has again", func(t *testing.T) {
		for name, change := range map[string]func(*deliveryRig){
			"the lease was invalid": func(r *deliveryRig) {
				r.answer(1, answer{err: errors.New("disconnected")})
				r.step(validityInput{false})
				r.step(validityInput{true})
			},
			"messages are missing where they were counted": func(r *deliveryRig) {
				r.pass(recountAfter * stalePinCheck)
				r.answer(1, answer{sequence: 3, claims: []record.QueueClaim{{Slots: 8, Slot: 3, Fence: record.Fence{Version: 1, Claim: 1}}}})
				r.answer(1, answer{counts: nil})
			},
			"the message that it waits behind is not there": func(r *deliveryRig) {
				r.pass(time.Second)
				r.answer(1, answer{})
			},
		} {
			t.Run(name, func(t *testing.T) {
				r := begin(t, map[string]int{"k": 1})
				slot := r.d.slots[rigSlot]
				slot.retry.queue.keys["k"].next = r.now.Add(time.Hour)
				slot.lanes.take(r.mail(3))
				r.inHand().recalling = false
				r.inHand().restFor(time.Hour)
				if strings.Contains(name, "behind") {
					slot.retry.queue.keys["k"].next = r.now
				}
				change(r)
				if !slices.Contains(r.told, "nak 3") || r.inHand() != nil {
					t.Errorf("it wants %q", r.told)
				}
			})
		}
	})
	t.Run("a queued message that comes again is settled as long as it has a copy", func(t *testing.T) {
		for name, tt := range map[string]struct {
			copied  uint64
			answer  answer
			then    string
			settled bool
		}{
			"it has":                        {2, answer{queued: &queuedMessage{Message: Message{Sequence: 1, Published: simEpoch.Add(time.Second)}, seq: 2}}, "ack 1", true},
			"it has none":                   {2, answer{}, "handle 1.1 attempt 1 fence 1.1", false},
			"another message has its place": {2, answer{queued: &queuedMessage{Message: Message{Sequence: 9, Published: simEpoch}, seq: 2}}, "handle 1.1 attempt 1 fence 1.1", false},
		} {
			t.Run(name, func(t *testing.T) {
				r := begin(t, nil)
				m := r.mail(1)
				r.d.memory.queue(3, m.original, tt.copied)
				r.d.memory.settle(3, 3, m.original, 0, Fence{1, 1})
				r.come(1)
				r.expect("askHead")
				if q := r.asks[1].question.(askHead); q != (askHead{"k", tt.copied}) {
					t.Errorf("it looks for %+v", q)
				}
				r.answer(1, tt.answer)
				r.expect(tt.then)
				if r.d.memory.copied(3, m.original) == 0 {
					t.Error("it is forgotten that the message was queued, and it is not processed yet")
				}
			})
		}
	})
	t.Run("a message whose copy is gone is handled, also when it is returned first and comes again", func(t *testing.T) {
		r := begin(t, nil)
		m := r.mail(1)
		r.d.memory.queue(3, m.original, 2)
		r.d.memory.settle(3, 3, m.original, 0, Fence{1, 1})
		r.come(1)
		r.step(validityInput{false})
		r.answer(1, answer{}) // there is no copy
		r.told = nil
		r.step(validityInput{true})
		if !slices.Contains(r.told, "nak 1") {
			t.Fatalf("what was not begun is not returned: %q", r.told)
		}
		r.told = nil
		r.pass(time.Second)
		read(r, nil)
		r.come(1)
		r.expect("askHead")
		r.answer(1, answer{})
		r.expect("handle 1.1 attempt 1 fence 1.1")
		r.returns(1, nil)
		r.expect("ack 1")
		if r.d.memory.copied(3, m.original) != 0 {
			t.Error("a copy is remembered of what was processed")
		}
	})
	t.Run("a copy whose place is not known is searched among all of its key", func(t *testing.T) {
		r := begin(t, nil)
		m := r.mail(1)
		r.d.memory.settle(3, 3, m.original, 0, Fence{1, 1})
		r.d.memory.shards[0].crowded = true
		r.come(1)
		r.expect("askHead")
		r.answer(1, answer{queued: queued(r, 9)})
		r.expect("askHead")
		r.answer(1, answer{queued: &queuedMessage{Message: m.message, seq: 12, finest: 3}})
		r.expect("ack 1")
	})
	t.Run("a message that a former owner settled is settled as long as this owner's claim is there", func(t *testing.T) {
		ours := record.QueueClaim{Slots: 8, Slot: 3, Fence: record.Fence{Version: 1, Claim: 1}}
		theirs := record.QueueClaim{Slots: 8, Slot: 3, Fence: record.Fence{Version: 1, Claim: 0}}
		for name, tt := range map[string]struct {
			before []record.QueueClaim // when the retry queue was read before; nil: it was not
			claims []record.QueueClaim
			then   []string
		}{
			"it is":                          {nil, []record.QueueClaim{ours}, []string{"askStream"}},
			"it is gone":                     {nil, nil, []string{"handle 1.2 attempt 1 fence 1.1"}},
			"that of a former owner is back": {nil, []record.QueueClaim{theirs}, []string{"handle 1.2 attempt 1 fence 1.1"}},
			"it was gone, and written again": {[]record.QueueClaim{theirs}, []record.QueueClaim{ours}, []string{"handle 1.2 attempt 1 fence 1.1"}},
		} {
			t.Run(name, func(t *testing.T) {
				r := begin(t, nil)
				p := &r.d.slots[rigSlot].pull
				p.at, p.silence.at = r.now.Add(time.Hour), r.now.Add(time.Hour) // which is not what this is about
				r.d.memory.settle(3, 3, r.mail(5).original, 0, Fence{1, 1})     // the first as the owner
				if tt.before != nil {
					r.pass(recountAfter * stalePinCheck)
					r.answer(1, answer{sequence: 3, claims: tt.before})
					r.answer(1, answer{sequence: 4}) // it claims the queue again
					r.answer(1, answer{counts: nil})
				}
				r.told = nil
				r.come(2)
				r.expect("askSpace")
				r.answer(1, answer{sequence: 4, claims: tt.claims})
				r.expect(tt.then...)
			})
		}
	})
	t.Run("from time to time it counts again", func(t *testing.T) {
		r := begin(t, nil)
		p := &r.d.slots[rigSlot].pull
		p.at, p.silence.at = r.now.Add(time.Hour), r.now.Add(time.Hour) // which is not what this is about
		r.pass(recountAfter * stalePinCheck)
		read(r, map[string]int{"k": 1})
	})
}

// TestAFencedMessageIsNotQueued: what was interrupted and then fenced off is tried again
// at once, by the owner with the later fence, and not from the retry queue.
func TestAFencedMessageIsNotQueued(t *testing.T) {
	r := newDeliveryRig(t, func(c *Config) { c.Retry = Retry{KeepFailing: true} })
	r.hold()
	r.answer(1, answer{})
	r.answer(1, answer{sequence: 1})
	r.answer(1, answer{counts: map[string]int{}})
	r.come(1)
	r.step(validityInput{false})
	r.returns(1, errors.New("interrupted"))
	r.step(validityInput{true})
	r.pass(time.Second)
	r.answer(1, answer{sequence: 1, claims: []record.QueueClaim{{Slots: 8, Slot: 3, Fence: record.Fence{Version: 1, Claim: 1}}}})
	r.answer(1, answer{counts: map[string]int{}})
	r.told = nil
	r.come(1)
	r.expect("handle 1.1 attempt 1 fence 1.1")
	r.returns(1, ErrFenced)
	r.expect()
	r.pass(time.Second)
	r.expect("handle 1.1 attempt 1 fence 1.1")

	// It had failed often enough to be queued, but there was no room, and it was tried again.
	r.inHand().attempt = r.d.cfg.Retry.Tries + 1
	r.returns(1, ErrFenced)
	r.expect()
	r.pass(time.Second)
	r.expect("handle 1.1 attempt 2 fence 1.1")
}

// TestAQueuedMessageNeedsTheLease: the lease may become invalid while it is read.
func TestAQueuedMessageNeedsTheLease(t *testing.T) {
	r := newDeliveryRig(t, func(c *Config) { c.Retry = Retry{KeepFailing: true} })
	r.hold()
	r.answer(1, answer{})
	r.answer(1, answer{sequence: 1})
	r.answer(1, answer{counts: map[string]int{"k": 1}})
	r.pass(time.Second)
	r.told = nil
	r.answer(1, answer{queued: &queuedMessage{Message: r.mail(1).message, seq: 2, finest: 3, attempts: 1}})
	r.expect("askErase")
	r.step(validityInput{false})
	r.answer(1, answer{})
	r.expect()
	r.step(validityInput{true})
	if r.told = nil; len(r.d.slots[rigSlot].calls) > 0 {
		t.Error("a handler runs")
	}
}

// TestAMessageIsKeptUntilItsCopyIsStored: unless the server says that the copy is in the
// retry queue, the message stays where it is.
func TestAMessageIsKeptUntilItsCopyIsStored(t *testing.T) {
	for name, o := range map[string]outcome{"another worker was faster": outcomeConflict, "there is no room": outcomeRefused, "there is no answer": outcomeUnknown} {
		t.Run(name, func(t *testing.T) {
			r := newDeliveryRig(t, func(c *Config) { c.Retry = Retry{KeepFailing: true} })
			r.hold()
			r.answer(1, answer{})
			r.answer(1, answer{sequence: 1})
			r.answer(1, answer{counts: map[string]int{}})
			r.come(1)
			r.returns(1, errors.New("failed"))
			r.told = nil
			r.answer(1, answer{outcome: o, err: errors.New("not stored")})
			if slices.Contains(r.told, "ack 1") || r.inHand() == nil {
				t.Errorf("it wants %q, and the message is gone", r.told)
			}
		})
	}
}

// FuzzDelivery does what it likes, in any order, and looks whether the rules hold: one
// handler at a time for what shares keys, none without a valid lease, no more than may run,
// nothing acknowledged that no handler has processed, and nothing that came is forgotten.
// In two of three runs a slot may have several keys in flight.
func FuzzDelivery(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, seed uint64, retry bool) {
		newDeliveryFuzz(t, seed, retry, 1+int(seed%3)).run(600)
	})
}

// fuzzMail is a message that came for a slot.
type fuzzMail struct {
	place
	original
}

// fuzzCall is one call of the handler.
type fuzzCall struct{ run, call uint64 }

// has reports whether a message is in hand.
func (l *lanes) has(o original) bool {
	return l.turns.find(func(of *lane) bool {
		return of.first.mail.original == o || slices.ContainsFunc(of.behind, func(m *mail) bool { return m.original == o })
	}) != nil
}

type deliveryFuzz struct {
	t        testing.TB
	rng      *rand.Rand
	d        *delivery
	now      time.Time
	places   []place
	running  map[fuzzCall]handleEffect
	placeOf  map[uint64]place
	open     map[uint64]askEffect
	confirms []confirmEffect   // that the server has yet to confirm
	loading  map[uint64]place  // by run: its handler gets the state of the slot
	numbers  map[place]uint64  // of the last delivery of each consumer
	came     map[fuzzMail]bool // and was not begun
	highest  map[int]uint64    // of those, by slot
	settled  map[uint64]bool   // sequences that a handler has processed, or that are queued for retry
	sequence uint64
	keys     uint64
}

func newDeliveryFuzz(t testing.TB, seed uint64, retry bool, inFlight int) *deliveryFuzz {
	cfg := Config{Name: "g", Stream: "s", Subject: "s.*", Slots: 2, Retry: Retry{Disabled: true}}
	if retry {
		cfg.Retry = Retry{Attempts: 4}
	}
	cfg.Delivery.InFlight = inFlight
	if seed%2 == 0 {
		cfg.Delivery.MaxHandlers = 1 + int(seed/2%3)
	}
	z := &deliveryFuzz{t: t, keys: 5, rng: rand.New(rand.NewPCG(seed, 1)), now: simEpoch, running: make(map[fuzzCall]handleEffect),
		placeOf: make(map[uint64]place), numbers: make(map[place]uint64), open: make(map[uint64]askEffect), came: make(map[fuzzMail]bool), settled: make(map[uint64]bool), highest: make(map[int]uint64), loading: make(map[uint64]place)}
	z.d = newDelivery(cfg.resolve(), newMemoryFor(cfg.resolve(), 1), &retryCounts{})
	z.d.loads = seed%4 == 3
	for _, d := range []generation{{1, 2}, {2, 4}} {
		for s := range d.slots {
			z.places = append(z.places, d.place(s))
		}
	}
	return z
}

func (z *deliveryFuzz) step(in deliveryInput) {
	for _, e := range z.d.step(z.now, in) {
		switch e := e.(type) {
		case beganEffect:
			z.placeOf[e.run] = e.place
		case loadEffect:
			z.loads(e)
		case handleEffect:
			if at, is := z.loading[e.run]; is {
				z.t.Fatalf("run %d begins while the state of slot %d is loaded", e.run, at.slot)
			}
			if !z.d.valid() {
				z.t.Fatalf("run %d begins without a valid lease", e.run)
			}
			for other := range z.running {
				parallel := other.run == e.run && z.running[other].message.Key != e.message.Key && z.d.cfg.Delivery.InFlight > 1
				if at := z.placeOf[other.run]; !parallel && (at == e.place || at.generation != e.generation && at.shares(e.place)) {
					z.t.Fatalf("run %d begins while the handler of run %d is at work on the same keys", e.run, other.run)
				}
			}
			if most := z.d.cfg.Delivery.MaxHandlers; len(z.running) >= most {
				z.t.Fatalf("run %d begins while %d handlers run, at most %d may", e.run, len(z.running), most)
			}
			z.running[fuzzCall{e.run, e.call}] = e
			if e.mail != nil {
				delete(z.came, fuzzMail{e.place, e.mail.original}) // a takeover's reset brings it back
			}
		case askEffect:
			z.open[e.run] = e
		case settleEffect:
			if e.how == settleAck {
				z.acknowledged(e.mail)
			}
			delete(z.came, fuzzMail{e.place, e.mail.original})
		case confirmEffect:
			if e.how == settleAck {
				z.acknowledged(e.mail)
			}
			delete(z.came, fuzzMail{e.place, e.mail.original})
			z.confirms = append(z.confirms, e)
		case returnEffect:
			delete(z.came, fuzzMail{e.place, e.mail.original})
		case endedEffect:
			delete(z.open, e.run)
			z.letGo(z.placeOf[e.run]) // if it has missed something, the next owner does the reset
		}
	}
	for _, r := range z.runs() {
		checkLanes(z.t, r.lanes, r.retried())
	}
	for m := range z.came {
		if r := z.d.slots[m.place]; r != nil && r.order.lost { // it comes again after the reset
			delete(z.came, m)
			continue
		}
		boxed := func(o *mail) bool { return o.original == m.original }
		if !slices.ContainsFunc(z.runs(), func(r *slotRun) bool { return r.lanes.has(m.original) || slices.ContainsFunc(r.pull.box, boxed) }) {
			z.t.Fatalf("message %d of slot %d is forgotten", m.sequence, m.slot)
		}
	}
	if !z.d.suspended {
		return
	}
	for _, r := range z.runs() {
		for _, c := range r.calls {
			if !c.interrupted && !c.returned {
				z.t.Fatalf("handler %d of run %d is not interrupted", c.number, r.number)
			}
		}
	}
}

// loads follows the beginning of a load: nothing of the same keys may be at work, nor be loaded.
func (z *deliveryFuzz) loads(e loadEffect) {
	for other := range z.running {
		if z.placeOf[other.run].shares(e.place) {
			z.t.Fatalf("run %d loads while the handler of run %d is at work on the same keys", e.run, other.run)
		}
	}
	for run, at := range z.loading {
		if at.shares(e.place) {
			z.t.Fatalf("run %d loads while run %d does, which has some of its keys", e.run, run)
		}
	}
	z.loading[e.run] = e.place
}

// acknowledged looks at a message that is acknowledged. A later message of the slot that was
// settled says that this one was, too: the server delivers them in order.
func (z *deliveryFuzz) acknowledged(m *mail) {
	if !z.settled[m.sequence] && m.sequence > z.highest[m.finest] {
		z.t.Fatalf("message %d is acknowledged and was not processed", m.sequence)
	}
}

// reset follows a question that resets a consumer.
func (z *deliveryFuzz) reset(at place) {
	z.numbers[at] = 0
	z.letGo(at)
}

// letGo follows what has a slot with several messages in flight let go of what came: it comes
// again after a reset.
func (z *deliveryFuzz) letGo(at place) {
	for m := range z.came {
		if m.place == at && z.d.several() {
			delete(z.came, m)
		}
	}
}

func (z *deliveryFuzz) settle(finest int, sequence uint64) {
	z.settled[sequence] = true
	if sequence < 1<<40 {
		z.highest[finest] = max(z.highest[finest], sequence)
	}
}

func (z *deliveryFuzz) runs() (out []*slotRun) {
	for _, r := range z.d.runs {
		out = append(out, r)
	}
	return out
}

func (z *deliveryFuzz) run(steps int) {
	failed := errors.New("failed")
	for range steps {
		at := z.places[z.rng.IntN(len(z.places))]
		z.now = z.now.Add(time.Duration(z.rng.Int64N(int64(300 * time.Millisecond))))
		if z.rng.IntN(3) == 0 {
			z.d.until = z.now.Add(time.Duration(z.rng.Int64N(int64(3 * time.Second))))
		}
		switch z.rng.IntN(15) {
		case 0, 1:
			z.step(heldInput{place: at, fence: Fence{1 + z.rng.Uint64N(9), 1}, handed: z.rng.IntN(2) == 0})
		case 2:
			z.step(droppedInput{at})
		case 3:
			z.step(handOffInput{releaseEffect{place: at, final: z.rng.IntN(2) == 0}})
		case 4:
			z.step(forcedInput{at})
		case 5:
			z.step(validityInput{z.rng.IntN(3) > 0})
		case 6, 7, 8:
			z.sequence++
			seq := z.sequence
			if z.rng.IntN(5) == 0 {
				seq = 1 + z.rng.Uint64N(seq)
			}
			published := simEpoch.Add(time.Duration(seq))
			if z.numbers[at]++; z.rng.IntN(20) == 0 {
				z.numbers[at]++ // one went elsewhere
			}
			m := &mail{pin: "p", number: z.numbers[at], original: original{seq, published.UnixNano()}, finest: at.slot,
				message: Message{Key: fmt.Sprint(seq % z.keys), Sequence: seq, Published: published}}
			if r := z.d.slots[at]; r != nil && !r.lanes.has(m.original) {
				z.came[fuzzMail{at, m.original}] = true
			}
			z.step(mailInput{at, m})
		case 9:
			z.step(mailInput{at, &mail{status: []string{"408", "423", "409", "503"}[z.rng.IntN(4)], pullNumber: z.rng.IntN(4)}})
		case 10, 11:
			for at, e := range z.running {
				delete(z.running, at)
				err := []error{nil, nil, failed, ErrFenced}[z.rng.IntN(4)]
				if err == nil {
					z.settle(e.slot, e.message.Sequence)
				}
				z.step(handledInput{at.run, at.call, err})
				break
			}
		case 12:
			for run, e := range z.open {
				delete(z.open, run)
				a := z.answer(e.question, failed)
				switch q := e.question.(type) {
				case askTake, askReset, askRenew:
					if a.err == nil {
						z.reset(e.place)
					}
				case askStored:
					if a.err == nil && !a.yes {
						delete(z.came, fuzzMail{e.place, q.original}) // it is gone
					}
				}
				z.step(answerInput{run, e.number, a})
				break
			}
		case 13:
			for _, r := range z.runs() {
				z.step(wakeInput{r.number})
			}
		case 14:
			if n := len(z.confirms); n > 0 {
				e := z.confirms[z.rng.IntN(n)]
				z.step(confirmedInput{e.run, e.mail.original})
			}
		}
		for run := range z.loading {
			if z.rng.IntN(3) == 0 {
				delete(z.loading, run)
				z.step(loadedInput{run, z.rng.IntN(2) == 0})
			}
		}
	}
	z.step(closeInput{})
	for run := range z.loading {
		z.step(loadedInput{run, false})
	}
	if n := len(z.d.runs); z.d.loads && len(z.running)+len(z.open) == 0 && n > 0 {
		z.t.Fatalf("%d runs have not ended, although nothing is waited for", n)
	}
}

func (z *deliveryFuzz) answer(q question, failed error) (a answer) {
	_, unpin := q.(askUnpin)
	_, reset := q.(askReset)
	if always := unpin || reset; !always && z.rng.IntN(4) == 0 {
		return answer{err: failed, outcome: outcomeUnknown}
	}
	a.yes, a.sequence = z.rng.IntN(2) == 0, z.rng.Uint64N(9)
	switch q := q.(type) {
	case askStoreCopy:
		if a.outcome = outcome(z.rng.IntN(3)); a.outcome == outcomeDone {
			z.settle(q.mail.finest, q.message.Sequence)
		} else {
			a.err = failed
		}
	case askTail:
		if z.rng.IntN(2) == 0 {
			a.queued = &queuedMessage{Message: Message{Key: q.key, Sequence: 1 << 40, Published: simEpoch}}
		}
	case askHead:
		if z.rng.IntN(2) == 0 {
			seq := 1 + z.rng.Uint64N(9)
			a.queued = &queuedMessage{Message: Message{Key: q.key, Sequence: 1<<41 + seq, Published: simEpoch}, seq: seq, finest: 99}
		}
	case askCount:
		a.counts = map[string]int{fmt.Sprint(z.rng.IntN(5)): z.rng.IntN(3)}
		a.recorded = []string{fmt.Sprint(z.rng.IntN(5))}
	case askAttempts:
		a.attempts = record.Attempts{Sequence: z.rng.Uint64N(9), Published: simEpoch.UnixNano(), Attempts: z.rng.IntN(5)}
	case askStoreAttempts:
		if a.outcome = outcome(z.rng.IntN(3)); a.outcome != outcomeDone {
			a.err = failed
		}
	}
	return a
}

// TestTaking is the order of a takeover's steps, and what it does where one fails.
func TestTaking(t *testing.T) {
	other := errors.New("timeout")
	a, b := generation{1, 4}.place(1), generation{1, 4}.place(3)
	for name, tt := range map[string]struct {
		former []place
		fails  map[takeoverStep]error
		want   []takeoverStep
		err    error
	}{
		"of a failed worker":              {want: []takeoverStep{stepUnpin, stepReset}},
		"of another generation":           {former: []place{a, b}, want: []takeoverStep{stepRetire, stepRetire, stepUnpin, stepReset}},
		"of a consumer that is gone":      {fails: map[takeoverStep]error{stepUnpin: errNoConsumer}, want: []takeoverStep{stepUnpin, stepCreate}},
		"of one that goes in between":     {fails: map[takeoverStep]error{stepReset: errNoConsumer}, want: []takeoverStep{stepUnpin, stepReset, stepCreate}},
		"without an answer to the first":  {fails: map[takeoverStep]error{stepUnpin: other}, want: []takeoverStep{stepUnpin}, err: other},
		"without an answer to the second": {fails: map[takeoverStep]error{stepReset: other}, want: []takeoverStep{stepUnpin, stepReset}, err: other},
		"of a consumer that stays":        {former: []place{a, b}, fails: map[takeoverStep]error{stepRetire: other}, want: []takeoverStep{stepRetire}, err: other},
		"of one that can't be created": {fails: map[takeoverStep]error{stepUnpin: errNoConsumer, stepCreate: errNoConsumer},
			want: []takeoverStep{stepUnpin, stepCreate}, err: errNoConsumer},
	} {
		t.Run(name, func(t *testing.T) {
			k := newTakeoverSteps(rigSlot, tt.former)
			var did []takeoverStep
			for {
				stage, _ := k.next()
				if stage == stepDone {
					break
				}
				did = append(did, stage)
				k.did(tt.fails[stage])
			}
			if !slices.Equal(did, tt.want) || !errors.Is(k.err, tt.err) {
				t.Errorf("it did %v and ended with %v, want %v and %v", did, k.err, tt.want, tt.err)
			}
		})
	}
}
