package record

import (
	"cmp"
	"errors"
	"fmt"
)

// DecodeFenceReport reads a report of a fence rejection.
func DecodeFenceReport(data []byte) (FenceReport, error) {
	var v FenceReport
	if err := decode(data, MaxBytes, &v); err != nil {
		return FenceReport{}, err
	}
	err := errors.Join(checkProcess("sender", v.From), checkProcess("receiver", v.To))
	if v.Slots < 1 || v.Slots > MaxSlots || v.Slot < 0 || v.Slot >= v.Slots {
		err = errors.Join(err, fmt.Errorf("there is no slot %d of %d", v.Slot, v.Slots))
	}
	if v.Fence.Compare(v.Stored) >= 0 {
		err = errors.Join(err, fmt.Errorf("fence %v is not below the stored %v", v.Fence, v.Stored))
	}
	if err != nil {
		return FenceReport{}, err
	}
	return v, nil
}

// QueueClaim is a claim as it lies in the retry stream.
type QueueClaim struct {
	Slots int   `json:"slots"` // of the division
	Slot  int   `json:"slot"`
	Fence Fence `json:"fence"`
}

// Attempts is a record of the attempts on the first message of a key, as it lies in the retry
// stream. It is written before the last of them begins.
type Attempts struct {
	Sequence  uint64 `json:"sequence"`  // of the message in its stream
	Published int64  `json:"published"` // when the server stored it, in nanoseconds since 1970
	Attempts  int    `json:"attempts"`
}

// Fence is a fencing token as it is stored: the version of the map with which a slot
// came to its owner, and the claim of that owner.
type Fence struct {
	Version uint64 `json:"version"`
	Claim   uint64 `json:"claim"`
}

// Compare returns -1, 0 or +1 as f is lower than, equal to or greater than g, by version
// and then by claim.
func (f Fence) Compare(g Fence) int {
	return cmp.Or(cmp.Compare(f.Version, g.Version), cmp.Compare(f.Claim, g.Claim))
}

func (f Fence) String() string { return fmt.Sprintf("%d.%d", f.Version, f.Claim) }

// FenceReport is what an owner tells the leader of a fence rejection.
type FenceReport struct {
	Schema int     `json:"schema"`
	From   Process `json:"from"`
	To     Process `json:"to"`
	Layout int     `json:"layout"` // with Slots the slot's division
	Slots  int     `json:"slots"`
	Slot   int     `json:"slot"`
	Fence  Fence   `json:"fence"`  // the owner's
	Stored Fence   `json:"stored"` // the store's
}
