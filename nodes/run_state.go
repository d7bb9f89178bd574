package nodes

import (
	"context"
	"errors"
	"time"
)

// runState is the record as a run last read or wrote it, and the way to change it: transitions under the
// fence of the tick's lease.
type runState struct {
	store Store
	calls calls
	lease *lease

	record   Record
	actionID string // of the action that is worked on: record shows it as that action sees it; "": as it is stored
	fence    int64  // of the lease; the store refuses a write under an older one
}

// workOn makes record show what an action sees; "" is for no action.
func (s *runState) workOn(actionID string) {
	s.actionID = actionID
	s.show(s.record.normal())
}

// show takes the record as it is stored.
func (s *runState) show(r Record) {
	s.record = r
	if s.actionID != "" {
		s.record = r.Of(s.actionID)
	}
}

// acquireLease takes the tick's lease in an attempt that begins now. False without an error means that
// another tick holds it.
func (s *runState) acquireLease(ctx context.Context, owner string, now time.Time) (bool, error) {
	err := s.apply(ctx, AcquireLease{Owner: owner, Now: now, TTL: leaseTTL})
	if errors.Is(err, ErrLeaseHeld) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	s.fence = s.record.LeaseFence
	s.lease.hold(now, tickTenure, false, func(ctx context.Context, now time.Time) error {
		return s.write(ctx, RenewLease{Owner: owner, Fence: s.fence, Now: now, TTL: leaseTTL})
	})
	return true, nil
}

// releaseLease gives the lease back. What is left of it is enough for that, so it is not renewed any more.
func (s *runState) releaseLease(ctx context.Context, owner string) error {
	s.lease.stopRenewing()
	return s.apply(ctx, ReleaseLease{Owner: owner, Fence: s.fence})
}

// apply makes a transition. If the outcome is unknown the transition is made once more, which changes nothing
// if the first attempt succeeded.
func (s *runState) apply(ctx context.Context, t Transition) error {
	write := func(ctx context.Context) error { return s.write(ctx, t) }
	err := s.calls.do(ctx, t.Name(), write)
	if err == nil || IsRefused(err) || errors.Is(err, ErrLeaseLost) {
		return err
	}
	return s.calls.do(ctx, t.Name(), write)
}

func (s *runState) write(ctx context.Context, t Transition) error {
	r, err := s.store.Apply(ctx, t)
	if err == nil {
		s.show(r)
	}
	return err
}

// applyInterruption is apply for the transitions of one interruption, which is an item of its own in the same
// store and has a fence of its own.
func (s *runState) applyInterruption(ctx context.Context, instanceID string, t InterruptionTransition) (i Interruption, err error) {
	write := func(ctx context.Context) error {
		i, err = s.store.ApplyInterruption(ctx, instanceID, t)
		return err
	}
	if err := s.calls.doSafe(ctx, t.Name(), write); err == nil || IsRefused(err) || errors.Is(err, ErrLeaseLost) {
		return i, err
	}
	err = s.calls.doSafe(ctx, t.Name(), write)
	return i, err
}
