package tchart

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// Errors of decoding; test for them with [errors.Is].
var (
	// ErrCorrupt says that a blob is not one that Encode wrote, or not all of it.
	ErrCorrupt = errors.New("corrupt T-chart")
	// ErrVersion says that a blob has another version than [Version].
	ErrVersion = errors.New("unknown T-chart version")
	// ErrTooLarge says that a blob claims a larger trace than its decoder takes.
	ErrTooLarge = errors.New("too large a T-chart")
)

// Decode returns the trace of a blob; see [Decoder.Decode].
func Decode(blob []byte) (*Trace, error) {
	var d Decoder
	t := new(Trace)
	if err := d.Decode(blob, t); err != nil {
		return nil, err
	}
	return t, nil
}

// A Decoder decodes one blob after another and reuses its memory. The zero
// value is ready. It isn't safe for concurrent use.
type Decoder struct {
	// MaxPoints, if above 0, is how large a trace may be, in rows times columns, time
	// and step counted as columns: constant columns take next to nothing in a blob,
	// but time and memory here. A larger one is an error matching [ErrTooLarge].
	MaxPoints int

	expander *zstd.Decoder // of byte planes
	bytes    []byte
	planed   []byte
	ints     []int64
	ticks    []int64
	labels   Trace // of Relabel

	exceptions []exception
	digits     int
	clock      clock
	chances    chances
	words      wordChances
	reader     columnReader
	raw        bitReader
	rest       cursor
	names      []string // of the blob before
	coded      []byte   // the same as they were coded
}

// Decode reads a blob into t and reuses the memory of its slices. Whatever the
// bytes are, it returns the trace that was encoded or an error matching
// [ErrCorrupt], [ErrVersion] or [ErrTooLarge], after which t is empty; and it takes memory for
// a trace only within the limits of this package ([MaxPoints] and others).
func (d *Decoder) Decode(blob []byte, t *Trace) error {
	err := d.decode(blob, t)
	if err != nil {
		t.Reset()
	}
	return err
}

func (d *Decoder) decode(blob []byte, t *Trace) error {
	s, err := d.open(blob)
	if err != nil {
		return err
	}
	rows, err := d.head(s, t)
	if err != nil {
		return err
	}
	if n := rows * (len(t.SVIDs) + 2); d.MaxPoints > 0 && n > d.MaxPoints {
		return fmt.Errorf("%w: it claims %d rows of time, step and %d SVIDs, %d numbers, and at most %d are allowed", ErrTooLarge, rows, len(t.SVIDs), n, d.MaxPoints)
	}
	d.rest = cursor{data: s.take(s.length(MaxPoints * 9))}
	side := &d.rest
	params := s.take(s.length(MaxPoints * 16))
	code := s.take(s.length(MaxPoints * 4))
	if s.failed {
		return fmt.Errorf("%w: sections don't fit", ErrCorrupt)
	}
	d.raw = bitReader{data: blob[len(blob)-checksumBytes-len(s.data):]}
	d.reader = columnReader{params: newRangeReader(params), symbols: ansReader{code: code, raw: &d.raw}, side: side}
	d.reader.symbols.begin()
	return d.columns(&d.reader, t, rows)
}

// columnReader is what columns are read from.
type columnReader struct {
	chances chances
	params  rangeReader
	symbols ansReader
	side    *cursor
}

func (r *columnReader) failed() bool {
	return r.symbols.bad || r.symbols.raw.failed || r.side.failed || r.params.bad
}

// number reads a number of a column's description.
func (r *columnReader) number() uint64 {
	switch n := uint(r.params.bits(r.chances.length[:], 7)); {
	case n < 2:
		return uint64(n)
	case n > 64:
		r.params.bad = true // no writer writes that
		return 0
	default:
		return 1<<(n-1) | r.symbols.raw.wide(n-1)
	}
}

