package partition

import (
	"context"
	"errors"
	"fmt"
)

// Call is a request for a key, which the key's owner serves; see Caller.
type Call struct {
	Key   string // in its written form; see JoinKey
	Slot  int    // in the current generation, from 0
	Data  []byte // not to be changed
	Fence Fence  // of this owner
}

// CallHandler is a Handler that answers calls. HandleCall is called only while this worker owns the
// call's key and its lease is valid, never at the same time as Handle or another HandleCall for that
// key, and counts towards Delivery.MaxHandlers. Calls of other keys of the slot may run at the same
// time, also with one message in flight.
//
// Its context ends when ownership is lost, when Delivery.HandlerTimeout has passed, or when the
// caller waits no longer. A handoff waits for it as for Handle. Its result is the answer, which may
// be nil; an error is sent to the caller as text, in a *CallError. If ownership was lost meanwhile
// the result is withheld, and the caller has a *CallError. A panic is an error of the type
// *PanicError. Calls are not stored: nothing is tried again.
type CallHandler interface {
	HandleCall(ctx context.Context, c Call) ([]byte, error)
}

// ErrNoOwner is what the error of a call wraps that no worker has served, since none owned the key
// when it was asked: the owner has failed and the takeover is not done, or the key moves. The call
// had no effect, so it may be repeated.
var ErrNoOwner = errors.New("no worker owns the key now: call again later")

// CallError says that a worker did not answer a call.
type CallError struct {
	Key    string
	Worker string // its stable ID
	// Served: the handler was called, or may have been, so the call may have had an effect.
	Served bool
	Reason string // the handler's error as text, or why the call was rejected
}

func (e *CallError) Error() string {
	if e.Served {
		return fmt.Sprintf("calling key %s: worker %s: %s", e.Key, e.Worker, e.Reason)
	}
	return fmt.Sprintf("calling key %s: worker %s rejected it: %s", e.Key, e.Worker, e.Reason)
}
