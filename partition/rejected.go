package partition

import (
	"errors"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/partition/event"
	"github.com/muster-dev/muster/partition/internal/record"
)

// This file reads what others have written, and deals with values that no worker can have
// written. Every record is validated before it is used. A rejected one is reported with its
// reason (a log line, an event, a count), and it must not block its owner:
//
//   - While the owner's lease is valid, it writes its record again over the malformed
//     value, expecting that very revision. No other worker can have had the record
//     meanwhile, so the value hides no write of another.
//   - A worker whose lease is not valid begins again, as after any loss.
//   - A record that a newer version of this code has written may have an owner. It is left
//     alone as long as it is renewed.

// Names of the records, in events and metrics.
const (
	recordMap       = "assignment map"
	recordLeader    = "leader's lease"
	recordHeartbeat = "heartbeat"
	recordClaim     = "claim"
	recordExpected  = "expected number"
	recordPeer      = "peer message"
	recordDrain     = "drain request"
	recordWanted    = "wanted number of slots"
	recordOverrides = "overrides"
	recordFence     = "fence report"
)

// records lists them, so that each count is there from the beginning.
var records = []string{recordMap, recordLeader, recordHeartbeat, recordClaim, recordExpected, recordPeer, recordDrain, recordWanted, recordOverrides, recordFence}

// maxReason bounds what is told of a fault, in bytes.
const maxReason = 500

// refused tells of a record that is not valid.
func refused(kind string, err error) event.Event {
	why := err.Error()
	if len(why) > maxReason {
		why = why[:maxReason] + " ..."
	}
	return event.Event{Kind: event.RecordRejected, Reason: kind, Err: why}
}

// rejections reports records that a watch or a subscription saw and that are not valid.
type rejections struct {
	log  *slog.Logger
	post func(input)
}

func (r rejections) report(kind, at string, err error) {
	e := refused(kind, err)
	r.log.Warn("A record is rejected.", "record", kind, "at", at, "err", e.Err)
	r.post(noteInput{e})
}

// overwritable reports whether the value that lies over a record of our own has no owner.
func overwritable(err error) bool { return err != nil && !errors.Is(err, record.ErrNewerSchema) }

func recordOf(p purpose) string {
	if p == forIDRenewal || p == forClaim {
		return recordClaim
	}
	return recordHeartbeat
}

// badLease is a value at a worker's key that is no heartbeat of this version, and
// when it is removed: the owner of the key, or a newer version, would have renewed it
// before.
type badLease struct {
	rev uint64
	due time.Time
}

// badMap is a value at the map's key that is no map of this version.
type badMap struct {
	rev   uint64
	seen  time.Time
	newer bool
	again time.Time // when to look for another one next
}