func (d *Decoder) columns(r *columnReader, t *Trace, rows int) error {
	d.ints = resize(d.ints, rows)
	t.Time = resize(t.Time, rows)
	if err := d.column(r, t.Time); err != nil {
		return fmt.Errorf("%w: timestamps: %w", ErrCorrupt, err)
	}
	r.integers(d.ints)
	if r.failed() {
		return fmt.Errorf("%w: steps: %w", ErrCorrupt, errColumn)
	}
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
		if err := d.column(r, t.Values[i]); err != nil {
			return fmt.Errorf("%w: column %d: %w", ErrCorrupt, i, err)
		}
	}
	if !r.symbols.ended() || !r.symbols.raw.atEnd() || len(r.side.data) != 0 || len(r.params.data) != 0 {
		return fmt.Errorf("%w: data ends before or after the last column", ErrCorrupt)
	}
	return nil
}

// Relabel appends to dst a copy of a blob whose strings are changed: label gets
// a trace with the strings and SVID names of the blob and without rows, and sets
// other strings; what it does to names is ignored. The values aren't decoded,
// which makes this much cheaper than encoding. The header isn't compressed, so
// the copy is some bytes longer. Errors are those of Decode and of
// [Trace.Validate].
func (d *Decoder) Relabel(dst, blob []byte, label func(t *Trace)) ([]byte, error) {
	s, err := d.open(blob)
	if err != nil {
		return dst, err
	}
	rows, err := d.head(s, &d.labels)
	if err != nil {
		return dst, err
	}
	t := d.labels
	t.Time, t.Step, t.Values = nil, nil, nil
	label(&t)
	for _, f := range t.texts() {
		if len(*f.text) > MaxTextBytes {
			return dst, fmt.Errorf("%s has %d bytes, at most %d are allowed", f.name, len(*f.text), MaxTextBytes)
		}
	}
	t.SVIDs = d.labels.SVIDs
	start := len(dst)
	d.bytes = appendPlainHead(d.bytes[:0], &t, rows)
	dst = append(append(dst, magic...), blob[len(magic)])
	dst = binary.AppendUvarint(dst, uint64(len(d.bytes))<<1)
	dst = append(dst, d.bytes...)
	dst = append(dst, s.data...)
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[start:])), nil
}

// open checks what can be checked without decoding and returns the sections.
func (d *Decoder) open(blob []byte) (*cursor, error) {
	if len(blob) < len(magic)+1+checksumBytes || string(blob[:len(magic)]) != magic {
		return nil, fmt.Errorf("%w: %d bytes that don't begin as one", ErrCorrupt, len(blob))
	}
	v := blob[len(magic)]
	if v != Version {
		return nil, fmt.Errorf("%w %d: this program reads version %d", ErrVersion, v, Version)
	}
	body := blob[:len(blob)-checksumBytes]
	if xxhash.Sum64(body) != binary.LittleEndian.Uint64(blob[len(body):]) {
		return nil, fmt.Errorf("%w: the checksum over %d bytes doesn't match", ErrCorrupt, len(body))
	}
	return &cursor{data: body[len(magic)+1:]}, nil
}

// head reads sizes and strings and returns the number of rows.
func (d *Decoder) head(s *cursor, t *Trace) (int, error) {
	size := s.length(maxHead<<1 | 1)
	h := &cursor{data: s.take(size >> 1)}
	if s.failed {
		return 0, fmt.Errorf("%w: header doesn't fit", ErrCorrupt)
	}
	if size&1 != 0 {
		return d.codedHead(h.data, s, t)
	}
	rows, columns := h.length(MaxRows), h.length(MaxSVIDs)
	if h.failed || rows*columns > MaxPoints {
		return 0, fmt.Errorf("%w: claims more than %d rows, %d SVIDs or %d points", ErrCorrupt, MaxRows, MaxSVIDs, MaxPoints)
	}
	for _, f := range t.texts() {
		h.text(f.text)
	}
	if columns > len(h.data) { // each name takes its end at least
		return 0, fmt.Errorf("%w: header is too short for %d SVIDs", ErrCorrupt, columns)
	}
	t.SVIDs = resize(t.SVIDs, columns)
	for i := range t.SVIDs {
		h.text(&t.SVIDs[i])
	}
	if h.failed || len(h.data) != 0 {
		return 0, fmt.Errorf("%w: header has the wrong length", ErrCorrupt)
	}
	return rows, nil
}

