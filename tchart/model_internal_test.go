package tchart

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// TestTablesAreThoseOfTheFormat pins the tables: blobs can't be read with others.
func TestTablesAreThoseOfTheFormat(t *testing.T) {
	t.Parallel()
	h := crc32.NewIEEE()
	for shape := range models() {
		m := &models()[shape]
		for i := range m.tables {
			total := 0
			for _, f := range m.tables[i].freq {
				total += int(f)
			}
			if total != ansSlots {
				t.Errorf("table %d of shape %d has %d slots", i, shape, total)
			}
			for _, slot := range m.slots[i] {
				packed := uint32(slot.symbol())<<21 | uint32(slot>>slotFreq)<<10 | uint32(slot)>>slotPlace&(ansSlots-1)
				h.Write(binary.LittleEndian.AppendUint32(nil, packed))
			}
		}
	}
	if got := h.Sum32(); got != tablesOfVersion2 {
		t.Errorf("the tables' checksum is %#x, want %#x: what was written with the old ones can't be read", got, tablesOfVersion2)
	}
}

func TestWordsFitTheirNumbers(t *testing.T) {
	t.Parallel()
	v := words()
	if n := len(v.words) + wordFirst; n > 256 {
		t.Errorf("%d words and signs don't fit in 8 bits", n)
	}
	if sorted := slices.Sorted(slices.Values(v.words)); len(slices.Compact(sorted)) != len(v.words) {
		t.Error("a word is listed twice")
	}
}

func TestClocksPrintAsRecordersDo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		perSecond           int64
		digits, significant int
		tick, want          int64
	}{
		{512, 5, 6, 4966, 969922},    // 9.69922
		{512, 5, 6, 5487, 1071680},   // 10.7168
		{512, 5, 6, 51480, 10054700}, // 100.547
		{512, 5, 0, 51480, 10054688},
		{1000, 4, 6, 107044, 1070440},
		{1000, 3, 0, -15, -15},
		{60, 6, 0, 1, 16667},
		{8192, 6, 0, 1 << 50, 137438953472_000000},
	} {
		var c clock
		c.set(test.perSecond, test.digits, test.significant)
		got, unit := c.print(test.tick)
		if got != test.want || got%unit != 0 {
			t.Errorf("tick %d of %d a second is printed as %d with last digit %d, want %d", test.tick, test.perSecond, got, unit, test.want)
		}
		if back := nearestTick(got, test.perSecond, test.digits); test.tick < 1<<40 && back != test.tick {
			t.Errorf("%d is taken for tick %d, want %d", got, back, test.tick)
		}
	}
}

// TestRangeCoderBringsBackAnything codes bits of very uneven chances, where
// carries and runs of 0xff occur.
func TestRangeCoderBringsBackAnything(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		n := rng.IntN(400)
		var bits []uint
		for range n {
			b := uint(0)
			if rng.IntN(1+round%40) == 0 {
				b = 1
			}
			bits = append(bits, b)
		}
		var w rangeWriter
		w.reset()
		var c [4]chance
		for i, b := range bits {
			w.bit(&c[i%4], b)
			w.plain(uint64(b), 3)
		}
		r := newRangeReader(w.end())
		c = [4]chance{}
		for i, b := range bits {
			if got, plain := r.bit(&c[i%4]), r.plain(3); got != b || plain != uint64(b) {
				t.Fatalf("round %d: bit %d of %d is %d and %d, want %d", round, i, n, got, plain, b)
			}
		}
		if r.bad || len(r.data) != 0 {
			t.Fatalf("round %d: %d bytes are left, bad is %t", round, len(r.data), r.bad)
		}
	}
}

// TestClaimsOfACodedHeaderAreCheckedBeforeMemoryIsTaken writes headers whose
// claims nothing follows.
func TestClaimsOfACodedHeaderAreCheckedBeforeMemoryIsTaken(t *testing.T) {
	blob := func(rows, columns uint64) []byte {
		var w rangeWriter
		var c chances
		w.reset()
		w.number(&c, rows)
		w.number(&c, columns)
		var words wordChances
		for range (&Trace{}).texts() {
			w.text(&words, "")
		}
		head := w.end()

		b := append([]byte(magic), Version)
		b = binary.AppendUvarint(b, uint64(len(head))<<1|1)
		b = append(append(b, head...), 0) // no names
		return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b))
	}
	for name, blob := range map[string][]byte{
		"rows":    blob(10<<30, 1),
		"columns": blob(1, 10<<30),
		"points":  blob(MaxRows, MaxSVIDs),
		"names":   blob(1, MaxSVIDs),
	} {
		var dec Decoder
		var got Trace
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := dec.Decode(blob, &got)
		runtime.ReadMemStats(&after)

		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: error is %v, want ErrCorrupt", name, err)
		}
		if taken := after.TotalAlloc - before.TotalAlloc; taken > 1<<20 {
			t.Errorf("%s: %d bytes are allocated for a blob of %d", name, taken, len(blob))
		}
	}
}

const tablesOfVersion2 = 0x5dcfc2bc
