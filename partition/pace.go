package partition

import (
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