// codedHead reads sizes and strings that are coded by words.
func (d *Decoder) codedHead(data []byte, s *cursor, t *Trace) (int, error) {
	names := s.take(s.length(maxHead))
	if s.failed {
		return 0, fmt.Errorf("%w: names don't fit", ErrCorrupt)
	}
	r, c := newRangeReader(data), &d.chances
	*c = chances{}
	rows, columns := r.number(c), r.number(c)
	if r.bad || rows > MaxRows || columns > MaxSVIDs || rows*columns > MaxPoints {
		return 0, fmt.Errorf("%w: claims more than %d rows, %d SVIDs or %d points", ErrCorrupt, MaxRows, MaxSVIDs, MaxPoints)
	}
	d.words = wordChances{}
	read := func(dst *string) {
		d.bytes = r.text(&d.words, d.bytes[:0])
		if *dst != string(d.bytes) {
			*dst = string(d.bytes)
		}
	}
	for _, f := range t.texts() {
		read(f.text)
	}
	if r.bad || len(r.data) != 0 {
		return 0, fmt.Errorf("%w: header has the wrong length", ErrCorrupt)
	}
	if int(columns) == len(d.names) && bytes.Equal(names, d.coded) {
		t.SVIDs = append(t.SVIDs[:0], d.names...)
		return int(rows), nil
	}
	// Names appear one by one, so that a claim of many takes no memory.
	r, d.words = newRangeReader(names), wordChances{}
	d.names = d.names[:0]
	for range columns {
		d.names = append(d.names, "")
		if read(&d.names[len(d.names)-1]); r.bad {
			break
		}
	}
	if r.bad || len(r.data) != 0 {
		d.coded, d.names = d.coded[:0], d.names[:0]
		return 0, fmt.Errorf("%w: names have the wrong length", ErrCorrupt)
	}
	d.coded = append(d.coded[:0], names...)
	t.SVIDs = append(t.SVIDs[:0], d.names...)
	return int(rows), nil
}

// maxHead is more than any header takes.
const maxHead = 32 + (7+MaxSVIDs)*(2*MaxTextBytes+1)

// expand decompresses into d.bytes, to at most limit bytes. Small frames don't
// say their size; those the expander ends at its own limit.
func (d *Decoder) expand(compressed []byte, limit int) ([]byte, error) {
	if d.expander == nil {
		expander, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(8*MaxRows+1<<10))
		if err != nil {
			return nil, err
		}
		d.expander = expander
	}
	var h zstd.Header
	if err := h.Decode(compressed); err != nil {
		return nil, err
	}
	if h.HasFCS && h.FrameContentSize > uint64(limit) {
		return nil, fmt.Errorf("claims to expand to more than %d bytes", limit)
	}
	plain, err := d.expander.DecodeAll(compressed, d.bytes[:0])
	if err == nil && len(plain) > limit {
		err = fmt.Errorf("expands to more than %d bytes", limit)
	}
	d.bytes = plain
	return plain, err
}

