package nodes

import "context"

// Store keeps the record and the interruptions of one cluster. Its reads see every write that was
// acknowledged before they began.
//
// Apply is the only way to write: it reads the item, lets the transition decide, and writes the result only
// if the item has not changed since it was read, reading again otherwise. So a transition's condition and its
// change are one step. Applying a transition whose effect is already there writes nothing and succeeds, which
// is how a write whose reply was lost is recognised: apply it again.
type Store interface {
	// Load returns the record; for a cluster that has none, NewRecord's.
	Load(ctx context.Context) (Record, error)
	// Apply makes one transition and returns the record after it. A *RefusedError says that its condition did
	// not hold and that nothing was written; after any other error that is unknown.
	Apply(ctx context.Context, t Transition) (Record, error)
	// OpenInterruptions returns every interruption that is not closed.
	OpenInterruptions(ctx context.Context) ([]Interruption, error)
	// ApplyInterruption makes one transition of the interruption of an instance, absent ones being zero, and
	// returns it. Errors are Apply's.
	ApplyInterruption(ctx context.Context, instanceID string, t InterruptionTransition) (Interruption, error)
}

// Transition is a change of the record with its condition, as a pure function, so that every store applies
// the same logic.
type Transition interface {
	// Name is the transition's name in the event log and in errors, for example beginScaleUp.
	Name() string
	// Apply returns the changed record; the same record if the change was made before; or a *RefusedError. It
	// does not alter r.
	Apply(r Record) (Record, error)
}

// InterruptionTransition is a change of one interruption with its condition.
type InterruptionTransition interface {
	Name() string
	Apply(i Interruption) (Interruption, error)
}
