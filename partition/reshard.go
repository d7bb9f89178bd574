package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file holds the change of the number of slots under load. The stream's
// subjects name a key's slot under every slot count there can be, so nothing stored is
// touched: only the consumers are others, and who pulls for them.
//
//  1. The leader writes a map of the new generation, planned as any; it names the
//     old generation and its owners beside it. Each new slot has to be taken.
//  2. Everybody continues with the slots of the old generation that it holds, until
//     the leader asks for one. Then it gives it up permanently, as in a handoff.
//  3. When all the slots that a new one has keys of are given up, or their owners'
//     leases have ended, the leader deletes their consumers, creates the new ones
//     and grants them. It asks for a few at a time, so that a slot stands still for
//     one exchange of consumers, and not for all.
//
// No two consumers of one key exist at a time, and no message is delivered by the
// new one while a handler of the old one works: that gives order and one handler.
// A consumer's name holds the number of its generation, which never comes again,
// so that a late step of a former leader meets nothing.

// reshardWindow is how many of the smaller number of slots change at a time.
const reshardWindow = 16

// The worker's part.

// The leader's part.

// generationOf returns the generation that a map is of.
func generationOf(a *record.Assignment) generation { return generation{a.Layout, a.Slots} }

// oldGenerationOf returns the generation that a map replaces.
func oldGenerationOf(f *record.OldGeneration) generation { return generation{f.Layout, f.Slots} }

// fenceOf returns what orders the slot's owner among all that it had.
func fenceOf(a *record.Assignment, slot int) Fence {
	return Fence{Version: a.Since[slot], Claim: a.OwnerAt(slot).Claim}
}

// parted ends a change in a draft: every slot of the new generation is taken.
func parted(d *record.Assignment) {
	if len(d.Taking) == 0 && !slices.Contains(d.Owner, record.None) {
		d.Former = nil
	}
}

// Asking for it.

// Resharding tells over how many slots the keys of a group are spread, and how far a change of that is.
type Resharding struct {
	Slots   int   // now
	Former  int   // that are still being given up, 0 for none
	Waiting int   // slots that their new owners wait for
	Wanted  int   // by Group.Reshard, 0 if it was never called
	Choices []int // what Group.Reshard takes, ascending
	Version uint64
}

// Done reports whether the keys are divided as is wanted.
func (l Resharding) Done() bool {
	return l.Former == 0 && l.Waiting == 0 && (l.Wanted == 0 || l.Wanted == l.Slots)
}

// reshardingOf reads the slot count, the one that is asked for, and how far the change is.
func reshardingOf(ctx context.Context, nc *nats.Conn, group string) (Resharding, error) {
	kv, rec, err := openLayout(ctx, nc, group)
	if err != nil {
		return Resharding{}, fmt.Errorf("reading the layout of %s: %w", group, err)
	}
	out, err := readLayout(ctx, kv, rec)
	if err != nil {
		return Resharding{}, fmt.Errorf("reading the layout of %s: %w", group, err)
	}
	return out, nil
}

func readLayout(ctx context.Context, kv jetstream.KeyValue, rec record.Layout) (Resharding, error) {
	out := Resharding{Slots: rec.Slots, Choices: layout{base: rec.Slots}.slotCounts()}
	switch e, err := kv.Get(ctx, record.AssignmentKey); {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return out, fmt.Errorf("reading the assignment map: %w", err)
	default:
		a, err := record.DecodeAssignment(e.Value())
		if err != nil {
			return out, err
		}
		out.Slots, out.Version = a.Slots, a.Version
		if a.Former != nil {
			out.Former, out.Waiting = a.Former.Slots, len(a.Taking)
		}
	}
	switch e, err := kv.Get(ctx, wantedKey); {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return out, err
	default:
		v, err := record.DecodeWanted(e.Value())
		if err != nil {
			return out, fmt.Errorf("key %s holds %.100q: %w; or set the layout again", wantedKey, e.Value(), err)
		}
		out.Wanted = v.Slots
	}
	return out, nil
}

// reshard writes the slot count that is asked for.
func reshard(ctx context.Context, nc *nats.Conn, group string, slots int) error {
	kv, rec, err := openLayout(ctx, nc, group)
	if err != nil {
		return fmt.Errorf("setting the layout of %s: %w", group, err)
	}
	if choices := (layout{base: rec.Slots}).slotCounts(); !slices.Contains(choices, slots) {
		return &ReshardError{Group: group, Slots: slots, Choices: choices}
	}
	if _, err := kv.Put(ctx, wantedKey, record.Encode(record.Wanted{Schema: record.Schema, Slots: slots})); err != nil {
		return fmt.Errorf("setting the layout of %s: %w", group, err)
	}
	return nil
}

// ReshardError says that the keys of a group can't be spread over that many slots.
type ReshardError struct {
	Group   string
	Slots   int
	Choices []int // that there are
}

func (e *ReshardError) Error() string {
	return fmt.Sprintf("the keys of %s can't be divided in %d slots: give one of %v", e.Group, e.Slots, e.Choices)
}

func openLayout(ctx context.Context, nc *nats.Conn, group string) (jetstream.KeyValue, record.Layout, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, record.Layout{}, err
	}
	rec, err := recordedLayout(ctx, kv)
	return kv, rec, err
}
