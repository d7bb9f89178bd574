package plan

import (
	"math/bits"
	"slices"
)

// feedFew does what feed does with fewer slots and in less time: a giver gives one slot if one
// comes near enough to what it should give, and what one gives too much or too little the next ones
// make up for.
func (b *balance) feedFew() bool {
	hungry, wanted, most := b.findHungry()
	if len(hungry) == 0 {
		return false
	}
	g := giving{balance: b, most: most, left: wanted}
	g.shed(wanted)
	g.spare()
	slices.SortFunc(g.offers, func(x, y offer) int { return b.heavier(x.slot, y.slot) })
	return b.serve(hungry, g.offers)
}

// findHungry returns the workers that lack load, what they lack together, and the most that one
// lacks. Those that lack little are left to tuning, which moves fewer slots, if that has no budget.
func (b *balance) findHungry() (hungry []int32, wanted, most int64) {
	if b.hungry == nil {
		b.hungry = make([]bool, len(b.load))
	}
	much := b.lacking
	if b.f.p.Budget < 0 {
		much *= 4
	}
	for _, w := range b.f.takers {
		if b.lacks(w) && (b.load[w] == 0 || -b.dev(w) >= much) {
			hungry = append(hungry, w)
			b.hungry[w] = true
			wanted -= b.dev(w)
			most = max(most, -b.dev(w))
		}
	}
	return hungry, wanted, most
}

// giving collects the slots that workers offer.
type giving struct {
	*balance
	most   int64 // that a slot may weigh
	left   int64 // what is still wanted
	offers []offer
}

// shed has the workers above their windows offer what they have too much, or their part of it if
// less is wanted.
func (g *giving) shed(wanted int64) {
	excess := int64(0)
	above := func(w int32) bool {
		_, most := g.window(w)
		return g.load[w] > most && !g.hungry[w]
	}
	for _, w := range g.f.takers {
		if above(w) {
			excess += g.dev(w)
		}
	}
	owed := int64(0) // what those before should have given and did not
	for _, w := range g.f.takers {
		if !above(w) {
			continue
		}
		part := g.dev(w)
		if excess > wanted {
			hi, lo := bits.Mul64(uint64(part), uint64(wanted))
			quotient, _ := bits.Div64(hi, lo, uint64(excess))
			part = int64(quotient)
		}
		least, most := g.window(w)
		lowest, highest := g.load[w]-most, g.load[w]-least
		want := min(max(part+owed, lowest), highest)
		owed += part - g.offerNear(w, want)
	}
}

// offerNear has w offer slots that weigh about want, as few as will do, and returns what they weigh.
func (g *giving) offerNear(w int32, want int64) int64 {
	near := func(sum int64) bool { return max(sum-want, want-sum) <= g.within }
	if s := g.nearest(g.slots[w], want); s != None && near(g.weight[s]) {
		return g.offer(w, s)
	}
	if s, t := g.nearestPair(g.slots[w], want); s != None && near(g.weight[s]+g.weight[t]) {
		return g.offer(w, s, t)
	}
	if len(g.slots[w]) <= 2 {
		return 0
	}
	picked := g.pick(w, want, g.most)
	if g.sum(picked) < want/16 {
		return 0 // many light slots that would be of no use
	}
	return g.offer(w, picked...)
}

func (g *giving) sum(slots []int32) int64 {
	sum := int64(0)
	for _, s := range slots {
		sum += g.weight[s]
	}
	return sum
}

// offer has w offer the slots and returns what they weigh.
func (g *giving) offer(w int32, slots ...int32) int64 {
	for _, s := range slots {
		g.offers = append(g.offers, offer{slot: s, giver: w})
		g.take(s)
	}
	sum := g.sum(slots)
	g.left -= sum
	return sum
}

// nearest is the slot of a list that weighs most nearly want, and not more than most; None if there
// is none.
func (g *giving) nearest(slots []int32, want int64) int32 {
	best, miss := None, int64(0)
	for _, s := range slots {
		x := g.weight[s]
		if m := max(x-want, want-x); x <= g.most && x > 0 && (best == None || m < miss) {
			best, miss = s, m
		}
	}
	return best
}

// nearestPair is like nearest for the sum of two slots.
func (g *giving) nearestPair(slots []int32, want int64) (a, b int32) {
	a, b = None, None
	miss := int64(0)
	for i, j := 0, len(slots)-1; i < j; {
		x, y := g.weight[slots[i]], g.weight[slots[j]]
		sum := x + y
		if m := max(sum-want, want-sum); x <= g.most && y > 0 && (a == None || m < miss) {
			a, b, miss = slots[i], slots[j], m
		}
		if sum > want {
			i++
		} else {
			j--
		}
	}
	return a, b
}

// spare has workers that need not give offer a slot each as long as something is wanted, the
// heaviest that leaves them in their windows.
func (g *giving) spare() {
	if g.left <= g.within {
		return
	}
	var givers []int32
	var excess []int64
	for _, w := range g.f.takers {
		if least, _ := g.window(w); !g.hungry[w] && g.load[w] > least {
			givers = append(givers, w)
			excess = append(excess, g.dev(w))
		}
	}
	for _, i := range highestFirst(excess) {
		w := givers[i]
		if g.left <= g.within {
			return
		}
		least, _ := g.window(w)
		most := min(g.load[w]-least, g.most, g.left+g.within)
		for _, s := range g.slots[w] {
			if x := g.weight[s]; x <= most {
				if x > g.within/16 {
					g.offer(w, s)
				}
				break
			}
		}
	}
}
