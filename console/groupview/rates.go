package groupview

import (
	"slices"
	"time"
)

// Tide is what a group's streams hold at a time.
type Tide struct {
	At      time.Time
	Stored  uint64 // messages that were ever stored
	Waiting uint64 // messages that are not processed
}

// rateOver is the time over which rates are taken.
const rateOver = 15 * time.Second

// Rates takes rates from what the streams hold, which no worker's failure distorts. The zero value has none yet. It is not safe for
// concurrent use.
type Rates struct {
	tides []Tide // of the last rateOver, oldest first
}

// Add takes in what the streams hold now, and returns how many messages per second were stored and processed over the last 15 seconds.
// A stream that was created again begins to count again: then there are no rates.
func (r *Rates) Add(now Tide) (in, out float64, ok bool) {
	r.tides = append(slices.DeleteFunc(r.tides, func(t Tide) bool { return now.At.Sub(t.At) > rateOver }), now)
	first := r.tides[0]
	seconds := now.At.Sub(first.At).Seconds()
	if seconds <= 0 || now.Stored < first.Stored {
		return 0, 0, false
	}
	stored := float64(now.Stored - first.Stored)
	processed := stored + float64(first.Waiting) - float64(now.Waiting)
	return stored / seconds, max(processed, 0) / seconds, true
}
