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

	"github.com/muster-dev/muster/partition/plan"
)

// This file holds pins: an operator's word that a slot is to be with a worker.
// They are one record beside the map, which every worker sees, so that whoever
// leads honours them. A map names the revision of the pins that its plan rested
// on; when that is not the newest one, the leader plans.

// Pin holds a slot on a worker while that worker is there and takes slots.
type Pin struct {
	// Slot is the pinned slot, 0 to Slots-1.
	Slot int `json:"slot"`
	// Key, if not empty, is a key whose slot is meant, whatever the number of
	// slots is; Slot tells which that was when the pin was set.
	Key    string    `json:"key,omitempty"`
	Worker string    `json:"worker"` // stable ID
	At     time.Time `json:"at"`     // when it was set
}

// slot returns the slot that is meant where there are so many.
func (p Pin) slot(slots int) int {
	if p.Key != "" {
		return SlotOfKey(slots, p.Key)
	}
	return p.Slot
}

// pinsValue is what pinsKey holds.
type pinsValue struct {
	Schema int   `json:"schema"`
	Pins   []Pin `json:"pins"`
}

const (
	pinsKey = "pins"
	// maxPinsBytes bounds what is read as pins.
	maxPinsBytes = 4 << 20
	reasonPins   = "pins"
)

func decodePins(data []byte) ([]Pin, error) {
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
func bySlot(pins []Pin, slots int) map[int]Pin {
	out := make(map[int]Pin, len(pins))
	for _, p := range pins {
		s := p.slot(slots)
		if before, ok := out[s]; s < slots && (!ok || !p.At.Before(before.At)) {
			p.Slot = s
			out[s] = p
		}
	}
	return out
}

// Pins returns the pins of a group, by ascending slot.
func Pins(ctx context.Context, nc *nats.Conn, group string) ([]Pin, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, fmt.Errorf("reading the pins of %s: %w", group, err)
	}
	pins, _, err := readPins(ctx, kv)
	return pins, err
}

// AddPins pins slots of a group, each in place of an earlier pin of it. Fields
// that are not set are filled in: Slot from Key, At from the clock.
func AddPins(ctx context.Context, nc *nats.Conn, group string, pins ...Pin) error {
	return changePins(ctx, nc, group, func(have []Pin, slots int, subject string) ([]Pin, error) {
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
			have = slices.DeleteFunc(have, func(h Pin) bool { return h.slot(slots) == p.Slot })
			have = append(have, p)
		}
		return have, errors.Join(errs...)
	})
}

// ErrNoPin says that a pin is of a key or slot that the group can't have.
var ErrNoPin = errors.New("no key or slot of the group")

// noPin is an ErrNoPin with what is wrong.
type noPin struct{ text string }

func (e *noPin) Error() string { return e.text }

func (e *noPin) Is(target error) bool { return target == ErrNoPin }

// ErrNotPinned says that a slot is not pinned.
var ErrNotPinned = errors.New("not pinned")

// RemovePins removes the pins of slots. If one of them is not pinned, none is
// removed, and the error is an ErrNotPinned that names all such.
func RemovePins(ctx context.Context, nc *nats.Conn, group string, slots ...int) error {
	return changePins(ctx, nc, group, func(have []Pin, n int, _ string) ([]Pin, error) {
		var errs []error
		for _, s := range slots {
			before := len(have)
			have = slices.DeleteFunc(have, func(h Pin) bool { return h.slot(n) == s })
			if len(have) == before {
				errs = append(errs, fmt.Errorf("slot %d: %w", s, ErrNotPinned))
			}
		}
		return have, errors.Join(errs...)
	})
}

// pinTries bounds how often a change of the pins is tried again because somebody
// else changed them meanwhile.
const pinTries = 20

func changePins(ctx context.Context, nc *nats.Conn, group string, change func(have []Pin, slots int, subject string) ([]Pin, error)) error {
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
		slices.SortStableFunc(next, func(a, b Pin) int { return cmp.Compare(a.Slot, b.Slot) })
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

func readPins(ctx context.Context, kv jetstream.KeyValue) ([]Pin, uint64, error) {
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

func mapBucket(ctx context.Context, nc *nats.Conn, group string) (jetstream.KeyValue, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	kv, err := js.KeyValue(ctx, Config{Name: group}.bucketMap())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("%w: is there a group of this name?", err)
	}
	return kv, err
}

// What the leader does with pins.

type pinsInput struct {
	pins []Pin
	rev  uint64
}

func (pinsInput) input() {}

// pinned is what a machine knows of the pins.
type pinned struct {
	pins []Pin
	rev  uint64 // 0: there never were any
}

func (m *machine) seePins(in pinsInput) {
	if in.rev > m.pins.rev {
		m.pins = pinned(in)
		if m.leading() {
			m.review()
		}
	}
}

// pinsDue tells whether the map rests on other pins than there are now, or was
// planned while the worker of a pin took no slots, which it does now. While a
// worker of the map is not there, its coming back or its death is known first.
func (m *machine) pinsDue() bool {
	if m.cur == nil || m.cur.Pins == m.pins.rev && !m.pinUnkept() || !m.cur.Settled() || m.lead.roster.takersInMap() == 0 {
		return false
	}
	return m.lead.roster.allThere()
}

// pinUnkept tells whether a slot is elsewhere than with the worker of the map
// that it is pinned to, though that worker takes slots. An outdated worker keeps its
// slots until it leaves, pinned elsewhere or not.
func (m *machine) pinUnkept() bool {
	if len(m.pins.pins) == 0 {
		return false
	}
	takes := make(map[string]int32, len(m.cur.Workers))
	for i, w := range m.cur.Workers {
		if p := m.lead.roster.peers.live(w); p != nil && p.takesSlots() {
			takes[w.ID] = int32(i)
		}
	}
	for s, p := range bySlot(m.pins.pins, m.cur.Slots) {
		to := m.cur.destination(s)
		if i, ok := takes[p.Worker]; ok && to != i && !m.lead.roster.isOutdated(m.cur.member(to)) {
			return true
		}
	}
	return false
}

// pin enters the pins in a planning. A slot does not go to a worker that is only
// awaited, and one in motion arrives first; then the plan does not count as one
// that rests on the pins.
func (m *machine) pin(job *planJob) {
	job.pins = m.pins.rev
	pins := bySlot(m.pins.pins, job.slots)
	there := make(map[string]bool, len(job.workers))
	for _, w := range job.workers {
		there[w.ID] = m.lead.roster.peers[w.ID] == nil // and awaited
	}
	for s := range job.slots {
		p, ok := pins[s]
		if !ok {
			continue
		}
		awaited, live := there[p.Worker]
		at := job.problem.Owners[s]
		elsewhere := at < 0 || job.problem.Workers[at].ID != p.Worker
		if live && awaited && elsewhere {
			job.pins = 0
			continue
		}
		if to, frozen := job.frozen[s]; frozen && live && elsewhere && !m.lead.roster.isOutdated(to) {
			job.pins = 0
		}
		job.problem.Pins = append(job.problem.Pins, plan.Pin{Slot: s, Worker: p.Worker})
	}
}
