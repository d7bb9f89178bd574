package tchart

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// Version 1 of the format is read and no longer written. Its integers are
// predicted by a constant, by the last value or by the line through the last two,
// and what remains is in Rice codes whose parameter changes every blockLen values,
// or in runs of zeros where a sensor hardly moves. A Rice code is a quotient in
// unary, that many zeros and a one, then the low bits; a quotient of
// escapeQuotient or more is written as an escape and the number in full.

const (
	escapeQuotient = 20
	blockLen       = 32
	maxOrder       = 2
	maxRice        = 35 // a code then fits in what refill provides
)

// How a column of values is written in version 1.
const (
	v1Decimal = iota // integers times 10^-digits, with exceptions
	v1XOR            // bits XORed with the previous value, in byte planes, compressed
	v1Raw            // bits as they are
)

// How the integers of a column are written after prediction.
const (
	codeZero   = iota // every residual is 0
	codeDense         // Rice codes in blocks of blockLen, each with its parameter
	codeSparse        // runs of zeros and the residuals between them
)

func (d *Decoder) columns1(bits *bitReader, side *cursor, t *Trace, rows int) error {
	d.ints = resize(d.ints, rows)
	t.Time = resize(t.Time, rows)
	if err := d.column1(bits, side, t.Time); err != nil {
		return fmt.Errorf("%w: timestamps: %w", ErrCorrupt, err)
	}
	bits.integers(d.ints)
	t.Step = resize(t.Step, rows)
	for i, k := range d.ints {
		t.Step[i] = int32(k)
		if int64(t.Step[i]) != k {
			return fmt.Errorf("%w: step %d is out of range", ErrCorrupt, k)
		}
	}
	t.Values = resize(t.Values, len(t.SVIDs))
	for i := range t.Values {
		t.Values[i] = resize(t.Values[i], rows)
		if err := d.column1(bits, side, t.Values[i]); err != nil {
			return fmt.Errorf("%w: column %d: %w", ErrCorrupt, i, err)
		}
	}
	if !bits.atEnd() || len(side.data) != 0 {
		return fmt.Errorf("%w: data ends before or after the last column", ErrCorrupt)
	}
	return nil
}

func (d *Decoder) column1(bits *bitReader, side *cursor, dst []float64) error {
	var err error
	switch bits.read(2) {
	case v1Decimal:
		d.decimals1(bits, dst)
	case v1XOR:
		err = d.planes1(side, dst)
	case v1Raw:
		raw := side.take(8 * len(dst))
		if side.failed {
			return errColumn
		}
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	default:
		err = errColumn
	}
	if bits.failed || side.failed {
		err = errColumn
	}
	return err
}

func (d *Decoder) decimals1(bits *bitReader, dst []float64) {
	digits := uint64(0)
	if bits.read(1) == 1 {
		digits = bits.read(4)
	}
	exceptions := *bits // to be read once the other values are there
	if bits.read(1) == 1 {
		for range min(bits.number(), uint64(len(dst))) {
			bits.number()
			bits.read64()
			if bits.failed {
				return
			}
		}
	}
	bits.integers(d.ints)
	if bits.failed {
		return
	}
	if digits == 0 {
		for i, k := range d.ints {
			dst[i] = float64(k)
		}
	} else {
		scale := pow10[digits]
		for i, k := range d.ints {
			dst[i] = float64(k) / scale
		}
	}
	if exceptions.read(1) == 1 {
		at := uint64(0)
		for range exceptions.number() {
			at += exceptions.number()
			value := exceptions.read64()
			if at >= uint64(len(dst)) || exceptions.failed {
				bits.fail()
				return
			}
			dst[at] = math.Float64frombits(value)
			at++
		}
	}
}

func (r *bitReader) parameter(last uint) uint {
	k := last
	if r.read(1) == 1 {
		switch {
		case r.read(1) == 1:
			k = uint(r.read(6))
		case r.read(1) == 0:
			k++
		default:
			k--
		}
	}
	if k > maxRice { // also when it was 0 and goes down
		r.fail()
		return 0
	}
	return k
}

