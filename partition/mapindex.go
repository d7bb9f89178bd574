package partition

import "github.com/muster-dev/muster/partition/internal/record"

// mapIndex finds a worker's place in one map, and what the map gives it, without a walk
// through its workers and slots. The leader asks for both at every renewal of a lease. The map
// is never changed once it was seen, so the index is made once for each.
type mapIndex struct {
	of    *record.Assignment
	place map[string]int32 // by stable ID
	owns  []int32          // by place, how many slots a worker owns
	gets  []int32          // by place, how many it has once every move is done
}

// newMapIndex makes the index of a map; nil for no map is legal.
func newMapIndex(a *record.Assignment) mapIndex {
	x := mapIndex{of: a}
	if a == nil {
		return x
	}

	x.place = make(map[string]int32, len(a.Workers))
	for i, w := range a.Workers {
		x.place[w.ID] = int32(i)
	}

	x.owns, x.gets = make([]int32, len(a.Workers)), make([]int32, len(a.Workers))
	for s, o := range a.Owner {
		if o != record.None {
			x.owns[o]++
		}
		if d := a.Destination(s); d != record.None {
			x.gets[d]++
		}
	}
	return x
}

// index returns the place of a worker under this claim, record.None if the map lacks it.
func (x *mapIndex) index(w record.Process) int32 {
	if i, ok := x.place[w.ID]; ok && x.of.Workers[i] == w {
		return i
	}
	return record.None
}

// predecessor returns the place that a worker rejoins in: that of its stable ID under an
// earlier claim. It is record.None if there is none, or none with slots to come back to.
func (x *mapIndex) predecessor(w record.Process) int32 {
	if i, ok := x.place[w.ID]; ok && x.of.Workers[i].Claim < w.Claim && x.gets[i] > 0 {
		return i
	}
	return record.None
}

// superseded reports whether the map has a stable ID under a later claim than this one.
func (x *mapIndex) superseded(w record.Process) bool {
	i, ok := x.place[w.ID]
	return ok && w.Claim < x.of.Workers[i].Claim
}

// uses reports whether the worker in a place owns a slot, or is about to.
func (x *mapIndex) uses(i int32) bool { return x.owns[i] > 0 || x.gets[i] > 0 }

// ownPlace is where a worker finds itself in the newest map. Every worker asks after each step,
// and only a leader has a mapIndex: one per worker would need memory that grows with the square
// of the group.
type ownPlace struct {
	of   *record.Assignment
	self record.Process
	at   int32
}

// find returns the place, and looks for it only when the map or the worker's claim is another.
func (p *ownPlace) find(a *record.Assignment, self record.Process) int32 {
	if p.of != a || p.self != self {
		*p = ownPlace{of: a, self: self, at: a.Index(self)}
	}
	return p.at
}