func (d *Decoder) column(r *columnReader, dst []float64) error {
	var err error
	switch kind := int(r.params.bits(r.chances.kind[:], 3)); kind {
	case kindDecimal:
		d.decimals(r, dst)
	case kindGrid:
		err = d.grid(r, dst)
	case kindBits:
		r.integers(d.ints)
		for i, k := range d.ints {
			dst[i] = math.Float64frombits(unordered(k))
		}
	case kindPlanes, kindXORPlanes, kindDiffPlanes:
		err = d.planes(r.side, dst, kind)
	case kindRaw:
		raw := r.side.take(8 * len(dst))
		if r.side.failed {
			return errColumn
		}
		for i := range dst {
			dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
		}
	default:
		err = errColumn
	}
	if r.failed() {
		err = errColumn
	}
	return err
}

func (d *Decoder) decimals(r *columnReader, dst []float64) {
	scale := d.digitsAndExceptions(r, len(dst))
	r.integers(d.ints)
	if scale == 1 {
		for i, k := range d.ints {
			dst[i] = float64(k)
		}
	} else {
		for i, k := range d.ints {
			dst[i] = float64(k) / scale
		}
	}
	d.except(dst)
}

// digitsAndExceptions returns 10 to the power of the digits and sets
// d.exceptions.
func (d *Decoder) digitsAndExceptions(r *columnReader, rows int) float64 {
	c := &r.chances
	digits := r.params.bits(c.digits[:], 4)
	d.digits = int(digits)
	d.exceptions = d.exceptions[:0]
	if r.params.bit(&c.excepted) == 0 {
		return pow10[digits]
	}
	at := uint64(0)
	for n := r.number(); n > 0; n-- {
		at += r.number()
		value := r.symbols.raw.read64()
		if at >= uint64(rows) || r.failed() {
			r.params.bad = true
			break
		}
		d.exceptions = append(d.exceptions, exception{int(at), value})
		at++
	}
	return pow10[digits]
}

func (d *Decoder) except(dst []float64) {
	for _, x := range d.exceptions {
		dst[x.index] = math.Float64frombits(x.bits)
	}
}

func (d *Decoder) grid(r *columnReader, dst []float64) error {
	c := &r.chances
	scale := d.digitsAndExceptions(r, len(dst))
	perSecond := ticks[r.params.bits(c.grid[:], 4)]
	significant := significants[r.params.plain(2)]
	if d.digits < 1 || d.digits > maxGridDigits {
		return errColumn
	}
	d.clock.set(perSecond, d.digits, significant)
	interval := unzigzag(r.number())
	r.integers(d.ints)
	d.ticks = d.ticks[:0]
	for i, count := range d.ints {
		d.ticks = append(d.ticks, count+int64(i)*interval)
	}
	r.integers(d.ints)
	for i, correction := range d.ints {
		tick := d.ticks[i]
		if tick > 1<<54 || tick < -1<<54 {
			return errColumn
		}
		printed, unit := d.clock.print(tick)
		dst[i] = float64(printed+correction*unit) / scale
	}
	d.except(dst)
	return nil
}

var errColumn = errors.New("impossible encoding")

// planes reads eight byte planes, each compressed or as it is.
func (d *Decoder) planes(side *cursor, dst []float64, kind int) error {
	n := len(dst)
	d.planed = resize(d.planed, 8*n)
	for p := range 8 {
		plane := d.planed[p*n : (p+1)*n]
		size := side.length(n + 64)
		if size == 0 {
			copy(plane, side.take(n))
			continue
		}
		compressed := side.take(size)
		if side.failed {
			return errColumn
		}
		plain, err := d.expand(compressed, n)
		if err != nil {
			return err
		}
		if len(plain) != n {
			return errColumn
		}
		copy(plane, plain)
	}
	if side.failed {
		return errColumn
	}
	joinPlanes(dst, d.planed, kind)
	return nil
}

