package partition

import (
	"github.com/muster-dev/muster/partition/internal/record"
	"github.com/muster-dev/muster/partition/plan"
)

// owners fills in whose each slot is before a plan for these workers, which are
// those of p in the same order. It returns the slots in motion and where they
// go: such a slot arrives before it moves again. That holds when the old owner
// is dead, too: it may have said "released" before it died, and then the next
// one has the slot.
func owners(p *plan.Problem, cur *record.Assignment, workers []record.Process) (frozen map[int]record.Process) {
	at := make(map[record.Process]int32, len(workers))
	for i, w := range workers {
		at[w] = int32(i)
	}
	frozen = make(map[int]record.Process)
	p.Owners = make([]int32, p.Slots)
	for s := range p.Owners {
		p.Owners[s] = plan.None
		if cur == nil {
			continue
		}
		if cur.Owner[s] != record.None {
			p.Owners[s] = plan.Gone
		}
		owner, dest := cur.OwnerAt(s), cur.Worker(cur.Destination(s))
		o, ownerLives := at[owner]
		d, destLives := at[dest]
		switch {
		case destLives:
			p.Owners[s] = d
			if owner != dest || cur.Taking[s] {
				frozen[s] = dest
			}
		case ownerLives:
			p.Owners[s] = o
		}
	}
	return frozen
}
