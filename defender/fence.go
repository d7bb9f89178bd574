package defender

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/muster-dev/muster/partition"
)

// Fence orders the owners of a chamber. It is the version of the assignment map
// at which the chamber last changed owner, then the revision of the owner's
// claim to its stable identity, so that a stale owner and its successor under
// the same name differ. The zero Fence is lower than any that an owner holds.
// Both parts are at most 2^63-1.
type Fence struct {
	MapVersion    uint64 `json:"map_version"`
	ClaimRevision uint64 `json:"claim_revision"`
}

// Compare returns -1, 0 or +1 when f is lower than, equal to or higher than g.
func (f Fence) Compare(g Fence) int {
	return cmp.Or(cmp.Compare(f.MapVersion, g.MapVersion), cmp.Compare(f.ClaimRevision, g.ClaimRevision))
}

// String returns "mapVersion.claimRevision".
func (f Fence) String() string { return fmt.Sprintf("%d.%d", f.MapVersion, f.ClaimRevision) }

// Errors that a [Store] returns; test for them with [errors.Is].
var (
	// ErrNotFound says that there is no such row, or that it has expired.
	ErrNotFound = errors.New("not found")
	// ErrFenced says that a newer owner has the chamber. A [FencedError] matches it,
	// and it matches [partition.ErrFenced].
	ErrFenced error = fencedOff{}
	// ErrClosed says that the store was closed.
	ErrClosed = errors.New("store is closed")
)

type fencedOff struct{}

func (fencedOff) Error() string { return "fenced off by a newer owner" }
func (fencedOff) Unwrap() error { return partition.ErrFenced }

// FencedError says that a write carried a lower fence than the chamber's stored
// one and changed nothing. The caller no longer owns the chamber: it drops its
// cached history and leaves the message to the new owner.
type FencedError struct {
	Chamber Chamber
	Offered Fence // the fence of the refused write
	Stored  Fence // the chamber's fence
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("%s: fence %s is older than %s: a newer owner has this chamber", e.Chamber, e.Offered, e.Stored)
}

// Unwrap makes a FencedError match [ErrFenced], and tells package partition which fence
// the store has: if that is from before NATS has lost its state, the group raises its own.
func (e *FencedError) Unwrap() []error {
	return []error{ErrFenced, &partition.FencedError{Stored: partition.Fence{Version: e.Stored.MapVersion, Claim: e.Stored.ClaimRevision}}}
}
