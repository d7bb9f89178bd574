package tchart

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// predictors are the ways to predict an integer from the two before it, a and b
// in eighths: from a constant alone to the last value, the line through both, and
// their means.
var predictors = [16]struct{ a, b int64 }{
	{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}, {8, 0},
	{10, -2}, {12, -4}, {14, -6}, {16, -8}, {6, 2}, {4, 4}, {3, 3},
}

// A plan is one way to write a column of integers: as origin + factor*n, n
// predicted by the ones before, and the first n by 0.
type plan struct {
	origin    int64
	factor    int64
	constant  bool // every n is 0
	predictor int
	coding    coding
	residuals []int64
	cost      int // about what it takes, in 1/256 bits
}

// planner finds good plans and reuses its memory.
type planner struct {
	sample []int64
	ns     []int64
	trial  []int64
	coding coding
}

// planCost is about what a plan's description takes, in 1/256 bits.
const planCost = 10 << 8

// plan sets p to a good plan for the integers.
func (l *planner) plan(p *plan, ints []int64) {
	origin, factor := lattice(ints)
	origin += factor * ((l.middle(ints) - origin) / factor)
	*p = plan{origin: origin, factor: factor, residuals: p.residuals[:0], coding: p.coding, cost: planCost + (8+bits.Len64(zigzag(origin)))<<8}
	l.ns = l.ns[:0]
	p.constant = true
	for _, k := range ints {
		n := (k - origin) / factor
		l.ns = append(l.ns, n)
		p.constant = p.constant && n == 0
	}
	if p.constant {
		return
	}
	p.cost += l.predict(p, ints) + 5<<8
}

// predict chooses predictor and coding, sets the residuals, and returns about
// what these take: the best of the three predictors that leave least noise.
func (l *planner) predict(p *plan, ints []int64) int {
	var order [len(predictors)]int
	var noises [len(predictors)]float64
	for i := range predictors {
		order[i], noises[i] = i, noise(l.ns, i)
	}
	slices.SortStableFunc(order[:], func(i, j int) int { return cmp.Compare(noises[i], noises[j]) })
	cheapest := math.MaxInt
	origin := p.origin
	for _, i := range order[:3] {
		from := origin
		l.trial = residualsOf(l.trial[:0], l.ns, i)
		if predictors[i].a+predictors[i].b == 8 {
			// It sees differences only, so the first value serves as origin.
			from, l.trial[0] = ints[0], 0
		}
		if cost := l.coding.code(l.trial, cheapest); cost < cheapest {
			cheapest = cost
			p.predictor, p.origin = i, from
			p.coding, l.coding = l.coding, p.coding
			p.residuals, l.trial = l.trial, p.residuals
		}
	}
	return cheapest
}

// residualsOf appends what the predictor leaves. Integers may overflow: the
// decoder's do so likewise.
func residualsOf(dst, ns []int64, predictor int) []int64 {
	a, b := predictors[predictor].a, predictors[predictor].b
	var p1, p2 int64
	for i, n := range ns {
		dst = append(dst, n-(a*p1+b*p2+4)>>3)
		if p1, p2 = n, p1; i == 0 {
			p2 = n
		}
	}
	return dst
}

// noise is about how many bits what the predictor leaves takes, to compare
// predictors by: n*log2(mean magnitude + 0.2) for each block of n. Of several blocks
// the logarithm of the product is taken, since it is what costs time.
func noise(ns []int64, predictor int) float64 {
	const block, together = 16, 8 // eight means, each below 2^64, don't overflow
	if len(ns) == 0 {
		return 0
	}
	a, b := predictors[predictor].a, predictors[predictor].b
	p1, p2 := ns[0], ns[0]
	total, product, factors := 0.0, 1.0, 0
	for at := 0; at < len(ns); at += block {
		part := ns[at:min(at+block, len(ns))]
		n, sum := len(part), 0.0
		if at == 0 { // the first one is predicted by 0
			sum, part = math.Abs(float64(part[0])), part[1:]
		}
		for _, v := range part {
			sum += math.Abs(float64(v - (a*p1+b*p2+4)>>3))
			p1, p2 = v, p1
		}
		mean := sum/float64(n) + 0.2
		if n < block {
			total += float64(n) * math.Log2(mean)
			continue
		}
		product *= mean
		if factors++; factors == together {
			total += block * math.Log2(product)
			product, factors = 1, 0
		}
	}
	return total + block*math.Log2(product)
}

// middle returns the median of a sample of the integers.
func (l *planner) middle(ints []int64) int64 {
	const samples = 256
	if len(ints) == 0 {
		return 0
	}
	l.sample = l.sample[:0]
	for i := 0; i < len(ints); i += (len(ints) + samples - 1) / samples {
		l.sample = append(l.sample, ints[i])
	}
	slices.Sort(l.sample)
	return l.sample[len(l.sample)/2]
}

// restore turns residuals into integers, in place.
func restore(dst []int64, predictor int, origin, factor int64) {
	if len(dst) == 0 {
		return
	}
	a, b := predictors[predictor].a, predictors[predictor].b
	p1, p2 := dst[0], dst[0]
	switch {
	case a == 0:
		for i, e := range dst {
			dst[i] = origin + factor*e
		}
		return
	case a == 8 && b == 0:
		last := origin
		for i, e := range dst {
			last += factor * e
			dst[i] = last
		}
		return
	}
	dst[0] = origin + factor*p1
	for i, e := range dst[1:] {
		n := e + (a*p1+b*p2+4)>>3
		p1, p2 = n, p1
		dst[i+1] = origin + factor*n
	}
}
