package partition

// turnList has lanes in the order of their turns. The zero value has none.
type turnList struct{ first, last *turnNode }

// turnNode is the place of a lane in a list. The zero value is in none.
type turnNode struct {
	of         *lane
	in         *turnList
	prev, next *turnNode
}

// add puts a lane in the list. One with the latest turn is appended. Any other had a turn before and
// comes back, so few have an earlier one, and it is looked for from the front.
func (l *turnList) add(n *turnNode) {
	n.in = l
	if l.last == nil || l.last.of.turn < n.of.turn {
		n.prev, n.next = l.last, nil
	} else {
		n.next = l.first
		for n.next.of.turn < n.of.turn {
			n.next = n.next.next
		}
		n.prev = n.next.prev
	}
	l.link(n, n, n)
}

// leave takes a lane out of its list, if it is in one.
func (n *turnNode) leave() {
	if n.in == nil {
		return
	}
	n.in.link(n, n.next, n.prev)
	n.in, n.prev, n.next = nil, nil, nil
}

// link has the neighbours of a lane follow each other, with what is between them: the lane itself,
// or nothing.
func (l *turnList) link(n, afterPrev, beforeNext *turnNode) {
	if n.prev == nil {
		l.first = afterPrev
	} else {
		n.prev.next = afterPrev
	}
	if n.next == nil {
		l.last = beforeNext
	} else {
		n.next.prev = beforeNext
	}
}

// find returns the first lane that is wanted, nil if there is none.
func (l *turnList) find(wanted func(*lane) bool) *lane {
	for n := l.first; n != nil; n = n.next {
		if wanted(n.of) {
			return n.of
		}
	}
	return nil
}

// all is an iterator over the lanes. Its loop may take the present one out.
func (l *turnList) all(each func(*lane) bool) {
	for n := l.first; n != nil; {
		next := n.next
		if !each(n.of) {
			return
		}
		n = next
	}
}
