package tchart

import (
	"math"
	"math/bits"
	"slices"
)

// How a column of values is written.
const (
	kindDecimal = iota // integers times 10^-digits, with exceptions
	kindXOR            // bits XORed with the previous value, in byte planes, compressed
	kindRaw            // bits as they are
)

// How the integers of a column are written after prediction.
const (
	codeZero   = iota // every residual is 0
	codeDense         // Rice codes in blocks of blockLen, each with its parameter
	codeSparse        // runs of zeros and the residuals between them
)

const (
	blockLen  = 32
	maxOrder  = 2
	maxDigits = 15
	maxRice   = 35             // a code then fits in what refill provides
	maxExact  = int64(1) << 53 // integers up to here are exact as float64
)

var pow10 = [maxDigits + 1]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// decimal returns the integer k with v = k/10^digits to the bit, if there is one.
func decimal(v float64, digits int) (int64, bool) {
	scaled := math.RoundToEven(v * pow10[digits])
	if !(math.Abs(scaled) <= float64(maxExact)) { // false for NaN too
		return 0, false
	}
	k := int64(scaled)
	// Division rounds correctly, and so gives the float64 nearest to the decimal
	// fraction, which is what a sensor's printed reading is parsed to.
	return k, math.Float64bits(float64(k)/pow10[digits]) == math.Float64bits(v)
}

// digitsOf returns up to two numbers of digits worth trying for a column: the
// fewest with which nearly all of a sample is decimal, and the fewest with which
// all that can be is. It returns none when too few values are decimal. What
// doesn't fit becomes an exception, as in ALP (Afroozeh, Kuffo, Boncz:
// "ALP: Adaptive Lossless floating-Point Compression", SIGMOD 2023).
func digitsOf(column []float64) []int {
	const samples, tries = 256, 32
	var need [maxDigits + 1]int // values by digits needed
	n, misfits := 0, 0
	for i := 0; i < len(column); i += (len(column) + samples - 1) / samples {
		d := 0
		for d <= maxDigits {
			if _, fits := decimal(column[i], d); fits {
				break
			}
			d++
		}
		if d <= maxDigits {
			need[d]++
		} else if misfits++; misfits > tries && misfits > n/2 {
			return nil
		}
		n++
	}
	if misfits > n/2 {
		return nil
	}
	few, all, seen := -1, 0, 0
	for d, count := range need {
		if seen += count; few < 0 && seen*16 >= (n-misfits)*15 {
			few = d
		}
		if count > 0 {
			all = d
		}
	}
	if few == all {
		return []int{all}
	}
	return []int{few, all}
}

// exception is a value that isn't decimal with the digits of its column.
type exception struct {
	index int
	bits  uint64
}

const exceptionBits = 80 // about what one takes

// integersOf appends the integers of a column; where a value is no integer with
// these digits it appends what disturbs its neighbours least, and an exception.
func integersOf(ints []int64, exceptions []exception, column []float64, digits int) ([]int64, []exception) {
	last := int64(0)
	for i, v := range column {
		k, ok := decimal(v, digits)
		if !ok {
			exceptions = append(exceptions, exception{i, math.Float64bits(v)})
			if k == 0 || max(k-last, last-k) > 1<<20 {
				k = last
			}
		}
		ints = append(ints, k)
		last = k
	}
	return ints, exceptions
}

// A plan is one way to write a column of integers.
type plan struct {
	origin int64 // of the first prediction
	factor int64 // all integers are origin + factor*n
	order  int   // of the predictor: 0 origin, 1 last value, 2 line through the last two
	code   int   // codeZero, codeDense, codeSparse
	gapK   uint  // Rice parameters of codeSparse
	valueK uint
	bits   int // what it takes
}

// planner finds the cheapest plan and keeps the residuals of it.
type planner struct {
	sample    []int64
	residuals [maxOrder + 1][]uint64
}

// best returns the cheapest plan for ints and its residuals in zigzag form,
// valid until the next call.
func (p *planner) best(ints []int64) (plan, []uint64) {
	origin, factor := lattice(ints)
	var cheapest plan
	for order := range maxOrder + 1 {
		c := plan{origin: origin, factor: factor, order: order}
		if order == 0 {
			c.origin += factor * ((p.middle(ints) - origin) / factor)
		}
		p.residuals[order] = c.residuals(p.residuals[order][:0], ints)
		c.choose(p.residuals[order])
		if order == 0 || c.bits < cheapest.bits {
			cheapest = c
		}
	}
	return cheapest, p.residuals[cheapest.order]
}

// lattice returns the first integer and the greatest common divisor of all
// distances to it, at least 1: sensors often count in steps of 2 or 5.
func lattice(ints []int64) (origin, factor int64) {
	if len(ints) == 0 {
		return 0, 1
	}
	origin = ints[0]
	var g uint64
	for _, k := range ints {
		d := uint64(max(k-origin, origin-k))
		for d != 0 {
			g, d = d, g%d
		}
		if g == 1 {
			break
		}
	}
	return origin, int64(max(g, 1))
}

