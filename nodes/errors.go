package nodes

import (
	"errors"
	"fmt"
)

// The conditions that a transition can fail on; a *RefusedError is one of them.
var (
	ErrLeaseHeld         = errors.New("the lease is held by somebody else")
	ErrStaleFence        = errors.New("the lease has passed to somebody else")
	ErrScalingInProgress = errors.New("another action is in progress")
	errNotThatAction     = errors.New("the action is not the one in progress")
	errNotRecorded       = errors.New("nothing of the kind is recorded")
	errMarked            = errors.New("the instance is marked TERMINATING")
	errUnfinished        = errors.New("the action is not finished")
	ErrPaused            = errors.New("scaling is paused")
	errNoBudget          = errors.New("CONSOLIDATE_PER_HOUR is used up")
	ErrSchemaTooNew      = errors.New("the record was written by a newer version")
)

// RefusedError says that a transition's condition did not hold and that nothing was written. It is an
// ordinary outcome: another process was first.
type RefusedError struct {
	Transition string
	Condition  error  // one of the Err variables above
	Detail     string // what was found instead
}

// Error names the transition, the condition and what was found.
func (e *RefusedError) Error() string {
	if e.Detail == "" {
		return fmt.Sprintf("%s refused: %v", e.Transition, e.Condition)
	}
	return fmt.Sprintf("%s refused: %v (%s)", e.Transition, e.Condition, e.Detail)
}

// Unwrap returns the condition, for errors.Is.
func (e *RefusedError) Unwrap() error { return e.Condition }

// IsRefused reports whether err is a transition's refusal.
func IsRefused(err error) bool {
	var r *RefusedError
	return errors.As(err, &r)
}
