package plan

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// frame is a validated problem in the form that the strategies share. Workers
// are addressed by their index in the problem, but every choice between them
// follows rank, which depends on IDs and zones alone.
type frame struct {
	p *Problem
	// takers are the workers that can own slots, in order of rank.
	takers []int32
	// rank is a taker's place in takers, and None for the others.
	rank []int32
	// capacity is proportional to Worker.Weight; 1 for all if they are equal.
	capacity []uint64
	equal    bool
	// override is the worker that a slot is overridden to, or None. Nil without overrides.
	override []int32
	notes    []string
}

func newFrame(p *Problem) (*frame, error) {
	byID, err := p.validate()
	if err != nil {
		return nil, err
	}
	f := &frame{p: p, takers: make([]int32, 0, len(byID)), rank: make([]int32, len(byID))}
	zoned := false
	for _, w := range byID {
		f.rank[w] = None
		if !p.Workers[w].Draining {
			f.takers = append(f.takers, w)
			zoned = zoned || p.Workers[w].Zone != ""
		}
	}
	if zoned {
		f.interleaveZones()
	}
	for r, w := range f.takers {
		f.rank[w] = int32(r)
	}
	f.scaleCapacities()
	f.resolveOverrides(byID)
	return f, nil
}

// interleaveZones orders the takers so that any first few of them are spread
// over the zones: the first of each zone, then the second of each, and so on.
func (f *frame) interleaveZones() {
	ws := f.p.Workers
	slices.SortStableFunc(f.takers, func(a, b int32) int { return cmp.Compare(ws[a].Zone, ws[b].Zone) })
	place := make([]int32, len(ws)) // within the zone
	for k := 1; k < len(f.takers); k++ {
		if a, b := f.takers[k-1], f.takers[k]; ws[a].Zone == ws[b].Zone {
			place[b] = place[a] + 1
		}
	}
	slices.SortStableFunc(f.takers, func(a, b int32) int { return cmp.Compare(place[a], place[b]) })
}

// scaleCapacities turns the workers' weights into integers, because sums and
// products of floats round differently where the compiler fuses them. As many
// bits are kept as the sum leaves room for.
func (f *frame) scaleCapacities() {
	weight := func(w int32) float64 {
		if x := f.p.Workers[w].Weight; x != 0 {
			return x
		}
		return 1
	}
	f.equal = true
	largest := 0.0
	for _, w := range f.takers {
		f.equal = f.equal && weight(w) == weight(f.takers[0])
		largest = max(largest, weight(w))
	}
	f.capacity = make([]uint64, len(f.p.Workers))
	_, exp := math.Frexp(largest)
	shift := 62 - bits.Len(uint(len(f.takers))) - exp
	for _, w := range f.takers {
		f.capacity[w] = 1
		if !f.equal {
			f.capacity[w] = max(1, uint64(math.RoundToEven(math.Ldexp(weight(w), shift))))
		}
	}
}

func (f *frame) resolveOverrides(byID []int32) {
	if len(f.p.Overrides) == 0 {
		return
	}
	ws := f.p.Workers
	f.override = make([]int32, f.p.Slots)
	for s := range f.override {
		f.override[s] = None
	}
	for _, override := range f.p.Overrides {
		k, found := slices.BinarySearchFunc(byID, override.Worker, func(w int32, id string) int { return cmp.Compare(ws[w].ID, id) })
		switch {
		case !found:
			f.notes = append(f.notes, fmt.Sprintf("override of slot %d ignored: worker %q is absent", override.Slot, override.Worker))
		case ws[byID[k]].Draining:
			f.notes = append(f.notes, fmt.Sprintf("override of slot %d ignored: worker %q is draining", override.Slot, override.Worker))
		default:
			f.override[override.Slot] = byID[k]
		}
	}
}

// weight is the load of a slot.
func (f *frame) weight(s int) uint64 {
	if f.p.Weights == nil {
		return 1
	}
	return f.p.Weights[s]
}

// alike reports whether all slots weigh the same, so that counting them is
// balancing them.
func (f *frame) alike() bool {
	for _, w := range f.p.Weights {
		if w != f.p.Weights[0] {
			return false
		}
	}
	return true
}

// previous is the owner of a slot before the plan: a worker, None or Gone.
func (f *frame) previous(s int) int32 {
	if f.p.Owners == nil {
		return None
	}
	return f.p.Owners[s]
}

// overridden is the worker a slot is overridden to, or None.
func (f *frame) overridden(s int) int32 {
	if f.override == nil {
		return None
	}
	return f.override[s]
}

// home is the worker that a slot may stay with: its previous owner, unless that
// is gone, draining, or not the one it is overridden to.
func (f *frame) home(s int) int32 {
	o := f.previous(s)
	if o < 0 || f.rank[o] == None {
		return None
	}
	if override := f.overridden(s); override != None && override != o {
		return None
	}
	return o
}

// stranded is the plan when nobody can take a slot: what a draining worker has
// it keeps, since handing over to nobody would only stop the work earlier.
func (f *frame) stranded() []int32 {
	owners := make([]int32, f.p.Slots)
	for s := range owners {
		owners[s] = max(f.previous(s), None)
	}
	return owners
}

// forcedReason is why a slot has to leave its previous owner, if it has to.
func (f *frame) forcedReason(s int) (Reason, bool) {
	switch o := f.previous(s); {
	case o == None:
		return Unowned, true
	case o == Gone:
		return OwnerGone, true
	case f.rank[o] == None:
		return OwnerDraining, true
	}
	if f.home(s) == None {
		return Overridden, true
	}
	return Balance, false
}
