package plan

import (
	"math"
	"slices"
)

// share sets every worker's target. A slot heavier than any share cannot be
// balanced: its owner keeps it and, but for overrides, nothing else, and the
// others share the rest.
func (b *balance) share() {
	var total uint64
	held := make([]uint64, len(b.load))
	for w, l := range b.load {
		held[w] = uint64(l)
		total += uint64(l)
	}
	base := slices.Clone(b.base)
	var target []uint64
	if b.f.equal && b.f.override == nil {
		target = b.shareEqually(total, base, held)
	} else {
		target = b.f.apportion(total, base, held)
		for b.addOversized(base, target) {
			target = b.f.apportion(total, base, held)
		}
	}
	b.least = math.MaxInt64
	for _, w := range b.f.takers {
		b.target[w] = int64(target[w])
		b.oversized[w] = base[w] != b.base[w]
		b.least = min(b.least, b.target[w])
	}
	b.setTolerance(base)
}

// addOversized adds to base the slots that are heavier than any target, and
// reports whether it found any that were not in it.
func (b *balance) addOversized(base, target []uint64) bool {
	largest := uint64(0)
	for _, w := range b.f.takers {
		if base[w] == b.base[w] {
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

// shareEqually does what apportioning and addOversized do, in turns, where nothing is overridden and
// all capacities are equal: then no share has to be divided out for a single worker.
func (b *balance) shareEqually(total uint64, base, held []uint64) []uint64 {
	workers := uint64(len(b.f.takers))
	for found := true; found; {
		found = false
		largest := (total + workers - 1) / workers
		for _, w := range b.f.takers {
			if len(b.slots[w]) == 0 || base[w] != 0 {
				continue
			}
			if top := uint64(b.weight[b.slots[w][0]]); top > largest+1 {
				base[w] = top
				total -= top
				workers--
				found = true
			}
		}
	}

	target := make([]uint64, len(b.load))
	share, left := total/workers, total%workers
	for _, w := range b.f.takers {
		switch {
		case base[w] != 0:
			target[w] = base[w]
		case left > 0 && held[w] > share:
			target[w] = share + 1
			left--
		default:
			target[w] = share
		}
	}
	for _, w := range b.f.takers {
		if left > 0 && base[w] == 0 && target[w] == share {
			target[w]++
			left--
		}
	}
	return target
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
	b.within = min(share/tolerance, heaviest/16)
	b.lacking = max(share/20, average, b.within+1) + 1
}

// dev is the load that w has above its target; negative if it lacks some.
func (b *balance) dev(w int32) int64 { return b.load[w] - b.target[w] }

// lacks reports whether w is to be fed: a joining worker, or one that is short of
// more than an average slot and 5 % of a share.
func (b *balance) lacks(w int32) bool {
	return -b.dev(w) >= b.lacking || b.load[w] == 0 && b.target[w] > b.within+1
}
