package secs

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Format says what an item holds: the format code of SEMI E5, in six bits.
type Format byte

// The formats.
const (
	List    Format = 0o00
	Binary  Format = 0o10
	Boolean Format = 0o11
	ASCII   Format = 0o20
	JIS8    Format = 0o21
	Char2   Format = 0o22 // characters of two bytes
	I8      Format = 0o30
	I1      Format = 0o31
	I2      Format = 0o32
	I4      Format = 0o34
	F8      Format = 0o40
	F4      Format = 0o44
	U8      Format = 0o50
	U1      Format = 0o51
	U2      Format = 0o52
	U4      Format = 0o54
)

var names = map[Format]string{
	List: "L", Binary: "B", Boolean: "BOOLEAN", ASCII: "A", JIS8: "J", Char2: "C2",
	I8: "I8", I1: "I1", I2: "I2", I4: "I4", F8: "F8", F4: "F4", U8: "U8", U1: "U1", U2: "U2", U4: "U4",
}

// String returns the name that SML has for the format.
func (f Format) String() string {
	if name, ok := names[f]; ok {
		return name
	}
	return fmt.Sprintf("format 0o%02o", byte(f))
}

// width is how many bytes a value takes; 0 for lists and for what is no format.
func (f Format) width() int {
	switch f {
	case Binary, Boolean, ASCII, JIS8, I1, U1:
		return 1
	case Char2, I2, U2:
		return 2
	case I4, F4, U4:
		return 4
	case I8, F8, U8:
		return 8
	}
	return 0
}

// Item is a node of a message: a list of items, or an array of values of one format. The
// zero Item is an empty list.
type Item struct {
	Format Format
	Items  []Item // of a list
	Data   []byte // of any other format, numbers with their first byte first
}

// L returns a list.
func L(items ...Item) Item { return Item{Format: List, Items: items} }

// A returns text.
func A(text string) Item { return Item{Format: ASCII, Data: []byte(text)} }

// B returns binary values.
func B(values ...byte) Item { return Item{Format: Binary, Data: values} }

// Bool returns one boolean.
func Bool(v bool) Item {
	if v {
		return Item{Format: Boolean, Data: []byte{1}}
	}
	return Item{Format: Boolean, Data: []byte{0}}
}

// Byte returns one unsigned number of one byte.
func Byte(v uint8) Item { return Item{Format: U1, Data: []byte{v}} }

// Uint returns one unsigned number of four bytes.
func Uint(v uint32) Item {
	return Item{Format: U4, Data: binary.BigEndian.AppendUint32(nil, v)}
}

// Float returns one number of eight bytes.
func Float(v float64) Item {
	return Item{Format: F8, Data: binary.BigEndian.AppendUint64(nil, math.Float64bits(v))}
}

// Len returns how many items or values there are.
func (i Item) Len() int {
	if i.Format == List {
		return len(i.Items)
	}
	if w := i.Format.width(); w > 0 {
		return len(i.Data) / w
	}
	return 0
}

// Number returns the value at a place as a float64, and false if there is none or it is no
// number. Of the integers, those above 2^53 are rounded. A boolean is 0 or 1.
func (i Item) Number(at int) (float64, bool) {
	if at < 0 || at >= i.Len() {
		return 0, false
	}
	b := i.Data
	switch i.Format {
	case F8:
		return math.Float64frombits(binary.BigEndian.Uint64(b[8*at:])), true
	case F4:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(b[4*at:]))), true
	case U8:
		return float64(binary.BigEndian.Uint64(b[8*at:])), true
	}
	n, ok := i.Int(at)
	return float64(n), ok
}

// Int returns the integer at a place, and false if there is none or it is above 2^63 - 1.
func (i Item) Int(at int) (int64, bool) {
	if at < 0 || at >= i.Len() {
		return 0, false
	}
	b := i.Data
	switch i.Format {
	case I1:
		return int64(int8(b[at])), true
	case I2:
		return int64(int16(binary.BigEndian.Uint16(b[2*at:]))), true
	case I4:
		return int64(int32(binary.BigEndian.Uint32(b[4*at:]))), true
	case I8:
		return int64(binary.BigEndian.Uint64(b[8*at:])), true
	case U1, Binary:
		return int64(b[at]), true
	case Boolean:
		if b[at] != 0 {
			return 1, true
		}
		return 0, true
	case U2:
		return int64(binary.BigEndian.Uint16(b[2*at:])), true
	case U4:
		return int64(binary.BigEndian.Uint32(b[4*at:])), true
	case U8:
		v := binary.BigEndian.Uint64(b[8*at:])
		return int64(v), v <= math.MaxInt64
	}
	return 0, false
}

// Code returns the only value of an item that acknowledges something, and false if it is not
// one small number.
func (i Item) Code() (byte, bool) {
	n, ok := i.Int(0)
	if !ok || i.Len() != 1 || n < 0 || n > 255 {
		return 0, false
	}
	return byte(n), true
}

// Text returns what an item says: text as it is, without blanks around it, and one number in
// digits. It is false for anything else.
func (i Item) Text() (string, bool) {
	switch i.Format {
	case ASCII, JIS8:
		return strings.TrimSpace(string(i.Data)), true
	case F4, F8:
		v, ok := i.Number(0)
		return strconv.FormatFloat(v, 'g', -1, 64), ok && i.Len() == 1
	}
	n, ok := i.Int(0)
	return strconv.FormatInt(n, 10), ok && i.Len() == 1
}

// maxShown is how many values of an item are shown.
const maxShown = 16

// String returns the item on one line, much as SML has it; of long ones the beginning.
func (i Item) String() string {
	var b strings.Builder
	i.show(&b, 0)
	return b.String()
}

func (i Item) show(b *strings.Builder, depth int) {
	fmt.Fprintf(b, "<%s", i.Format)
	n := i.Len()
	switch {
	case i.Format == ASCII && n <= 80:
		fmt.Fprintf(b, " %q", i.Data)
	case i.Format == ASCII:
		fmt.Fprintf(b, " %q...", i.Data[:80])
	case i.Format == List && depth >= 4 && n > 0:
		b.WriteString(" ...")
	default:
		for at := range min(n, maxShown) {
			b.WriteByte(' ')
			if i.Format == List {
				i.Items[at].show(b, depth+1)
				continue
			}
			v, _ := i.Number(at)
			fmt.Fprintf(b, "%v", v)
		}
		if n > maxShown {
			fmt.Fprintf(b, " ... (%d)", n)
		}
	}
	b.WriteByte('>')
}
