package tchart

import (
	"encoding/binary"
	"math/bits"
)

// Bits are packed from the low end of each byte on.

// bitWriter appends bits to out.
type bitWriter struct {
	out  []byte
	acc  uint64
	used uint // bits in acc, less than 8 between calls of write
}

// write appends the low n bits of v, n at most 56; higher bits of v are 0.
func (w *bitWriter) write(v uint64, n uint) {
	w.acc |= v << w.used
	w.used += n
	for w.used >= 8 {
		w.out = append(w.out, byte(w.acc))
		w.acc >>= 8
		w.used -= 8
	}
}

// write64 appends all bits of v.
func (w *bitWriter) write64(v uint64) {
	w.write(v&0xffffffff, 32)
	w.write(v>>32, 32)
}

// wide appends the low n bits of v, n at most 64; higher bits of v are 0.
func (w *bitWriter) wide(v uint64, n uint) {
	if n > 32 {
		w.write(v&0xffffffff, 32)
		v, n = v>>32, n-32
	}
	w.write(v, n)
}

// number appends v as its length, in 4 bits if that is less than 15 and else in
// 4 and 6, and then its bits below the highest.
func (w *bitWriter) number(v uint64) {
	n := uint(bits.Len64(v))
	if n < 15 {
		w.write(uint64(n), 4)
	} else {
		w.write(15|uint64(n-1)<<4, 10)
	}
	if n > 1 {
		v &^= 1 << (n - 1)
		w.write(v&0xffffffff, min(n-1, 32))
		if n-1 > 32 {
			w.write(v>>32, n-1-32)
		}
	}
}

func numberBits(v uint64) int {
	n := bits.Len64(v)
	if n < 15 {
		return 4 + max(n-1, 0)
	}
	return 10 + n - 1
}

// flush pads to a byte with zeros.
func (w *bitWriter) flush() {
	if w.used > 0 {
		w.out = append(w.out, byte(w.acc))
	}
	w.acc, w.used = 0, 0
}

// bitReader reads what bitWriter wrote. The last 8 bytes of data don't belong
// to the bits (they are the blob's checksum), which lets it load whole words up
// to the end. Reading past the end sets failed and yields zeros.
type bitReader struct {
	data   []byte
	pos    int    // next byte to load
	acc    uint64 // low n bits are loaded; those above may hold part of data[pos]
	n      uint
	failed bool
}

// refill makes at least 56 bits available.
func (r *bitReader) refill() {
	var word uint64
	if r.pos+8 <= len(r.data) {
		word = binaryWord(r.data[r.pos:])
	} else {
		word = r.lastWord()
	}
	r.acc |= word << (r.n & 63)
	r.pos += int((63 - r.n) >> 3)
	r.n |= 56
}

// seek continues at a bit, counted from the start of data, that has a word after it.
func (r *bitReader) seek(at uint) {
	within := at & 7
	r.acc = binaryWord(r.data[at>>3:]) >> within
	r.pos, r.n = int(at>>3)+7, 56-within
}

// lastWord is the word at pos, with zeros after the end of data.
func (r *bitReader) lastWord() uint64 {
	if r.pos > len(r.data)+8 {
		r.fail()
		return 0
	}
	var word [8]byte
	copy(word[:], r.data[min(r.pos, len(r.data)):])
	return binaryWord(word[:])
}

func binaryWord(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

func (r *bitReader) fail() {
	r.failed = true
	r.acc, r.n, r.pos = 0, 56, len(r.data)
}

// read returns n bits, n at most 56.
func (r *bitReader) read(n uint) uint64 {
	r.refill()
	v := r.acc & (1<<(n&63) - 1)
	r.acc >>= n & 63
	r.n -= n
	return v
}

func (r *bitReader) read64() uint64 {
	low := r.read(32)
	return low | r.read(32)<<32
}

// wide returns n bits, n at most 64.
func (r *bitReader) wide(n uint) uint64 {
	if n <= 32 {
		return r.read(n)
	}
	low := r.read(32)
	return low | r.read(n-32)<<32
}

func (r *bitReader) number() uint64 {
	n := uint(r.read(4))
	switch n {
	case 0:
		return 0
	case 15:
		n = uint(r.read(6))
	default:
		n--
	}
	low := r.read(min(n, 32))
	if n > 32 {
		low |= r.read(n-32) << 32
	}
	return low | 1<<n
}

// atEnd reports whether all bits but the padding of the last byte were read.
func (r *bitReader) atEnd() bool {
	end := len(r.data) - 8
	left := (end-r.pos)*8 + int(r.n)
	return !r.failed && left >= 0 && left < 8 && r.acc&(1<<uint(left)-1) == 0
}

func zigzag(v int64) uint64   { return uint64(v<<1) ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }
