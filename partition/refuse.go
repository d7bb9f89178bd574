package partition

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/muster-dev/muster/partition/event"
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
)

// records lists them, so that each count is there from the beginning.
var records = []string{recordMap, recordLeader, recordHeartbeat, recordClaim, recordExpected, recordPeer, recordDrain, recordWanted, recordOverrides, recordFence}

const (
	// maxRecordBytes bounds what is read as any record but a map and a list of
	// slots. The longest that a worker writes has a few hundred bytes.
	maxRecordBytes = 16 << 10
	// maxExpected bounds the expected number of workers: the largest pool.
	maxExpected = 100_000
	// maxWeight bounds a worker's relative capacity.
	maxWeight = 1e6
	// maxReason bounds what is told of a fault, in bytes.
	maxReason = 500
)

// errNewerSchema is of a record that a newer version of this code has written.
var errNewerSchema = errors.New("it was written by a newer version: upgrade this worker")

// decodeRecord reads a record of up to limit bytes that has a schema.
func decodeRecord(data []byte, limit int, v any) error {
	if len(data) > limit {
		return fmt.Errorf("%d bytes, at most %d are read", len(data), limit)
	}
	if err := readSchema(data, valueSchema, valueSchema); err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// readSchema checks the schema of a record, whatever else is in it.
func readSchema(data []byte, oldest, newest int) error {
	var head struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	return checkSchema(head.Schema, oldest, newest)
}

func checkSchema(have, oldest, newest int) error {
	reads := fmt.Sprint(newest)
	if oldest < newest {
		reads = fmt.Sprintf("%d to %d", oldest, newest)
	}
	switch {
	case have > newest:
		return fmt.Errorf("it is schema %d, this build reads %s: %w", have, reads, errNewerSchema)
	case have < oldest:
		return fmt.Errorf("it is schema %d, older than the oldest known; this build reads %s: upgrade what wrote it", have, reads)
	}
	return nil
}

func checkMember(what string, m Member) error {
	if !isStableID(m.ID) || m.Claim == 0 {
		return fmt.Errorf("%s %q with claim %d is no worker", what, m.ID, m.Claim)
	}
	return nil
}

// decodeLease reads the heartbeat at a key.
func decodeLease(key string, data []byte) (leaseValue, error) {
	var v leaseValue
	if err := decodeRecord(data, maxRecordBytes, &v); err != nil {
		return leaseValue{}, err
	}
	err := checkMember("worker", Member{v.ID, v.Claim})
	if v.ID != key {
		err = errors.Join(err, fmt.Errorf("it is of %q and lies at %q", v.ID, key))
	}
	if v.MapSchema < 0 {
		err = errors.Join(err, fmt.Errorf("map_schema is %d, want 0 or more", v.MapSchema))
	}
	if v.Weight <= 0 || v.Weight > maxWeight {
		err = errors.Join(err, fmt.Errorf("weight is %v, want more than 0, up to a million", v.Weight))
	}
	if err != nil {
		return leaseValue{}, err
	}
	return v, nil
}

// decodeClaim reads what holds a stable ID.
func decodeClaim(data []byte) (idValue, error) {
	var v idValue
	if err := decodeRecord(data, maxRecordBytes, &v); err != nil {
		return idValue{}, err
	}
	if v.Instance == "" {
		return idValue{}, errors.New("it names no instance")
	}
	return v, nil
}

// decodeLeader reads the leader's lease.
func decodeLeader(data []byte) (leaderValue, error) {
	var v leaderValue
	if err := decodeRecord(data, maxRecordBytes, &v); err != nil {
		return leaderValue{}, err
	}
	if err := checkMember("leader", Member{v.ID, v.Claim}); err != nil {
		return leaderValue{}, err
	}
	return v, nil
}

// decodeExpected reads the expected number of workers.
func decodeExpected(data []byte) (expectedValue, error) {
	var v expectedValue
	if err := decodeRecord(data, maxRecordBytes, &v); err != nil {
		return expectedValue{}, err
	}
	if v.N < 0 || v.N > maxExpected {
		return expectedValue{}, fmt.Errorf("n is %d, want 0 to %d", v.N, maxExpected)
	}
	return v, nil
}

// decodeWanted reads how many slots there should be.
func decodeWanted(data []byte) (wantedValue, error) {
	var v wantedValue
	if err := decodeRecord(data, maxRecordBytes, &v); err != nil {
		return wantedValue{}, err
	}
	if v.Slots < 0 || v.Slots > maxSlots {
		return wantedValue{}, fmt.Errorf("slots is %d, want 0 to %d", v.Slots, maxSlots)
	}
	return v, nil
}

// decodePeer reads a message of another worker. Slots that there are none of are
// left out.
func decodePeer(data []byte, slots int) (peerMessage, error) {
	var v peerMessage
	if err := decodeRecord(data, maxPeerMessage, &v); err != nil {
		return peerMessage{}, err
	}
	if err := errors.Join(checkMember("sender", v.From), checkMember("receiver", v.To)); err != nil {
		return peerMessage{}, err
	}
	if len(v.Slots) > slots {
		return peerMessage{}, fmt.Errorf("it names %d slots, there are %d", len(v.Slots), slots)
	}
	return v, nil
}

// decodeDrain reads a request to drain.
func decodeDrain(data []byte) (drainRequest, error) {
	var v drainRequest
	if err := decodeRecord(data, maxRecordBytes, &v); err != nil {
		return drainRequest{}, err
	}
	if v.Until < 0 {
		return drainRequest{}, fmt.Errorf("until is %d, before 1970", v.Until)
	}
	return v, nil
}

// checkOrder checks that a map can be what was written as a revision of the
// bucket, after another one. Its epoch counts writes before it, and so does its version
// unless it was raised; neither can be from the future, and an older one never wins.
func (a *Assignment) checkOrder(rev uint64, before *Assignment, now time.Time) error {
	switch {
	case !plausibleVersion(a.Version, rev, now) || a.Epoch >= rev:
		return fmt.Errorf("version %d or epoch %d is from the future: it is write %d of its bucket", a.Version, a.Epoch, rev)
	case before == nil:
		return nil
	case a.Epoch < before.Epoch || a.Epoch == before.Epoch && a.Version < before.Version:
		return fmt.Errorf("epoch %d, version %d come after epoch %d, version %d: an older one never wins", a.Epoch, a.Version, before.Epoch, before.Version)
	}
	return nil
}

// refused tells of a record that is not valid.
func refused(record string, err error) event.Event {
	why := err.Error()
	if len(why) > maxReason {
		why = why[:maxReason] + " ..."
	}
	return event.Event{Kind: event.RecordRejected, Reason: record, Err: why}
}

// rejections reports records that a watch or a subscription saw and that are not valid.
type rejections struct {
	log  *slog.Logger
	post func(input)
}

func (r rejections) report(record, at string, err error) {
	e := refused(record, err)
	r.log.Warn("A record is rejected.", "record", record, "at", at, "err", e.Err)
	r.post(noteInput{e})
}

// overwritable reports whether the value that lies over a record of our own has no owner.
func overwritable(err error) bool { return err != nil && !errors.Is(err, errNewerSchema) }

func recordOf(p purpose) string {
	if p == forIDRenewal || p == forClaim {
		return recordClaim
	}
	return recordHeartbeat
}

// The leader's lease.

// The heartbeats.

// badLease is a value at a worker's key that is no heartbeat of this version, and
// when it is removed: the owner of the key, or a newer version, would have renewed it
// before.
type badLease struct {
	rev uint64
	due time.Time
}

// The map.

// badMap is a value at the map's key that is no map of this version.
type badMap struct {
	rev   uint64
	seen  time.Time
	newer bool
	again time.Time // when to look for another one next
}

// maxPeerMessage bounds what is read: all slots of the largest layout.
const maxPeerMessage = 64 * maxSlots

const recordFence = "fence report"
