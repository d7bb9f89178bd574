package tchart

import (
	"encoding/binary"
	"math"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/zstd"
)

// Version is the version of the format that this package writes and reads.
const Version = 2

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
	head       []byte
	described  []byte // the columns' descriptions
	side       []byte
	packed     [3][]byte // of byte planes, by kind
	plane      []byte
	ints       []int64

	params  rangeWriter
	chances chances
	symbols ansWriter

	planner     planner
	decimal     candidate
	trial       candidate
	whole       plan
	grid        grid
	gridTrial   grid
	ticks       []int64
	corrections []int64
	intervals   []int64
	clock       clock
}

// Append appends the blob of a trace to dst. The error is that of
// [Trace.Validate].
func (e *Encoder) Append(dst []byte, t *Trace) ([]byte, error) {
	if err := t.Validate(); err != nil {
		return dst, err
	}
	e.side = e.side[:0]
	e.params.reset()
	e.chances = chances{}
	e.symbols.reset()
	if err := e.column(t.Time, true); err != nil {
		return dst, err
	}
	e.ints = e.ints[:0]
	for _, s := range t.Step {
		e.ints = append(e.ints, int64(s))
	}
	e.planner.plan(&e.whole, e.ints)
	e.integers(&e.whole)
	for _, column := range t.Values {
		if err := e.column(column, false); err != nil {
			return dst, err
		}
	}
	start := len(dst)
	dst = append(dst, magic...)
	dst = append(dst, Version)
	e.described = append(e.described[:0], e.params.end()...)
	dst = e.appendHead(dst, t)
	dst = appendBlock(dst, e.side)
	dst = appendBlock(dst, e.described)
	e.head = e.symbols.appendCode(e.head[:0])
	dst = appendBlock(dst, e.head)
	e.symbols.raw.flush()
	dst = append(dst, e.symbols.raw.out...)
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[start:])), nil
}

func appendBlock(dst, block []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(block))), block...)
}

