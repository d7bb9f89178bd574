package secs

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func encoded(t testing.TB, i Item) []byte {
	t.Helper()
	b, err := i.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestItem_encoding has bytes that follow from the tables of E5, not from this code.
func TestItem_encoding(t *testing.T) {
	for _, c := range []struct {
		item Item
		want string
	}{
		{L(), "0100"},
		{A(""), "4100"},
		{A("abc"), "4103616263"},
		{B(1, 255), "210201ff"},
		{Bool(true), "250101"},
		{Byte(7), "a50107"},
		{Uint(1000), "b104000003e8"},
		{Float(1.5), "81083ff8000000000000"},
		{Item{Format: F4, Data: []byte{0x3f, 0xc0, 0, 0}}, "91043fc00000"},
		{Item{Format: I2, Data: []byte{0xff, 0xfe}}, "6902fffe"},
		{L(A("a"), L(Uint(1))), "01024101610101b10400000001"},
		{A(strings.Repeat("x", 256)), "420100" + strings.Repeat("78", 256)},
		{A(strings.Repeat("x", 65536)), "43010000" + strings.Repeat("78", 65536)},
	} {
		b := encoded(t, c.item)
		if got := hex.EncodeToString(b); got != c.want {
			t.Errorf("%v is encoded as %.80s, want %.80s", c.item, got, c.want)
		}
		back, err := Decode(b)
		if err != nil {
			t.Errorf("%v: %v", c.item, err)
		}
		if again := encoded(t, back); !bytes.Equal(again, b) {
			t.Errorf("%v is decoded as %v", c.item, back)
		}
	}
}

func TestItem_values(t *testing.T) {
	for _, c := range []struct {
		hex  string
		want []float64
	}{
		{"6902fffe", []float64{-2}},
		{"6502ff01", []float64{-1, 1}},
		{"7104ffffffff", []float64{-1}},
		{"6108ffffffffffffffff", []float64{-1}},
		{"a108ffffffffffffffff", []float64{math.MaxUint64}},
		{"a904ffff0001", []float64{65535, 1}},
		{"91043fc00000", []float64{1.5}},
		{"25020100", []float64{1, 0}},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		item, err := Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		var got []float64
		for i := range item.Len() {
			v, ok := item.Number(i)
			if !ok {
				t.Errorf("%v has no number %d", item, i)
			}
			got = append(got, v)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s is %v, want %v", c.hex, got, c.want)
		}
		if _, ok := item.Number(item.Len()); ok {
			t.Errorf("%v has a number after its last", item)
		}
	}
	if _, ok := (Item{Format: U8, Data: bytes.Repeat([]byte{255}, 8)}).Int(0); ok {
		t.Error("2^64 - 1 is an int64")
	}
	if _, ok := A("7").Number(0); ok {
		t.Error("text is a number")
	}
	if _, ok := B(1, 2).Code(); ok {
		t.Error("two values are one code")
	}
	for item, want := range map[*Item]string{{Format: ASCII, Data: []byte(" lot 7 ")}: "lot 7", {Format: U1, Data: []byte{9}}: "9"} {
		if got, ok := item.Text(); !ok || got != want {
			t.Errorf("%v says %q", item, got)
		}
	}
}

func TestDecode_rejects(t *testing.T) {
	for name, c := range map[string]struct{ hex, want string }{
		"nothing":             {"", "an item is missing"},
		"no length":           {"40", "has no length"},
		"a length cut off":    {"4201", "length is cut off"},
		"too little":          {"410361", "claims 3 bytes and 1 are left"},
		"an unknown format":   {"fd0100", "format 0o77 is not one"},
		"half a number":       {"b10300000000", "no multiple of 4"},
		"bytes after it":      {"410000", "1 bytes follow it"},
		"a list of too many":  {"03ffffff", "claims 16777215 items"},
		"a list that ends":    {"01024101614e", "length is cut off"},
		"lists without bound": {strings.Repeat("0101", 40) + "0100", "nested more than 32 deep"},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(b); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAppend_rejects(t *testing.T) {
	deep := L()
	for range MaxDepth + 1 {
		deep = L(deep)
	}
	for want, item := range map[string]Item{
		"nested more than":    deep,
		"is not one of":       L(A("before"), Item{Format: 0o77}),
		"no multiple of":      {Format: U4, Data: []byte{1}},
		"can be encoded":      {Format: ASCII, Data: make([]byte, maxLength+1)},
		"has length 16777216": {Format: Binary, Data: make([]byte, maxLength+1)},
	} {
		if b, err := item.Append([]byte("x")); err == nil || !strings.Contains(err.Error(), want) || string(b) != "x" {
			t.Errorf("%q, %v: want an error with %q", b, err, want)
		}
	}
}

func TestMessage_String(t *testing.T) {
	m := New(6, 11, L(Uint(1), A("x"), L(L(Uint(2), L(Float(0.5))))))
	if got, want := m.String(), `S6F11 W <L <U4 1> <A "x"> <L <L <U4 2> <L <F8 0.5>>>>>`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := m.Answer(B(0)).String(); got != "S6F12 <B 0>" {
		t.Error(got)
	}
}

// FuzzDecode: whatever is decoded means the same after it was encoded again, and can be shown.
func FuzzDecode(f *testing.F) {
	f.Add(encoded(f, L(Uint(1), A("x"), L(Float(1), B(1), Bool(true), Byte(3)))))
	f.Add([]byte{0x03, 0xff, 0xff, 0xff})
	f.Add(bytes.Repeat([]byte{1, 1}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		item, err := Decode(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		again, err := Decode(encoded(t, item))
		if err != nil || !reflect.DeepEqual(again, item) {
			t.Errorf("%v became %v, %v", item, again, err)
		}
		_ = item.String()
		walk(item)
	})
}

// walk asks every item for everything.
func walk(i Item) {
	_, _ = i.Text()
	_, _ = i.Code()
	for at := range i.Len() {
		_, _ = i.Number(at)
		_, _ = i.Int(at)
	}
	for _, child := range i.Items {
		walk(child)
	}
}
