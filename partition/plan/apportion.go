package plan

import (
	"cmp"
	"math/bits"
	"slices"
)

// apportion splits total over the takers in proportion to their capacity. Every
// target is the exact share rounded down or up, except that none is below base,
// the load that a worker has to keep; what such workers have in excess, the
// others have less. What rounding down leaves goes, one each, first to workers
// whose held load is above the rounded share, since they then keep one more.
// The targets add up to total, and base must not add up to more. There must be
// a taker: then one is always left whose share is open, since workers that keep
// more than their shares can't all do so.
func (f *frame) apportion(total uint64, base, held []uint64) []uint64 {
	a := apportionment{
		f:      f,
		base:   base,
		target: make([]uint64, len(f.p.Workers)),
		rest:   make([]uint64, len(f.p.Workers)),
		active: slices.Clone(f.takers),
	}
	for {
		left := a.roundDown(total)
		stuck := a.takeStuck(left)
		if stuck == 0 {
			a.giveLeft(left, held)
			return a.target
		}
		total -= stuck
	}
}

type apportionment struct {
	f            *frame
	base, target []uint64
	rest         []uint64 // fraction of the share that rounding down dropped, of all
	all          uint64   // capacity of the active workers
	active       []int32  // workers whose base leaves their share open
}

// roundDown gives every active worker its share rounded down and returns what
// that leaves.
func (a *apportionment) roundDown(total uint64) uint64 {
	a.all = 0
	for _, w := range a.active {
		a.all += a.f.capacity[w]
	}
	left := total
	// Capacities are rounded in their last bits. A share that is whole but for
	// that is meant to be whole.
	noise := a.all >> 20
	for _, w := range a.active {
		hi, lo := bits.Mul64(total, a.f.capacity[w])
		share, rest := bits.Div64(hi, lo, a.all)
		switch {
		case rest < noise:
			rest = 0
		case a.all-rest < noise:
			share, rest = share+1, 0
		}
		share = min(share, left)
		a.target[w], a.rest[w] = share, rest
		left -= share
	}
	return left
}

// takeStuck takes the workers out whose base is above what they can be given,
// gives them their base, and returns the sum of it.
func (a *apportionment) takeStuck(left uint64) uint64 {
	mustRoundUp := uint64(0)
	for _, w := range a.active {
		if a.base[w] > a.target[w] {
			mustRoundUp++
		}
	}
	if mustRoundUp == 0 {
		return 0
	}
	sum := uint64(0)
	a.active = slices.DeleteFunc(a.active, func(w int32) bool {
		ceiling := a.target[w]
		if a.rest[w] > 0 && mustRoundUp <= left {
			ceiling++
		}
		if a.base[w] <= ceiling {
			return false
		}
		a.target[w] = a.base[w]
		sum += a.base[w]
		return true
	})
	return sum
}

// classes is how many classes of workers giveLeft tells apart.
const classes = 4

// giveLeft hands out what rounding down left, one each.
func (a *apportionment) giveLeft(left uint64, held []uint64) {
	if left == 0 {
		return
	}
	class := func(w int32) int {
		switch {
		case a.base[w] > a.target[w]:
			return 0 // has it and cannot give it away
		case a.rest[w] == 0:
			return 3 // its share is whole
		case held[w] > a.target[w]:
			return 1 // has it: one move less
		}
		return 2
	}
	a.sortActive(class)
	for i := 0; left > 0; i++ {
		a.target[a.active[i%len(a.active)]]++
		left--
	}
}

// sortActive orders the active workers by class, those of a class by what rounding down dropped.
func (a *apportionment) sortActive(class func(w int32) int) {
	byClass := make([]int32, 0, len(a.active))
	for c := range classes {
		for _, w := range a.active {
			if class(w) == c {
				byClass = append(byClass, w)
			}
		}
	}
	a.active = byClass
	if !a.f.equal {
		slices.SortStableFunc(a.active, func(v, w int32) int {
			return cmp.Or(cmp.Compare(class(v), class(w)), cmp.Compare(a.rest[w], a.rest[v]))
		})
	}
}
