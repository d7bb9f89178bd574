package partition

import (
	"bytes"
	"errors"
	"fmt"
)

// Errors of a KV operation that decide something; every other one leaves the
// outcome unknown.
var (
	errConflict = errors.New("somebody else's write came first")
	errNotFound = errors.New("no such key")
)

// errUnderWay: the write was not carried out, since another of the same key is
// under way, maybe the worker's own that it has given up. Nothing is decided by it.
var errUnderWay = errors.New("another write of this key is under way")

// kvVersion is one value that a key had.
type kvVersion struct {
	value   []byte
	rev     uint64
	deleted bool
}

// kvInput is what came of an operation on a bucket.
type kvInput struct {
	kvEffect
	gotRev   uint64
	gotValue []byte
	keys     []string
	history  []kvVersion
	err      error
}

func (kvInput) input() {}

// unread concludes on a write of whose key it could not be read what is there: that
// something else came first does not tell whose it was.
func (in *kvInput) unread(why error) {
	if in.op == opUpdate && errors.Is(in.err, errConflict) {
		in.err = fmt.Errorf("%w, maybe carried out by now: reading it: %w", errUnderWay, why)
	}
}

// settle concludes on a write that was refused, or whose reply was lost, from what
// is there of its key, as the leader of the bucket's stream has it. A write's value
// is unique, so if it is there the write succeeded, and if something newer than what
// it expected is there it can't succeed any more. What is there after a conflict is
// returned with it: it may be an earlier write of the same worker, given up and then
// carried out after all. If nothing newer is there, the write that came first is not
// carried out yet, may never be, and may be the worker's own.
func (in *kvInput) settle(there kvVersion) {
	conflict := errors.Is(in.err, errConflict)
	switch {
	case there.rev == 0 || there.deleted:
	case bytes.Equal(there.value, in.value):
		in.gotRev, in.err = there.rev, nil
	case in.op == opCreate && conflict:
		in.gotValue, in.gotRev = there.value, there.rev
	case in.op == opUpdate && there.rev > in.rev:
		in.gotValue, in.gotRev = there.value, there.rev
		if !conflict {
			in.err = fmt.Errorf("%w: revision %d, expected %d", errConflict, there.rev, in.rev)
		}
	case in.op == opUpdate && conflict:
		in.err = fmt.Errorf("%w: revision %d is still there", errUnderWay, there.rev) // and no conflict any more
	}
}
