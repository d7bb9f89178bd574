package partition

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// This file holds the change of the number of slots under load. The stream's
// subjects name a key's slot in every division there can be, so nothing stored is
// touched: only the consumers are others, and who pulls for them.
//
//  1. The leader writes a map of the new division, planned as any; it names the
//     former division and its owners beside it. Each new slot has to be taken.
//  2. Everybody goes on with the slots of the former division that it holds, until
//     the leader asks for one. Then it gives it up for ever, as in a hand-over.
//  3. When all the slots that a new one has keys of are given up, or their owners'
//     leases have ended, the leader deletes their consumers, creates the new ones
//     and grants them. It asks for a few at a time, so that a slot stands still for
//     one exchange of consumers, and not for all.
//
// No two consumers of one key exist at a time, and no message is delivered by the
// new one while a handler of the old one works: that gives order and one handler.
// A consumer's name holds the generation of its division, which never comes again,
// so that a late step of a deposed leader meets nothing.

// cedeWindow is how many of the smaller number of slots change at a time.
const cedeWindow = 16

// reasonLayout is why a plan for a new number of slots is made.
const reasonLayout = "layout change"

// The worker's part.

// redivide follows a map of another division: what is held stays held until it is
// asked for, under the former division.
func (o *ownership) redivide() {
	was := o.division
	o.division = o.cur.division()
	if was.slots == 0 {
		return
	}
	o.emit(Event{Kind: EventLayout, Version: o.cur.Version, Before: was.slots, After: o.division.slots})
	for _, s := range slices.Sorted(maps.Keys(o.former)) {
		o.do(dropEffect{o.formerly.place(s)}) // of one that is over for long
	}
	o.formerly, o.former = was, make(map[int]*slotState)
	for _, s := range o.sorted() {
		st := o.slots[s]
		switch {
		case st.phase != phaseHolding && st.phase != phaseReleasing:
		case o.formerlyOurs(was, s):
			o.former[s] = st
		default:
			// Only a worker that was dead to the leader gets here.
			o.do(dropEffect{was.place(s)})
		}
	}
	o.slots = make(map[int]*slotState)
	o.ready = make(map[int]readiness)
}

// formerlyOurs tells whether the map waits for this worker to give a slot up.
func (o *ownership) formerlyOurs(d division, s int) bool {
	f := o.cur.Former
	return f != nil && f.division() == d && o.cur.member(f.Owner[s]) == o.self
}

// peerCede: the leader asks for slots of the former division. Who has seen no map
// of the new one yet answers when it has.
func (o *ownership) peerCede(msg peerMessage) {
	for _, mark := range msg.Slots {
		o.called[mark.Slot] = mark.Version
	}
	o.cedeCalled()
}

// cedeCalled gives up what the leader has asked for. What is not held is given up.
func (o *ownership) cedeCalled() {
	if o.cur == nil || o.abandoning {
		return
	}
	f := o.cur.Former
	var ceded []slotMark
	for _, s := range slices.Sorted(maps.Keys(o.called)) {
		version := o.called[s]
		if version > o.cur.Version {
			continue // of a map that is on its way
		}
		delete(o.called, s)
		if f == nil || f.Version != version || s >= f.Slots {
			continue
		}
		switch st := o.former[s]; {
		case st == nil:
			ceded = append(ceded, slotMark{Slot: s, Version: version})
		case st.phase == phaseHolding:
			*st = slotState{phase: phaseReleasing, version: st.version, begun: o.now, deadline: o.now.Add(o.cfg.HandoverTimeout)}
			o.do(releaseEffect{place: o.formerly.place(s), claim: o.self.Claim, final: true, leave: o.leaving(s)})
		}
	}
	o.tellCeded(ceded)
}

func (o *ownership) tellCeded(marks []slotMark) {
	if marks != nil {
		o.send(o.leader, peerCeded, marks)
	}
}

// leaving returns the keys of a slot of the former division that are this worker's
// no more.
func (o *ownership) leaving(s int) Slots {
	was, is := o.formerly, o.division
	if is.slots < was.slots {
		if o.cur.member(o.cur.destination(s%is.slots)) != o.self {
			return Slots{Of: was.slots, Slots: []int{s}}
		}
		return Slots{}
	}
	out := Slots{Of: is.slots}
	for _, t := range was.place(s).overlapping(is) {
		if o.cur.member(o.cur.destination(t)) != o.self {
			out.Slots = append(out.Slots, t)
		}
	}
	return out
}

