package partition

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A hand-over costs its two workers and the server a few messages. When many slots
// move at once, those costs meet, and each slot stands still for as long as the
// queue is. Nothing is gained by that: a slot that waits for its hand-over is worked
// on as before. So the owners of a plan give slots up one after the other, each by
// its own clock, such that all of them together begin about one hand-over in a pace.
// What is the first slot of a new owner goes first, then what is the second, so that a
// newcomer soon has something to do.

const (
	// handoverPace is the time from one hand-over of a plan to the next.
	handoverPace = 6 * time.Millisecond
	// longestPacing bounds what that adds to a plan of many moves.
	longestPacing = 2 * time.Second
)

// pacing says when this worker gives up which slots of a plan.
type pacing struct {
	version uint64        // of the plan
	next    time.Time     // not before
	gap     time.Duration // between two slots of this worker
	queue   []int         // slots whose next owners wait
	nth     map[int]int   // this worker's slots: how many of lower number the next owner gets
}

// paced tells whether a slot must wait for its turn to be given up for a move of
// this version; then it is tried again in time. If not, this is its turn, and it is
// taken.
func (o *ownership) paced(s int, version uint64) bool {
	p := &o.pacing
	if version != o.cur.Version {
		return false // a plan before this one: long due
	}
	if p.version != version {
		*p = o.newPacing(version)
	}
	if o.now.Before(p.next) {
		if !slices.Contains(p.queue, s) {
			p.queue = append(p.queue, s)
		}
		return true
	}
	p.next = o.now.Add(p.gap)
	return false
}

// newPacing spreads the owners of a plan's moving slots over the time from now, when
// the first is wanted of this worker.
func (o *ownership) newPacing(version uint64) pacing {
	owners := make(map[int32]bool)
	gets, nth := make(map[int32]int), make(map[int]int)
	moves, before := 0, 0
	me := o.cur.index(o.self)
	for _, s := range slices.Sorted(maps.Keys(o.cur.Moves)) {
		mv := o.cur.Moves[s]
		if mv.Version != version {
			continue
		}
		moves++
		if o.cur.Owner[s] == me {
			nth[s] = gets[mv.Next]
		}
		gets[mv.Next]++
		if o := o.cur.Owner[s]; !owners[o] {
			owners[o] = true
			if o < me {
				before++
			}
		}
	}
	pace := min(handoverPace, longestPacing/time.Duration(max(moves, 1)))
	return pacing{version: version, next: o.now.Add(time.Duration(before) * pace), gap: time.Duration(len(owners)) * pace, nth: nth}
}

// giveNext gives up the next of the slots that wait for their turn.
func (o *ownership) giveNext() {
	p := &o.pacing
	for len(p.queue) > 0 && !o.now.Before(p.next) {
		s := slices.MinFunc(p.queue, func(s, t int) int { return cmp.Or(cmp.Compare(p.nth[s], p.nth[t]), cmp.Compare(s, t)) })
		p.queue = slices.DeleteFunc(p.queue, func(t int) bool { return t == s })
		if o.inMap(s) {
			o.tryRelease(s)
		}
	}
}
