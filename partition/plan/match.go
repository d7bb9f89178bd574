package plan

import "slices"

// match has workers above their windows give single slots to workers below theirs that each bring one
// of these into its window, so that none of them needs a second slot.
func (t *tuning) match() {
	t.relieving = true
	under := t.belowWindow()
	t.noteAll()
	if len(t.off) == 0 || len(under) == 0 {
		return
	}
	lacks := make([]int64, len(under))
	for i, w := range under {
		lacks[i] = -t.dev(w)
	}
	items := make([]pooled, 0, len(under))
	for _, i := range highestFirst(lacks) {
		items = append(items, pooled{value: -lacks[i], id: t.f.rank[under[i]]})
	}
	lacking := newPool(items)

	for len(t.off) > 0 {
		w := t.f.takers[t.off.pop().rank]
		t.matchFrom(w, lacking, 0)
		t.matchFrom(w, lacking, 1)
	}
}

// belowWindow are the workers below their windows, in order of rank.
func (t *tuning) belowWindow() (under []int32) {
	for _, w := range t.f.takers {
		if least, _ := t.window(w); t.load[w] < least {
			under = append(under, w)
		}
	}
	return under
}

// matchFrom has w give slots that cost at most that much until it is in its window.
func (t *tuning) matchFrom(w int32, lacking *pool, cost int) {
	least, most := t.window(w)
	for i := 0; i < len(t.slots[w]) && t.load[w] > most; i++ {
		s := t.slots[w][i]
		x := t.weight[s]
		if x == 0 || x > t.load[w]-least {
			continue
		}
		if c := t.cost(s, route{from: w, to: Gone}); c > cost || c > t.maxCost() {
			continue
		}
		at := lacking.find(-x - t.within/2)
		if at < 0 || lacking.items[at].value+x > t.within {
			continue
		}
		v := t.f.takers[lacking.items[at].id]
		lacking.remove(at)
		t.apply(exchange{route: route{from: w, to: v}, give: s, take: None})
		i--
	}
}

// repack collects light slots that move anyway from workers that lack load in spite of them, and
// gives them to as few of these as it can. So fewer workers are left that need the slot of another.
// The slots are so light that none takes a worker from below its window to above it.
func (t *tuning) repack() {
	if t.f.p.Budget == 0 {
		return // the others could not be helped
	}
	lacking := t.belowWindow()
	free := make([]pooled, 0, len(t.orphan))
	for _, s := range slices.Backward(t.orphan) {
		w := t.owner[s]
		least, most := t.window(w)
		if t.weight[s] > most-least {
			break
		}
		if t.weight[s] > 0 && t.load[w] < least {
			free = append(free, pooled{value: t.weight[s], id: s})
		}
	}
	if len(free) < 2 {
		return
	}
	for _, x := range free {
		t.take(x.id)
	}
	loads := make([]int64, len(lacking))
	for i, w := range lacking {
		loads[i] = t.dev(w)
	}
	slots := newPool(free) // orphans are in order
	for _, i := range highestFirst(loads) {
		t.fill(lacking[i], slots)
	}
}

// fill gives w slots until it is in its window, as long as there are any: the heaviest first, and the
// lightest last that will do.
func (t *tuning) fill(w int32, slots *pool) {
	least, _ := t.window(w)
	for t.load[w] < least {
		at := slots.find(least - t.load[w])
		if at < 0 {
			at = slots.last()
		}
		if at < 0 {
			return
		}
		t.put(slots.items[at].id, w)
		slots.remove(at)
	}
}