// middle returns the median of a sample of the integers.
func (p *planner) middle(ints []int64) int64 {
	const samples = 256
	if len(ints) == 0 {
		return 0
	}
	p.sample = p.sample[:0]
	for i := 0; i < len(ints); i += (len(ints) + samples - 1) / samples {
		p.sample = append(p.sample, ints[i])
	}
	slices.Sort(p.sample)
	return p.sample[len(p.sample)/2]
}

func (c *plan) residuals(dst []uint64, ints []int64) []uint64 {
	last, slope := int64(0), int64(0)
	for _, k := range ints {
		n := (k - c.origin) / c.factor
		dst = append(dst, zigzag(n-last-slope))
		switch c.order {
		case 1:
			last = n
		case 2:
			last, slope = n, n-last
		}
	}
	return dst
}

// choose sets the cheapest code and what it takes.
func (c *plan) choose(residuals []uint64) {
	gaps, zeros := 0, 0
	var sum uint64
	var gapSum int
	for _, z := range residuals {
		if z == 0 {
			zeros++
			continue
		}
		gaps++
		gapSum += zeros
		zeros = 0
		if sum += z; sum < z {
			sum = math.MaxUint64
		}
	}
	head := 5 + numberBits(zigzag(c.origin))
	if c.factor != 1 {
		head += numberBits(uint64(c.factor))
	}
	if gaps == 0 {
		c.code, c.bits = codeZero, head
		return
	}
	c.code, c.bits = codeDense, head+denseBits(residuals)
	gapK := riceParameter(uint64(gapSum), gaps)
	valueK := riceParameter(sum-uint64(gaps), gaps)
	if n := head + 12 + sparseBits(residuals, gapK, valueK); n < c.bits {
		c.code, c.bits, c.gapK, c.valueK = codeSparse, n, gapK, valueK
	}
}

// riceParameter is near the best for n numbers with the given sum: the mean's
// bits less one.
func riceParameter(sum uint64, n int) uint {
	mean := sum / uint64(n)
	return min(uint(max(bits.Len64(mean+mean/4)-1, 0)), maxRice)
}

// blockParameter returns the best Rice parameter of a block and what it takes.
func blockParameter(block []uint64) (uint, int) {
	var sum uint64
	for _, z := range block {
		if sum += z; sum < z {
			sum = math.MaxUint64
		}
	}
	guess := riceParameter(sum, len(block))
	best, cost := guess, math.MaxInt
	for k := max(guess, 1) - 1; k <= min(guess+1, maxRice); k++ {
		n := 0
		for _, z := range block {
			n += riceBits(z, k)
		}
		if n < cost {
			best, cost = k, n
		}
	}
	return best, cost
}

// The parameter of a block is written as its change: 0 for none, 10 and a sign
// bit for one up or down, 11 and 6 bits for anything.
func parameterBits(k, last uint) int {
	switch {
	case k == last:
		return 1
	case k == last+1 || k+1 == last:
		return 3
	}
	return 8
}

func (w *bitWriter) parameter(k, last uint) {
	switch k {
	case last:
		w.write(0, 1)
	case last + 1:
		w.write(0b001, 3)
	case last - 1:
		w.write(0b101, 3)
	default:
		w.write(uint64(k)<<2|0b11, 8)
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

func denseBits(residuals []uint64) int {
	total, last := 0, uint(0)
	for i := 0; i < len(residuals); i += blockLen {
		k, n := blockParameter(residuals[i:min(i+blockLen, len(residuals))])
		total += parameterBits(k, last) + n
		last = k
	}
	return total
}

func sparseBits(residuals []uint64, gapK, valueK uint) int {
	total, zeros := 0, 0
	for _, z := range residuals {
		if z == 0 {
			zeros++
			continue
		}
		total += riceBits(uint64(zeros), gapK) + riceBits(z-1, valueK)
		zeros = 0
	}
	return total + riceBits(uint64(zeros), gapK)
}

// integers writes a plan and its residuals.
func (w *bitWriter) integers(c plan, residuals []uint64) {
	w.write(uint64(c.code)|uint64(c.order)<<2, 4)
	w.number(zigzag(c.origin))
	if c.factor == 1 {
		w.write(0, 1)
	} else {
		w.write(1, 1)
		w.number(uint64(c.factor))
	}
	switch c.code {
	case codeDense:
		last := uint(0)
		for i := 0; i < len(residuals); i += blockLen {
			block := residuals[i:min(i+blockLen, len(residuals))]
			k, _ := blockParameter(block)
			w.parameter(k, last)
			last = k
			for _, z := range block {
				w.rice(z, k)
			}
		}
	case codeSparse:
		w.write(uint64(c.gapK)|uint64(c.valueK)<<6, 12)
		zeros := 0
		for _, z := range residuals {
			if z == 0 {
				zeros++
				continue
			}
			w.rice(uint64(zeros), c.gapK)
			w.rice(z-1, c.valueK)
			zeros = 0
		}
		w.rice(uint64(zeros), c.gapK)
	}
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
