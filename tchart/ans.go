package tchart

import (
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
)

// What prediction leaves of integers is written by range asymmetric numeral
// systems (rANS; Duda, "Asymmetric numeral systems", arXiv 1311.2540, in the form
// of Giesen, "Interleaved entropy coders", arXiv 1402.3392). A residual is taken
// to be distributed like Laplace's or the logistic distribution, with a scale that
// follows the noise: each block of values says from which of a few tables it is
// coded, mostly that of the block before. Of large residuals the low bits, which
// are nothing but noise, are left out of it and written as they are.

const (
	ansBits   = 10              // a table's probabilities are in units of 2^-ansBits
	ansSlots  = 1 << ansBits    //
	ansLow    = uint32(1) << 16 // the coder's state is in [ansLow, ansLow<<16)
	ansReach  = 31              // largest magnitude that has a symbol
	ansEscape = 2*ansReach + 1  // symbol of all others
	ansZero   = ansReach        // symbol of 0

	scaleBits = 6                  // binary places of a scale
	scaleTop  = 3 + scaleBits      // scales below 2^scaleTop have tables, others are shifted
	ansTables = 4*(scaleTop-1) + 1 // 4 an octave, beginning with that of the smallest scales
	levels    = ansTables + 4*54   // tables, and the last four with shifts
)

// ansTable is one distribution.
type ansTable struct {
	start [ansEscape + 1]uint16
	freq  [ansEscape + 1]uint16 // 0 for symbols that are escaped
	cost  [ansEscape + 1]uint16 // in 1/256 bits
	whole [ansEscape]uint16     // cost of each magnitude that may have a symbol, with what follows an escape
}

// Shapes of distributions.
const (
	shapeLaplace  = iota // of signals that rest and jump
	shapeLogistic        // of noise that is nearly normal
	numShapes
)

// ansModel is all distributions of one shape.
type ansModel struct {
	tables [ansTables]ansTable
	// slots are those of each table. The first index is a power of two for speed.
	slots [64][ansSlots]ansSlot
}

// ansSlot says which symbol a slot of a table stands for, in the low 6 bits, the slot's place
// among the symbol's in 10, and the symbol's frequency in the high 11. Tables of larger slots
// wouldn't fit in the processor's first cache.
type ansSlot uint32

const (
	slotPlace = 6
	slotFreq  = 32 - ansBits - 1
)

func newSlot(symbol int, freq, place uint32) ansSlot {
	return ansSlot(symbol) | ansSlot(place)<<slotPlace | ansSlot(freq)<<slotFreq
}

func (s ansSlot) symbol() int64 { return int64(s & (1<<slotPlace - 1)) }

// after returns the state after this slot, before more of the code is taken.
func (s ansSlot) after(state uint64) uint64 {
	return uint64(s>>slotFreq)*(state>>ansBits) + uint64(s>>slotPlace&(ansSlots-1))
}

// models returns the models by shape. They are the same everywhere: part of the
// format.
var models = sync.OnceValue(func() *[numShapes]ansModel {
	ms := new([numShapes]ansModel)
	for shape := range ms {
		m := &ms[shape]
		for i := range m.tables {
			m.tables[i].fill(shape, i, &m.slots[i])
		}
	}
	return ms
})

// levelOf returns the level of a mean magnitude with scaleBits binary places.
func levelOf(scale uint64) int {
	n := bits.Len64(scale)
	switch {
	case n < 2:
		return 0
	case n == 2:
		return 1 + int(scale&1)*2
	case n <= scaleTop:
		return 4*(n-1) - 3 + int(scale>>(n-3)&3)
	}
	return min(ansTables+4*(n-scaleTop-1)+int(scale>>(n-3)&3), levels-1)
}

// tableAt returns the table of a level and how many low bits are left out.
func tableAt(level int) (table int, shift uint) {
	if level < ansTables {
		return level, 0
	}
	return ansTables - 4 + (level-ansTables)%4, 1 + uint(level-ansTables)/4
}