// joinPlanes makes values of byte planes.
func joinPlanes(dst []float64, planes []byte, kind int) {
	n := len(dst)
	last := uint64(0)
	p0, p1, p2, p3 := planes[:n], planes[n:2*n], planes[2*n:3*n], planes[3*n:4*n]
	p4, p5, p6, p7 := planes[4*n:5*n], planes[5*n:6*n], planes[6*n:7*n], planes[7*n:8*n]
	for i := range dst {
		x := uint64(p0[i]) | uint64(p1[i])<<8 | uint64(p2[i])<<16 | uint64(p3[i])<<24 |
			uint64(p4[i])<<32 | uint64(p5[i])<<40 | uint64(p6[i])<<48 | uint64(p7[i])<<56
		switch kind {
		case kindXORPlanes:
			x ^= last
		case kindDiffPlanes:
			x += last
		}
		last = x
		dst[i] = math.Float64frombits(x)
	}
}

// resize returns s with length n, in the same memory if it is large enough.
func resize[T any](s []T, n int) []T {
	return slices.Grow(s[:0], n)[:n]
}

// cursor takes values off the front of data; after one that isn't there it is
// failed and yields nothing.
type cursor struct {
	data   []byte
	failed bool
}

// length reads a number of at most limit.
func (c *cursor) length(limit int) int {
	n, used := binary.Uvarint(c.data)
	if used <= 0 || n > uint64(limit) {
		c.failed, c.data = true, nil
		return 0
	}
	c.data = c.data[used:]
	return int(n)
}

func (c *cursor) take(n int) []byte {
	if n > len(c.data) {
		c.failed, c.data = true, nil
		return nil
	}
	head := c.data[:n:n]
	c.data = c.data[n:]
	return head
}

// text reads a string, and keeps dst if that is it already.
func (c *cursor) text(dst *string) {
	end := bytes.IndexByte(c.data, 0)
	if end < 0 || end > 2*MaxTextBytes {
		c.failed, c.data = true, nil
		return
	}
	b := c.take(end + 1)[:end]
	if bytes.IndexByte(b, 1) >= 0 {
		if b = unescape(b); b == nil {
			c.failed, c.data = true, nil
			return
		}
	}
	if len(b) > MaxTextBytes {
		c.failed, c.data = true, nil
		return
	}
	if *dst != string(b) {
		*dst = string(b)
	}
}

// unescape undoes what appendText does to bytes 0 and 1, and returns nil if it
// can't have done that.
func unescape(b []byte) []byte {
	plain := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == 1 {
			i++
			if i == len(b) || b[i] < 1 || b[i] > 2 {
				return nil
			}
			c = b[i] - 1
		}
		plain = append(plain, c)
	}
	return plain
}

// level reads the level of a block; last is the one before, or -1.
func (r *columnReader) level(last int) int {
	c := &r.chances
	if last >= 0 {
		if delta := r.params.bits(c.change[:], 4); delta < 15 {
			last += int(unzigzag(delta))
			if last < 0 || last >= levels {
				r.params.bad, last = true, 0
			}
			return last
		}
	}
	level := int(r.params.bits(c.level[:], 8))
	if level >= levels {
		r.params.bad, level = true, 0
	}
	return level
}

// residuals reads len(dst) residuals.
func (r *columnReader) residuals(dst []int64, shape int) {
	m, level, size := &models()[shape], -1, blockOf(len(dst))
	for len(dst) > 0 && !r.symbols.bad {
		level = r.level(level)
		n := min(size, len(dst))
		table, shift := tableAt(level)
		r.symbols.block(dst[:n], &m.slots[table&63], shift)
		dst = dst[n:]
	}
}

// integers reads len(dst) integers.
func (r *columnReader) integers(dst []int64) {
	c, factor := &r.chances, int64(1)
	if r.params.bit(&c.factored) == 1 {
		factor = int64(r.number())
	}
	origin := unzigzag(r.number())
	if r.params.bit(&c.constant) == 1 {
		for i := range dst {
			dst[i] = origin
		}
		return
	}
	predictor := int(r.params.bits(c.predictor[:], 4))
	r.residuals(dst, int(r.params.bit(&c.logistic)))
	restore(dst, predictor, origin, factor)
}
