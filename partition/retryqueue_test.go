package partition

import (
	"testing"
	"time"
)

// newTestRetryQueue is a lot that has read that nothing is in the retry queue.
func newTestRetryQueue(cfg Retry) *retryQueue {
	l := newRetryQueue(cfg.resolve(), rigSlot, Fence{5, 1})
	l.read(0, nil)
	l.claimed(1, outcomeDone)
	l.looked(simEpoch, nil)
	return l
}

// TestALaterClaimClosesTheQueue: an owner tries what is queued unless a later owner has
// claimed keys of its slot.
func TestALaterClaimClosesTheQueue(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		claim queueClaim
		lost  bool
	}{
		"of an earlier owner":              {queueClaim{8, 3, Fence{4, 9}}, false},
		"of a later owner":                 {queueClaim{8, 3, Fence{5, 2}}, true},
		"of a later owner of other keys":   {queueClaim{8, 4, Fence{6, 1}}, false},
		"of a later one, of twice as many": {queueClaim{16, 11, Fence{6, 1}}, true},
		"of a later one, of half as many":  {queueClaim{4, 3, Fence{6, 1}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newTestRetryQueue(Retry{})
			l.reread(false)
			l.read(2, []queueClaim{tt.claim})
			if l.lost() != tt.lost {
				t.Errorf("lost is %t, want %t", l.lost(), tt.lost)
			}
		})
	}
}

// TestTheQueueIsBounded: neither a key nor a slot has more messages in the retry queue
// than is allowed.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	l := newTestRetryQueue(Retry{PerKey: 2, PerSlot: 3})
	for i, step := range []struct {
		key  string
		room bool
	}{{"a", true}, {"a", true}, {"a", false}, {"b", true}, {"b", false}, {"c", false}} {
		if got := l.room(step.key); got != step.room {
			t.Errorf("step %d: room for %s is %t, want %t", i, step.key, got, step.room)
		}
		if step.room {
			l.stored(step.key, uint64(i)+2, simEpoch, outcomeDone)
		}
	}
}

// TestThePauseBeforeARetryDoubles until it is as long as it may be.
func TestThePauseBeforeARetryDoubles(t *testing.T) {
	t.Parallel()
	l := newTestRetryQueue(Retry{Delay: time.Second, MaxDelay: 5 * time.Second})
	for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := l.backoff(i + 1); got != want {
			t.Errorf("the pause before attempt %d is %v, want %v", i+1, got, want)
		}
	}
}