// halfDecay returns exp(-1/(2 scale)) for the scale in the middle of those of a
// table, at least 1/16, and for the logistic distribution of the same mean
// magnitude exp(-log(2)/scale). As all numbers of this kind here it has unit places after
// the binary point, and is computed by integers only, so that it is the same on
// all machines.
func halfDecay(shape, table int) uint64 {
	octave, quarter := (table+3)/4, (table+3)%4
	// The scale is (9+2 quarter)/8 * 2^octave / 2^scaleBits.
	num, den := uint64(4<<scaleBits), uint64(9+2*quarter)<<octave
	if table == 0 || num > 8*den {
		num, den = 8, 1
	}
	if shape == shapeLogistic {
		num, den = num*twiceLog2, den*1e6
	}
	// A sixteenth of the exponent is below 1: its series, then 4 times squared.
	x, _ := bits.Div64(num>>(64-(unit-4)), num<<(unit-4), den)
	sum, term := uint64(1)<<unit, uint64(1)<<unit
	for k := uint64(1); term > 0; k++ {
		term = product(term, x) / k
		if k%2 == 1 {
			sum -= term
		} else {
			sum += term
		}
	}
	for range 4 {
		sum = product(sum, sum)
	}
	return sum
}

const (
	unit      = 60
	twiceLog2 = 1386294 // 2 log(2), in millionths
)

func product(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return high<<(64-unit) | low>>unit
}

// beyond returns the probability of a value above v+1/2.
func beyond(shape int, power uint64) uint64 {
	if shape == shapeLogistic {
		q, _ := bits.Div64(power>>(64-unit), power<<unit, 1<<unit+power)
		return q
	}
	return power / 2
}

// fill computes the frequencies. Symbols rarer than half a slot are escaped.
func (t *ansTable) fill(shape, table int, slots *[ansSlots]ansSlot) {
	power := halfDecay(shape, table)
	decay := product(power, power)
	var p [ansEscape + 1]uint64
	edge := beyond(shape, power)
	p[ansZero] = 1<<unit - 2*edge
	total := p[ansZero]
	for v := 1; v <= ansReach; v++ {
		power = product(power, decay)
		x := edge - beyond(shape, power)
		if v > 1 && x < 1<<unit/ansSlots/2 {
			break
		}
		p[ansZero+v], p[ansZero-v] = x, x
		total += 2 * x
		edge -= x
	}
	p[ansEscape] = 2*edge + 1<<unit/ansSlots/2
	total += p[ansEscape]
	left := ansSlots
	for s, x := range p {
		if x > 0 {
			t.freq[s] = uint16(max(1, (x/(total/(2*ansSlots))+1)/2))
			left -= int(t.freq[s])
		}
	}
	t.freq[ansZero] = uint16(int(t.freq[ansZero]) + left)
	at := 0
	for s, f := range t.freq {
		t.start[s] = uint16(at)
		for i := range int(f) {
			slots[at+i] = newSlot(s, uint32(f), uint32(i))
		}
		at += int(f)
		if f > 0 {
			t.cost[s] = uint16(math.Round(256 * math.Log2(ansSlots/float64(f)))) // for the encoder's choices only
		}
	}
	for s := range t.whole {
		if t.whole[s] = t.cost[s]; t.freq[s] == 0 {
			t.whole[s] = t.cost[ansEscape] + uint16(numberBits(zigzag(int64(s-ansZero)))<<8)
		}
	}
}

// symbol returns the symbol of a residual without its low bits.
func (t *ansTable) symbol(v int64) uint8 {
	if v < -ansReach || v > ansReach || t.freq[v+ansZero] == 0 {
		return ansEscape
	}
	return uint8(v + ansZero)
}

// ansWriter gathers the symbols and raw bits of all columns.
type ansWriter struct {
	symbols []uint16 // (shape*ansTables+table)<<8 | symbol, in the order of decoding
	raw     bitWriter
}

func (w *ansWriter) reset() {
	w.symbols = w.symbols[:0]
	w.raw = bitWriter{out: w.raw.out[:0]}
}

// blockOf returns how many values share a table in a column of n: blocks are
// about 32 long and of one size.
func blockOf(n int) int {
	blocks := max((n+16)/32, 1)
	return max((n+blocks-1)/blocks, 1)
}

// coding says how the residuals of a column are coded.
type coding struct {
	shape  int   // of their distribution
	levels []int // of each block
}

// residuals appends those of one column.
func (w *ansWriter) residuals(es []int64, c *coding) {
	m, size := &models()[c.shape], blockOf(len(es))
	for i, level := range c.levels {
		table, shift := tableAt(level)
		for _, e := range es[i*size : min((i+1)*size, len(es))] {
			v := e >> shift
			s := m.tables[table].symbol(v)
			w.symbols = append(w.symbols, uint16(c.shape*ansTables+table)<<8|uint16(s))
			if s == ansEscape {
				w.raw.number(zigzag(v))
			}
			w.raw.wide(uint64(e)&(1<<shift-1), shift)
		}
	}
}

