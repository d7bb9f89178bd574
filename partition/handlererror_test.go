package partition

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestHandlerErrors(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	for name, tt := range map[string]struct {
		err                            error
		discarded, uncounted, hopeless bool
	}{
		"a plain error":               {err: cause},
		"discarded":                   {Discard(cause), true, false, false},
		"given up":                    {GiveUp(cause), false, false, true},
		"unavailable":                 {Unavailable(cause), false, true, false},
		"fenced off":                  {&FencedError{Fence{2, 1}}, false, true, false},
		"wrapped once more":           {fmt.Errorf("storing: %w", Unavailable(cause)), false, true, false},
		"discarded as it is fenced":   {Discard(fmt.Errorf("%w: %w", ErrFenced, cause)), true, false, false},
		"discarded as it is unneeded": {Discard(Unavailable(cause)), true, false, false},
	} {
		if got := isDiscarded(tt.err); got != tt.discarded {
			t.Errorf("%s: discarded is %t", name, got)
		}
		if got := isUncounted(tt.err); got != tt.uncounted {
			t.Errorf("%s: uncounted is %t", name, got)
		}
		if got := isHopeless(tt.err); got != tt.hopeless {
			t.Errorf("%s: hopeless is %t", name, got)
		}
	}
	for name, wrap := range map[string]func(error) error{"Discard": Discard, "GiveUp": GiveUp, "Unavailable": Unavailable} {
		if err := wrap(nil); err != nil {
			t.Errorf("%s of nil is %v", name, err)
		}
		if err := wrap(cause); !errors.Is(err, cause) {
			t.Errorf("%s hides the cause: %v", name, err)
		}
	}
}

// TestWhatAnErrorSaysOfTheMessage: what becomes of a message of a group that gives one up after
// three attempts, by the error of its handler.
func TestWhatAnErrorSaysOfTheMessage(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	try := func(t *testing.T, retry Retry) *deliveryRig {
		r := newDeliveryRig(t, func(c *Config) { c.Retry = retry })
		r.hold()
		for range 3 {
			r.answer(1, answer{})
		}
		r.come(1)
		r.told = nil
		return r
	}

	t.Run("an outage counts no attempts and queues nothing", func(t *testing.T) {
		r := try(t, Retry{Attempts: 3})
		for range 10 {
			r.returns(1, Unavailable(cause))
			r.told = nil
			r.pass(5 * time.Second)
			r.expect("handle 1.1 attempt 1 fence 1.1")
		}
		r.returns(1, nil)
		r.expect("ack 1", `fetch 2 "p"`)
	})
	t.Run("a hopeless message becomes a dead letter at once", func(t *testing.T) {
		r := try(t, Retry{Attempts: 3})
		r.returns(1, GiveUp(cause))
		r.expect("abandon 1.1 attempt 1 fence 1.1")
		r.returns(1, nil)
		r.expect("ack 1")
	})
	t.Run("with KeepFailing it is queued like any other", func(t *testing.T) {
		r := try(t, Retry{KeepFailing: true})
		r.returns(1, GiveUp(cause))
		r.expect("askStoreCopy")
	})
	t.Run("with Disabled it is tried again", func(t *testing.T) {
		r := newDeliveryRig(t, nil)
		r.hold()
		r.come(1)
		r.told = nil
		r.returns(1, GiveUp(cause))
		r.told = nil
		r.pass(5 * time.Second)
		r.expect("handle 1.1 attempt 2 fence 1.1")
	})
}