// formerReleased: nothing of a slot of the former division runs here any more.
func (o *ownership) formerReleased(in slotReleasedInput) {
	st := o.former[in.slot]
	if in.division != o.formerly || st == nil || st.phase != phaseReleasing || in.claim != o.self.Claim {
		return
	}
	o.emit(Event{Kind: EventSlotReleased, Slot: in.slot, Duration: o.now.Sub(st.begun)})
	delete(o.former, in.slot)
	if f := o.cur.Former; f != nil && f.division() == in.division {
		o.tellCeded([]slotMark{{Slot: in.slot, Version: f.Version}})
	}
}

// The leader's part.

// parted ends a change in a draft: every slot of the new division is taken.
func parted(d *Assignment) {
	if len(d.Taking) == 0 && !slices.Contains(d.Owner, none) {
		d.Former = nil
	}
}

// Asking for it.

// wantedValue is what wantedKey holds.
type wantedValue struct {
	Schema int `json:"schema"`
	Slots  int `json:"slots"`
}

// Layout is in how many slots the keys of a group are divided.
type Layout struct {
	Slots   int   // now
	Former  int   // that are still being given up, 0 for none
	Waiting int   // slots that their new owners wait for
	Wanted  int   // by SetLayout, 0 if it was never called
	Choices []int // what SetLayout takes, ascending
	Version uint64
}

// Done tells whether the keys are divided as is wanted.
func (l Layout) Done() bool {
	return l.Former == 0 && l.Waiting == 0 && (l.Wanted == 0 || l.Wanted == l.Slots)
}

// ReadLayout returns in how many slots the keys of a group are divided, and how
// far a change of that is.
func ReadLayout(ctx context.Context, nc *nats.Conn, group string) (Layout, error) {
	kv, rec, err := openLayout(ctx, nc, group)
	if err != nil {
		return Layout{}, fmt.Errorf("reading the layout of %s: %w", group, err)
	}
	out, err := readLayout(ctx, kv, rec)
	if err != nil {
		return Layout{}, fmt.Errorf("reading the layout of %s: %w", group, err)
	}
	return out, nil
}

func readLayout(ctx context.Context, kv jetstream.KeyValue, rec layoutValue) (Layout, error) {
	out := Layout{Slots: rec.Slots, Choices: layout{base: rec.Slots}.divisions()}
	switch e, err := kv.Get(ctx, AssignmentKey); {
	case errors.Is(err, jetstream.ErrKeyNotFound):
	case err != nil:
		return out, fmt.Errorf("reading the assignment map: %w", err)
	default:
		a, err := DecodeAssignment(e.Value())
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
		v, err := decodeWanted(e.Value())
		if err != nil {
			return out, fmt.Errorf("key %s holds %.100q: %w; or set the layout again", wantedKey, e.Value(), err)
		}
		out.Wanted = v.Slots
	}
	return out, nil
}

// SetLayout asks the workers of a group to divide their keys in another number of
// slots: what it was provisioned with, or that doubled up to three times. They go
// on meanwhile; the change begins when all of them are there and no slot moves,
// and ReadLayout tells how far it is. Asking again for the same is no change; the
// error of a number that can't be is a *LayoutError.
func SetLayout(ctx context.Context, nc *nats.Conn, group string, slots int) error {
	kv, rec, err := openLayout(ctx, nc, group)
	if err != nil {
		return fmt.Errorf("setting the layout of %s: %w", group, err)
	}
	if choices := (layout{base: rec.Slots}).divisions(); !slices.Contains(choices, slots) {
		return &LayoutError{Group: group, Slots: slots, Choices: choices}
	}
	if _, err := kv.Put(ctx, wantedKey, mustJSON(wantedValue{Schema: valueSchema, Slots: slots})); err != nil {
		return fmt.Errorf("setting the layout of %s: %w", group, err)
	}
	return nil
}

// LayoutError says that the keys of a group can't be divided in so many slots.
type LayoutError struct {
	Group   string
	Slots   int
	Choices []int // that there are
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("the keys of %s can't be divided in %d slots: give one of %v", e.Group, e.Slots, e.Choices)
}

func openLayout(ctx context.Context, nc *nats.Conn, group string) (jetstream.KeyValue, layoutValue, error) {
	kv, err := mapBucket(ctx, nc, group)
	if err != nil {
		return nil, layoutValue{}, err
	}
	rec, err := recordedLayout(ctx, kv)
	return kv, rec, err
}