// appendCode appends the coded symbols to dst.
func (w *ansWriter) appendCode(dst []byte) []byte {
	if len(w.symbols) == 0 {
		return dst
	}
	ms := models()
	start := len(dst)
	x := ansLow
	for i := len(w.symbols) - 1; i >= 0; i-- {
		n, s := w.symbols[i]>>8, w.symbols[i]&0xff
		t := &ms[n/ansTables].tables[n%ansTables]
		freq := uint32(t.freq[s])
		if x >= freq<<(32-ansBits) {
			dst = append(dst, byte(x>>8), byte(x))
			x >>= 16
		}
		x = x/freq<<ansBits + x%freq + uint32(t.start[s])
	}
	dst = append(dst, byte(x>>24), byte(x>>16), byte(x>>8), byte(x))
	// It was written back to front.
	for i, j := start, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// blockCost returns about what residuals take at a level, in 1/256 bits.
func (m *ansModel) blockCost(es []int64, level int) int {
	table, shift := tableAt(level)
	t, total := &m.tables[table], int(shift)<<8*len(es)
	for _, e := range es {
		v := e >> (shift & 63)
		if at := uint64(v + ansZero); at < uint64(len(t.whole)) {
			total += int(t.whole[at])
		} else {
			total += int(t.cost[ansEscape]) + numberBits(zigzag(v))<<8
		}
	}
	return total
}

// What it takes to say a block's level, in 1/256 bits, about: that it is the one
// before, that it is near, and that it is any.
const (
	sameCost  = 1 << 7
	nearCost  = 4 << 8
	farCost   = 12 << 8
	levelNear = 7 // largest change that is near
)

// code chooses the coding of residuals and returns about what they take, in 1/256
// bits; or some number that is not below most, when they take no less than that.
func (c *coding) code(es []int64, most int) int {
	c.levels = c.levels[:0]
	cheapest := most
	var best []int
	for shape := range numShapes {
		start := len(c.levels)
		if n := c.choose(es, &models()[shape], cheapest); n < cheapest {
			cheapest, c.shape, best = n, shape, c.levels[start:]
		}
	}
	copy(c.levels, best)
	c.levels = c.levels[:len(best)]
	return cheapest
}

// choose appends the levels of blocks. It gives up when they take no less than most.
func (c *coding) choose(es []int64, m *ansModel, most int) int {
	total, last, size := 0, -1, blockOf(len(es))
	for len(es) > 0 && total < most {
		block := es[:min(size, len(es))]
		es = es[len(block):]
		var sum uint64
		for _, e := range block {
			sum += min(uint64(max(e, -e)), 1<<52)
		}
		guess := levelOf(sum << scaleBits / uint64(len(block)))
		level, cost := 0, math.MaxInt
		try := func(l int) {
			if l < 0 || l >= levels {
				return
			}
			n := m.blockCost(block, l) + farCost
			switch {
			case l == last:
				n += sameCost - farCost
			case last >= 0 && max(l-last, last-l) <= levelNear:
				n += nearCost - farCost
			}
			if n < cost {
				level, cost = l, n
			}
		}
		// Every other level is near enough, and these are said in fewer bits.
		for l := guess&^1 - 4; l <= guess+2; l += 2 {
			try(l)
		}
		if last >= 0 {
			try(last)
		}
		c.levels = append(c.levels, level)
		total += cost
		last = level
	}
	return total
}

// ansReader decodes what ansWriter wrote.
type ansReader struct {
	code  []byte
	state uint32
	raw   *bitReader
	bad   bool
}

// begin reads the coder's first state; without any code there are no symbols.
func (r *ansReader) begin() {
	if len(r.code) < 4 {
		r.bad = len(r.code) > 0
		r.state, r.code = ansLow, nil
		return
	}
	r.state = binary.LittleEndian.Uint32(r.code)
	r.code = r.code[4:]
}

// block reads a block whose residuals have shift raw bits each.
//
// Symbols come first, since each waits for the one before: a loop that has nothing else to do
// keeps the coder's state in registers. Raw bits are at places that are known beforehand.
func (r *ansReader) block(dst []int64, slots *[ansSlots]ansSlot, shift uint) {
	escaped := r.read(dst, slots)
	switch {
	case escaped:
		r.escapes(dst, shift)
	case shift > 0:
		r.lows(dst, shift)
	}
}

// read reads the symbols of a block as residuals without their raw bits and reports whether any
// is an escape. It is the decoder's inner loop: four symbols take at most eight bytes of code.
func (r *ansReader) read(dst []int64, slots *[ansSlots]ansSlot) (escaped bool) {
	state, code, seen := uint64(r.state), r.code, int64(0)
	slot := slots[state&(ansSlots-1)]
	for len(dst) >= 4 && len(code) >= 8 {
		word, four := binary.LittleEndian.Uint64(code), dst[:4]
		var a, b, c, d uint64
		four[0], seen = slot.symbol()-ansZero, seen|(slot.symbol()+1)
		state, slot, a = slot.next(state, word, slots)
		word >>= a & 63

		four[1], seen = slot.symbol()-ansZero, seen|(slot.symbol()+1)
		state, slot, b = slot.next(state, word, slots)
		word >>= b & 63

		four[2], seen = slot.symbol()-ansZero, seen|(slot.symbol()+1)
		state, slot, c = slot.next(state, word, slots)
		word >>= c & 63

		four[3], seen = slot.symbol()-ansZero, seen|(slot.symbol()+1)
		state, slot, d = slot.next(state, word, slots)
		dst, code = dst[4:], code[(a+b+c+d)/8:]
	}
	r.state, r.code = uint32(state), code
	return r.careful(dst, slots) || seen > ansEscape
}

// next returns the state and the slot after this one, and how many bits of the code's next word
// were taken: 16 or none. It has no branch, which nothing could foresee. The slot without more
// bits and the slot with them are looked up before it is known which it is.
func (s ansSlot) next(state, word uint64, slots *[ansSlots]ansSlot) (uint64, ansSlot, uint64) {
	refilled := slots[word&(ansSlots-1)]
	state = s.after(state)
	short := uint64(int64(state-uint64(ansLow)) >> 63)
	slot := slots[state&(ansSlots-1)]
	slot ^= (slot ^ refilled) & ansSlot(short)
	return state<<(short&16) | word&short&0xffff, slot, short & 16
}

// careful is read without looking ahead: near the end of the code, and for the block's last few.
func (r *ansReader) careful(dst []int64, slots *[ansSlots]ansSlot) (escaped bool) {
	for i := range dst {
		slot := slots[r.state&(ansSlots-1)]
		r.state = uint32(slot.after(uint64(r.state)))
		if r.state < ansLow {
			if len(r.code) < 2 {
				r.bad, r.state = true, ansLow
				clear(dst[i:])
				return escaped
			}
			r.state = r.state<<16 | uint32(binary.LittleEndian.Uint16(r.code))
			r.code = r.code[2:]
		}
		dst[i] = slot.symbol() - ansZero
		escaped = escaped || slot.symbol() == ansEscape
	}
	return escaped
}

// lows appends the raw bits to residuals without escapes, a word's at a time.
func (r *ansReader) lows(dst []int64, shift uint) {
	const margin = 2 * 64 // of bits, in which whole words can be read
	raw := r.raw
	at := uint(raw.pos)*8 - raw.n
	end := at + shift*uint(len(dst))
	if shift > 48 || end+margin > uint(len(raw.data))*8 {
		r.escapes(dst, shift)
		return
	}

	mask, per := uint64(1)<<(shift&63)-1, int(56/shift)
	for len(dst) > 0 {
		word := binaryWord(raw.data[at>>3:]) >> (at & 7)
		some := dst[:min(per, len(dst))]
		for i, e := range some {
			some[i] = e<<(shift&63) | int64(word&mask)
			word >>= shift & 63
		}
		dst = dst[len(some):]
		at += shift * uint(len(some))
	}
	raw.seek(end)
}

// escapes reads what follows the symbols, for blocks with escapes and at the end of the data.
func (r *ansReader) escapes(dst []int64, shift uint) {
	for i, e := range dst {
		if e == ansEscape-ansZero {
			e = unzigzag(r.raw.number())
		}
		if shift > 0 {
			e = e<<shift | int64(r.raw.wide(shift))
		}
		dst[i] = e
	}
}

// ended reports whether all code was read and ended in the state that writing
// began with, which it does for any symbols but hardly for other bytes.
func (r *ansReader) ended() bool {
	return !r.bad && len(r.code) == 0 && r.state == ansLow
}
