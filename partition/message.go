package partition

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// Fence orders the owners that a key has had: every later owner's fence is
// greater. A handler puts it in the condition of each write to its own store,
// which then refuses a stale owner that has not noticed its loss yet.
//
// See Kleppmann, "How to do distributed locking", 2016, on fencing tokens.
type Fence struct {
	// Version is the version of the assignment map with which the slot came
	// to this owner.
	Version uint64
	// Claim is the revision of the owner's stable ID, so that a zombie and
	// its successor under one name differ.
	Claim uint64
}

// Compare returns -1, 0 or +1 as f is lower than, equal to or greater than g,
// by version and then by claim.
func (f Fence) Compare(g Fence) int { return record.Fence(f).Compare(record.Fence(g)) }

// String returns "version.claim".
func (f Fence) String() string { return record.Fence(f).String() }

// Message is one message of the stream, handed to the owner of its key.
//
// A handler may be given the same message again: after an error, after its worker has lost the
// key, and after a failure between its return and the acknowledgement. Key and Sequence tell
// whether it is the same one; Delivered and Attempt say no more than how often it was tried. A
// store that rejects writes with a lower Fence than it has seen keeps out a former owner.
type Message struct {
	Subject   string      // as published: "dc.tool001.chamber1.completion"
	Key       string      // "tool001:chamber1"
	Slot      int         // in the current generation, from 0
	Data      []byte      // not to be changed
	Header    nats.Header // not to be changed
	Sequence  uint64      // with Published it tells it from all others of the group, and it ascends in a slot; see Config.Sequence
	Published time.Time   // when the server stored it
	Delivered uint64      // how often the server delivered it since its last takeover, from 1
	Attempt   int         // how often it was tried, from 1: by anybody, or with Retry.KeepFailing or Retry.Disabled by this owner and before it was queued
	Fence     Fence       // of this owner
	// Queued is whether it comes from the retry stream (Config.Retry). Sequence,
	// Published and Header are those of the message as it was published.
	Queued bool
}

// Handler processes messages.
//
// Handle is called only while this worker owns the message's key, for one
// message of a slot at a time, in the order of the stream; calls for different
// slots run at the same time. Its context ends when ownership is lost or the
// handler's own deadline (Config.Delivery.HandlerTimeout) passes.
//
// nil acknowledges the message. After an error it is tried again, and becomes a dead letter
// after a number of attempts; Config.Retry has the rules. An error made with GiveUp makes it a
// dead letter at once, one made with Discard removes it permanently, and one made with
// Unavailable, or that wraps ErrFenced, counts no attempt. A panic is an error of the type
// *PanicError: the worker lives, and the message is tried again.
type Handler interface {
	Handle(ctx context.Context, m Message) error
}

// HandlerFunc lets a function be a Handler.
type HandlerFunc func(ctx context.Context, m Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m Message) error { return f(ctx, m) }

// Preparer is a Handler that wants to know of slots before they come to it by a
// planned handoff, to warm a cache, say. The old owner goes on until Prepare
// returns or Config.Rebalance.PrepareTimeout has passed; its error is reported as an
// event and changes nothing. A handler that is a StateMover, too, has Prepare called later; see there.
type Preparer interface {
	Prepare(ctx context.Context, slots Slots) error
}

// Releaser is a Handler that wants to know of slots that it no longer owns.
// Released is called after the last message of those slots was settled.
type Releaser interface {
	Released(slots Slots)
}

// Observer is a Handler that wants each event of its worker, in order. Observe
// must not block.
type Observer interface {
	Observe(event.Event)
}
