package plan

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// A trade gives up to two slots from a worker to a less loaded one and takes up
// to two in return. Its cost is how many more slots are then away from home;
// it is free if that is none, since a slot that moves anyway may as well move
// elsewhere, and one that returns home pays for another that leaves.

// terms say which trades may be made.
type terms bool

const (
	onlyFree     terms = false // any that cost nothing
	withinBudget terms = true  // any that help a worker whose load is off, as the budget allows
)

const (
	// maxPartners limits how many of the lightest workers one worker tries to
	// trade with. In a large cluster the rest are hardly different.
	maxPartners = 64
	// maxSweeps ends trading; it settles in a few.
	maxSweeps = 64
	// maxPairing is the longest list of slots of which pairs are tried. In
	// longer lists single slots differ enough.
	maxPairing = 40
)

// trade makes trades until none on these terms improves the balance, and
// reports whether it made any. Each lowers the sum of the squared loads, each
// divided by its worker's capacity, so it ends.
func (b *balance) trade(terms terms) bool {
	if b.failed.of == nil {
		b.failed = newFailedSearches(len(b.load))
	}
	order := slices.Clone(b.f.takers)
	slices.SortFunc(order, b.lighter)
	traded := false
	for range maxSweeps {
		again := false
		rich := slices.Clone(order)
		slices.Reverse(rich)
		for _, w := range rich {
			for b.tradeFrom(w, order, terms) {
				again = true
			}
		}
		if !again {
			break
		}
		traded = true
	}
	return traded
}

// tradeFrom makes one trade between w and the lightest worker that has
// something to trade, if there is any. order is by load and stays so.
func (b *balance) tradeFrom(w int32, order []int32, terms terms) bool {
	for _, v := range order[:min(maxPartners, len(order))] {
		gap := b.gap(w, v)
		if gap <= 1 || terms == onlyFree && gap <= b.within/4 {
			continue
		}
		maxCost := 0
		if terms == withinBudget {
			if !b.off(w) && !b.off(v) {
				continue
			}
			maxCost = maxTradeCost
			if budget := min(b.f.p.Budget, b.f.p.Slots); budget >= 0 {
				maxCost = min(maxCost, b.required+budget-b.moved)
			}
		}
		key, shared := b.searchKey(w, v, gap, maxCost)
		if shared && b.failed.known[key] {
			continue
		}
		t, ok := b.search(b.slots[w], b.slots[v], route{from: w, to: v}, gap, maxCost)
		if !ok {
			if shared {
				b.failed.known[key] = true
			}
			continue
		}
		b.make(t, w, v)
		b.resort(order, w)
		b.resort(order, v)
		return true
	}
	return false
}

func (b *balance) make(t trade, w, v int32) {
	for _, s := range t.give.slots() {
		b.take(s)
		b.put(s, v)
	}
	for _, s := range t.take.slots() {
		b.take(s)
		b.put(s, w)
	}
}

// resort puts w back in its place in order after its load changed.
func (b *balance) resort(order []int32, w int32) {
	i := slices.Index(order, w)
	for ; i > 0 && b.lighter(order[i], order[i-1]) < 0; i-- {
		order[i], order[i-1] = order[i-1], order[i]
	}
	for ; i+1 < len(order) && b.lighter(order[i+1], order[i]) < 0; i++ {
		order[i], order[i+1] = order[i+1], order[i]
	}
}

// off reports whether the load of w is so far from its share that slots should
// move to improve it.
func (b *balance) off(w int32) bool {
	above := b.dev(w)
	if b.f.equal && b.target[w] == b.least+1 {
		// Who has the higher of two targets one apart is open.
		above++
	}
	if !b.f.equal {
		above = max(above, -above)
	}
	return above > b.within+1 || above < -b.within
}

// gap is the load that must move from w to v for them to change places: moving
// half of it evens them out, and anything strictly between 0 and gap improves
// the balance.
func (b *balance) gap(w, v int32) int64 {
	if b.f.equal {
		return b.load[w] - b.load[v]
	}
	// Even would be w's part by capacity of both loads. Twice what lies above
	// it, rounded up: for whole loads "less than" then means the same.
	cw, cv := b.f.capacity[w], b.f.capacity[v]
	hi, lo := bits.Mul64(2*uint64(b.load[w]+b.load[v]), cw)
	even, _ := bits.Div64(hi, lo, cw+cv)
	return 2*b.load[w] - int64(even)
}

// trade is a possible exchange. It misses an even balance by miss/2.
type trade struct {
	give, take bundle
	miss       int64
}

func (t *trade) delta() int64 { return t.give.sum - t.take.sum }

// route is the way of what a trade gives; what it takes goes the other way.
type route struct{ from, to int32 }

// nobody is the route of trades between lists that are not two workers'. No
// slot's home is Gone.
var nobody = route{Gone, Gone}

// cost is how many more slots are away from home after s went this way: -1, 0
// or 1.
func (b *balance) cost(s int32, r route) int {
	switch b.home[s] {
	case r.from:
		return 1
	case r.to:
		return -1
	}
	return 0
}

const maxTradeCost = 2 * maxBundleCost

// search finds a trade that changes the difference between two lists by more
// than 0 and less than gap, the nearer to half of gap the better, and costs at
// most maxCost. It prefers the cheapest that removes at least half of the
// difference, and fewer slots to more.
func (b *balance) search(give, take []int32, r route, gap int64, maxCost int) (trade, bool) {
	return b.searchUpTo(maxPairing, give, take, r, gap, maxCost)
}

