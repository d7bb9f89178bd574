package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/muster-dev/muster/partition/internal/record"
)

// This file holds overrides: an operator's decision that a slot is to be with a worker.
// They are one record beside the map, which every worker sees, so that every
// leader honours them. A map names the revision of the overrides that its plan rested
// on; when that is not the newest one, the leader plans.

// Override keeps a slot on a worker while that worker is there and takes slots.
type Override struct {
	// Slot is the overridden slot, 0 to Slots-1.
	Slot int
	// Key, if not empty, is a key whose slot is meant, whatever the number of
	// slots is; Slot tells which that was when the override was set.
	Key    string
	Worker string    // stable ID
	At     time.Time // when it was set
}

// slot returns the slot that is meant in a group with that number of slots.
func (p Override) slot(slots int) int {
	if p.Key != "" {
		return SlotOfKey(slots, p.Key)
	}
	return p.Slot
}

const overridesKey = "pins" // in the map's bucket

// decodeOverrides reads the overrides of a group.
func decodeOverrides(data []byte) ([]Override, error) {
	v, err := record.DecodeOverrides(data)
	if err != nil || len(v.Overrides) == 0 {
		return nil, err
	}
	out := make([]Override, len(v.Overrides))
	for i, o := range v.Overrides {
		out[i] = Override(o)
	}
	return out, nil
}

// encodeOverrides returns the overrides of a group as they are stored.
func encodeOverrides(overrides []Override) record.Overrides {
	v := record.Overrides{Schema: record.Schema, Overrides: make([]record.Override, len(overrides))}
	for i, o := range overrides {
		v.Overrides[i] = record.Override(o)
	}
	return v
}

// bySlot returns the overrides by the slots that they mean in a group with that number of slots.
// Of two for one slot the one that was set last holds.
func bySlot(overrides []Override, slots int) map[int]Override {
	out := make(map[int]Override, len(overrides))
	for _, p := range overrides {
		s := p.slot(slots)
		if before, ok := out[s]; s < slots && (!ok || !p.At.Before(before.At)) {
			p.Slot = s
			out[s] = p
		}
	}
	return out
}

// overridesOf returns the overrides of a group, by ascending slot.
func overridesOf(ctx context.Context, nc *nats.Conn, group string) ([]Override, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, fmt.Errorf("reading the overrides of %s: %w", group, err)
	}
	overrides, _, err := readOverrides(ctx, kv)
	return overrides, err
}

// setOverrides overrides slots of a group, each in place of an earlier override of it. Fields
// that are not set are filled in: Slot from Key, At from the clock.
func setOverrides(ctx context.Context, nc *nats.Conn, group string, overrides ...Override) error {
	return changeOverrides(ctx, nc, group, func(have []Override, slots int, subject string) ([]Override, error) {
		var errs []error
		now := time.Now()
		for _, p := range overrides {
			defaulted(&p.At, now)
			if p.Key != "" {
				if err := (Config{Subject: subject}).CheckKey(p.Key); err != nil {
					errs = append(errs, &noSuchSlot{err.Error()})
				}
			}
			p.Slot = p.slot(slots)
			if p.Slot < 0 || p.Slot >= slots {
				errs = append(errs, &noSuchSlot{fmt.Sprintf("slot %d is outside 0 to %d", p.Slot, slots-1)})
			}
			if p.Worker == "" {
				errs = append(errs, fmt.Errorf("slot %d: the worker has no name", p.Slot))
			}
			have = slices.DeleteFunc(have, func(h Override) bool { return h.slot(slots) == p.Slot })
			have = append(have, p)
		}
		return have, errors.Join(errs...)
	})
}

// ErrNoSuchSlot says that an override is of a key or slot that the group can't have.
var ErrNoSuchSlot = errors.New("no key or slot of the group")

// noSuchSlot is an ErrNoSuchSlot with what is wrong.
type noSuchSlot struct{ text string }

func (e *noSuchSlot) Error() string { return e.text }

func (e *noSuchSlot) Is(target error) bool { return target == ErrNoSuchSlot }

// ErrNotOverridden says that a slot has no override.
var ErrNotOverridden = errors.New("not overridden")

// removeOverrides removes the overrides of slots. If one of them is not overridden, none is
// removed, and the error is an ErrNotOverridden that names all such.
func removeOverrides(ctx context.Context, nc *nats.Conn, group string, slots ...int) error {
	return changeOverrides(ctx, nc, group, func(have []Override, n int, _ string) ([]Override, error) {
		var errs []error
		for _, s := range slots {
			before := len(have)
			have = slices.DeleteFunc(have, func(h Override) bool { return h.slot(n) == s })
			if len(have) == before {
				errs = append(errs, fmt.Errorf("slot %d: %w", s, ErrNotOverridden))
			}
		}
		return have, errors.Join(errs...)
	})
}

// overrideTries bounds how often a change of the overrides is tried again because somebody
// else changed them meanwhile.
const overrideTries = 20

func changeOverrides(ctx context.Context, nc *nats.Conn, group string, change func(have []Override, slots int, subject string) ([]Override, error)) error {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return fmt.Errorf("changing the overrides of %s: %w", group, err)
	}
	rec, err := recordedLayout(ctx, kv)
	if err != nil {
		return fmt.Errorf("changing the overrides of %s: %w", group, err)
	}
	lay, err := readLayout(ctx, kv, rec)
	if err != nil {
		return fmt.Errorf("changing the overrides of %s: %w", group, err)
	}
	for range overrideTries {
		have, rev, err := readOverrides(ctx, kv)
		if err != nil {
			return fmt.Errorf("changing the overrides of %s: %w", group, err)
		}
		next, err := change(have, lay.Slots, rec.Subject)
		if err != nil {
			return fmt.Errorf("changing the overrides of %s: %w", group, err)
		}
		slices.SortStableFunc(next, func(a, b Override) int { return cmp.Compare(a.Slot, b.Slot) })
		value := record.Encode(encodeOverrides(next))
		if rev == 0 {
			_, err = kv.Create(ctx, overridesKey, value)
		} else {
			_, err = kv.Update(ctx, overridesKey, value, rev)
		}
		if err = classify(err); !errors.Is(err, errConflict) {
			if err != nil {
				return fmt.Errorf("changing the overrides of %s: %w", group, err)
			}
			return nil
		}
	}
	return fmt.Errorf("changing the overrides of %s: others changed them %d times meanwhile: try again", group, overrideTries)
}

func readOverrides(ctx context.Context, kv jetstream.KeyValue) ([]Override, uint64, error) {
	e, err := kv.Get(ctx, overridesKey)
	if errors.Is(classify(err), errNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading overrides: %w", err)
	}
	overrides, err := decodeOverrides(e.Value())
	return overrides, e.Revision(), err
}

// What the leader does with overrides.

// overridden is what a machine knows of the overrides.
type overridden struct {
	overrides []Override
	rev       uint64 // 0: there never were any
}

// overridesInput: the group's overrides were read.
type overridesInput struct {
	overrides []Override
	rev       uint64
}

func (overridesInput) input() {}
