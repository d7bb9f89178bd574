package plan

// standing is where a worker stands among others, compared by its fields in their order.
type standing struct {
	first, second int64
	rank          int32
}

func (x standing) before(y standing) bool {
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

// down puts the standing at i in its place, which is not above i.
func (h standings) down(i int) {
	x := h[i]
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(x) {
			break
		}
		h[i] = h[child]
		i = child
	}
	h[i] = x
}

// push adds x.
func (h *standings) push(x standing) {
	*h = append(*h, x)
	s := *h
	i := len(s) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !x.before(s[parent]) {
			break
		}
		s[i] = s[parent]
		i = parent
	}
	s[i] = x
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
