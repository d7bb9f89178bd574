package plan

import (
	"cmp"
	"math/bits"
	"slices"
)

// balance is a plan of unequal weights in the making. Slots and workers are indices into the
// problem. owner, slots, load and count say the same in four ways, so only put and take
// change them. A slot is moved if its owner is not its home, and moved counts those.
type balance struct {
	f      *frame
	weight []int64 // per slot
	order  []int32 // all slots, in order of heavier
	// weightless is where in order the slots without weight begin.
	weightless int
	owner      []int32 // per slot: its owner in the plan so far
	home       []int32 // per slot: the worker that keeps it at no cost; None if it moves anyway
	// slots are the unpinned slots of each worker, in order of heavier.
	slots  [][]int32
	orphan []int32 // slots that had no owner at first, in order of heavier
	load   []int64 // per worker
	count  []int32 // per worker: number of slots
	base   []uint64
	target []int64 // per worker: its share of the total load, in whole units
	// oversized tells per worker whether its heaviest slot is heavier than any share and therefore
	// part of its target.
	oversized []bool
	// within is how far a load may be from its target before slots move only
	// to improve it; lacking is from what shortage on a worker is to be fed.
	within, lacking int64
	least           int64  // the lowest target
	hungry          []bool // per worker: it lacked load when planning began
	fed             []bool // per slot: it was given to a hungry worker
	moved, required int    // slots away from home, and how many of them feeding took
	scratch         scratch
	failed          failedSearches
}

func newBalance(f *frame) *balance {
	workers, slots := len(f.p.Workers), f.p.Slots
	b := &balance{
		f:         f,
		weight:    make([]int64, slots),
		owner:     make([]int32, slots),
		home:      make([]int32, slots),
		slots:     make([][]int32, workers),
		load:      make([]int64, workers),
		count:     make([]int32, workers),
		base:      make([]uint64, workers),
		target:    make([]int64, workers),
		oversized: make([]bool, workers),
		fed:       make([]bool, slots),
	}
	for s := range slots {
		b.weight[s] = int64(f.p.Weights[s])
		b.home[s] = f.home(s)
		b.owner[s] = b.home[s]
		if override := f.overridden(s); override != None {
			b.owner[s] = override
			b.base[override] += f.p.Weights[s]
		}
		if o := b.owner[s]; o != None {
			b.load[o] += b.weight[s]
			b.count[o]++
		}
	}
	b.order = highestFirst(b.weight)
	b.weightless, _ = slices.BinarySearchFunc(b.order, 0, func(s int32, _ int) int { return -cmp.Compare(b.weight[s], 0) })
	for _, s := range b.order {
		if b.owner[s] == None {
			b.orphan = append(b.orphan, s)
		}
	}
	if len(b.orphan) == 0 {
		b.listSlots() // or else placeOrphans does
	}
	return b
}

// listSlots fills slots from owner. The lists share one array, with room to grow for what trades
// bring in.
func (b *balance) listSlots() {
	average := len(b.weight) / max(1, len(b.f.takers))
	room := 0
	size := func(w int32) int { return max(int(b.count[w]), average) + 2 }
	for _, w := range b.f.takers {
		room += size(w)
	}
	all := make([]int32, room)
	for _, w := range b.f.takers {
		b.slots[w], all = all[:0:size(w)], all[size(w):]
	}
	listed := b.order
	if len(b.weight) > maxThorough {
		listed = b.order[:b.weightless] // tuning has no use for the others
	}
	for _, s := range listed {
		if o := b.owner[s]; o != None && b.f.overridden(int(s)) == None {
			b.slots[o] = append(b.slots[o], s)
		}
	}
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
	b.failed.changed(w)
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
	b.failed.changed(w)
	b.owner[s] = None
	b.load[w] -= b.weight[s]
	b.count[w]--
	if b.home[s] != None && b.home[s] != w {
		b.moved--
	}
}
