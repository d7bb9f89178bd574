package partition

import "errors"

// This file holds what a Handler's error can say besides that the attempt has failed.

// ErrFenced is what a Handler's error wraps when its store has rejected the message's
// Fence, since a newer owner has written. Like one made with Unavailable it says nothing of the
// message. It is tried again until the worker learns that the key is another's, or has a fence
// that is accepted.
var ErrFenced = errors.New("a newer owner has the key")

// Discard wraps an error so that the message is removed from the stream instead
// of being tried again, without becoming a dead letter. The handler has put it somewhere else
// before, if anybody may want it. Of nil it is nil.
func Discard(err error) error { return wrap(err, func(err error) error { return &discarded{err} }) }

// GiveUp wraps an error so that the message becomes a dead letter at once, since no later attempt
// can do better: it is not what it should be, say. With Retry.KeepFailing or Retry.Disabled it is
// tried again like any other. Of nil it is nil.
func GiveUp(err error) error { return wrap(err, func(err error) error { return &hopeless{err} }) }

// Unavailable wraps an error that says nothing of the message: what the handler needs is
// unavailable, such as its database. That is no failed attempt. The message is not queued for
// retry but stays where it is, and is tried again after Config.Delivery.RetryDelay, doubled each
// time up to 5 s, so an outage turns no message into a dead letter. Of nil it is nil.
func Unavailable(err error) error {
	return wrap(err, func(err error) error { return &unavailable{err} })
}

func wrap(err error, with func(error) error) error {
	if err == nil {
		return nil
	}
	return with(err)
}

// interrupted marks the error of a handler whose context the worker ended, since its lease had
// become invalid. That says nothing of the message either.
func interrupted(err error) error {
	return wrap(err, func(err error) error { return &interruption{err} })
}

type discarded struct{ err error }

func (d *discarded) Error() string { return "discarded: " + d.err.Error() }
func (d *discarded) Unwrap() error { return d.err }

// Discarded is GivenUp for errors of Discard.
func (d *discarded) Discarded() bool { return true }

type hopeless struct{ err error }

func (h *hopeless) Error() string { return h.err.Error() }
func (h *hopeless) Unwrap() error { return h.err }

// GivenUp tells an error of GiveUp from others, in the tests of a handler: it is what errors.As finds
// for an interface with this method.
func (h *hopeless) GivenUp() bool { return true }

type unavailable struct{ err error }

func (u *unavailable) Error() string { return u.err.Error() }
func (u *unavailable) Unwrap() error { return u.err }

// Unavailable is GivenUp for errors of Unavailable.
func (u *unavailable) Unavailable() bool { return true }

type interruption struct{ err error }

func (i *interruption) Error() string { return "interrupted: " + i.err.Error() }
func (i *interruption) Unwrap() error { return i.err }

func isDiscarded(err error) bool {
	var d *discarded
	return errors.As(err, &d)
}

// isUncounted reports whether an attempt that ended with an error is none that failed. One that
// the handler has decided to discard the message for is not.
func isUncounted(err error) bool {
	var u *unavailable
	saysNothing := errors.Is(err, ErrFenced) || errors.As(err, &u) || isInterruption(err)
	return saysNothing && !isDiscarded(err)
}

// isInterruption reports whether a handler was interrupted and had not decided what becomes of the
// message.
func isInterruption(err error) bool {
	var i *interruption
	return errors.As(err, &i) && !isHopeless(err)
}

// isHopeless reports whether no later attempt can succeed.
func isHopeless(err error) bool {
	var h *hopeless
	return errors.As(err, &h)
}
