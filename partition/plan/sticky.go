package plan

// Sticky returns the strategy that moves as little as balance allows.
//
// Slots of equal weight are balanced exactly: every worker ends at its share
// rounded down or up, with the fewest moves that any such plan needs.
//
// Slots of different weights are balanced as far as the weights allow, which
// is a matter of search (splitting weights evenly is NP-hard). What has no
// owner goes to the least loaded worker, heaviest first (LPT; R. L. Graham,
// "Bounds on multiprocessing timing anomalies", 1969). Joining workers, and workers
// short of more than an average slot and 5 % of their share, then get it from
// those that have too much, in as few slots as will do. Last, exchanges of one
// or two slots between two workers even out the rest, within Problem.Budget and
// until every load is within 4 % of its share, or a 16th of the heaviest slot
// if that is less. So weights that are small counts end even to the unit, and
// costs of several orders of magnitude do not move slots for the last per cent.
//
// Up to 256 slots all exchanges are tried, and those that cost no move are made
// even if the loads are within these 4 %. With more slots a worker whose load
// is off tries a limited number of exchanges, and only until it is not. So a
// plan takes at most some five times as long as one for equal weights, unless
// the workers have only a few slots each.
func Sticky() Strategy { return sticky{} }

type sticky struct{}

func (sticky) Plan(p Problem) (Plan, error) {
	f, err := newFrame(&p)
	if err != nil {
		return Plan{}, err
	}
	switch {
	case len(f.takers) == 0:
		return f.finish(f.stranded()), nil
	case f.alike() && (!p.TuneOnly || p.Weights == nil):
		return f.finish(f.byCount()), nil
	}
	return f.byWeight(), nil
}

// byCount assigns slots of equal weight. Keeping min(held, target) slots on
// every worker is the most that a plan with these targets can keep, and the
// targets are chosen to make that largest, so the moves are the fewest.
func (f *frame) byCount() []int32 {
	owners := make([]int32, f.p.Slots)
	base, held := make([]uint64, len(f.p.Workers)), make([]uint64, len(f.p.Workers))
	for s := range owners {
		owners[s] = f.home(s)
		if override := f.overridden(s); override != None {
			owners[s] = override
			base[override]++
		}
		if owners[s] != None {
			held[owners[s]]++
		}
	}
	room := make([]int32, len(f.p.Workers))
	for w, target := range f.apportion(uint64(f.p.Slots), base, held) {
		room[w] = int32(target - min(target, base[w]))
	}
	for s, o := range owners {
		if o == None || f.overridden(s) != None {
			continue
		}
		if room[o] == 0 {
			owners[s] = None
			continue
		}
		room[o]--
	}
	next := 0
	for s, o := range owners {
		if o != None {
			continue
		}
		for room[f.takers[next]] == 0 {
			next++
		}
		owners[s] = f.takers[next]
		room[f.takers[next]]--
	}
	return owners
}
