package uchart

import "slices"

// History collects the contexts of one chamber and recipe as they are judged, and holds
// what the next verdict may rest on: the newest ones, and before them as many quiet ones
// (see [Verdict.Quiet]) as it takes to have that many quiet ones in all. So limits don't
// run out however long an alarm lasts.
type History struct {
	Limit      int // newest contexts that are held, and quiet ones; default 100
	ClearAfter int // contexts in a row found normal that clear an alarm; default 3

	older, rows []Point
	standing    *Standing
	frozen      map[string]*Baseline // by the context in whose verdict they are kept
}

// Points returns what the next context is to be judged by, oldest first.
func (h *History) Points() []Point { return slices.Concat(h.older, h.rows) }

// AppendPoints appends Points to a slice.
func (h *History) AppendPoints(to []Point) []Point { return append(append(to, h.older...), h.rows...) }

// Add adds the context that was judged by Points, and returns its verdict with the
// alarm that stands after it.
func (h *History) Add(context string, chart *Chart, v Verdict) Verdict {
	h.standing = h.standing.After(context, &v, or(h.ClearAfter, 3))
	v.Standing = h.standing
	p := NewPoint(context, chart, v)
	switch {
	case p.Baseline != nil:
		if h.frozen == nil {
			h.frozen = make(map[string]*Baseline)
		}
		h.frozen[context] = p.Baseline
	case v.Limits.At != "":
		p.Baseline = h.frozen[v.Limits.At]
	}
	h.rows = append(h.rows, p)
	limit := or(h.Limit, 100)
	if len(h.rows) > limit {
		if first := h.rows[0]; first.Quiet() {
			first.Older = true
			h.older = append(h.older, first)
		}
		h.rows = h.rows[1:]
	}
	quiet, reset := 0, false
	for _, p := range slices.Backward(h.rows) {
		if reset = p.Reset; reset {
			break
		}
		if p.Quiet() {
			quiet++
		}
	}
	keep := max(limit-quiet, 0)
	if reset {
		keep = 0
	}
	h.older = h.older[max(len(h.older)-keep, 0):]
	return v
}

// Quiet reports whether its verdict was; see [Verdict.Quiet].
func (p *Point) Quiet() bool { return p.counts() && !p.Standing && !p.Reset }

func or(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}
