package uchart

import (
	"slices"
	"sync"
)

// basis is what of a history the limits of the next context rest on.
//
// Unflagged contexts are numbered in their order, from 1 after maintenance, and each
// verdict keeps the number that its context has if it is one. A history holds the newest
// contexts only; by the stored numbers every worker schedules the training of models
// alike, however much of the history it sees and whatever the contexts are called.
type basis struct {
	points  []Point // that limits may rest on, oldest first
	numbers []int   // of points
	last    int     // number of the newest context by which models may be trained
	run     int     // number of the context at hand
	lot     string  // of the context at hand
	horizon int     // how many contexts after the newest point it is
	room    *room
}

// room is memory that one verdict after the other uses: what a verdict rests on is tens of
// kilobytes, of which it keeps nothing.
type room struct {
	points  []Point
	numbers []int
	tracks  []track
	known   []track // of tracks, where courses lead to expect something
	single  []Violation
}

var rooms = sync.Pool{New: func() any { return new(room) }}

// leave ends the use of the basis. Charts that the room refers to may go.
func (b *basis) leave() {
	r := b.room
	clear(r.points)
	clear(r.tracks)
	clear(r.known)
	clear(r.single)
	b.room, b.points, b.numbers = nil, nil, nil
	rooms.Put(r)
}

// newBasis takes a history that begins after the last maintenance. While an alarm stands,
// what counts ends before the context that opened it, provided that is enough to judge
// by: otherwise a chamber whose first contexts had bad data would never learn. The basis is
// left when the verdict is there.
func newBasis(history []Point, enough int) basis {
	numbers := numbersOf(history)
	b := basis{room: rooms.Get().(*room)}
	b.points, b.numbers = b.room.points[:0], b.room.numbers[:0]
	if n := len(numbers); n > 0 {
		b.last = numbers[n-1]
	}
	b.run = b.last + 1
	end := len(history)
	for end > 0 && history[end-1].Standing {
		end--
	}
	b.take(history[:end], numbers)
	if end == len(history) {
		return b
	}
	if len(b.points) < enough {
		b.take(history[end:], numbers[end:])
		return b
	}
	b.last = numbers[end-1]
	return b
}

func (b *basis) take(history []Point, numbers []int) {
	b.points, b.numbers = slices.Grow(b.points, len(history)), slices.Grow(b.numbers, len(history))
	for i := range history {
		if history[i].counts() {
			b.points, b.numbers = append(b.points, history[i]), append(b.numbers, numbers[i])
		}
	}
	b.room.points, b.room.numbers = b.points, b.numbers
}

// counts reports whether limits may rest on the point.
func (p *Point) counts() bool { return !p.Flagged && p.Chart != nil }

// numbersOf returns how many contexts count up to each. Where a version that kept no
// numbers judged the newest ones, they are counted from where the history begins: that
// moves, so that models are trained more often, and ends with the first context that is
// judged now.
func numbersOf(history []Point) []int {
	numbers := make([]int, len(history))
	number := 0
	for i := range history {
		if history[i].counts() {
			number++
		}
	}
	for i := len(history) - 1; i >= 0; i-- {
		p := &history[i]
		switch {
		case p.Run > 0 && p.counts():
			number = p.Run
		case p.Run > 0:
			number = p.Run - 1
		}
		numbers[i] = max(number, 0)
		if p.counts() {
			number--
		}
	}
	return numbers
}

// newest returns at most that many of the newest points.
func (b *basis) newest(n int) []Point { return b.points[max(0, len(b.points)-n):] }

// until returns the points up to a number.
func (b *basis) until(number int) []Point {
	end := len(b.points)
	for end > 0 && b.numbers[end-1] > number {
		end--
	}
	return b.points[:end]
}
