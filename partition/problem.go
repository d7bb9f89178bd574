package partition

import "github.com/muster-dev/muster/partition/plan"

// owners fills in whose each slot is before a plan for these workers, which are
// those of p in the same order. It returns the slots in motion and where they
// go: such a slot arrives before it moves again. That holds when the old owner
// is dead, too: it may have said "released" before it died, and then the next
// one has the slot.
func owners(p *plan.Problem, cur *Assignment, workers []Member) (frozen map[int]Member) {
	at := make(map[Member]int32, len(workers))
	for i, w := range workers {
		at[w] = int32(i)
	}
	frozen = make(map[int]Member)
	p.Owners = make([]int32, p.Slots)
	for s := range p.Owners {
		p.Owners[s] = plan.None
		if cur == nil {
			continue
		}
		if cur.Owner[s] != none {
			p.Owners[s] = plan.Gone
		}
		owner, dest := cur.owner(s), cur.member(cur.destination(s))
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
