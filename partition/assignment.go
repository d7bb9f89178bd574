package partition

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// mapSchema is the version of the assignment map's format. A map of a newer
// one is refused: its writer knows rules that this code does not. One of the version
// before is read; it has Moves as a string, or at first as an object by slot.
const (
	mapSchema       = 2
	oldestMapSchema = 1
)

// maxMapBytes bounds what is read as an assignment map: 65,536 slots need less
// than half of it.
const maxMapBytes = 4 << 20

// ownerColumn is a column of indexes of workers, -1 for nobody. In JSON it is one
// string: base64 of each index plus one as an unsigned varint.
type ownerColumn []int32

// versionColumn is a column of map versions, in JSON like ownerColumn.
type versionColumn []uint64

// MarshalText implements encoding.TextMarshaler.
func (c ownerColumn) MarshalText() ([]byte, error) {
	var b []byte
	for _, v := range c {
		b = binary.AppendUvarint(b, uint64(v+1))
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *ownerColumn) UnmarshalText(text []byte) error {
	vs, err := decodeColumn(text, maxSlots)
	if err != nil {
		return err
	}
	*c = make(ownerColumn, len(vs))
	for i, v := range vs {
		if v > math.MaxInt32 {
			return fmt.Errorf("entry %d is %d, more than a worker's index can be", i, v)
		}
		(*c)[i] = int32(v) - 1
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (c versionColumn) MarshalText() ([]byte, error) {
	var b []byte
	for _, v := range c {
		b = binary.AppendUvarint(b, v)
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *versionColumn) UnmarshalText(text []byte) error {
	vs, err := decodeColumn(text, maxSlots)
	*c = vs
	return err
}

// moveTable has the handoffs that are planned, by slot. In JSON they are one string: base64 of three
// unsigned varints for each, ascending by slot: how much further the slot is than the
// one before, from -1; Next plus one; Version.
type moveTable map[int]plannedMove

// MarshalText implements encoding.TextMarshaler.
func (m moveTable) MarshalText() ([]byte, error) {
	var b []byte
	before := -1
	for _, s := range slices.Sorted(maps.Keys(m)) {
		b = binary.AppendUvarint(b, uint64(s-before))
		b = binary.AppendUvarint(b, uint64(m[s].Next+1))
		b = binary.AppendUvarint(b, m[s].Version)
		before = s
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *moveTable) UnmarshalText(text []byte) error {
	vs, err := decodeColumn(text, 3*maxSlots)
	if err != nil {
		return err
	}
	if len(vs)%3 != 0 {
		return fmt.Errorf("%d entries, want three for each move", len(vs))
	}
	*m = make(moveTable, len(vs)/3)
	slot := -1
	for i := 0; i < len(vs); i += 3 {
		if vs[i] < 1 || vs[i] > uint64(maxSlots-1-slot) {
			return fmt.Errorf("entry %d: slot %d is followed by one that is %d further, want 1 to %d", i, slot, vs[i], maxSlots-1-slot)
		}
		if vs[i+1] > math.MaxInt32 {
			return fmt.Errorf("entry %d is %d, more than a worker's index can be", i+1, vs[i+1])
		}
		slot += int(vs[i])
		(*m)[slot] = plannedMove{Next: int32(vs[i+1]) - 1, Version: vs[i+2]}
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. It also reads the object by slot of the
// first maps.
func (m *moveTable) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var bySlot map[int]plannedMove
		if err := json.Unmarshal(data, &bySlot); err != nil {
			return err
		}
		*m = bySlot
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	return m.UnmarshalText([]byte(text))
}

// decodeColumn reads at most that number of entries.
func decodeColumn(text []byte, most int) ([]uint64, error) {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return nil, err
	}
	vs := make([]uint64, 0, min(len(b), most))
	for len(b) > 0 {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("entry %d is not a varint of at most 64 bits", len(vs))
		}
		if len(vs) == most {
			return nil, fmt.Errorf("more than %d entries", most)
		}
		vs = append(vs, v)
		b = b[n:]
	}
	return vs, nil
}

// none stands for "no worker" in a map's columns.
const none int32 = -1

// Member is one incarnation of a worker: its stable ID, and the revision of its
// claim on it, which differs from one holder of the name to the next.
type Member struct {
	ID    string `json:"id"`
	Claim uint64 `json:"claim"`
}

func (m Member) String() string { return fmt.Sprintf("%s/%d", m.ID, m.Claim) }

// Assignment says who owns each slot: the map of slot -> (owner, next owner,
// version at which it last changed owner). It is kept in columns, a few bytes a
// slot, and is the same size for 2,400 keys and for ten million.
type Assignment struct {
	Schema  int    `json:"schema"`
	Version uint64 `json:"version"` // grows by one with every re-plan
	Epoch   uint64 `json:"epoch"`   // of the leader that wrote it
	Leader  Member `json:"leader"`
	// Layout and Slots name the division of the keys that it speaks of: its
	// generation, from 1, and its number of slots.
	Layout int `json:"layout"`
	Slots  int `json:"slots"`
	// FirstAssigned is the time of the first map of the cluster, Planned that
	// of this version.
	FirstAssigned time.Time `json:"first_assigned"`
	Planned       time.Time `json:"planned"`
	// Overrides is the revision of the overrides that this version rests on, 0 if there
	// were none, or if not all could be honoured yet.
	Overrides uint64 `json:"pins,omitempty"`
	// Moved counts the slots that this version moves.
	Moved int `json:"moved"`

	Workers []Member      `json:"workers"`
	Owner   ownerColumn   `json:"owner"` // index in Workers; -1: nobody
	Since   versionColumn `json:"since"` // version at which Owner became the owner, or came back after a restart
	// Moves holds the handoffs that are not finished, by slot.
	Moves moveTable `json:"moves,omitempty"`
	// Taking holds the slots whose owner waits until the leader has taken
	// them from a dead one, or from its own predecessor.
	Taking map[int]bool `json:"taking,omitempty"`
	// Restarting holds the workers, by index, that restart: their
	// slots wait for it to rejoin under the same stable ID.
	Restarting map[int]bool `json:"restarting,omitempty"`
	// Former is the division before this one as long as somebody may still
	// work by it; nil: nobody does.
	Former *formerSlots `json:"former,omitempty"`
}

// formerSlots is a division of the keys that is being given up, slot by slot, for the
// one of the map.
type formerSlots struct {
	Layout  int         `json:"layout"`
	Slots   int         `json:"slots"`
	Version uint64      `json:"version"` // of the map that gave it up
	Owner   ownerColumn `json:"owner"`   // index in Workers of whose each slot was; -1: of nobody who lives
}

// plannedMove is a planned handoff of one slot: Next is the index of the new owner
// in Workers, Version the map's version that planned it.
type plannedMove struct {
	Next    int32  `json:"next"`
	Version uint64 `json:"version"`
}

// clone returns a deep copy.
func (a *Assignment) clone() *Assignment {
	c := *a
	c.Workers = append([]Member(nil), a.Workers...)
	c.Owner = append(ownerColumn(nil), a.Owner...)
	c.Since = append(versionColumn(nil), a.Since...)
	c.Moves = make(map[int]plannedMove, len(a.Moves))
	for s, m := range a.Moves {
		c.Moves[s] = m
	}
	c.Taking = make(map[int]bool, len(a.Taking))
	for s := range a.Taking {
		c.Taking[s] = true
	}
	c.Restarting = make(map[int]bool, len(a.Restarting))
	for i := range a.Restarting {
		c.Restarting[i] = true
	}
	if a.Former != nil {
		f := *a.Former
		f.Owner = append(ownerColumn(nil), f.Owner...)
		c.Former = &f
	}
	return &c
}

func (a *Assignment) division() division { return division{a.Layout, a.Slots} }

func (f *formerSlots) division() division { return division{f.Layout, f.Slots} }

// owner returns the slot's owner, the zero Member for nobody.
func (a *Assignment) owner(slot int) Member { return a.member(a.Owner[slot]) }

// fence returns what orders the slot's owner among all that it had.
func (a *Assignment) fence(slot int) Fence {
	return Fence{Version: a.Since[slot], Claim: a.owner(slot).Claim}
}

func (a *Assignment) member(i int32) Member {
	if i == none {
		return Member{}
	}
	return a.Workers[i]
}

func (a *Assignment) index(m Member) int32 {
	for i, w := range a.Workers {
		if w == m {
			return int32(i)
		}
	}
	return none
}

// Settled reports whether every slot is with its owner.
func (a *Assignment) Settled() bool {
	return len(a.Moves) == 0 && len(a.Taking) == 0 && a.Former == nil
}

// Counts returns the number of slots of each worker, by ID, as it will be when
// every move is done.
func (a *Assignment) Counts() map[string]int {
	n := make(map[string]int, len(a.Workers))
	for _, w := range a.Workers {
		n[w.ID] = 0
	}
	for s := range a.Owner {
		if i := a.destination(s); i != none {
			n[a.Workers[i].ID]++
		}
	}
	return n
}

// predecessor returns the index of the worker whose stable ID m has under a
// later claim, -1 if there is none with slots to come back to.
func (a *Assignment) predecessor(m Member) int32 {
	for i, w := range a.Workers {
		if w.ID != m.ID || w.Claim >= m.Claim {
			continue
		}
		for s := range a.Owner {
			if a.destination(s) == int32(i) {
				return int32(i)
			}
		}
	}
	return none
}

// destination returns the index of the worker that owns the slot, or will when
// its move is done.
func (a *Assignment) destination(slot int) int32 {
	if m, ok := a.Moves[slot]; ok {
		return m.Next
	}
	return a.Owner[slot]
}

// OwnerOf returns the stable ID of the worker that owns the slot or is about to,
// "" for nobody or for a slot out of range.
func (a *Assignment) OwnerOf(slot int) string {
	if slot < 0 || slot >= len(a.Owner) {
		return ""
	}
	return a.member(a.destination(slot)).ID
}

// DecodeAssignment reads an assignment map as it is kept in the bucket. It
// returns every fault it finds.
func DecodeAssignment(data []byte) (*Assignment, error) {
	if len(data) > maxMapBytes {
		return nil, fmt.Errorf("reading the assignment map: %d bytes, at most %d are read", len(data), maxMapBytes)
	}
	// What else is in a record of another schema may have any form.
	if err := readSchema(data, oldestMapSchema, mapSchema); err != nil {
		return nil, fmt.Errorf("reading the assignment map: %w", err)
	}
	var a Assignment
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, fmt.Errorf("reading the assignment map: %w", err)
	}
	a.Schema = mapSchema // as which it is written again
	if err := a.validate(); err != nil {
		return nil, fmt.Errorf("reading the assignment map: %w", err)
	}
	return &a, nil
}

func (a *Assignment) encode() []byte {
	data, err := json.Marshal(a)
	if err != nil {
		panic(fmt.Sprintf("partition: an assignment map is plain data, yet: %v", err))
	}
	return data
}

func (a *Assignment) validate() error {
	if err := checkSchema(a.Schema, mapSchema, mapSchema); err != nil {
		return err
	}
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if a.Slots < 1 || a.Slots > maxSlots {
		fault("slots is %d, want 1 to %d", a.Slots, maxSlots)
	}
	if len(a.Owner) != a.Slots || len(a.Since) != a.Slots {
		fault("owner and since have %d and %d entries for %d slots", len(a.Owner), len(a.Since), a.Slots)
	}
	seen := make(map[string]bool, len(a.Workers))
	for i, w := range a.Workers {
		if seen[w.ID] {
			fault("workers[%d] is %q: named twice", i, w.ID)
		} else if err := checkMember(fmt.Sprintf("workers[%d]", i), w); err != nil {
			fault("%w", err)
		}
		seen[w.ID] = true
	}
	inRange := func(i int32) bool { return i == none || (i >= 0 && int(i) < len(a.Workers)) }
	for s, i := range a.Owner {
		if !inRange(i) {
			fault("owner[%d] is %d, there are %d workers", s, i, len(a.Workers))
			break
		}
	}
	for s, v := range a.Since {
		if v > a.Version {
			fault("since[%d] is version %d, after the map's own %d", s, v, a.Version)
			break
		}
	}
	if f := a.Former; f != nil {
		if f.Slots < 1 || f.Slots > maxSlots || (f.Slots%max(a.Slots, 1) != 0 && a.Slots%f.Slots != 0) || len(f.Owner) != f.Slots || f.Version > a.Version || f.Layout >= a.Layout {
			fault("former is no division before this one: layout %d of %d slots with %d owners, given up by version %d", f.Layout, f.Slots, len(f.Owner), f.Version)
		}
		for s, i := range f.Owner {
			if !inRange(i) {
				fault("former.owner[%d] is %d, there are %d workers", s, i, len(a.Workers))
				break
			}
		}
	}
	for s, m := range a.Moves {
		if s < 0 || s >= a.Slots || m.Next == none || !inRange(m.Next) || m.Version > a.Version {
			fault("moves[%d] is not a move of this map: %+v", s, m)
		}
	}
	for s := range a.Taking {
		if s < 0 || s >= len(a.Owner) || a.Owner[s] == none {
			fault("taking[%d] has no owner to wait", s)
		}
	}
	for i := range a.Restarting {
		if i < 0 || i >= len(a.Workers) {
			fault("restarting[%d] is no worker, there are %d", i, len(a.Workers))
		}
	}
	return errors.Join(errs...)
}
