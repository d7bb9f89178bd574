package partition

import (
	"time"

	"github.com/muster-dev/muster/partition/internal/record"
)

// original tells a message of the main stream from every other one, one of an
// earlier stream of the same name included.
type original struct {
	sequence  uint64
	published int64 // nanoseconds since 1970
}

func claimOverlaps(c record.QueueClaim, p place) bool {
	n := min(c.Slots, p.slots)
	return n > 0 && c.Slot%n == p.slot%n
}

// queuedMessage is the first, or the last, of a key's queued messages.
type queuedMessage struct {
	Message
	seq      uint64 // in the retry stream
	finest   int
	attempts int // before it was queued
	stored   time.Time
}

func (m queuedMessage) original() original {
	return original{m.Sequence, m.Published.UnixNano()}
}

// outcome is what came of a write.
type outcome uint8

const (
	outcomeDone     outcome = iota
	outcomeConflict         // not written: the last message is another one
	outcomeRefused          // not written, for another reason
	outcomeUnknown          // no answer: it may be written, now or later
)
