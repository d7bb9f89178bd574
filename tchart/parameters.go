package tchart

import "math/bits"

// The few numbers that describe each column are written by an adaptive binary
// arithmetic coder (the range coder of Martin, 1979, in the carry-propagating
// form that LZMA made known): columns resemble each other, so most of what one
// says is expected after the first few.

const (
	probabilityBits = 12
	rangeTop        = uint32(1) << 24
)

// chance is the probability that a bit is 0, adapting faster while it is new.
type chance struct {
	p    uint16
	seen uint8
}

func (c *chance) value() uint32 {
	if c.seen == 0 {
		return 1 << (probabilityBits - 1)
	}
	return uint32(c.p)
}

func (c *chance) adapt(bit uint) {
	p := int32(c.value())
	target := int32(1<<probabilityBits - 32)
	if bit == 1 {
		target = 32
	}
	c.p = uint16(p + (target-p)*paces[c.seen&15]>>16)
	if c.seen < 13 {
		c.seen++
	}
}

// paces are how much of the way a chance moves after n bits, in 2^-16:
// 1/(n+1.5), and in the long run 1/14.5.
var paces = [16]int32{43691, 26214, 18725, 14564, 11916, 10082, 8738, 7710, 6899, 6242, 5699, 5243, 4855, 4520}

// chances are all that a column's description is coded by.
type chances struct {
	kind      [1 << 3]chance
	digits    [1 << 4]chance
	excepted  chance
	constant  chance
	factored  chance
	logistic  chance
	predictor [1 << 4]chance
	level     [1 << 8]chance
	change    [1 << 4]chance
	length    [1 << 7]chance // of numbers
	grid      [1 << 4]chance
}

// rangeWriter codes bits.
type rangeWriter struct {
	out   []byte
	low   uint64
	width uint32
	cache byte
	held  int // bytes 0xff behind cache that a carry may still change
	begun bool
}

func (w *rangeWriter) reset() { *w = rangeWriter{out: w.out[:0], width: 0xffffffff} }

func (w *rangeWriter) shift() {
	if w.low < 0xff000000 || w.low > 0xffffffff {
		carry := byte(w.low >> 32)
		if w.begun {
			w.out = append(w.out, w.cache+carry)
		}
		for ; w.held > 0; w.held-- {
			w.out = append(w.out, 0xff+carry)
		}
		w.cache, w.begun = byte(w.low>>24), true
	} else {
		w.held++
	}
	w.low = w.low << 8 & 0xffffffff
}

func (w *rangeWriter) bit(c *chance, bit uint) {
	bound := w.width >> probabilityBits * c.value()
	if bit == 0 {
		w.width = bound
	} else {
		w.low += uint64(bound)
		w.width -= bound
	}
	c.adapt(bit)
	for w.width < rangeTop {
		w.width <<= 8
		w.shift()
	}
}

// bits writes the low n bits of v, the highest first, by a tree of chances.
func (w *rangeWriter) bits(tree []chance, v uint64, n int) {
	at := 1
	for n--; n >= 0; n-- {
		b := uint(v >> n & 1)
		w.bit(&tree[at], b)
		at = at<<1 | int(b)
	}
}

// plain writes the low n bits of v, each as likely 0 as 1.
func (w *rangeWriter) plain(v uint64, n int) {
	for n--; n >= 0; n-- {
		w.width >>= 1
		if v>>n&1 == 1 {
			w.low += uint64(w.width)
		}
		for w.width < rangeTop {
			w.width <<= 8
			w.shift()
		}
	}
}

// number writes any number: its length, then the bits below the highest.
func (w *rangeWriter) number(c *chances, v uint64) {
	n := lengthOf(v)
	w.bits(c.length[:], uint64(n), 7)
	w.plain(v, max(n-1, 0))
}

// maxTrimmed is how many zeros at the end of the code are left out.
const maxTrimmed = 8

// end writes what is left and returns all; zeros at the end needn't be there to be
// read.
func (w *rangeWriter) end() []byte {
	// Of the numbers that stand for what was written, that with most zeros.
	for n := 32; n >= 0; n-- {
		v := (w.low + uint64(w.width) - 1) >> n << n
		if v >= w.low {
			w.low = v
			break
		}
	}
	for range 5 {
		w.shift()
	}
	for range maxTrimmed {
		if n := len(w.out); n > 0 && w.out[n-1] == 0 {
			w.out = w.out[:n-1]
		}
	}
	return w.out
}

// rangeReader decodes what rangeWriter wrote. After the end of data it reads
// zeros.
type rangeReader struct {
	data        []byte
	code, width uint32
	past        int  // bytes read after the end
	bad         bool // something was read that no writer writes
}

func newRangeReader(data []byte) rangeReader {
	r := rangeReader{data: data, width: 0xffffffff}
	for range 4 {
		r.next()
	}
	return r
}

func (r *rangeReader) next() {
	r.code <<= 8
	if len(r.data) > 0 {
		r.code |= uint32(r.data[0])
		r.data = r.data[1:]
		return
	}
	// More would be made up, without end if need be.
	if r.past++; r.past > maxTrimmed {
		r.bad = true
	}
}

func (r *rangeReader) bit(c *chance) uint {
	bound := r.width >> probabilityBits * c.value()
	bit := uint(0)
	if r.code < bound {
		r.width = bound
	} else {
		r.code -= bound
		r.width -= bound
		bit = 1
	}
	c.adapt(bit)
	for r.width < rangeTop {
		r.width <<= 8
		r.next()
	}
	return bit
}

// bits reads n bits, the highest first, by a tree of chances: the bit method, with
// the state in registers.
func (r *rangeReader) bits(tree []chance, n int) uint64 {
	code, width := r.code, r.width
	at := 1
	for range n {
		c := &tree[at]
		bound := width >> probabilityBits * c.value()
		at <<= 1
		if code < bound {
			width = bound
			c.adapt(0)
		} else {
			code -= bound
			width -= bound
			c.adapt(1)
			at |= 1
		}
		for width < rangeTop {
			width <<= 8
			r.code = code
			r.next()
			code = r.code
		}
	}
	r.code, r.width = code, width
	return uint64(at) & (1<<n - 1)
}

func (r *rangeReader) plain(n int) uint64 {
	v := uint64(0)
	for range n {
		r.width >>= 1
		v <<= 1
		if r.code >= r.width {
			r.code -= r.width
			v |= 1
		}
		for r.width < rangeTop {
			r.width <<= 8
			r.next()
		}
	}
	return v
}

func (r *rangeReader) number(c *chances) uint64 {
	n := int(r.bits(c.length[:], 7))
	switch {
	case n == 0:
		return 0
	case n > 64:
		r.bad = true
		return 0
	}
	return 1<<(n-1) | r.plain(n-1)
}

func (w *rangeWriter) flag(c *chance, set bool) {
	bit := uint(0)
	if set {
		bit = 1
	}
	w.bit(c, bit)
}

func lengthOf(v uint64) int { return bits.Len64(v) }
