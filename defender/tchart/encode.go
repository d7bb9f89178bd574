package tchart

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/zstd"
)

// Version is the version of the format that this package writes.
const Version = 1

// magic begins every blob; the version follows it.
const magic = "MTC"

const checksumBytes = 8

// Encode returns the blob of a trace. The error is that of [Trace.Validate].
func Encode(t *Trace) ([]byte, error) {
	var e Encoder
	return e.Append(nil, t)
}

// An Encoder encodes one trace after another and reuses its memory. The zero
// value is ready. It isn't safe for concurrent use.
type Encoder struct {
	compressor *zstd.Encoder // of byte planes
	deflater   *flate.Writer // of headers
	deflated   bytes.Buffer
	head       []byte
	side       []byte
	bytes      []byte
	steps      []int64
	first      candidate
	second     candidate
	planner    planner
	bits       bitWriter
}

// Append appends the blob of a trace to dst. The error is that of
// [Trace.Validate].
func (e *Encoder) Append(dst []byte, t *Trace) ([]byte, error) {
	if err := t.Validate(); err != nil {
		return dst, err
	}
	e.side = e.side[:0]
	e.bits = bitWriter{out: e.bits.out[:0]}
	if err := e.column(t.Time); err != nil {
		return dst, err
	}
	e.steps = e.steps[:0]
	for _, s := range t.Step {
		e.steps = append(e.steps, int64(s))
	}
	e.bits.integers(e.planner.best(e.steps))
	for _, column := range t.Values {
		if err := e.column(column); err != nil {
			return dst, err
		}
	}
	e.bits.flush()

	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, Version)
	dst, err := e.appendHead(dst, t)
	if err != nil {
		return dst[:start], err
	}
	dst = binary.AppendUvarint(dst, uint64(len(e.side)))
	dst = append(dst, e.side...)
	dst = append(dst, e.bits.out...)
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[start:])), nil
}

// appendHead appends the strings and sizes, compressed if that helps. For so
// few bytes DEFLATE beats Zstandard, whose tables take more room.
func (e *Encoder) appendHead(dst []byte, t *Trace) ([]byte, error) {
	if e.deflater == nil {
		deflater, err := flate.NewWriter(nil, flate.BestCompression)
		if err != nil {
			return dst, err
		}
		e.deflater = deflater
	}
	h := appendPlainHead(e.head[:0], t, len(t.Time))
	e.head = h
	e.deflated.Reset()
	e.deflater.Reset(&e.deflated)
	_, _ = e.deflater.Write(h) // a bytes.Buffer doesn't fail
	_ = e.deflater.Close()
	return appendSection(dst, h, e.deflated.Bytes()), nil
}

func appendPlainHead(h []byte, t *Trace, rows int) []byte {
	h = binary.AppendUvarint(h, uint64(rows))
	h = binary.AppendUvarint(h, uint64(len(t.SVIDs)))
	for _, f := range t.texts() {
		h = appendText(h, *f.text)
	}
	for _, name := range t.SVIDs {
		h = appendText(h, name)
	}
	return h
}

// A string ends with a byte 0; those within are written as 1 1, and 1 as 1 2.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		switch c := s[i]; c {
		case 0, 1:
			b = append(b, 1, c+1)
		default:
			b = append(b, c)
		}
	}
	return append(b, 0)
}

// appendSection appends the shorter of two forms, with its length and which it is.
func appendSection(dst, plain, compressed []byte) []byte {
	if len(compressed) < len(plain) {
		dst = binary.AppendUvarint(dst, uint64(len(compressed))<<1|1)
		return append(dst, compressed...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(plain))<<1)
	return append(dst, plain...)
}

// candidate is a column as decimals.
type candidate struct {
	digits     int
	ints       []int64
	exceptions []exception
	bits       int
}

// column writes the values of one column the shortest way.
func (e *Encoder) column(column []float64) error {
	best := e.decimals(column)
	if best != nil && best.bits <= 16*len(column) {
		e.writeDecimals(best)
		return nil
	}
	if err := e.planes(column); err != nil {
		return err
	}
	kind, size := uint64(kindRaw), 8*len(column)
	if len(e.bytes) < size {
		kind, size = kindXOR, len(e.bytes)
	}
	if best != nil && best.bits <= 8*size {
		e.writeDecimals(best)
		return nil
	}
	e.bits.write(kind, 2)
	if kind == kindXOR {
		e.side = binary.AppendUvarint(e.side, uint64(size))
		e.side = append(e.side, e.bytes...)
		return nil
	}
	for _, v := range column {
		e.side = binary.LittleEndian.AppendUint64(e.side, math.Float64bits(v))
	}
	return nil
}

// decimals returns the shortest form as decimals, or nil if there is none.
func (e *Encoder) decimals(column []float64) *candidate {
	var best *candidate
	next := &e.first
	for _, digits := range digitsOf(column) {
		next.digits = digits
		next.ints, next.exceptions = integersOf(next.ints[:0], next.exceptions[:0], column, digits)
		plan, _ := e.planner.best(next.ints)
		next.bits = plan.bits + exceptionBits*len(next.exceptions)
		if best == nil || next.bits < best.bits {
			best = next
		}
		next = &e.second
	}
	return best
}

func (e *Encoder) writeDecimals(c *candidate) {
	e.bits.write(kindDecimal, 2)
	if c.digits == 0 {
		e.bits.write(0, 1)
	} else {
		e.bits.write(1|uint64(c.digits)<<1, 5)
	}
	if len(c.exceptions) == 0 {
		e.bits.write(0, 1)
	} else {
		e.bits.write(1, 1)
		e.bits.number(uint64(len(c.exceptions)))
		from := 0
		for _, x := range c.exceptions {
			e.bits.number(uint64(x.index - from))
			e.bits.write64(x.bits)
			from = x.index + 1
		}
	}
	e.bits.integers(e.planner.best(c.ints))
}

// planes sets e.bytes to the compressed byte planes of a column: all lowest
// bytes, then all second bytes and so on, of each value XORed with the one
// before. Neighbours mostly share sign, exponent and leading digits, and floats
// of 32 bits have zeros at the end.
func (e *Encoder) planes(column []float64) error {
	if e.compressor == nil {
		compressor, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
			zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithLowerEncoderMem(true))
		if err != nil {
			return err
		}
		e.compressor = compressor
	}
	n := len(column)
	if cap(e.head) < 8*n {
		e.head = make([]byte, 8*n)
	}
	planes := e.head[:8*n]
	last := uint64(0)
	for i, v := range column {
		b := math.Float64bits(v)
		x := b ^ last
		last = b
		for p := range 8 {
			planes[p*n+i] = byte(x >> (8 * p))
		}
	}
	e.bytes = e.compressor.EncodeAll(planes, e.bytes[:0])
	return nil
}
