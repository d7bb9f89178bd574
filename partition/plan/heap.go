package plan

// standing is where a worker stands among others, compared by its fields in their order.
type standing struct {
	first, second int64
	rank          int32
}

func (x *standing) before(y *standing) bool {
	switch {
	case x.first != y.first:
		return x.first < y.first
	case x.second != y.second:
		return x.second < y.second
	}
	return x.rank < y.rank
}

// standings is a binary heap. It does what queue does without a call per comparison, which is
// where placing thousands of slots would spend most of its time.
type standings []standing

func (h standings) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

// down puts the standing at i in its place, which is not above i. It goes down to a leaf and up
// again: a standing that comes from the top or from a leaf belongs near the leaves, so this takes
// about half the comparisons.
func (h standings) down(i int) {
	x, top := h[i], i
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(&h[child]) {
			child++
		}
		h[i] = h[child]
		i = child
	}
	h.up(i, top, x)
}

// up puts x in its place on the way from i to top.
func (h standings) up(i, top int, x standing) {
	for i > top {
		parent := (i - 1) / 2
		if !x.before(&h[parent]) {
			break
		}
		h[i] = h[parent]
		i = parent
	}
	h[i] = x
}

// push adds x.
func (h *standings) push(x standing) {
	*h = append(*h, x)
	h.up(len(*h)-1, 0, x)
}

// pop removes the first and returns it.
func (h *standings) pop() standing {
	s := *h
	x := s[0]
	last := len(s) - 1
	s[0] = s[last]
	*h = s[:last]
	if last > 0 {
		h.down(0)
	}
	return x
}
