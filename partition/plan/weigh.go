package plan

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// byWeight plans slots of different weights.
func (f *frame) byWeight() Plan {
	b := newBalance(f)
	b.placeOrphans()
	for range maxRounds {
		b.share()
		feeding := b.feed()
		b.required = max(b.required, b.moved)
		if trading := b.trade(onlyFree); !feeding && !trading {
			break
		}
	}
	for range maxRounds {
		b.share() // trades of oversized slots change who shares the rest
		if f.p.Budget == 0 || !b.trade(withinBudget) {
			break
		}
	}
	return b.finish()
}

// maxRounds ends the alternation of feeding and free trades, which settles in
// two or three rounds.
const maxRounds = 8

// balance is a plan of unequal weights in the making.
type balance struct {
	f      *frame
	weight []int64 // per slot
	owner  []int32 // per slot: its owner in the plan so far
	home   []int32 // per slot: the worker that keeps it at no cost; None if it moves anyway
	// slots are the unpinned slots of each worker, in order of heavier.
	slots  [][]int32
	orphan []int32 // slots without owner
	load   []int64 // per worker
	count  []int32 // per worker: number of slots
	base   []uint64
	target []int64 // per worker: its share of the total load, in whole units
	// within is how far a load may be from its target before slots move only
	// to improve it; lacking is from what shortage on a worker is to be fed.
	within, lacking int64
	least           int64  // the lowest target
	hungry          []bool // per worker: it lacked load when planning began
	fed             []bool // per slot: it was given to a hungry worker
	moved, required int    // slots away from home, and how many of them feeding took
	scratch         scratch
}

func newBalance(f *frame) *balance {
	workers, slots := len(f.p.Workers), f.p.Slots
	b := &balance{
		f:      f,
		weight: make([]int64, slots),
		owner:  make([]int32, slots),
		home:   make([]int32, slots),
		slots:  make([][]int32, workers),
		load:   make([]int64, workers),
		count:  make([]int32, workers),
		base:   make([]uint64, workers),
		target: make([]int64, workers),
		fed:    make([]bool, slots),
	}
	for s := range slots {
		b.weight[s] = int64(f.p.Weights[s])
		b.home[s], b.owner[s] = f.home(s), f.home(s)
		if pin := f.pinned(s); pin != None {
			b.owner[s] = pin
			b.base[pin] += f.p.Weights[s]
		} else if h := b.home[s]; h != None {
			b.slots[h] = append(b.slots[h], int32(s))
		} else {
			b.orphan = append(b.orphan, int32(s))
		}
		if o := b.owner[s]; o != None {
			b.load[o] += b.weight[s]
			b.count[o]++
		}
	}
	for _, w := range f.takers {
		slices.SortFunc(b.slots[w], b.heavier)
	}
	return b
}

// heavier orders slots from heavy to light, equal ones by number.
func (b *balance) heavier(s, t int32) int {
	if c := cmp.Compare(b.weight[t], b.weight[s]); c != 0 {
		return c
	}
	return cmp.Compare(s, t)
}

// lighter orders workers by load against capacity, then by number of slots, so
// that slots without weight are spread as well, then by rank.
func (b *balance) lighter(v, w int32) int {
	if c := b.compareLoad(v, w); c != 0 {
		return c
	}
	if c := cmp.Compare(b.count[v], b.count[w]); c != 0 {
		return c
	}
	return cmp.Compare(b.f.rank[v], b.f.rank[w])
}

func (b *balance) compareLoad(v, w int32) int {
	if b.f.equal {
		return cmp.Compare(b.load[v], b.load[w])
	}
	vHi, vLo := bits.Mul64(uint64(b.load[v]), b.f.capacity[w])
	wHi, wLo := bits.Mul64(uint64(b.load[w]), b.f.capacity[v])
	if c := cmp.Compare(vHi, wHi); c != 0 {
		return c
	}
	return cmp.Compare(vLo, wLo)
}

// fewer orders workers by number of slots.
func (b *balance) fewer(v, w int32) int {
	if c := cmp.Compare(b.count[v], b.count[w]); c != 0 {
		return c
	}
	return b.lighter(v, w)
}

// put makes w the owner of s; s must have none.
func (b *balance) put(s, w int32) {
	at, _ := slices.BinarySearchFunc(b.slots[w], s, b.heavier)
	b.slots[w] = slices.Insert(b.slots[w], at, s)
	b.owner[s] = w
	b.load[w] += b.weight[s]
	b.count[w]++
	if b.home[s] != None && b.home[s] != w {
		b.moved++
	}
}

// take makes s a slot without owner.
func (b *balance) take(s int32) {
	w := b.owner[s]
	at, _ := slices.BinarySearchFunc(b.slots[w], s, b.heavier)
	b.slots[w] = slices.Delete(b.slots[w], at, at+1)
	b.owner[s] = None
	b.load[w] -= b.weight[s]
	b.count[w]--
	if b.home[s] != None && b.home[s] != w {
		b.moved--
	}
}

