package partition

import "time"

// restHeap has lanes by the end of their first message's rest, the earliest first, and by turn where
// several end at the same time. It is a binary heap that knows where each lane is. The zero value
// has none.
type restHeap struct{ rests []rest }

// rest says until when the first message of a lane rests.
type rest struct {
	until time.Time
	of    *lane
}

// restIndex is the place of a lane in a heap. The zero value is in none.
type restIndex struct {
	in *restHeap
	at int
}

func (r rest) before(o rest) bool {
	return r.until.Before(o.until) || r.of.turn < o.of.turn && r.until.Equal(o.until)
}

// add puts a lane in the heap.
func (h *restHeap) add(of *lane, until time.Time) {
	of.resting.in = h
	h.rests = append(h.rests, rest{until, of})
	h.up(len(h.rests) - 1)
}

// leaveRests takes a lane out of its heap, if it is in one.
func (of *lane) leaveRests() {
	h, at := of.resting.in, of.resting.at
	if h == nil {
		return
	}
	of.resting = restIndex{}
	last := len(h.rests) - 1
	moved := h.rests[last]
	h.rests[last] = rest{}
	h.rests = h.rests[:last]
	if at < last {
		h.put(moved, at)
		h.down(h.up(at))
	}
}

func (h *restHeap) put(r rest, at int) {
	h.rests[at] = r
	r.of.resting.at = at
}

// up moves what is at a place up, as far as it belongs, and returns where it is then.
func (h *restHeap) up(at int) int {
	r := h.rests[at]
	for at > 0 {
		parent := (at - 1) / 2
		if !r.before(h.rests[parent]) {
			break
		}
		h.put(h.rests[parent], at)
		at = parent
	}
	h.put(r, at)
	return at
}

// down moves what is at a place down, as far as it belongs.
func (h *restHeap) down(at int) {
	r := h.rests[at]
	for {
		child := 2*at + 1
		if child+1 < len(h.rests) && h.rests[child+1].before(h.rests[child]) {
			child++
		}
		if child >= len(h.rests) || !h.rests[child].before(r) {
			break
		}
		h.put(h.rests[child], at)
		at = child
	}
	h.put(r, at)
}

// pop takes out and returns the first lane whose rest has ended, nil if there is none.
func (h *restHeap) pop(now time.Time) (of *lane, until time.Time) {
	if len(h.rests) == 0 || now.Before(h.rests[0].until) {
		return nil, until
	}
	first := h.rests[0]
	first.of.leaveRests()
	return first.of, first.until
}

// earliest returns the first end of a rest, zero for none, except of lanes that are to be skipped.
func (h *restHeap) earliest(skip func(*lane) bool) time.Time { return h.earliestFrom(0, skip) }

// earliestFrom is earliest of a place and all below it. These end no earlier, so they are looked at
// only if that place is skipped.
func (h *restHeap) earliestFrom(at int, skip func(*lane) bool) time.Time {
	switch {
	case at >= len(h.rests):
		return time.Time{}
	case !skip(h.rests[at].of):
		return h.rests[at].until
	}
	return earlier(h.earliestFrom(2*at+1, skip), h.earliestFrom(2*at+2, skip))
}
