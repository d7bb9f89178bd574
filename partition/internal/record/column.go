package record

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
)

// OwnerColumn is a column of indexes of workers, -1 for nobody. In JSON it is one
// string: base64 of each index plus one as an unsigned varint.
type OwnerColumn []int32

// VersionColumn is a column of map versions, in JSON like OwnerColumn.
type VersionColumn []uint64

// MarshalText implements encoding.TextMarshaler.
func (c OwnerColumn) MarshalText() ([]byte, error) {
	var b []byte
	for _, v := range c {
		b = binary.AppendUvarint(b, uint64(v+1))
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *OwnerColumn) UnmarshalText(text []byte) error {
	vs, err := decodeColumn(text, MaxSlots)
	if err != nil {
		return err
	}
	*c = make(OwnerColumn, len(vs))
	for i, v := range vs {
		if v > math.MaxInt32 {
			return fmt.Errorf("entry %d is %d, more than a worker's index can be", i, v)
		}
		(*c)[i] = int32(v) - 1
	}
	return nil
}

// MarshalText implements encoding.TextMarshaler.
func (c VersionColumn) MarshalText() ([]byte, error) {
	var b []byte
	for _, v := range c {
		b = binary.AppendUvarint(b, v)
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *VersionColumn) UnmarshalText(text []byte) error {
	vs, err := decodeColumn(text, MaxSlots)
	*c = vs
	return err
}

// MoveTable has the handoffs that are planned, by slot. In JSON they are one string: base64 of three
// unsigned varints for each, ascending by slot: how much further the slot is than the
// one before, from -1; Next plus one; Version.
type MoveTable map[int]Move

// MarshalText implements encoding.TextMarshaler.
func (m MoveTable) MarshalText() ([]byte, error) {
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
func (m *MoveTable) UnmarshalText(text []byte) error {
	vs, err := decodeColumn(text, 3*MaxSlots)
	if err != nil {
		return err
	}
	if len(vs)%3 != 0 {
		return fmt.Errorf("%d entries, want three for each move", len(vs))
	}
	*m = make(MoveTable, len(vs)/3)
	slot := -1
	for i := 0; i < len(vs); i += 3 {
		if vs[i] < 1 || vs[i] > uint64(MaxSlots-1-slot) {
			return fmt.Errorf("entry %d: slot %d is followed by one that is %d further, want 1 to %d", i, slot, vs[i], MaxSlots-1-slot)
		}
		if vs[i+1] > math.MaxInt32 {
			return fmt.Errorf("entry %d is %d, more than a worker's index can be", i+1, vs[i+1])
		}
		slot += int(vs[i])
		(*m)[slot] = Move{Next: int32(vs[i+1]) - 1, Version: vs[i+2]}
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler. It also reads the object by slot of the
// first maps.
func (m *MoveTable) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var bySlot map[int]Move
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
