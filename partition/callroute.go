package partition

import (
	"slices"

	"github.com/muster-dev/muster/partition/internal/record"
)

// mostTargets is how many workers one call is sent to at most: an owner, the one that it moves to,
// and after a change of the map both once more.
const mostTargets = 4

// callTarget is a worker that may serve a call of a key.
type callTarget struct {
	place
	owner record.Process
	fence Fence // of the owner by the map; zero: the map doesn't say
	// waits: the worker may have yet to hear that it has the slot, or to take it over.
	waits bool
}

// callRoute decides which workers a call is sent to. A worker that has refused it is not asked
// again as the owner of the same fence: what it says about that is final, or too late for this
// call. So no call comes twice to the same holding of a slot.
type callRoute struct {
	key   string
	tried []callTarget
}

// next returns the worker to send the call to by a map; false if the map names none that was not
// tried, so a newer map has to be waited for. nil is the map before the first.
func (r *callRoute) next(a *record.Assignment) (callTarget, bool) {
	if a == nil || r.exhausted() {
		return callTarget{}, false
	}
	for _, t := range callTargets(a, r.key) {
		if !slices.Contains(r.tried, t) {
			r.tried = append(r.tried, t)
			return t, true
		}
	}
	return callTarget{}, false
}

// exhausted reports whether no more workers are asked, whatever the map.
func (r *callRoute) exhausted() bool { return len(r.tried) >= mostTargets }

// callTargets returns the workers that may have a key by a map, the likeliest first. A slot that
// moves is with its owner until that releases it, and then with the next owner at once: the map
// shows that later.
func callTargets(a *record.Assignment, key string) []callTarget {
	s := SlotOfKey(a.Slots, key)
	move, moves := a.Moves[s]
	var out []callTarget
	add := func(t callTarget) {
		if t.owner != (record.Process{}) {
			t.fence.Claim = t.owner.Claim
			if t.fence.Version == 0 {
				t.fence = Fence{}
			}
			out = append(out, t)
		}
	}

	if f := a.Former; f != nil && a.Taking[s] {
		old := SlotOfKey(f.Slots, key)
		add(callTarget{place: oldGenerationOf(f).place(old), owner: a.Worker(f.Owner[old])})
	}
	at := generationOf(a).place(s)
	add(callTarget{place: at, owner: a.OwnerAt(s), fence: Fence{Version: a.Since[s]}, waits: !moves})
	if moves {
		add(callTarget{place: at, owner: a.Worker(move.Next), fence: Fence{Version: move.Version}, waits: true})
	}
	return out
}