func (r *bitReader) rice(k uint) uint64 {
	r.refill()
	q := uint(bits.TrailingZeros64(r.acc))
	if q >= escapeQuotient {
		if q > escapeQuotient {
			r.fail() // no code has so many zeros
			return 0
		}
		r.acc >>= q + 1
		r.n -= q + 1
		return r.number()
	}
	r.acc >>= q + 1
	r.n -= q + 1
	return uint64(q)<<k | r.read(k)
}

// integers reads len(dst) integers.
func (r *bitReader) integers(dst []int64) {
	head := r.read(4)
	code, order := int(head&3), int(head>>2)
	origin, factor := unzigzag(r.number()), int64(1)
	if r.read(1) == 1 {
		factor = int64(r.number())
	}
	if order > maxOrder || code > codeSparse {
		r.fail()
	}
	if r.failed {
		return
	}
	switch code {
	case codeZero:
		clear(dst)
	case codeDense:
		r.dense(dst)
	case codeSparse:
		r.sparse(dst)
	}
	if !r.failed {
		predict(dst, order, origin, factor)
	}
}

func (r *bitReader) dense(dst []int64) {
	k := uint(0)
	for len(dst) > 0 && !r.failed {
		k = r.parameter(k)
		n := min(blockLen, len(dst))
		r.block(dst[:n], k)
		dst = dst[n:]
	}
}

// block reads Rice codes; it is the rice method with the state in registers.
func (r *bitReader) block(dst []int64, k uint) {
	data, pos, acc, n := r.data, r.pos, r.acc, r.n
	mask := uint64(1)<<(k&63) - 1
	for i := range dst {
		var q uint
		if pos+8 <= len(data) {
			acc |= binaryWord(data[pos:]) << (n & 63)
			pos += int((63 - n) >> 3)
			n |= 56
			q = uint(bits.TrailingZeros64(acc))
		} else {
			q = escapeQuotient
		}
		if q >= escapeQuotient { // or near the end
			r.pos, r.acc, r.n = pos, acc, n
			dst[i] = unzigzag(r.rice(k))
			if r.failed {
				return
			}
			pos, acc, n = r.pos, r.acc, r.n
			continue
		}
		acc >>= (q + 1) & 63
		z := uint64(q)<<(k&63) | acc&mask
		acc >>= k & 63
		n -= q + 1 + k
		dst[i] = int64(z>>1) ^ -int64(z&1)
	}
	r.pos, r.acc, r.n = pos, acc, n
}

func (r *bitReader) sparse(dst []int64) {
	gapK, valueK := uint(r.read(6)), uint(r.read(6))
	if gapK > maxRice || valueK > maxRice {
		r.fail()
		return
	}
	clear(dst)
	for i := 0; !r.failed; i++ {
		gap := r.rice(gapK)
		if gap > uint64(len(dst)-i) {
			r.fail()
			return
		}
		if i += int(gap); i == len(dst) {
			return
		}
		dst[i] = unzigzag(r.rice(valueK) + 1)
	}
}

// predict turns residuals into integers, in place.
func predict(dst []int64, order int, origin, factor int64) {
	switch order {
	case 0:
		for i, v := range dst {
			dst[i] = origin + factor*v
		}
	case 1:
		last := origin
		for i, v := range dst {
			last += factor * v
			dst[i] = last
		}
	case 2:
		last, slope := origin, int64(0)
		for i, v := range dst {
			slope += factor * v
			last += slope
			dst[i] = last
		}
	}
}

// planes1 reads eight byte planes that are compressed together.
func (d *Decoder) planes1(side *cursor, dst []float64) error {
	n := len(dst)
	compressed := side.take(side.length(8*n + 64))
	if side.failed {
		return errColumn
	}
	planes, err := d.expand(compressed, 8*n)
	if err != nil {
		return err
	}
	if len(planes) != 8*n {
		return errColumn
	}
	joinPlanes(dst, planes, kindXORPlanes)
	return nil
}
