package partition

import "time"

// StateHandoff bounds how the state of a slot moves to its new owner, if the handler is a
// StateMover. Workers of a group may differ in it.
type StateHandoff struct {
	// Timeout is how long a new owner waits for the state of a slot that was handed off to it, before
	// it calls Prepare; no message of the slot begins meanwhile. An old owner keeps the state for as
	// long, and a worker that ends waits until its states have been fetched. Default 5 s.
	Timeout time.Duration
	// MaxBytes bounds the state of one slot, at both workers; default 64 MiB. The new owner of a
	// larger one calls Prepare.
	MaxBytes int64
}

func (s StateHandoff) resolve() StateHandoff {
	defaulted(&s.Timeout, 5*time.Second)
	defaulted(&s.MaxBytes, 64<<20)
	return s
}

func (s StateHandoff) validate(f *faults) {
	f.positive("State.Timeout", s.Timeout)
	if s.MaxBytes < 0 {
		f.add("State.MaxBytes is %d: give 1 or more, or 0 for 64 MiB", s.MaxBytes)
	}
}
