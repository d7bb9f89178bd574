package partition

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// attemptsRig is a slot of a group that gives a message up after three attempts. Its retry
// queue was read, and records says which keys have a record of attempts.
func attemptsRig(t *testing.T, handed bool, queued map[string]int, recorded ...string) *deliveryRig {
	r := newDeliveryRig(t, func(c *Config) { c.Retry = Retry{Attempts: 3, Tries: 2} })
	r.step(heldInput{place: rigSlot, fence: Fence{1, 1}, handed: handed})
	r.answer(1, answer{})
	r.answer(1, answer{sequence: 1})
	r.answer(1, answer{counts: queued, recorded: recorded})
	p := &r.d.slots[rigSlot].pull
	p.at, p.silence.at = r.now.Add(time.Hour), r.now.Add(time.Hour) // which is not what this is about
	r.told = nil
	return r
}

// stored is a record of attempts on the message with a sequence, as rig.mail makes it.
func stored(seq uint64, attempts int) answer {
	published := simEpoch.Add(time.Duration(seq) * time.Second).UnixNano()
	return answer{sequence: 9, attempts: record.Attempts{Sequence: seq, Published: published, Attempts: attempts}}
}

// wantAttempts compares the record that is to be written.
func (r *deliveryRig) wantAttempts(attempts int) {
	r.t.Helper()
	q, is := r.asks[1].question.(askStoreAttempts)
	if !is || q.attempts.Attempts != attempts {
		r.t.Fatalf("it asks %+v, want %d attempts recorded", r.asks[1].question, attempts)
	}
	r.told = nil
}

func TestAttemptsAreRecorded(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, test := range map[string]func(*testing.T){
		"of a message that the owner before had settled all before, only from the second on": func(t *testing.T) {
			r := attemptsRig(t, true, nil)
			r.come(1)
			r.expect("handle 1.1 attempt 1 fence 1.1")
			r.returns(1, failed)
			r.pass(time.Second)
			r.wantAttempts(2)
			r.answer(1, answer{sequence: 2})
			r.expect("handle 1.1 attempt 2 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1")
		},
		"of what the owner before may have failed with, from the first on": func(t *testing.T) {
			r := attemptsRig(t, false, nil)
			r.come(1)
			r.wantAttempts(1)
			r.answer(1, answer{sequence: 2})
			r.expect("handle 1.1 attempt 1 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1")
			r.come(2) // the owner before had at most one in flight
			r.expect("handle 1.2 attempt 1 fence 1.1")
		},
		"by former owners": func(t *testing.T) {
			r := attemptsRig(t, false, nil, "k")
			r.come(1)
			r.expect("askAttempts")
			r.answer(1, stored(1, 1))
			r.wantAttempts(2)
			r.answer(1, answer{sequence: 10})
			r.expect("handle 1.1 attempt 2 fence 1.1")
		},
		"of another message of the key": func(t *testing.T) {
			r := attemptsRig(t, true, nil, "k")
			r.come(2)
			r.expect("askAttempts")
			r.answer(1, stored(1, 2))
			r.expect("handle 1.2 attempt 1 fence 1.1")
		},
		"of a record that somebody has removed": func(t *testing.T) {
			r := attemptsRig(t, true, nil, "k")
			r.come(1)
			r.answer(1, answer{})
			r.expect("askAttempts", "handle 1.1 attempt 1 fence 1.1")
		},
		"a fence rejection needs no further record": func(t *testing.T) {
			r := attemptsRig(t, false, nil)
			r.come(1)
			r.answer(1, answer{sequence: 2})
			r.returns(1, &FencedError{Fence{2, 1}})
			r.told = nil
			r.pass(time.Second)
			r.expect("handle 1.1 attempt 1 fence 1.1")
		},
		"a message that has had all of its attempts is given up": func(t *testing.T) {
			r := attemptsRig(t, false, nil, "k")
			r.come(1)
			r.answer(1, stored(1, 3))
			r.expect("askAttempts", "abandon 1.1 attempt 3 fence 1.1")
			r.returns(1, nil)
			r.expect("ack 1", "askAttempts")
			r.answer(1, stored(1, 3))
			r.expect("askRemove")
		},
		"one that can't be given up is not tried either": func(t *testing.T) {
			r := attemptsRig(t, false, nil, "k")
			r.come(1)
			r.answer(1, stored(1, 3))
			r.told = nil
			r.returns(1, failed)
			r.expect("askStoreCopy")
			r.answer(1, answer{sequence: 10})
			r.told = nil
			r.pass(time.Second)
			head := &queuedMessage{Message: r.mail(1).message, seq: 10, finest: 3, attempts: 3}
			r.answer(1, answer{queued: head})
			r.answer(1, answer{})
			r.expect("askHead", "askErase", "abandon 1.1 attempt 3 fence 1.1")
		},
		"a queued message that has had all of its attempts is given up, again and again": func(t *testing.T) {
			r := attemptsRig(t, true, map[string]int{"k": 1}, "k")
			head := &queuedMessage{Message: r.mail(1).message, seq: 5, finest: 3, attempts: 1}
			for range 3 {
				r.pass(10 * time.Second)
				r.answer(1, answer{queued: head})
				r.answer(1, answer{})
				if slices.Contains(r.told, "askAttempts") {
					r.answer(1, stored(1, 3))
				}
				if last := r.told[len(r.told)-1]; last != "abandon 1.1 attempt 3 fence 1.1" {
					t.Fatalf("it wants %q", r.told)
				}
				r.returns(1, failed)
				r.told = nil
			}
		},
		"before each attempt on a queued message": func(t *testing.T) {
			r := attemptsRig(t, true, map[string]int{"k": 1}, "k")
			r.pass(time.Second)
			r.answer(1, answer{queued: &queuedMessage{Message: r.mail(1).message, seq: 5, finest: 3, attempts: 1}})
			r.answer(1, answer{})
			r.answer(1, stored(1, 1)) // which the owner that queued it had written
			r.wantAttempts(2)
			r.answer(1, answer{sequence: 10})
			r.expect("handle 1.1 attempt 2 fence 1.1")
		},
		"a conflict has the space read again": func(t *testing.T) {
			r := attemptsRig(t, false, nil)
			r.come(1)
			r.answer(1, answer{outcome: outcomeConflict, err: errConflict})
			r.expect("askStoreAttempts", "askSpace")
		},
		"before a handoff": func(t *testing.T) {
			r := attemptsRig(t, true, nil)
			r.come(1)
			r.returns(1, failed)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot}})
			r.wantAttempts(1)
			r.answer(1, answer{sequence: 2})
			r.expect("askUnpin")
		},
		"not before a handoff that nobody answers": func(t *testing.T) {
			r := attemptsRig(t, true, nil)
			r.come(1)
			r.returns(1, failed)
			r.told = nil
			r.step(handOffInput{releaseEffect{place: rigSlot}})
			r.answer(1, answer{outcome: outcomeUnknown, err: failed})
			r.expect("askStoreAttempts", "askUnpin")
		},
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); test(t) })
	}
}

