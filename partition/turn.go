package partition

import "sync"

// When many slots are to be handed over at once, each hand-over costs its two
// workers and the server some work, and if all began together every slot would
// stand still until most of that is done. So a worker gives its slots up a few at a
// time, and the others go on with their messages until it is their turn: the whole
// takes as long, and each slot a fraction of it.

// mostTurns is how many slots a worker gives up at a time. Those that wait for the
// end of a message are not counted.
const mostTurns = 2

// turns lets a few runners at a time give their slots up.
type turns struct {
	mu      sync.Mutex
	taken   int
	waiting map[*runner]bool
}

// take tells whether it is a runner's turn; if not, the runner is woken when it may
// be. Who was given a turn ends it.
func (t *turns) take(r *runner) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken < mostTurns {
		t.taken++
		delete(t.waiting, r)
		return true
	}
	if t.waiting == nil {
		t.waiting = make(map[*runner]bool)
	}
	t.waiting[r] = true
	return false
}

func (t *turns) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken--
	for r := range t.waiting {
		r.wakeUp()
	}
	clear(t.waiting)
}
