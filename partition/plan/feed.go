package plan

import (
	"cmp"
	"math/bits"
	"slices"
)

// feed gives the workers that lack load their share from those that have too
// much, and reports whether any slot moved.
func (b *balance) feed() bool {
	var hungry, rich []int32
	var wanted, excess uint64
	var most int64 // that anybody lacks
	for _, w := range b.f.takers {
		if d := b.dev(w); b.lacks(w) {
			hungry = append(hungry, w)
			wanted += uint64(-d)
			most = max(most, -d)
		} else if d > 0 {
			rich = append(rich, w)
			excess += uint64(d)
		}
	}
	if b.hungry == nil {
		b.hungry = make([]bool, len(b.load))
		for _, w := range hungry {
			b.hungry[w] = true
		}
	}
	if len(hungry) == 0 {
		return false
	}
	var offers []offer
	for _, w := range rich {
		d := uint64(b.dev(w))
		hi, lo := bits.Mul64(d, wanted)
		give, _ := bits.Div64(hi, lo, excess) // its part of what is wanted
		for _, s := range b.pick(w, int64(min(give, d)), most) {
			offers = append(offers, offer{slot: s, giver: w})
			b.take(s)
		}
	}
	slices.SortFunc(offers, func(x, y offer) int { return b.heavier(x.slot, y.slot) })
	return b.serve(hungry, offers)
}

// offer is a slot that its owner can spare.
type offer struct{ slot, giver int32 }

// serve gives each offered slot to the worker that lacks most, or back if its
// giver lacks more, and reports whether any slot moved.
func (b *balance) serve(hungry []int32, offers []offer) bool {
	neediest := newQueue(hungry, func(v, w int32) int {
		if c := cmp.Compare(b.dev(v), b.dev(w)); c != 0 {
			return c
		}
		return b.lighter(v, w)
	})
	moved := false
	for _, o := range offers {
		taker := neediest.top()
		// Overfilling the taker much would only have it give others away.
		overfull := b.dev(taker)+b.weight[o.slot] > b.lacking/2
		if overfull || b.dev(taker) >= b.dev(o.giver) {
			b.put(o.slot, o.giver)
			continue
		}
		b.put(o.slot, taker)
		b.fed[o.slot] = true
		neediest.sink()
		moved = true
	}
	return moved
}

// pick chooses slots of w whose weights add up to about give, as few as will
// do. It starts with slots that weigh at most most; exchanges may bring in a
// heavier one, which serve gives back if it would overfill the taker.
func (b *balance) pick(w int32, give, most int64) []int32 {
	var picked, kept []int32
	left := give
	for _, s := range b.slots[w] {
		if x := b.weight[s]; 0 < x && x <= most && x < 2*left {
			picked = append(picked, s)
			left -= x
		} else {
			kept = append(kept, s)
		}
	}
	return b.adjust(picked, kept, -left)
}

// adjust exchanges slots between picked and kept to bring the sum of picked,
// which is too high by excess, near to what it should be.
func (b *balance) adjust(picked, kept []int32, excess int64) []int32 {
	for max(excess, -excess) > b.within/2 {
		from, to, gap, sign := &picked, &kept, 2*excess, int64(1)
		if excess < 0 {
			from, to, gap, sign = to, from, -gap, -1
		}
		t, ok := b.search(*from, *to, nobody, gap, 0)
		if !ok {
			break
		}
		for _, s := range t.give.slots() {
			b.shift(s, from, to)
		}
		for _, s := range t.take.slots() {
			b.shift(s, to, from)
		}
		excess -= sign * t.delta()
	}
	return picked
}

// shift moves s from one list to the other; both are in order of heavier.
func (b *balance) shift(s int32, from, to *[]int32) {
	at, _ := slices.BinarySearchFunc(*from, s, b.heavier)
	*from = slices.Delete(*from, at, at+1)
	at, _ = slices.BinarySearchFunc(*to, s, b.heavier)
	*to = slices.Insert(*to, at, s)
}