// TestWhatWasSettledIsNotSuspected: a message that an owner has settled before may come first after
// a takeover. The one behind it is what the owner in between may have failed with.
func TestWhatWasSettledIsNotSuspected(t *testing.T) {
	t.Parallel()
	r := attemptsRig(t, true, nil)
	r.come(1)
	r.returns(1, nil)
	r.step(droppedInput{rigSlot})

	r.step(heldInput{place: rigSlot, fence: Fence{2, 1}})
	r.answer(2, answer{})
	r.answer(2, answer{sequence: 1})
	r.answer(2, answer{})
	r.told = nil
	r.come(1)
	r.expect(`fetch 2 "p"`, "askStream")
	r.answer(2, answer{})
	r.expect("ack 1")
	r.come(2)
	if q, is := r.asks[2].question.(askStoreAttempts); !is || q.attempts.Attempts != 1 {
		t.Errorf("it asks %+v, want the first attempt on message 2 recorded", r.asks[2].question)
	}
}

// TestWhatIsPublishedAfterATakeoverIsNotSuspected: what was in the stream may have made the owner
// before fail, so its attempt is recorded first. What is published since costs no such write.
func TestWhatIsPublishedAfterATakeoverIsNotSuspected(t *testing.T) {
	t.Parallel()
	r := newDeliveryRig(t, func(c *Config) {
		c.Retry = Retry{Attempts: 3, Tries: 2}
		c.Delivery.InFlight = 64
	})
	r.step(heldInput{place: rigSlot, fence: Fence{1, 1}})
	r.answer(1, answer{})
	r.answer(1, answer{sequence: 1})
	r.answer(1, answer{})

	const before = 3
	for seq := uint64(1); seq <= 2*before; seq++ {
		r.told = nil
		m := r.mail(seq)
		m.behind = before - min(before, seq)
		m.message.Key = fmt.Sprint(seq)
		r.step(mailInput{rigSlot, m})

		_, recorded := r.asks[1].question.(askStoreAttempts)
		if suspect := seq <= before; recorded != suspect {
			t.Fatalf("message %d: its attempt is recorded first: %t, want %t (it wants %q)", seq, recorded, suspect, r.told)
		}
		if recorded {
			r.answer(1, answer{sequence: seq, outcome: outcomeDone})
		}
	}
}

// A message that has failed, and was let go of since the consumer was reset, is not begun when it
// comes again: it is sent back if the slot is dropped then, and an earlier message of its key
// goes before it.
func TestWhatFailedBeforeAResetIsNotBegun(t *testing.T) {
	t.Parallel()
	r := newDeliveryRig(t, func(c *Config) {
		c.Retry = Retry{Attempts: 3, Tries: 2}
		c.Delivery.InFlight = 4
	})
	r.step(heldInput{place: rigSlot, fence: Fence{1, 1}, handed: true})
	r.answer(1, answer{})
	r.answer(1, answer{sequence: 1})
	r.answer(1, answer{})
	p := &r.d.slots[rigSlot].pull
	p.at, p.silence.at = r.now.Add(time.Hour), r.now.Add(time.Hour)

	r.come(2)
	r.returns(1, errors.New("failed"))
	r.number++ // a delivery is lost
	r.come(3)
	r.reset()
	r.told = nil
	r.come(2)
	r.expect(`fetch 3 "p"`, "askStoreAttempts") // of the second attempt
	if m := r.inHand(); m.begun() {
		t.Errorf("message 2 has come again and is %+v: begun, want waiting", m)
	}
	r.step(droppedInput{rigSlot})
	r.expect("return 2", "ended 1", "released [3]")
}