// placeOrphans gives every slot without owner to the least loaded worker,
// heaviest first, and those without weight to the workers with the fewest.
func (b *balance) placeOrphans() {
	slices.SortFunc(b.orphan, b.heavier)
	weightless, _ := slices.BinarySearchFunc(b.orphan, 0, func(s int32, _ int) int {
		return -cmp.Compare(b.weight[s], 0)
	})
	q := newQueue(slices.Clone(b.f.takers), b.lighter)
	for _, s := range b.orphan[:weightless] {
		b.put(s, q.top())
		q.sink()
	}
	q = newQueue(q.workers, b.fewer)
	for _, s := range b.orphan[weightless:] {
		b.put(s, q.top())
		q.sink()
	}
	b.orphan = nil
}

// share sets every worker's target. A slot heavier than any share cannot be
// balanced: whoever has it keeps it and, but for pins, nothing else, and the
// others share the rest.
func (b *balance) share() {
	var total uint64
	held := make([]uint64, len(b.load))
	for w, l := range b.load {
		held[w] = uint64(l)
		total += uint64(l)
	}
	base := slices.Clone(b.base)
	target := b.f.apportion(total, base, held)
	for b.addOversized(base, target) {
		target = b.f.apportion(total, base, held)
	}
	b.least = math.MaxInt64
	for _, w := range b.f.takers {
		b.target[w] = int64(target[w])
		b.least = min(b.least, b.target[w])
	}
	b.setTolerance(base)
}

// addOversized adds to base the slots that are heavier than any target, and
// reports whether it found any that were not in it.
func (b *balance) addOversized(base, target []uint64) bool {
	largest := uint64(0)
	for _, w := range b.f.takers {
		if base[w] == b.base[w] && base[w] <= target[w] {
			largest = max(largest, target[w])
		}
	}
	found := false
	for _, w := range b.f.takers {
		if len(b.slots[w]) == 0 || base[w] != b.base[w] {
			continue
		}
		// Who gets the remainders is open, so any target may be one higher.
		if top := uint64(b.weight[b.slots[w][0]]); top > largest+1 {
			base[w] += top
			found = true
		}
	}
	return found
}

// setTolerance derives from the slots that can be balanced, that is, from all
// but those added to base, how even is even enough.
func (b *balance) setTolerance(base []uint64) {
	var total, heaviest int64
	workers, slots := int64(0), int64(len(b.weight))
	for _, w := range b.f.takers {
		rest := b.slots[w]
		total += b.load[w]
		if base[w] == b.base[w] {
			workers++
		} else {
			total -= int64(base[w])
			rest = rest[1:]
			slots--
		}
		if len(rest) > 0 {
			heaviest = max(heaviest, b.weight[rest[0]])
		}
	}
	share, average := total/max(1, workers), total/max(1, slots)
	b.within = min(share/25, heaviest/16)
	b.lacking = max(share/20, average, b.within+1) + 1
}

// lacks reports whether w is to be fed: a newcomer, or one that is short of
// more than an average slot and 5 % of a share.
func (b *balance) lacks(w int32) bool {
	return -b.dev(w) >= b.lacking || b.load[w] == 0 && b.target[w] > b.within+1
}

// dev is the load that w has above its target; negative if it lacks some.
func (b *balance) dev(w int32) int64 { return b.load[w] - b.target[w] }

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
		} else if d > 0 && len(b.slots[w]) > 0 {
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
	if len(hungry) == 0 || len(rich) == 0 {
		return false
	}
	var offers []offer
	for _, w := range rich {
		give := uint64(b.dev(w))
		if wanted < excess {
			hi, lo := bits.Mul64(give, wanted)
			give, _ = bits.Div64(hi, lo, excess)
		}
		for _, s := range b.pick(w, int64(give), most) {
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
		if b.dev(taker) >= b.dev(o.giver) || b.dev(taker)+b.weight[o.slot] > b.lacking/2 {
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
// do, none heavier than most.
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
		from, to, gap := &picked, &kept, 2*excess
		if excess < 0 {
			from, to, gap = to, from, -gap
		}
		t, ok := b.search(*from, *to, nobody, gap, 0)
		if !ok || t.miss >= gap {
			break
		}
		for _, s := range t.give.slots() {
			b.shift(s, from, to)
		}
		for _, s := range t.take.slots() {
			b.shift(s, to, from)
		}
		if excess > 0 {
			excess -= t.delta()
		} else {
			excess += t.delta()
		}
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

// finish tells the moves that feeding made, or others in their place, from
// those that only tune.
func (b *balance) finish() Plan {
	pl := b.f.finish(b.owner)
	quota := b.required
	label := func(is func(m *Move) bool) {
		for i := range pl.Moves {
			m := &pl.Moves[i]
			if m.Reason == Tuning && quota > 0 && is(m) {
				m.Reason = Balance
				quota--
			}
		}
	}
	for i := range pl.Moves {
		if pl.Moves[i].Reason == Balance {
			pl.Moves[i].Reason = Tuning
		}
	}
	label(func(m *Move) bool { return b.fed[m.Slot] })
	label(func(m *Move) bool { return b.hungry[m.To] })
	label(func(*Move) bool { return true })
	return pl
}