// searchUpTo is search with pairs of lists of up to pairing slots only.
func (b *balance) searchUpTo(pairing int, give, take []int32, r route, gap int64, maxCost int) (trade, bool) {
	best := trade{miss: math.MaxInt64}
	back := route{r.to, r.from}
	// What one side may cost at most depends on what the other may regain.
	mostGive := maxCost - min(0, maxBundleSlots*b.cheapest(take, back))
	cheapestGive := b.cheapest(give, r)
	if cheapestGive > mostGive {
		return best, false
	}
	mostTake := maxCost - min(cheapestGive, maxBundleSlots*cheapestGive)
	for cost := 0; cost <= maxCost; cost++ {
		for n := range b.scratch {
			books := &b.scratch[n]
			if cost == 0 {
				b.list(&books.give, give, r, mostGive, n == 1 && len(give) <= pairing)
				b.list(&books.take, take, back, mostTake, n == 1 && len(take) <= pairing)
			}
			books.nearest(&best, gap, cost)
			if best.miss <= gap/2 {
				return best, true
			}
		}
	}
	return best, best.miss < math.MaxInt64
}

// cheapest is the least that any of the slots costs.
func (b *balance) cheapest(slots []int32, r route) int {
	least := 1
	for _, s := range slots {
		least = min(least, b.cost(s, r))
	}
	return least
}

// list fills l with the slots and, if wanted, the pairs of a list that cost at
// most maxCost.
func (b *balance) list(l *ledger, slots []int32, r route, maxCost int, pairs bool) {
	for c := range l {
		l[c] = l[c][:0]
	}
	l[maxBundleCost] = append(l[maxBundleCost], bundle{pair: [maxBundleSlots]int32{None, None}})
	for i := len(slots) - 1; i >= 0; i-- {
		s := slots[i]
		c := b.cost(s, r) + maxBundleCost
		if c > maxCost+maxBundleCost {
			continue
		}
		if n := len(l[c]); n == 0 || l[c][n-1].sum != b.weight[s] {
			l[c] = append(l[c], bundle{sum: b.weight[s], pair: [maxBundleSlots]int32{s, None}})
		}
	}
	if !pairs {
		return
	}
	var first alike
	for i, s := range slots {
		// Another slot of the same weight and cost was first: it makes the same pairs, and the
		// first of equal bundles is kept.
		if first.has(b.weight[s], b.cost(s, r)) {
			continue
		}
		var second alike
		for _, t := range slots[i+1:] {
			c := b.cost(s, r) + b.cost(t, r) + maxBundleCost
			if c > maxCost+maxBundleCost || second.has(b.weight[t], b.cost(t, r)) {
				continue
			}
			l[c] = append(l[c], bundle{sum: b.weight[s] + b.weight[t], pair: [maxBundleSlots]int32{s, t}})
		}
	}
	for c := range l {
		// Stable, so that of equal sums the single slot stays first.
		slices.SortStableFunc(l[c], func(u, v bundle) int { return cmp.Compare(u.sum, v.sum) })
		l[c] = slices.CompactFunc(l[c], func(u, v bundle) bool { return u.sum == v.sum })
	}
}

// nearest improves best by the trades of the listed bundles that cost this
// much, or nothing and less if cost is 0.
func (x *books) nearest(best *trade, gap int64, cost int) {
	for g := range x.give {
		for t := range x.take {
			if c := g + t - 2*maxBundleCost; max(c, 0) == cost {
				merge(best, x.give[g], x.take[t], gap)
			}
		}
	}
}

// merge walks through two ascending lists and improves best.
func merge(best *trade, give, take []bundle, gap int64) {
	k := 0
	for i := range give {
		// The first that makes the difference no more than half the gap.
		for k < len(take) && 2*(give[i].sum-take[k].sum) > gap {
			k++
		}
		for _, j := range [...]int{k - 1, k} {
			if j < 0 || j >= len(take) {
				continue
			}
			delta := give[i].sum - take[j].sum
			if delta <= 0 || delta >= gap {
				continue
			}
			if miss := max(2*delta-gap, gap-2*delta); miss < best.miss {
				*best = trade{give: give[i], take: take[j], miss: miss}
			}
		}
	}
}

// searchKey names the search for a trade from w to v. It is false if it can't be compared with others:
// one of them has a slot that is at home with the other.
func (b *balance) searchKey(w, v int32, gap int64, maxCost int) (failedSearch, bool) {
	give, take := b.kindOf(w), b.kindOf(v)
	related := slices.Contains(give.guests, v) || slices.Contains(take.guests, w)
	return failedSearch{give: give.kind, take: take.kind, gap: gap, maxCost: maxCost}, !related
}

func (b *balance) kindOf(w int32) *workerKind {
	k := &b.failed.of[w]
	if k.kind != 0 {
		return k
	}

	k.guests = k.guests[:0]
	var text []byte
	for _, s := range b.slots[w] {
		home := uint64(0)
		switch h := b.home[s]; h {
		case w:
			home = 1
		case None:
		default:
			k.guests = append(k.guests, h)
		}
		text = binary.AppendUvarint(text, home)
		text = binary.AppendUvarint(text, uint64(b.weight[s]))
	}

	kind, ok := b.failed.kinds[string(text)]
	if !ok {
		kind = int32(len(b.failed.kinds) + 1)
		b.failed.kinds[string(text)] = kind
	}
	k.kind = kind
	return k
}