// TestAFailureIsKnownAfterAReset: a message comes again after a reset of its consumer that has failed
// since, or was not queued yet. Its failure counts, so the next attempt is recorded.
func TestAFailureIsKnownAfterAReset(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(r *deliveryRig){
		"it has yet to be queued": func(r *deliveryRig) {
			r.returns(1, errors.New("failed"))
			r.answer(1, answer{err: errors.New("full"), outcome: outcomeRefused}) // the copy is not stored
			r.number++                                                            // a delivery is lost
			r.come(3)
			r.reset()
		},
		"it fails after the reset": func(r *deliveryRig) {
			r.number++
			r.come(3)
			r.reset()
			r.returns(1, errors.New("failed"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newDeliveryRig(t, func(c *Config) {
				c.Retry = Retry{Attempts: 3, Tries: 1}
				c.Delivery.InFlight = 4
			})
			r.step(heldInput{place: rigSlot, fence: Fence{1, 1}, handed: true})
			r.answer(1, answer{})
			r.answer(1, answer{sequence: 1})
			r.answer(1, answer{})
			p := &r.d.slots[rigSlot].pull
			p.at, p.silence.at = r.now.Add(time.Hour), r.now.Add(time.Hour)

			r.come(2)
			fail(r)
			r.told = nil
			r.come(2)
			for range 4 { // the queue is read again after a while
				switch r.asks[1].question.(type) {
				case askStoreAttempts:
				case nil:
					r.pass(time.Second)
				default:
					r.answer(1, answer{})
				}
			}
			q, is := r.asks[1].question.(askStoreAttempts)
			if !is || q.attempts.Attempts != 2 {
				t.Errorf("it wants %q, and asks %+v, want the second attempt on message 2 recorded", r.told, r.asks[1].question)
			}
		})
	}
}

func TestARecordGoesWhenSomethingIsBehindIt(t *testing.T) {
	t.Parallel()
	r := attemptsRig(t, false, nil)
	r.come(1)
	r.answer(1, answer{sequence: 2})
	r.told = nil
	r.returns(1, nil)
	r.expect("ack 1")
	r.come(2)
	r.told = nil
	for range 2 {
		r.returns(1, errors.New("failed"))
		r.pass(time.Second)
		if _, is := r.asks[1].question.(askStoreAttempts); is {
			r.answer(1, answer{sequence: 3})
		}
	}
	r.answer(1, answer{sequence: 4}) // the copy is stored
	r.answer(1, answer{sequence: 2})
	if q, is := r.asks[1].question.(askRemove); !is || q.sequence != 2 {
		t.Errorf("it asks %+v, want message 2 removed", r.asks[1].question)
	}
}

// TestRecordsLeftOver: an owner may fail before it has removed the record of a message that it
// has settled.
func TestRecordsLeftOver(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		stored answer
		then   []string
	}{
		"the message is gone":          {answer{}, []string{"askAttempts"}},
		"the message is in the stream": {answer{yes: true}, nil},
		"nobody answers":               {answer{err: errors.New("no answer")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := attemptsRig(t, true, nil, "k")
			ours := []record.QueueClaim{{Slots: 8, Slot: 3, Fence: record.Fence{Version: 1, Claim: 1}}}
			r.pass(recountAfter * stalePinCheck)
			r.answer(1, answer{sequence: 20, claims: ours})
			r.answer(1, answer{recorded: []string{"k"}})
			r.expect("askSpace", "askCount", "askAttempts")
			r.answer(1, stored(1, 1))
			r.expect("askStored")
			r.answer(1, tt.stored)
			r.expect(tt.then...)
		})
	}
}

// TestAnAnnouncementIsNoAttempt: a message may be returned after its attempt was recorded and
// before it begins, and come again.
func TestAnAnnouncementIsNoAttempt(t *testing.T) {
	t.Parallel()
	a := newAttemptRecords(3)
	o := original{1, 100}
	a.announce("k", o, 2)
	a.read("k", 9, record.Attempts{Sequence: 1, Published: 100, Attempts: 2})
	if n := a.made("k", o); n != 1 {
		t.Errorf("%d attempts were made before the second began, want 1", n)
	}
	a.begins("k")
	if n := a.made("k", o); n != 2 {
		t.Errorf("%d attempts were made when the second had begun, want 2", n)
	}
	a.announce("k", original{2, 200}, 2)
	if n := a.made("k", o); n != 2 {
		t.Errorf("%d attempts were made where that of another message is recorded, want 2", n)
	}
}