// appendHead appends the sizes and strings, coded by words, and apart from them
// the names of SVIDs, which are mostly those of the blob before.
func (e *Encoder) appendHead(dst []byte, t *Trace) []byte {
	w := &e.params
	w.reset()
	e.chances = chances{}
	w.number(&e.chances, uint64(len(t.Time)))
	w.number(&e.chances, uint64(len(t.SVIDs)))
	var c wordChances
	for _, f := range t.texts() {
		w.text(&c, *f.text)
	}
	coded := w.end()
	dst = binary.AppendUvarint(dst, uint64(len(coded))<<1|1)
	dst = append(dst, coded...)
	w.reset()
	c = wordChances{}
	for _, name := range t.SVIDs {
		w.text(&c, name)
	}
	return appendBlock(dst, w.end())
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

// candidate is a column as decimals.
type candidate struct {
	digits     int
	ints       []int64
	exceptions []exception
	plan       plan
}

// exceptionCost is about what an exception takes, in 1/256 bits.
const exceptionCost = 80 << 8

func (c *candidate) cost() int { return c.plan.cost + exceptionCost*len(c.exceptions) }

// column writes the values of one column the shortest way; times may be ticks of
// a clock.
func (e *Encoder) column(column []float64, times bool) error {
	const bit = 256
	best, found := 8*8*len(column)*bit, false
	if e.decimals(column) && e.decimal.cost() <= best {
		best, found = e.decimal.cost(), true
		if times && e.gridOf(e.decimal.ints, e.decimal.digits, e.decimal.plan.cost) {
			e.kind(kindGrid)
			e.digitsAndExceptions()
			e.params.bits(e.chances.grid[:], uint64(e.grid.clock), 4)
			e.params.plain(uint64(e.grid.significant), 2)
			e.number(zigzag(e.grid.interval))
			e.integers(&e.grid.counts)
			e.integers(&e.grid.corrections)
			return nil
		}
		if best <= 16*len(column)*bit {
			e.writeDecimals()
			return nil
		}
	}
	kind := kindRaw
	if found {
		kind = kindDecimal
	}
	if e.wholeBits(column) && e.whole.cost < best {
		kind, best = kindBits, e.whole.cost
	}
	if err := e.planes(column); err != nil {
		return err
	}
	for i, packed := range e.packed {
		if size := 8 * len(packed) * bit; size < best {
			kind, best = kindPlanes+i, size
		}
	}
	switch kind {
	case kindDecimal:
		e.writeDecimals()
	case kindBits:
		e.kind(kindBits)
		e.integers(&e.whole)
	case kindRaw:
		e.kind(kindRaw)
		for _, v := range column {
			e.side = binary.LittleEndian.AppendUint64(e.side, math.Float64bits(v))
		}
	default:
		e.kind(kind)
		e.side = append(e.side, e.packed[kind-kindPlanes]...)
	}
	return nil
}

func (e *Encoder) kind(kind int) { e.params.bits(e.chances.kind[:], uint64(kind), 3) }

// decimals sets e.decimal to the shortest form as decimals and reports whether
// there is one.
func (e *Encoder) decimals(column []float64) bool {
	found := false
	for _, digits := range digitsOf(column) {
		c := &e.trial
		c.digits = digits
		c.ints, c.exceptions = integersOf(c.ints[:0], c.exceptions[:0], column, digits)
		e.planner.plan(&c.plan, c.ints)
		if !found || c.cost() < e.decimal.cost() {
			e.decimal, e.trial = e.trial, e.decimal
			found = true
		}
	}
	return found
}

func (e *Encoder) writeDecimals() {
	e.kind(kindDecimal)
	e.digitsAndExceptions()
	e.integers(&e.decimal.plan)
}

func (e *Encoder) digitsAndExceptions() {
	w, ch, c := &e.params, &e.chances, &e.decimal
	w.bits(ch.digits[:], uint64(c.digits), 4)
	w.flag(&ch.excepted, len(c.exceptions) > 0)
	if len(c.exceptions) > 0 {
		e.number(uint64(len(c.exceptions)))
		from := 0
		for _, x := range c.exceptions {
			e.number(uint64(x.index - from))
			e.symbols.raw.write64(x.bits)
			from = x.index + 1
		}
	}
}

// number writes a number of a column's description: its length, then the bits
// below the highest, which are as good as random, among the raw ones.
func (e *Encoder) number(v uint64) {
	n := lengthOf(v)
	e.params.bits(e.chances.length[:], uint64(n), 7)
	if n > 1 {
		e.symbols.raw.wide(v&^(1<<(n-1)), uint(n-1))
	}
}

// wholeBits sets e.whole to a plan for the bits of the values, in an order like
// that of the values, and reports whether these are close enough together.
func (e *Encoder) wholeBits(column []float64) bool {
	e.ints = e.ints[:0]
	low, high := int64(math.MaxInt64), int64(math.MinInt64)
	for _, v := range column {
		k := ordered(math.Float64bits(v))
		low, high = min(low, k), max(high, k)
		e.ints = append(e.ints, k)
	}
	// A prediction, up to 16 times one difference and 8 times another, must not overflow:
	// it would differ by the origin that differences are taken from, and the reader may
	// take them from another than the writer planned with.
	if len(column) == 0 || uint64(high-low) > 1<<58 {
		return false
	}
	e.planner.plan(&e.whole, e.ints)
	return true
}

// ordered maps the bits of a float64 to an integer, in the order of the values.
func ordered(b uint64) int64 { return int64(b) ^ int64(b)>>63&math.MaxInt64 }

func unordered(k int64) uint64 { return uint64(k ^ k>>63&math.MaxInt64) }

// planes sets e.packed to the compressed byte planes of a column: all lowest
// bytes, then all second bytes and so on; of the bits as they are, of those XORed
// with the value before, and of their difference to it. Neighbours mostly share
// sign, exponent and leading digits, but where the signal is mostly noise the
// differences have more of it than the values.
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
	for kind := range e.packed {
		last := uint64(0)
		for i, v := range column {
			b := math.Float64bits(v)
			x := b
			switch kind + kindPlanes {
			case kindXORPlanes:
				x ^= last
			case kindDiffPlanes:
				x -= last
			}
			last = b
			for p := range 8 {
				planes[p*n+i] = byte(x >> (8 * p))
			}
		}
		packed := e.packed[kind][:0]
		for p := range 8 {
			// Each by itself: the low planes of noise are better left alone.
			plane := planes[p*n : (p+1)*n]
			e.plane = e.compressor.EncodeAll(plane, e.plane[:0])
			if len(e.plane) < n {
				packed = appendBlock(packed, e.plane)
			} else {
				packed = append(append(packed, 0), plane...)
			}
		}
		e.packed[kind] = packed
	}
	return nil
}

