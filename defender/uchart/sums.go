package uchart

import "math"

// sums are the moments of one SVID in one step. Values are taken relative to
// the first one, and times to the trace's first, so that differences between
// blocks don't drown in the rounding of a large mean.
type sums struct {
	n            float64
	origin       float64 // the first value
	meanX, meanT float64 // relative
	sxx, stt     float64 // sums of squares about the means
	sxt          float64 // sum of products about the means
	min, max     float64
	area         float64
	pairs        bool // area has at least one trapezoid
}

// addRun adds consecutive samples and reports whether they are finite; if they aren't, or are so
// large that their sum isn't, s may be anything.
func (s *sums) addRun(x []float64, at times) (finite bool) {
	if len(x) == 0 {
		return true
	}
	if s.n == 0 {
		s.origin, s.min, s.max = x[0], x[0], x[0]
	}
	s.pairs = s.pairs || len(x) > 1
	finite = true
	for from := 0; from < len(x); from += blockLen {
		to := min(from+blockLen, len(x))
		if from > 0 {
			s.area += float64((x[from] + x[from-1]) * at.half[from])
		}
		b := s.block(x[from:to], at.half[from:to], at.off[from:to], &at.blocks[from/blockLen])
		finite = finite && b.meanX-b.meanX == 0
		s.merge(b)
	}
	return finite
}

// block returns the moments of a block, and adds its extremes and area to s.
// The explicit conversions keep a compiler from fusing a product with a sum,
// which would make the last bit depend on the machine.
func (s *sums) block(x, half, off []float64, t *timeBlock) sums {
	half, off = half[:len(x)], off[:len(x)]
	n := float64(len(x))
	origin, low, high := s.origin, s.min, s.max
	sum := 0.0
	for _, v := range x {
		sum += v - origin
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
	}
	s.min, s.max = low, high

	// Second pass, with the correction for the rounding of the means.
	mean := sum / n
	d := x[0] - origin - mean
	sxx, sxt, rest := float64(d*d), float64(d*off[0]), d
	last, area := x[0], 0.0
	for i := 1; i < len(x); i++ {
		v := x[i]
		d := v - origin - mean
		sxx += float64(d * d)
		sxt += float64(d * off[i])
		rest += d
		area += float64((v + last) * half[i])
		last = v
	}
	s.area += area
	return sums{
		n: n, meanX: mean, meanT: t.mean, stt: t.squares,
		sxx: sxx - float64(rest*rest)/n, sxt: sxt - float64(rest*t.rest)/n,
	}
}

// merge adds the moments of b to s.
func (s *sums) merge(b sums) {
	if s.n == 0 {
		s.n, s.meanX, s.meanT, s.sxx, s.stt, s.sxt = b.n, b.meanX, b.meanT, b.sxx, b.stt, b.sxt
		return
	}
	n := s.n + b.n
	dx, dt := b.meanX-s.meanX, b.meanT-s.meanT
	weight := float64(s.n*b.n) / n
	s.sxx += b.sxx + float64(float64(dx*dx)*weight)
	s.stt += b.stt + float64(float64(dt*dt)*weight)
	s.sxt += b.sxt + float64(float64(dx*dt)*weight)
	s.meanX += float64(dx*b.n) / n
	s.meanT += float64(dt*b.n) / n
	s.n = n
}

// fill writes the statistics into a cell.
func (s *sums) fill(chart *Chart, cell int) {
	set := func(which Statistic, v float64) {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return
		}
		chart.Values[cell*NumStatistics+int(which)] = v
		chart.Valid[cell] |= 1 << which
	}
	set(Count, s.n)
	if s.n == 0 {
		return
	}
	set(Mean, s.origin+s.meanX)
	set(Min, s.min)
	set(Max, s.max)
	set(Range, s.max-s.min)
	if s.n < 2 {
		return
	}
	constant := s.min == s.max
	if constant {
		// Rounding of the mean must not show as spread.
		set(Mean, s.min)
		set(StdDev, 0)
	} else {
		set(StdDev, math.Sqrt(max(s.sxx, 0)/(s.n-1)))
	}
	switch {
	case !(s.stt > 0):
	case constant:
		set(Slope, 0)
	default:
		set(Slope, s.sxt/s.stt)
	}
	if s.pairs {
		set(Area, s.area)
	}
}
