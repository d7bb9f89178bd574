package partition

import (
	"sync"
	"time"
)

// This file measures the pause of a handoff as a message feels it: for how
// long one that was there, or came while the slot changed hands, was kept from
// beginning because nobody worked on the slot. The old owner tells how long it
// has stopped when it says "released"; the new one adds what passes until its
// first message begins. Not counted are the way of that message between the two
// and, since clocks differ, any moment of a message published in between that
// its own clock puts after the handoff.

// pauses are of the slots that were handed off to this worker and have not
// begun a message since.
type pauses struct {
	mu    sync.Mutex
	slots map[place]pause
}

type pause struct {
	stopped time.Time // when the old owner did
	held    time.Time // when the slot came here
}

// begin notes that a slot was handed off whose old owner stopped so long ago.
func (p *pauses) begin(slot place, now time.Time, idle time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.slots == nil {
		p.slots = make(map[place]pause)
	}
	p.slots[slot] = pause{stopped: now.Add(-max(idle, 0)), held: now}
}

// end returns the pause that the first message of a slot felt; false for later
// ones, and for one that was published after the handoff.
func (p *pauses) end(slot place, published, now time.Time) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x, ok := p.slots[slot]
	delete(p.slots, slot)
	if !ok || published.After(x.held) {
		return 0, false
	}
	if published.After(x.stopped) {
		// Without its monotonic reading: the server's clock has none.
		return max(0, min(now.Round(0).Sub(published), now.Sub(x.stopped))), true
	}
	return max(0, now.Sub(x.stopped)), true
}
