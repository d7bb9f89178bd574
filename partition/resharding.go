package partition

import "time"

// resharding is what a leader knows of the slots of the old generation, which their
// owners give up when they are asked to.
type resharding struct {
	version uint64            // of the map that made the generation the old one
	asked   map[int]time.Time // when the owner of a slot was last asked for it
	given   map[int]bool      // slots that were given up
	due     time.Time         // ask again
}

// follow begins with the generation that a map made the old one, unless it has begun.
func (r *resharding) follow(version uint64) {
	if r.asked == nil || r.version != version {
		r.asked, r.given, r.version = make(map[int]time.Time), make(map[int]bool), version
	}
}

// end forgets a generation of which nothing is left.
func (r *resharding) end() { r.version, r.asked, r.given = 0, nil, nil }

// ask reports whether the owner of a slot is to be asked for it, and notes that it is.
func (r *resharding) ask(slot int, now time.Time) bool {
	if now.Before(r.asked[slot].Add(resyncInterval)) {
		return false
	}
	r.asked[slot] = now
	return true
}

// hasGiven reports whether a slot of the generation that a map made the old one was given up.
func (r *resharding) hasGiven(slot int, version uint64) bool {
	return r.version == version && r.given[slot]
}
