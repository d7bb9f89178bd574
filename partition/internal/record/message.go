package record

import (
	"errors"
	"fmt"
)

// PeerMessage goes from worker to worker outside the buckets. Each is repeated
// until the map shows that it did its work, so one that is lost costs a
// resyncInterval; each names versions, so one that is late does nothing.
type PeerMessage struct {
	Schema int        `json:"schema"`
	Kind   PeerKind   `json:"kind"`
	From   Process    `json:"from"`
	To     Process    `json:"to"`
	Slots  []SlotMark `json:"slots,omitempty"`
	// Imports: prepared, and the state of the slots can be had by StateRequests. Workers that don't
	// know the field have no state to give.
	Imports bool `json:"imports,omitempty"`
}

type SlotMark struct {
	Slot    int    `json:"s"`
	Version uint64 `json:"v"`           // of the move, or of the takeover
	Forced  bool   `json:"f,omitempty"` // given up with a message unsettled
	Idle    int64  `json:"i,omitempty"` // released: microseconds since the old owner stopped
}

type PeerKind string

const (
	Prepared    PeerKind = "prepared"     // next -> owner: ready to take these
	Released    PeerKind = "released"     // owner -> next and leader: these are yours
	Holding     PeerKind = "holding"      // next -> leader: have them
	Grant       PeerKind = "grant"        // leader -> owner: taken from a failed worker
	Want        PeerKind = "want"         // owner -> leader: waits for these
	Alone       PeerKind = "alone"        // leader -> leaving worker: nobody can take over
	AskOld      PeerKind = "release-old"  // leader -> owner: release these slots of the old generation
	OldReleased PeerKind = "old-released" // owner -> leader: released
)

// DrainRequest asks a worker to drain; DrainReply tells how far it is.
type DrainRequest struct {
	Schema int   `json:"schema"`
	Until  int64 `json:"until"` // Unix milliseconds; 0: work again
}

type DrainReply struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
	Slots  int    `json:"slots"` // that it holds
}

// DecodeMessage reads a message of another worker. Slots that there are none of are
// left out.
func DecodeMessage(data []byte, slots int) (PeerMessage, error) {
	var v PeerMessage
	if err := decode(data, MaxMessageBytes, &v); err != nil {
		return PeerMessage{}, err
	}
	if err := errors.Join(checkProcess("sender", v.From), checkProcess("receiver", v.To)); err != nil {
		return PeerMessage{}, err
	}
	if len(v.Slots) > slots {
		return PeerMessage{}, fmt.Errorf("it names %d slots, there are %d", len(v.Slots), slots)
	}
	return v, nil
}

// DecodeDrain reads a request to drain.
func DecodeDrain(data []byte) (DrainRequest, error) {
	var v DrainRequest
	if err := decode(data, MaxBytes, &v); err != nil {
		return DrainRequest{}, err
	}
	if v.Until < 0 {
		return DrainRequest{}, fmt.Errorf("until is %d, before 1970", v.Until)
	}
	return v, nil
}

// MaxMessageBytes bounds what is read: all slots of the largest layout.
const MaxMessageBytes = 64 * MaxSlots
