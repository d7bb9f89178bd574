package partition

import (
	"context"
	"io"
)

// StateMover is a Handler whose state of a slot, such as a warm cache or an aggregate of its keys,
// moves with the slot in a planned handoff. Both workers' handlers must be one; otherwise, and
// whenever the state can't be had, the new owner calls Prepare.
//
// Both are called for one slot at a time. Prepare is called for those together that need it at about
// the same time. Neither method is called while Handle, HandleCall,
// Prepare or Released is called for that slot.
//
// A StateMover gets the state of a slot before its first message or call: by Import in a handoff, or
// else by Prepare, also after a takeover and at the start. Prepare is then not called ahead of a
// handoff, since the old owner still changes the state. If Prepare fails, that is an event, and the
// slot begins all the same; a handler that can't do without its state returns Unavailable then.
//
// After a takeover a former owner may still write to the handler's store, with a lower fence than any
// message has here, while Prepare reads it or later. So a write should expect what was read.
//
// Both contexts end after Config.State.Timeout, and when the slot goes elsewhere. The methods must
// return then: the slot waits for an Import, so that it never changes the state beside a message.
// A panic is an error of the type *PanicError.
type StateMover interface {
	// Export returns the state of a slot, as it is after the last message that this worker handled of
	// it. It is called when the new owner asks. The reader is closed if it is an io.Closer, and
	// Released is called after that.
	Export(ctx context.Context, slot Slots) (io.Reader, error)

	// Import replaces what the handler has of a slot by what Export gave. The reader returns io.EOF
	// only at the end of a state that is whole: keep what it gives aside until then. It returns
	// another error when the old owner failed, the state is too large, or time is up. Then return an
	// error, and have nothing of the slot.
	Import(ctx context.Context, slot Slots, state io.Reader) error
}
