package partition

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// Fence is a fencing token. It orders the owners of a key: each owner's fence is
// greater than those of all owners before. A handler puts it into the condition of
// each write to its own store, which then rejects a former owner that has not yet
// noticed its loss.
//
// See Kleppmann, "How to do distributed locking", 2016, on fencing tokens.
type Fence struct {
	// Version is the version of the assignment map since which the owner has
	// the slot.
	Version uint64
	// Claim is the revision of the owner's stable ID. It tells a suspended
	// process from the one that rejoined under the same ID.
	Claim uint64
}

// Compare returns -1, 0 or +1 as f is lower than, equal to or greater than g,
// by version and then by claim.
func (f Fence) Compare(g Fence) int { return record.Fence(f).Compare(record.Fence(g)) }

// String returns "version.claim".
func (f Fence) String() string { return record.Fence(f).String() }

// Message is one message of the stream, handed to the owner of its key.
//
// A handler may get the same message again: after an error, after its worker has lost the
// key, and after a failure between its return and the acknowledgement. Key and Sequence
// identify the message; Delivered and Attempt only count. A store that rejects writes with a
// lower Fence than it has seen keeps a former owner out.
type Message struct {
	Subject string      // as published: "dc.tool001.chamber1.completion"
	Key     string      // "tool001:chamber1"
	Slot    int         // in the current generation, from 0
	Data    []byte      // must not be changed
	Header  nats.Header // must not be changed

	// Sequence ascends within a slot. With Published it identifies the message within the
	// group; see Config.Sequence.
	Sequence  uint64
	Published time.Time // when the server stored it
	Delivered uint64    // how often the server delivered it since its last takeover, from 1
	// Attempt is the number of this attempt, from 1, counted over all owners. With
	// Retry.KeepFailing or Retry.Disabled only the attempts of this owner count, and those
	// before the message was queued.
	Attempt int
	Fence   Fence // of this owner
	// Queued is set if the message comes from the retry queue (Config.Retry). Sequence,
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
