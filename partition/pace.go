package partition

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A handoff costs its two workers and the server a few messages. When many slots
// move at once, those costs meet, and each slot stands still for as long as the
// queue is. Nothing is gained by that: a slot that waits for its handoff is worked
// on as before. So the owners of a plan give slots up one after the other, each by
// its own clock, such that all of them together begin about one handoff in a pace.
// What is the first slot of a new owner goes first, then what is the second, so that a
// joining worker soon has something to do.

const (
	// handoffPace is the time from one handoff of a plan to the next.
	handoffPace = 6 * time.Millisecond
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

// waits reports whether a slot must wait for its turn to be handed off for a move of this
// version; then turn returns it in time. If not, this is its turn, and it is taken.
func (p *pacing) waits(slot int, version uint64, c *core) bool {
	if version != c.cur.Version {
		return false // of an earlier plan: long due
	}
	if p.version != version {
		*p = newPacing(c)
	}
	if c.now.Before(p.next) {
		if !slices.Contains(p.queue, slot) {
			p.queue = append(p.queue, slot)
		}
		return true
	}
	p.next = c.now.Add(p.gap)
	return false
}

// turn takes the slot out of the queue whose turn it is, and reports whether there is one.
func (p *pacing) turn(now time.Time) (slot int, is bool) {
	if len(p.queue) == 0 || now.Before(p.next) {
		return 0, false
	}
	slot = slices.MinFunc(p.queue, func(s, t int) int { return cmp.Or(cmp.Compare(p.nth[s], p.nth[t]), cmp.Compare(s, t)) })
	p.queue = slices.DeleteFunc(p.queue, func(t int) bool { return t == slot })
	return slot, true
}

// wake tells when the next slot has its turn.
func (p *pacing) wake(sooner func(time.Time)) {
	if len(p.queue) > 0 {
		sooner(p.next)
	}
}

// newPacing spreads the owners of the newest plan's moving slots over the time from now,
// when the first is wanted of this worker.
func newPacing(c *core) pacing {
	version := c.cur.Version
	owners := make(map[int32]bool)
	gets, nth := make(map[int32]int), make(map[int]int)
	moves, before := 0, 0
	me := c.cur.Index(c.self)
	for _, s := range slices.Sorted(maps.Keys(c.cur.Moves)) {
		mv := c.cur.Moves[s]
		if mv.Version != version {
			continue
		}
		moves++
		if c.cur.Owner[s] == me {
			nth[s] = gets[mv.Next]
		}
		gets[mv.Next]++
		if o := c.cur.Owner[s]; !owners[o] {
			owners[o] = true
			if o < me {
				before++
			}
		}
	}
	pace := min(handoffPace, longestPacing/time.Duration(max(moves, 1)))
	return pacing{version: version, next: c.now.Add(time.Duration(before) * pace), gap: time.Duration(len(owners)) * pace, nth: nth}
}
