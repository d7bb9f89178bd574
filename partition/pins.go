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
)

// This file holds pins: an operator's word that a slot is to be with a worker.
// They are one record beside the map, which every worker sees, so that whoever
// leads honours them. A map names the revision of the pins that its plan rested
// on; when that is not the newest one, the leader plans.

// Override keeps a slot on a worker while that worker is there and takes slots.
type Override struct {
	// Slot is the pinned slot, 0 to Slots-1.
	Slot int `json:"slot"`
	// Key, if not empty, is a key whose slot is meant, whatever the number of
	// slots is; Slot tells which that was when the pin was set.
	Key    string    `json:"key,omitempty"`
	Worker string    `json:"worker"` // stable ID
	At     time.Time `json:"at"`     // when it was set
}

// slot returns the slot that is meant where there are so many.
func (p Override) slot(slots int) int {
	if p.Key != "" {
		return SlotOfKey(slots, p.Key)
	}
	return p.Slot
}

// pinsValue is what pinsKey holds.
type pinsValue struct {
	Schema int        `json:"schema"`
	Pins   []Override `json:"pins"`
}

const (
	pinsKey = "pins"
	// maxPinsBytes bounds what is read as pins.
	maxPinsBytes = 4 << 20
	reasonPins   = "pins"
)

func decodePins(data []byte) ([]Override, error) {
	var v pinsValue
	if err := decodeRecord(data, maxPinsBytes, &v); err != nil {
		return nil, fmt.Errorf("reading pins: %w", err)
	}
	var errs []error
	for i, p := range v.Pins {
		if p.Worker == "" || p.Slot < 0 || p.Slot >= maxSlots {
			errs = append(errs, fmt.Errorf("reading pins: pins[%d] is no pin: %+v", i, p))
		}
	}
	return v.Pins, errors.Join(errs...)
}

// bySlot returns the pins by the slots that they mean where there are so many.
// Of two for one slot the one that was set last holds.
func bySlot(pins []Override, slots int) map[int]Override {
	out := make(map[int]Override, len(pins))
	for _, p := range pins {
		s := p.slot(slots)
		if before, ok := out[s]; s < slots && (!ok || !p.At.Before(before.At)) {
			p.Slot = s
			out[s] = p
		}
	}
	return out
}

// overrides returns the pins of a group, by ascending slot.
func overrides(ctx context.Context, nc *nats.Conn, group string) ([]Override, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, fmt.Errorf("reading the pins of %s: %w", group, err)
	}
	pins, _, err := readPins(ctx, kv)
	return pins, err
}

// addPins pins slots of a group, each in place of an earlier pin of it. Fields
// that are not set are filled in: Slot from Key, At from the clock.
func addPins(ctx context.Context, nc *nats.Conn, group string, pins ...Override) error {
	return changePins(ctx, nc, group, func(have []Override, slots int, subject string) ([]Override, error) {
		var errs []error
		now := time.Now()
		for _, p := range pins {
			defaulted(&p.At, now)
			if p.Key != "" {
				if err := (Config{Subject: subject}).CheckKey(p.Key); err != nil {
					errs = append(errs, &noPin{err.Error()})
				}
			}
			p.Slot = p.slot(slots)
			if p.Slot < 0 || p.Slot >= slots {
				errs = append(errs, &noPin{fmt.Sprintf("slot %d is outside 0 to %d", p.Slot, slots-1)})
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

// noPin is an ErrNoSuchSlot with what is wrong.
type noPin struct{ text string }

func (e *noPin) Error() string { return e.text }

func (e *noPin) Is(target error) bool { return target == ErrNoSuchSlot }

// ErrNotOverridden says that a slot has no override.
var ErrNotOverridden = errors.New("not pinned")

// removePins removes the pins of slots. If one of them is not pinned, none is
// removed, and the error is an ErrNotOverridden that names all such.
func removePins(ctx context.Context, nc *nats.Conn, group string, slots ...int) error {
	return changePins(ctx, nc, group, func(have []Override, n int, _ string) ([]Override, error) {
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

// pinTries bounds how often a change of the pins is tried again because somebody
// else changed them meanwhile.
const pinTries = 20

func changePins(ctx context.Context, nc *nats.Conn, group string, change func(have []Override, slots int, subject string) ([]Override, error)) error {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return fmt.Errorf("changing the pins of %s: %w", group, err)
	}
	rec, err := recordedLayout(ctx, kv)
	if err != nil {
		return fmt.Errorf("changing the pins of %s: %w", group, err)
	}
	lay, err := readLayout(ctx, kv, rec)
	if err != nil {
		return fmt.Errorf("changing the pins of %s: %w", group, err)
	}
	for range pinTries {
		have, rev, err := readPins(ctx, kv)
		if err != nil {
			return fmt.Errorf("changing the pins of %s: %w", group, err)
		}
		next, err := change(have, lay.Slots, rec.Subject)
		if err != nil {
			return fmt.Errorf("changing the pins of %s: %w", group, err)
		}
		slices.SortStableFunc(next, func(a, b Override) int { return cmp.Compare(a.Slot, b.Slot) })
		value := mustJSON(pinsValue{Schema: valueSchema, Pins: next})
		if rev == 0 {
			_, err = kv.Create(ctx, pinsKey, value)
		} else {
			_, err = kv.Update(ctx, pinsKey, value, rev)
		}
		if err = classify(err); !errors.Is(err, errConflict) {
			if err != nil {
				return fmt.Errorf("changing the pins of %s: %w", group, err)
			}
			return nil
		}
	}
	return fmt.Errorf("changing the pins of %s: others changed them %d times meanwhile: try again", group, pinTries)
}

func readPins(ctx context.Context, kv jetstream.KeyValue) ([]Override, uint64, error) {
	e, err := kv.Get(ctx, pinsKey)
	if errors.Is(classify(err), errNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("reading pins: %w", err)
	}
	pins, err := decodePins(e.Value())
	return pins, e.Revision(), err
}

// What the leader does with pins.

// pinned is what a machine knows of the pins.
type pinned struct {
	pins []Override
	rev  uint64 // 0: there never were any
}