// levels writes the levels of blocks.
func (e *Encoder) levels(c *coding) {
	w, ch, last := &e.params, &e.chances, -1
	for _, level := range c.levels {
		delta := zigzag(int64(level - last))
		switch {
		case last >= 0 && delta <= 2*levelNear:
			w.bits(ch.change[:], delta, 4)
		case last >= 0:
			w.bits(ch.change[:], 15, 4)
			fallthrough
		default:
			w.bits(ch.level[:], uint64(level), 8)
		}
		last = level
	}
}

// integers writes a plan.
func (e *Encoder) integers(p *plan) {
	w, c := &e.params, &e.chances
	w.flag(&c.factored, p.factor != 1)
	if p.factor != 1 {
		e.number(uint64(p.factor))
	}
	e.number(zigzag(p.origin))
	w.flag(&c.constant, p.constant)
	if p.constant {
		return
	}
	w.bits(c.predictor[:], uint64(p.predictor), 4)
	w.flag(&c.logistic, p.coding.shape == shapeLogistic)
	e.levels(&p.coding)
	e.symbols.residuals(p.residuals, &p.coding)
}

// gridOf sets e.grid to the best grid of a column's integers and reports whether
// there is one that takes less than without it.
func (e *Encoder) gridOf(ints []int64, digits, without int) bool {
	if digits < 1 || digits > maxGridDigits || len(ints) < 8 {
		return false
	}
	for _, v := range ints {
		if v > maxTick || v < -maxTick {
			return false
		}
	}
	found := false
	for clock, perSecond := range ticks {
		if perSecond >= int64(pow10[digits]) {
			continue
		}
		for s, significant := range significants {
			e.clock.set(perSecond, digits, significant)
			if !e.gridFits(ints, digits) {
				continue
			}
			g := &e.gridTrial
			g.clock, g.significant, g.interval = clock, s, e.usualInterval()
			for i := range e.ticks {
				e.ticks[i] -= int64(i) * g.interval
			}
			e.planner.plan(&g.counts, e.ticks)
			e.planner.plan(&g.corrections, e.corrections)
			if c := g.cost(); c < without {
				without, found = c, true
				e.grid, e.gridTrial = e.gridTrial, e.grid
			}
		}
	}
	return found
}

// gridFits sets ticks and corrections, and gives up when these are no smaller
// than what is left of the ticks.
func (e *Encoder) gridFits(ints []int64, digits int) bool {
	e.ticks, e.corrections = e.ticks[:0], e.corrections[:0]
	off := 0
	for _, v := range ints {
		tick := nearestTick(v, e.clock.perSecond, digits)
		printed, unit := e.clock.print(tick)
		c := (v - printed) / unit
		if c*unit != v-printed {
			return false
		}
		if c != 0 && c != -1 && c != 1 {
			if off++; off > len(ints)/16 {
				return false
			}
		}
		e.ticks, e.corrections = append(e.ticks, tick), append(e.corrections, c)
	}
	return true
}

// usualInterval returns the median interval of e.ticks.
func (e *Encoder) usualInterval() int64 {
	e.intervals = e.intervals[:0]
	for i := 1; i < len(e.ticks); i++ {
		e.intervals = append(e.intervals, e.ticks[i]-e.ticks[i-1])
	}
	return e.planner.middle(e.intervals)
}
